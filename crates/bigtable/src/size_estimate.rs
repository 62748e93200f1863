//! Estimates the memory of a decoded request from its bytes, before it is decoded.
//!
//! A list of a million empty elements is two megabytes on the wire and hundreds in memory, so a check after decoding
//! comes too late. The walk follows tags and lengths only, allocates nothing, and stops at the first part beyond a
//! limit. A [`Shape`] for each kind of request says what to follow. It has every field of the API that repeats, or that
//! contains a field that repeats, or a message of its own kind. Another field can only replace its former value, so it
//! takes no more memory than its bytes.
//!
//! Invariants:
//! * The decoder never produces more parts than were counted. It may produce fewer: a field that is sent twice, of
//!   which only the last counts, is counted twice.
//! * Bytes that the walk cannot follow are refused, so the decoder never sees uncounted parts. Groups are among them;
//!   the API has none.

pub(crate) mod decoded;

use crate::limits::{ELEMENTS, Element, NESTING_MAX};
use crate::pb::{admin, iam, longrunning, own, v2};
use crate::protobuf::{Fields, WireType};
use crate::status::invalid;
use crate::wire;
use tonic::Status;

/// The parts of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SizeEstimate {
    counts: [usize; ELEMENTS],
}

impl SizeEstimate {
    /// Counts the parts of a request, and refuses too many.
    pub fn of<M: Estimated>(bytes: &[u8]) -> Result<SizeEstimate, Status> {
        let mut estimate = SizeEstimate::default();
        estimate.walk(Fields::of(bytes), M::SHAPE, NESTING_MAX)?;
        Ok(estimate)
    }

    /// Memory that the parts will take.
    pub fn cost(&self) -> usize {
        ALL.iter()
            .map(|part| self.count(*part).saturating_mul(part.cost()))
            .sum()
    }

    /// The number of parts of a kind.
    pub fn count(&self, part: Element) -> usize {
        self.counts.get(part as usize).copied().unwrap_or_default()
    }

    fn add(&mut self, part: Element, count: usize) -> Result<(), Status> {
        let Some(sum) = self.counts.get_mut(part as usize) else {
            return Ok(());
        };
        *sum = sum.saturating_add(count);
        if *sum <= part.max() {
            return Ok(());
        }
        Err(invalid(format!(
            "The request has more than {} {}, which is the limit",
            part.max(),
            part.name()
        )))
    }

    fn walk(&mut self, mut fields: Fields<'_>, shape: &Shape, depth_left: u32) -> Result<(), Status> {
        while let Some((number, wire_type)) = fields.next().ok_or_else(unreadable)? {
            let known = shape.0.iter().find(|field| field.number == number);
            let Some(field) = known.filter(|_| wire_type == WireType::Bytes) else {
                fields.skip(wire_type).ok_or_else(unreadable)?;
                continue;
            };
            let content = fields.message().ok_or_else(unreadable)?;
            match field.counted {
                Some(part @ (Element::FilterByte | Element::InstanceByte)) => self.add(part, content.len())?,
                Some(part) => self.add(part, 1)?,
                None => {}
            }
            if let Some(within) = field.within {
                let depth_left = depth_left.checked_sub(1).ok_or_else(unreadable)?;
                self.walk(content, within, depth_left)?;
            }
        }
        Ok(())
    }
}

/// Begins like the messages of prost.
fn unreadable() -> Status {
    Status::internal("failed to decode Protobuf message: neither a field nor the end where one of them must be")
}

const ALL: [Element; ELEMENTS] = [
    Element::Mutation,
    Element::Entry,
    Element::Rule,
    Element::RowKey,
    Element::RowRange,
    Element::FilterByte,
    Element::ValuePart,
    Element::TypePart,
    Element::Split,
    Element::Family,
    Element::FamilyChange,
    Element::GcRule,
    Element::MapEntry,
    Element::InstanceByte,
];

/// The fields of a message that the walk follows.
pub(crate) struct Shape(&'static [Field]);

/// A length-delimited field that is counted, or contains such fields.
struct Field {
    number: u32,
    counted: Option<Element>,
    within: Option<&'static Shape>,
}

/// Each occurrence counts.
const fn each(number: u32, part: Element) -> Field {
    Field {
        number,
        counted: Some(part),
        within: None,
    }
}

/// Each occurrence counts, and so do its own fields.
const fn each_of(number: u32, part: Element, within: &'static Shape) -> Field {
    Field {
        number,
        counted: Some(part),
        within: Some(within),
    }
}

/// Only its own fields count.
const fn of(number: u32, within: &'static Shape) -> Field {
    Field {
        number,
        counted: None,
        within: Some(within),
    }
}

/// A request whose parts can be counted.
pub(crate) trait Estimated: prost::Message + Default {
    /// The fields that are followed.
    const SHAPE: &'static Shape;
}

/// For messages in which nothing repeats.
static PLAIN: Shape = Shape(&[]);

// google/bigtable/v2/data.proto, types.proto. A type without a list holds one or two types, and so a tree of them grows
// with its bytes: each type in it is a box on the heap.
static VALUE: Shape = Shape(&[of(4, &ARRAY_VALUE), of(7, &TYPE)]);
static ARRAY_VALUE: Shape = Shape(&[each_of(1, Element::ValuePart, &VALUE)]);
static TYPE: Shape = Shape(&[
    of(3, &ARRAY_TYPE),
    of(4, &MAP_TYPE),
    of(6, &AGGREGATE_TYPE),
    of(7, &STRUCT_TYPE),
    of(11, &MAP_TYPE),
]);
static ARRAY_TYPE: Shape = Shape(&[each_of(1, Element::TypePart, &TYPE)]);
static AGGREGATE_TYPE: Shape = Shape(&[
    each_of(1, Element::TypePart, &TYPE),
    each_of(2, Element::TypePart, &TYPE),
]);
static MAP_TYPE: Shape = Shape(&[
    each_of(1, Element::TypePart, &TYPE),
    each_of(2, Element::TypePart, &TYPE),
]);
static STRUCT_TYPE: Shape = Shape(&[each_of(1, Element::ValuePart, &STRUCT_FIELD)]);
static STRUCT_FIELD: Shape = Shape(&[of(2, &TYPE)]);
static MUTATION: Shape = Shape(&[of(5, &AGGREGATION), of(6, &AGGREGATION)]);
static AGGREGATION: Shape = Shape(&[of(2, &VALUE), of(3, &VALUE), of(4, &VALUE)]);
static ROW_SET: Shape = Shape(&[each(1, Element::RowKey), each(2, Element::RowRange)]);

// google/bigtable/v2/bigtable.proto.
static MUTATE_ROWS_ENTRY: Shape = Shape(&[each_of(2, Element::Mutation, &MUTATION)]);

impl Estimated for wire::ReadRowsRequest {
    const SHAPE: &'static Shape = &Shape(&[of(2, &ROW_SET), each(3, Element::FilterByte)]);
}

impl Estimated for wire::MutateRowRequest {
    const SHAPE: &'static Shape = &Shape(&[each_of(3, Element::Mutation, &MUTATION)]);
}

impl Estimated for wire::MutateRowsRequest {
    const SHAPE: &'static Shape = &Shape(&[each_of(2, Element::Entry, &MUTATE_ROWS_ENTRY)]);
}

impl Estimated for wire::CheckAndMutateRowRequest {
    const SHAPE: &'static Shape = &Shape(&[
        each_of(4, Element::Mutation, &MUTATION),
        each_of(5, Element::Mutation, &MUTATION),
        each(6, Element::FilterByte),
    ]);
}

impl Estimated for v2::ReadModifyWriteRowRequest {
    const SHAPE: &'static Shape = &Shape(&[each(3, Element::Rule)]);
}

// google/bigtable/admin/v2/table.proto.
static TABLE: Shape = Shape(&[
    each_of(2, Element::MapEntry, &CLUSTER_STATE_ENTRY),
    each_of(3, Element::Family, &FAMILY_ENTRY),
    of(13, &BACKUP_POLICY),
    of(15, &STRUCT_TYPE),
]);
static CLUSTER_STATE_ENTRY: Shape = Shape(&[of(2, &CLUSTER_STATE)]);
static CLUSTER_STATE: Shape = Shape(&[each(2, Element::MapEntry)]);
static FAMILY_ENTRY: Shape = Shape(&[of(2, &FAMILY)]);
static FAMILY: Shape = Shape(&[of(1, &GC_RULE), of(3, &TYPE)]);
static GC_RULE: Shape = Shape(&[of(3, &GC_RULES), of(4, &GC_RULES)]);
static GC_RULES: Shape = Shape(&[each_of(1, Element::GcRule, &GC_RULE)]);
// Its encryption status may have details.
static BACKUP: Shape = Shape(&[of(9, &ENCRYPTION_INFO)]);
static ENCRYPTION_INFO: Shape = Shape(&[of(4, &STATUS)]);
static STATUS: Shape = Shape(&[each(3, Element::MapEntry)]);
static BACKUP_POLICY: Shape = Shape(&[each(3, Element::MapEntry)]);
static FIELD_MASK: Shape = Shape(&[each(1, Element::MapEntry)]);

// google/bigtable/admin/v2/bigtable_table_admin.proto.
static MODIFICATION: Shape = Shape(&[of(2, &FAMILY), of(3, &FAMILY), of(6, &FIELD_MASK)]);

impl Estimated for admin::CreateTableRequest {
    const SHAPE: &'static Shape = &Shape(&[of(3, &TABLE), each(4, Element::Split)]);
}

impl Estimated for admin::UpdateTableRequest {
    const SHAPE: &'static Shape = &Shape(&[of(1, &TABLE), of(2, &FIELD_MASK)]);
}

impl Estimated for admin::UpdateBackupRequest {
    const SHAPE: &'static Shape = &Shape(&[of(1, &BACKUP), of(2, &FIELD_MASK)]);
}

impl Estimated for admin::CreateBackupRequest {
    const SHAPE: &'static Shape = &Shape(&[of(3, &BACKUP)]);
}

impl Estimated for admin::ModifyColumnFamiliesRequest {
    const SHAPE: &'static Shape = &Shape(&[each_of(2, Element::FamilyChange, &MODIFICATION)]);
}

// google/iam/v1/iam_policy.proto.
impl Estimated for iam::TestIamPermissionsRequest {
    const SHAPE: &'static Shape = &Shape(&[each(2, Element::MapEntry)]);
}

// stele.admin.v1. A modification holds the name of one family.
impl Estimated for own::ModifyLocalityGroupsRequest {
    const SHAPE: &'static Shape = &Shape(&[each(2, Element::FamilyChange)]);
}

/// Messages that are small as a whole: nothing in them is counted.
macro_rules! plain {
    ($($message:ty),* $(,)?) => {
        $(impl Estimated for $message {
            const SHAPE: &'static Shape = &PLAIN;
        })*
    };
}

plain!(
    wire::SampleRowKeysRequest,
    v2::PingAndWarmRequest,
    admin::ListTablesRequest,
    admin::GetTableRequest,
    admin::DeleteTableRequest,
    admin::UndeleteTableRequest,
    admin::DropRowRangeRequest,
    admin::GenerateConsistencyTokenRequest,
    admin::CheckConsistencyRequest,
    admin::ListAuthorizedViewsRequest,
    admin::GetAuthorizedViewRequest,
    admin::DeleteAuthorizedViewRequest,
    admin::GetBackupRequest,
    admin::DeleteBackupRequest,
    admin::ListBackupsRequest,
    admin::CopyBackupRequest,
    admin::RestoreTableRequest,
    admin::GetInstanceRequest,
    admin::ListInstancesRequest,
    admin::DeleteInstanceRequest,
    admin::GetClusterRequest,
    admin::ListClustersRequest,
    admin::DeleteClusterRequest,
    admin::GetAppProfileRequest,
    admin::ListAppProfilesRequest,
    admin::DeleteAppProfileRequest,
    iam::GetIamPolicyRequest,
    own::ListRulesRequest,
    own::GetLocalityGroupsRequest,
    own::GetTableSettingsRequest,
    own::UpdateTableSettingsRequest,
    own::CreateSnapshotRequest,
    own::ListSnapshotsRequest,
    own::ListKeptTablesRequest,
    own::GetClusterStatusRequest,
    own::MoveTabletRequest,
    own::DrainServerRequest,
    own::SplitTabletRequest,
    own::GetSwitchesRequest,
    own::SetSwitchesRequest,
    own::RestoreSnapshotRequest,
    own::ExplainReadRequest,
    own::DeleteSnapshotRequest,
    own::GetBackupWorkRequest,
    own::CancelBackupWorkRequest,
    longrunning::GetOperationRequest,
    longrunning::ListOperationsRequest,
    longrunning::CancelOperationRequest,
    longrunning::DeleteOperationRequest,
    longrunning::WaitOperationRequest,
);

/// Messages about instances and views: full of maps and lists, and small as a whole. Their bytes are counted.
macro_rules! by_bytes {
    ($($message:ty: $($field:literal)*),* $(,)?) => {
        $(impl Estimated for $message {
            const SHAPE: &'static Shape = &Shape(&[$(each($field, Element::InstanceByte)),*]);
        })*
    };
}

// google/bigtable/admin/v2/{instance,bigtable_instance_admin,bigtable_table_admin}.proto: the fields that are messages, or repeat.
by_bytes!(
    own::MergeTabletsRequest: 2,
    admin::CreateInstanceRequest: 3 4,
    admin::Instance: 5 12,
    admin::PartialUpdateInstanceRequest: 1 2,
    admin::CreateClusterRequest: 3,
    admin::Cluster: 6 7,
    admin::PartialUpdateClusterRequest: 1 2,
    admin::CreateAppProfileRequest: 3,
    admin::UpdateAppProfileRequest: 1 2,
    admin::CreateAuthorizedViewRequest: 3,
    admin::UpdateAuthorizedViewRequest: 1 2,
    iam::SetIamPolicyRequest: 2 3,
    own::ModifyRulesRequest: 2 3,
    own::BeginBackupWorkRequest: 1 4,
    own::ListDestinationRequest: 1,
);

#[cfg(test)]
mod tests;
