//! All limits of this front end apply to one request or to all requests together.
//!
//! Terms: the *size* of a request is its bytes on the wire. Its *cost* is the memory that it takes while it is served:
//! about its size and the memory of its decoded parts. A part of two bytes on the wire may take three hundred in
//! memory. So parts are counted on the wire ([`crate::size_estimate`]) and refused there, before anything is decoded.
//! The memory of accepted parts is charged to the call ([`crate::accounting`]) before it is used.
//!
//! Limits on the values of single fields (keys, names, rules) are with the modules that read them. They hold because
//! the limits here have bounded everything else.

use crate::pb::{admin, v2};
use crate::wire;
use bytes::Bytes;
use std::time::Duration;
use stele_client::Step;
use stele_filter::Filter;
use stele_memory::shares::SHARES;
use stele_memory::{OVERDRAFT_BYTES, Part};
use stele_types::limits::{
    BIGTABLE_ROW_KEY_BYTES_MAX, FAMILIES_MAX, INITIAL_SPLITS_MAX, MUTATIONS_PER_REQUEST_MAX, ROW_BYTES_MAX,
};
use stele_types::{Mutation, RowMutation, RowRange, Span};

/// Largest message of calls that carry data: a row of the largest size with its wrapping. A server with little memory
/// accepts less ([`CallLimits::message_bytes_max`]).
const DATA_BYTES_MAX: usize = ROW_BYTES_MAX + (1 << 20);

/// Largest message of a read: 100,000 row keys of some 160 bytes, or 4,000 of the longest.
const READ_BYTES_MAX: usize = 16 << 20;

/// Largest message of the administration of tables: 100,000 splits of 160 bytes, or 20,000 families with names, rules
/// and types of 800.
const TABLE_ADMIN_BYTES_MAX: usize = 16 << 20;

/// Largest message of the administration of instances, twice the record that is kept of one, and of the server.
const ADMIN_BYTES_MAX: usize = 512 << 10;

/// Largest message of calls that carry names, tokens and a range of rows: two keys and some names.
const SMALL_BYTES_MAX: usize = 4 * BIGTABLE_ROW_KEY_BYTES_MAX;

/// Bytes of a serialized filter (data.proto, `RowFilter`).
pub(crate) const FILTER_BYTES_MAX: usize = 20_480;

/// Row keys and row ranges in one read. Not in the API. Clients send bulk reads in hundreds, and a scan holds its
/// ranges to its end.
pub(crate) const ROWS_PER_READ_MAX: usize = 100_000;

/// Elements of arrays and structs in the values of a request's mutations. Aggregates take single numbers, so no
/// accepted request has any. A refusal may decode a few.
const VALUE_PARTS_MAX: usize = 1_000;

/// Types within the types of values: ten for each family. A family of aggregates has two.
const TYPE_PARTS_MAX: usize = 10 * FAMILIES_MAX;

/// Rules within garbage-collection rules, over all families of a request: ten for each.
const GC_RULES_MAX: usize = 10 * FAMILIES_MAX;

/// Entries of maps and lists of a table or an instance that only the server fills in, or that are names: labels, tags,
/// clusters, masks, fields of row-key schemas.
const ENTRIES_MAX: usize = 10_000;

/// Messages within messages (prost's own limit).
pub(crate) const NESTING_MAX: u32 = 100;

/// Memory of a decoded filter for each byte on the wire. A filter of two bytes is a node in a list that has just
/// doubled, and once more a node of the compiled filter.
const FILTER_COST_PER_BYTE: usize = size_of::<wire::RowFilter>() + 2 * size_of::<Filter>();

/// Memory of a decoded message about an instance, for each byte on the wire. An entry of a map with two one-byte names
/// has eight bytes on the wire and about a hundred and fifty in memory.
pub(crate) const INSTANCE_COST_PER_BYTE: usize = 20;

/// The parts that [`crate::size_estimate`] counts in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Mutation,
    Entry,
    Rule,
    RowKey,
    RowRange,
    FilterByte,
    ValuePart,
    TypePart,
    Split,
    Family,
    FamilyChange,
    GcRule,
    MapEntry,
    InstanceByte,
}

/// How many kinds of parts there are.
pub(crate) const ELEMENTS: usize = Element::InstanceByte as usize + 1;

impl Element {
    /// Its name in an error message.
    pub fn name(self) -> &'static str {
        match self {
            Element::Mutation => "mutations",
            Element::Entry => "entries",
            Element::Rule => "rules",
            Element::RowKey => "row keys",
            Element::RowRange => "row ranges",
            Element::FilterByte => "bytes of filters",
            Element::ValuePart => "elements within values",
            Element::TypePart => "types within types",
            Element::Split => "initial splits",
            Element::Family => "column families",
            Element::FamilyChange => "modifications of column families",
            Element::GcRule => "garbage-collection rules",
            Element::MapEntry => "entries of maps and lists",
            Element::InstanceByte => "bytes about an instance",
        }
    }

    /// How many a request may have.
    pub fn max(self) -> usize {
        match self {
            // An entry without a mutation has no use, so there need not be more entries than mutations.
            Element::Mutation | Element::Entry | Element::Rule => MUTATIONS_PER_REQUEST_MAX,
            Element::RowKey | Element::RowRange => ROWS_PER_READ_MAX,
            Element::FilterByte => FILTER_BYTES_MAX,
            Element::ValuePart => VALUE_PARTS_MAX,
            Element::TypePart => TYPE_PARTS_MAX,
            Element::Split => INITIAL_SPLITS_MAX,
            Element::Family | Element::FamilyChange => FAMILIES_MAX,
            Element::GcRule => GC_RULES_MAX,
            Element::MapEntry => ENTRIES_MAX,
            Element::InstanceByte => ADMIN_BYTES_MAX,
        }
    }

    /// Memory of one part: as prost decodes it, in a list that has just doubled, and in the form for the layers below.
    /// Names are allocations of 16 bytes.
    pub fn cost(self) -> usize {
        match self {
            Element::Mutation => 2 * size_of::<wire::Mutation>() + 2 * size_of::<Step>() + 16,
            Element::Entry => 2 * size_of::<wire::MutateRowsEntry>() + 2 * size_of::<RowMutation>() + OUTCOME_BYTES,
            Element::Rule => 2 * size_of::<v2::ReadModifyWriteRule>() + 2 * size_of::<Step>() + 16,
            Element::RowKey => 2 * size_of::<Bytes>() + ROW_RANGE_BYTES,
            Element::RowRange => 2 * size_of::<v2::RowRange>() + ROW_RANGE_BYTES,
            Element::FilterByte => FILTER_COST_PER_BYTE,
            Element::ValuePart => 4 * size_of::<v2::Value>(),
            // Two boxes, of the type and of its kind.
            Element::TypePart => size_of::<v2::Type>() + size_of::<v2::r#type::Aggregate>() + 2 * 16,
            Element::Split => 4 * size_of::<Bytes>(),
            Element::Family => 4 * size_of::<(String, admin::ColumnFamily)>(),
            Element::FamilyChange => 4 * size_of::<admin::modify_column_families_request::Modification>() + 16,
            Element::GcRule => 4 * size_of::<admin::GcRule>(),
            Element::MapEntry => 256,
            Element::InstanceByte => INSTANCE_COST_PER_BYTE,
        }
    }
}

/// A range as a scan keeps it, as it was sorted, and as the router splits it by tablet.
const ROW_RANGE_BYTES: usize = 4 * size_of::<RowRange>();

/// The result of an entry, and its part of the response.
const OUTCOME_BYTES: usize = 256;

/// Memory of one of the deletes of families that a delete of a row becomes. It is in two lists, of which one may have just doubled.
pub(crate) const FAMILY_DELETE_COST: usize = 2 * size_of::<Step>();

/// Memory of a mutation that shares the bytes of its request ([`crate::zero_copy`]): its spans in a list that has just
/// doubled, and the row's key, result and response.
pub(crate) const ZERO_COPY_MUTATION_COST: usize = 2 * size_of::<Mutation<Span>>() + 4 * size_of::<Span>() + 64;

/// Mutations of a zero-copy request that are not charged. Their memory is part of the memory that every call may take.
pub(crate) const ZERO_COPY_MUTATIONS_FREE: usize = 64;

/// Size of a request from which on a write runs to its end even if its caller goes away. A smaller write is charged to
/// the log's queue, with all its bytes, until memtables have it.
pub(crate) const CARRIED_OUT_BYTES_MIN: usize = 1 << 20;

/// Limits on concurrent work of the front end.
#[derive(Clone, Copy, Debug)]
pub struct CallLimits {
    /// Calls in flight, streams included.
    pub calls_max: usize,
    /// Cost of requests in flight. It is also the cost of the largest request without an overdraft.
    pub request_bytes_max: usize,
    /// The cost of one larger request, which needs the overdraft; 0 where there is none.
    pub overdraft_request_bytes: usize,
    /// How long an empty request may take to arrive.
    pub arrival_wait: Duration,
}

/// Calls in flight with any budget: far more than keep a machine busy.
const CALLS_MAX: usize = 8_192;

/// Calls in flight that any budget allows.
const CALLS_MIN: usize = 512;

/// Memory of a call in addition to its request and the reservation of its response. While it is decoded it has headers
/// of 16 KiB at most, then a task and two pieces of 64 KiB with the transport. The call lasts until those are written.
const CALL_BYTES: usize = 128 << 10;

/// Budget from which one request may be as large as the largest value, regardless of the use by others. The value is in
/// memory twice, in its request and in the memtable, and its beginning once more for a moment. A smaller budget has no
/// space for that.
pub const OVERDRAFT_REQUEST_MEMORY_MIN: usize = 256 << 20;

/// Slowest rate at which a request may arrive, after the first wait: two megabits a second, less than any network a
/// database is used over.
const ARRIVAL_BYTES_PER_SECOND: usize = 256 << 10;

/// Rate at which a request must arrive to keep its place while others are refused. Two hundred streams of a connection may share a link.
const PROGRESS_BYTES_PER_SECOND: usize = 16 << 10;

impl CallLimits {
    /// The limits for a memory budget, of which requests have their share of the pool. Values of 100
    /// MiB need a budget of [`OVERDRAFT_REQUEST_MEMORY_MIN`], messages of 257 MiB need 1,028 MiB.
    pub fn for_memory(memory: u64) -> Self {
        let bytes = usize::try_from(memory).unwrap_or(usize::MAX);
        let requests = &SHARES[Part::Requests as usize];
        CallLimits {
            calls_max: (bytes / 4 / CALL_BYTES).clamp(CALLS_MIN, CALLS_MAX),
            request_bytes_max: usize::try_from(requests.of(memory)).unwrap_or(usize::MAX),
            overdraft_request_bytes: if bytes >= OVERDRAFT_REQUEST_MEMORY_MIN {
                OVERDRAFT_BYTES
            } else {
                0
            },
            arrival_wait: Duration::from_secs(30),
        }
    }

    /// Size of the largest message that a call of this path may have.
    pub(crate) fn message_bytes_max(&self, path: &str) -> usize {
        let of_kind = match path.trim_start_matches('/').split_once('/') {
            Some(("google.bigtable.v2.Bigtable", method)) => match method {
                "ReadRows" => READ_BYTES_MAX,
                "MutateRow" | "MutateRows" | "CheckAndMutateRow" | "ReadModifyWriteRow" => DATA_BYTES_MAX,
                _ => SMALL_BYTES_MAX,
            },
            Some(("google.bigtable.admin.v2.BigtableTableAdmin" | "stele.admin.v1.LocalityGroups", _)) => {
                TABLE_ADMIN_BYTES_MAX
            }
            Some(("stele.admin.v1.Reads", _)) => READ_BYTES_MAX,
            Some(("google.bigtable.admin.v2.BigtableInstanceAdmin", _)) => ADMIN_BYTES_MAX,
            // Names of tables for a backup, access rules.
            Some((service, _)) if service.starts_with("stele.admin.v1.") => ADMIN_BYTES_MAX,
            _ => SMALL_BYTES_MAX,
        };
        of_kind.min(self.request_bytes_max.max(self.overdraft_request_bytes))
    }

    /// How long a request may take until this many bytes of it have arrived.
    pub(crate) fn arrival_wait(&self, bytes: usize) -> Duration {
        self.arrival_wait + Duration::from_secs((bytes / ARRIVAL_BYTES_PER_SECOND) as u64)
    }

    /// Time that the bytes of a request earn it, for which it is not given up when calls are refused.
    pub(crate) fn earned_time(bytes: usize) -> Duration {
        Duration::from_secs((bytes / PROGRESS_BYTES_PER_SECOND) as u64)
    }
}

impl Default for CallLimits {
    /// For a server with 4 GiB.
    fn default() -> Self {
        Self::for_memory(4 << 30)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_the_budget_between_bounds() {
        let of = |mib: u64| {
            let limits = CallLimits::for_memory(mib << 20);
            let data = limits.message_bytes_max("/google.bigtable.v2.Bigtable/MutateRows");
            (limits.calls_max, limits.request_bytes_max >> 20, data >> 20)
        };
        assert_eq!(of(64), (512, 32, 32));
        assert_eq!(of(255), (512, 63, 63));
        assert_eq!(of(256), (512, 64, 104));
        assert_eq!(of(512), (1_024, 128, 128));
        assert_eq!(of(4_096), (8_192, 1_024, 257));
        assert_eq!(of(1 << 20), (8_192, 1 << 18, 257));
    }

    #[test]
    fn an_explained_read_may_be_as_large_as_a_read() {
        let of = |path: &str| CallLimits::default().message_bytes_max(path);
        assert_eq!(
            of(stele_adminapi::EXPLAIN_READ_PATH),
            of("/google.bigtable.v2.Bigtable/ReadRows")
        );
        // A thousand tables with long names.
        assert!(of("/stele.admin.v1.Backups/BeginBackup") >= 1_000 * 300);
        assert_eq!(of("/grpc.health.v1.Health/Check"), SMALL_BYTES_MAX);
    }

    #[test]
    fn no_request_within_the_limits_of_parts_is_beyond_the_budget_that_takes_its_size() {
        // A batch of 100,000 small mutations must be accepted where batches of that size are to be expected.
        let batch = MUTATIONS_PER_REQUEST_MAX * ZERO_COPY_MUTATION_COST;
        assert!(batch < CallLimits::for_memory(0).request_bytes_max, "{batch}");
        for part in [
            Element::Mutation,
            Element::Split,
            Element::Family,
            Element::RowRange,
            Element::GcRule,
            Element::TypePart,
        ] {
            let cost = part.max() * part.cost();
            assert!(cost < CallLimits::default().request_bytes_max / 4, "{part:?}: {cost}");
        }
    }
}
