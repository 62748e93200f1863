//! Estimates the memory of a decoded request from its bytes, before it is decoded.
//!
//! A list of a million empty elements is two megabytes on the wire and hundreds in memory, so a check after decoding comes too
//! late. The walk follows tags and lengths only, and allocates nothing. The [`Shape`] of a request says which fields to follow: those that
//! repeat, and those that hold fields that repeat. Another field can only replace its former value, so it takes no more memory than its
//! bytes. Requests of administration are small, and are estimated by their bytes alone. A filter is bytes in its request, and has a shape
//! of its own.
//!
//! Invariant: a decoder never makes more elements than were counted. Bytes that the walk cannot follow are refused.

use crate::WireError;
use crate::messages::*;
use bytes::Bytes;
use prost::encoding::{WireType, decode_key, decode_varint};

/// Bytes in memory for each byte on the wire of a request that is estimated by its bytes: an empty element has two on the wire.
const BYTES_PER_BYTE: usize = 256;

/// Memory of a change in addition to its decoded form: as steps of a row operation or a mutation, and its result.
const CHANGE_BYTES: usize = 512;

/// Messages within messages, of any request.
const NESTING_MAX: u32 = 8;

/// The fields of a message that the walk follows.
pub struct Shape(&'static [Field]);

/// A length-delimited field.
struct Field {
    number: u32,
    /// Memory of one element; zero if the field does not repeat.
    bytes: usize,
    within: Option<&'static Shape>,
}

/// A request whose decoded size can be estimated.
pub trait Request: prost::Message + Default {
    /// The fields that are followed; `None` to estimate by bytes.
    const SHAPE: Option<&'static Shape>;
}

/// The memory of the elements of a request, in bytes.
///
/// # Errors
/// Bytes that are not a message.
pub fn decoded_bytes<M: Request>(what: &'static str, bytes: &[u8]) -> Result<usize, WireError> {
    decoded_bytes_up_to::<M>(what, bytes, usize::MAX)
}

/// The same, but the walk ends at the first element beyond `most`.
///
/// # Errors
/// Bytes that are not a message.
pub fn decoded_bytes_up_to<M: Request>(what: &'static str, bytes: &[u8], most: usize) -> Result<usize, WireError> {
    let Some(shape) = M::SHAPE else {
        return Ok(bytes.len().saturating_mul(BYTES_PER_BYTE));
    };
    let mut sum = 0;
    match walk(bytes, shape, NESTING_MAX, most, &mut sum) {
        Some(()) => Ok(sum),
        None => Err(WireError::Unexpected {
            what,
            expected: "fields of a message",
            found: format!("{} bytes that are none", bytes.len()),
        }),
    }
}

fn walk(mut bytes: &[u8], shape: &Shape, depth_left: u32, most: usize, sum: &mut usize) -> Option<()> {
    while !bytes.is_empty() && *sum <= most {
        let (number, wire_type) = decode_key(&mut bytes).ok()?;
        let length = match wire_type {
            WireType::Varint => {
                decode_varint(&mut bytes).ok()?;
                continue;
            }
            WireType::SixtyFourBit => 8,
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut bytes).ok()?).ok()?,
            WireType::ThirtyTwoBit => 4,
            // HBase has none.
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        let (content, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        let mut known = shape.0.iter();
        let Some(field) = known.find(|field| field.number == number && wire_type == WireType::LengthDelimited) else {
            continue;
        };
        *sum = sum.saturating_add(field.bytes);
        if let Some(within) = field.within {
            walk(content, within, depth_left.checked_sub(1)?, most, sum)?;
        }
    }
    Some(())
}

/// Memory of one filter in the decoded list of a `FilterList`.
pub const LISTED_FILTER_BYTES: usize = element::<Filter>();

/// An element of this type in a list that has just doubled, and the allocations of its texts.
const fn element<T>() -> usize {
    2 * size_of::<T>() + 32
}

const fn each(number: u32, bytes: usize) -> Field {
    Field {
        number,
        bytes,
        within: None,
    }
}

const fn each_of(number: u32, bytes: usize, within: &'static Shape) -> Field {
    Field {
        number,
        bytes,
        within: Some(within),
    }
}

const fn one(number: u32, within: &'static Shape) -> Field {
    Field {
        number,
        bytes: 0,
        within: Some(within),
    }
}

const BYTES: usize = element::<Bytes>();

static COLUMN: Shape = Shape(&[each(2, BYTES)]);
static COLUMN_VALUE: Shape = Shape(&[each(2, element::<QualifierValue>() + CHANGE_BYTES)]);
static MUTATION: Shape = Shape(&[
    each_of(3, element::<ColumnValue>(), &COLUMN_VALUE),
    each(5, element::<NameBytesPair>()),
]);
static GET: Shape = Shape(&[
    each_of(2, element::<Column>(), &COLUMN),
    each(3, element::<NameBytesPair>()),
    each(13, element::<FamilyTimeRange>()),
]);
static SCAN: Shape = Shape(&[
    each_of(1, element::<Column>(), &COLUMN),
    each(2, element::<NameBytesPair>()),
    each(19, element::<FamilyTimeRange>()),
]);
// Actions are decoded one by one.
static ACTION: Shape = Shape(&[one(2, &MUTATION), one(3, &GET)]);
static REGION_ACTION: Shape = Shape(&[each_of(3, BYTES + CHANGE_BYTES, &ACTION)]);
static FAMILY: Shape = Shape(&[
    each(2, element::<BytesBytesPair>()),
    each(3, element::<NameStringPair>()),
]);
static TABLE: Shape = Shape(&[
    each(2, element::<BytesBytesPair>()),
    each_of(3, element::<ColumnFamilySchema>(), &FAMILY),
    each(4, element::<NameStringPair>()),
]);

/// Implements [`Request`] for messages of which these fields are followed.
macro_rules! shaped {
    ($($message:ty: [$($field:expr),* $(,)?]),* $(,)?) => {
        $(impl Request for $message {
            const SHAPE: Option<&'static Shape> = Some(&Shape(&[$($field),*]));
        })*
    };
}

shaped!(
    GetRequest: [one(2, &GET)],
    ScanRequest: [one(2, &SCAN)],
    MutateRequest: [one(2, &MUTATION)],
    PackedMultiRequest: [each_of(1, element::<PackedRegionAction>() + CHANGE_BYTES, &REGION_ACTION)],
    MutateRowsRequest: [
        each_of(1, element::<MutationProto>() + CHANGE_BYTES, &MUTATION),
        each(5, element::<Condition>() + CHANGE_BYTES),
    ],
    AggregateRequest: [one(2, &SCAN)],
    CoprocessorServiceRequest: [],
    BulkLoadHFileRequest: [each(2, element::<FamilyPath>() + CHANGE_BYTES), each(7, element::<String>())],
    ReplicateWalEntryRequest: [each_of(1, element::<WalEntry>() + CHANGE_BYTES, &COLUMN)],
    CreateTableRequest: [one(1, &TABLE), each(2, BYTES + CHANGE_BYTES)],
    ModifyTableRequest: [one(2, &TABLE)],
    FilterList: [each(2, LISTED_FILTER_BYTES)],
    FirstKeyValueMatchingQualifiersFilter: [each(1, BYTES)],
    FuzzyRowFilter: [each(1, element::<BytesBytesPair>())],
    MultiRowRangeFilter: [each(1, element::<RowRange>())],
    MultipleColumnPrefixFilter: [each(1, BYTES)],
);

/// Implements [`Request`] for messages that are estimated by their bytes.
macro_rules! by_bytes {
    ($($message:ty),* $(,)?) => {
        $(impl Request for $message {
            const SHAPE: Option<&'static Shape> = None;
        })*
    };
}

by_bytes!(
    CheckPermissionsRequest,
    CleanupBulkLoadRequest,
    ClearRegionBlockCacheRequest,
    CompactRegionRequest,
    DecommissionRegionServersRequest,
    DeleteColumnRequest,
    ExecProcedureRequest,
    FamilyRequest,
    FlushRegionRequest,
    FlushTableRequest,
    GetClusterStatusRequest,
    GetProcedureResultRequest,
    GetRegionInfoRequest,
    GetRegionLoadRequest,
    GetTableDescriptorsRequest,
    GetTableNamesRequest,
    GetUserPermissionsRequest,
    GrantRequest,
    HasPermissionRequest,
    HasUserPermissionsRequest,
    IsSplitOrMergeEnabledRequest,
    ListByStateRequest,
    LogRequest,
    MergeTableRegionsRequest,
    MoveRegionRequest,
    NamespaceMessage,
    NamespaceRequest,
    OneRegion,
    OneTable,
    PrepareBulkLoadRequest,
    RecommissionRegionServerRequest,
    RevokeRequest,
    SetSplitOrMergeEnabledRequest,
    SetSwitchRequest,
    SnapshotRequest,
    SplitRegionRequest,
    TableRequest,
    TruncateRegionRequest,
    TruncateTableRequest,
);

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    fn multi(actions: usize) -> Vec<u8> {
        let region_action = PackedRegionAction {
            action: vec![Bytes::new(); actions],
            ..PackedRegionAction::default()
        };
        let request = PackedMultiRequest {
            region_action: vec![region_action],
            ..PackedMultiRequest::default()
        };
        request.encode_to_vec()
    }

    #[test]
    fn empty_elements_are_counted() {
        let estimated = |bytes: &[u8]| decoded_bytes::<PackedMultiRequest>("MultiRequest", bytes).unwrap();
        let (none, many) = (estimated(&multi(0)), estimated(&multi(100_000)));
        assert!(many - none >= 100_000 * size_of::<Bytes>());
        let value = QualifierValue::default();
        let family = ColumnValue {
            qualifier_value: vec![value; 1_000],
            ..ColumnValue::default()
        };
        let mutation = MutationProto {
            column_value: vec![family; 3],
            ..MutationProto::default()
        };
        let request = MutateRequest {
            mutation,
            ..MutateRequest::default()
        };
        let bytes = decoded_bytes::<MutateRequest>("MutateRequest", &request.encode_to_vec()).unwrap();
        assert!(bytes >= 3_000 * size_of::<QualifierValue>());
    }

    #[test]
    fn a_walk_ends_at_the_first_element_beyond_its_bound() {
        // The rest is no message, and is not read.
        let bytes = [&[0x12, 0].repeat(10)[..], &[0x0b]].concat();
        let up_to = |most: usize| decoded_bytes_up_to::<FilterList>("FilterList", &bytes, most * LISTED_FILTER_BYTES);
        assert_eq!(up_to(9).unwrap(), 10 * LISTED_FILTER_BYTES);
        assert!(up_to(10).is_err());
    }

    #[test]
    fn values_that_look_like_elements_are_not() {
        let mut get = GetRequest::default();
        get.get.row = Bytes::from(multi(1_000));
        let bytes = decoded_bytes::<GetRequest>("GetRequest", &get.encode_to_vec()).unwrap();
        assert_eq!(bytes, 0);
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        for bytes in [&[0x0a][..], &[0x0a, 5, 1], &[0x0b], &[0x80; 11], &[0x09, 1, 2]] {
            assert!(decoded_bytes::<GetRequest>("GetRequest", bytes).is_err(), "{bytes:?}");
        }
        // The inner message, too.
        assert!(decoded_bytes::<GetRequest>("GetRequest", &[0x12, 1, 0x0a]).is_err());
    }
}
