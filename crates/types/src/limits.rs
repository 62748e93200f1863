//! Every limit on the size of one thing, with its derivation. A request beyond one of these is an `InvalidArgument`;
//! bytes on disk beyond one of these are a `Corruption`.

/// Row key bytes. Bigtable allows 4 KiB; HBase allows `Short.MAX_VALUE`, and front ends enforce the smaller.
pub const ROW_KEY_BYTES_MAX: usize = 32 * 1024;

/// Bytes of a row at which a tablet begins. HBase's clients find a region by a row key of its table, its first row and a number, which
/// must be a row key, too.
pub const FIRST_ROW_BYTES_MAX: usize = 31 * 1024;

/// Row key bytes through the Bigtable API (data.proto, `Row.key`).
pub const BIGTABLE_ROW_KEY_BYTES_MAX: usize = 4 * 1024;

/// Qualifier bytes. Bigtable documents 16 KiB; HBase has no smaller practical limit than the row's.
pub const QUALIFIER_BYTES_MAX: usize = 32 * 1024;

/// Qualifier bytes through the Bigtable API.
pub const BIGTABLE_QUALIFIER_BYTES_MAX: usize = 16 * 1024;

/// Value bytes: Bigtable's documented 100 MB cell.
pub const VALUE_BYTES_MAX: usize = 100 << 20;

/// Bytes of one row that a read returns: Bigtable's documented 256 MiB row. For partial rows it bounds the cells before
/// they are filtered; for whole rows, their memory.
pub const ROW_BYTES_MAX: usize = 256 << 20;

/// Mutations in one request, over all its entries (bigtable.proto).
pub const MUTATIONS_PER_REQUEST_MAX: usize = 100_000;

/// Bytes of a request token. Clients use 8 to 36 bytes: random bytes, or a UUID as text.
pub const TOKEN_BYTES_MAX: usize = 256;

/// Bytes of a token through the Bigtable API at least (data.proto, `Idempotency.token`).
pub const BIGTABLE_TOKEN_BYTES_MIN: usize = 8;

/// Longest encoded cell key: every row and qualifier byte may be escaped to two, plus terminators, family and
/// trailer (see `key`).
pub const CELL_KEY_BYTES_MAX: usize = 2 * ROW_KEY_BYTES_MAX + 2 * QUALIFIER_BYTES_MAX + 64;

/// Family name bytes: HBase has their number in a signed byte. Bigtable documents 64, which its front end enforces.
pub const FAMILY_NAME_BYTES_MAX: usize = 127;

/// Family name bytes through the Bigtable API.
pub const BIGTABLE_FAMILY_NAME_BYTES_MAX: usize = 64;

/// Bytes of a locality group's name, which only administrators see.
pub const GROUP_NAME_BYTES_MAX: usize = 64;

/// Table name bytes (Bigtable: 50; HBase has none, 255 keeps file and metric names sane).
pub const TABLE_NAME_BYTES_MAX: usize = 255;

/// Initial splits of one table: a tablet costs about 10 KB of memory, so this is 1 GB.
pub const INITIAL_SPLITS_MAX: usize = 100_000;

/// Bytes at which tablets may be set to split. Below a MiB, a tablet's overhead (files, manifest, log segments to
/// replay) exceeds its data. Above 64 GiB, a tablet that is damaged or moves is too large a unit.
pub const TABLET_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 30;

/// Locality groups of one table: a flush of a tablet writes a file per group with data, and a read of a whole row
/// searches all groups.
pub const GROUPS_MAX: usize = 64;

/// Families of one table, above the thousands the design asks for; bounded so that a schema fits into one transaction of the
/// coordinator, 1 MiB.
pub const FAMILIES_MAX: usize = 20_000;
