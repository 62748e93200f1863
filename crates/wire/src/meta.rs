//! `hbase:meta`, the table of regions: the contents of its rows, and their order.
//!
//! The row key of a region is its name ([`crate::region::name`]). Rows do not sort by plain bytes: keys are compared in
//! three parts, table, first row and id, so that users' rows may hold bytes below the comma.
//!
//! A client finds the region of a row by reading one row backwards from [`lookup_start`] down to [`table_start`].

use crate::cell::Cell;
use crate::messages::{RegionInfo, ServerName};
use crate::{WireError, messages};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use std::cmp::Ordering;

/// Family of the columns that describe a region.
pub const INFO_FAMILY: &[u8] = b"info";
/// Column of the [`RegionInfo`].
pub const REGION_INFO: &[u8] = b"regioninfo";
/// Column of `host:port` of the region's server.
pub const SERVER: &[u8] = b"server";
/// Column of the time when that server was started, 8 bytes.
pub const SERVER_START_CODE: &[u8] = b"serverstartcode";
/// Column of the sequence number at which the region was opened, 8 bytes.
pub const SEQUENCE_NUMBER: &[u8] = b"seqnumDuringOpen";
/// Family of states of tables; the row key is the table's name.
pub const TABLE_FAMILY: &[u8] = b"table";
/// Column of a [`messages::TableState`].
pub const TABLE_STATE: &[u8] = b"state";

/// Prefix of a protobuf message that is a cell's value.
pub(crate) const MAGIC: &[u8; 4] = b"PBUF";

/// Sorts above the id of any region.
const LAST_ID: &[u8] = b"99999999999999";

/// The description of a region in a row of `hbase:meta`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaRow {
    /// The region's name: the row key.
    pub name: Bytes,
    /// The region.
    pub region: RegionInfo,
    /// Its server; absent while it has none.
    pub server: Option<ServerName>,
    /// Sequence number at which it was opened. Of two descriptions of a region, the one with the higher number is
    /// newer.
    pub sequence_number: Option<u64>,
}

impl MetaRow {
    /// Reads the cells of one row.
    ///
    /// # Errors
    /// Cells that do not describe a region.
    pub fn decode(cells: &[Cell]) -> Result<Self, WireError> {
        let value = |qualifier: &[u8]| {
            let mut of_region = cells.iter().filter(|c| c.family == INFO_FAMILY);
            of_region.find(|c| c.qualifier == qualifier).map(|c| c.value.clone())
        };
        let info = value(REGION_INFO).filter(|v| !v.is_empty());
        let (Some(info), Some(first)) = (info, cells.first()) else {
            return Err(WireError::unexpected(
                "row of hbase:meta",
                "column info:regioninfo",
                "none",
            ));
        };
        let start_code = value(SERVER_START_CODE).map(|v| number("info:serverstartcode", &v));
        let server = value(SERVER).filter(|v| !v.is_empty());
        let server = server.map(|v| server_name(&v, start_code.clone().and_then(Result::ok)));
        start_code.transpose()?;
        let sequence_number = value(SEQUENCE_NUMBER)
            .map(|v| number("info:seqnumDuringOpen", &v))
            .transpose()?;
        Ok(Self {
            name: first.row.clone(),
            region: decode_region_info(&info)?,
            server: server.transpose()?,
            sequence_number,
        })
    }
}

fn number(what: &'static str, value: &[u8]) -> Result<u64, WireError> {
    let bytes: [u8; 8] = value
        .try_into()
        .map_err(|_| WireError::unexpected(what, "8 bytes", format!("{} bytes", value.len())))?;
    Ok(u64::from_be_bytes(bytes))
}

/// Reads `host:port`. A host may be an IPv6 address, so the port begins after the last colon.
fn server_name(text: &[u8], start_code: Option<u64>) -> Result<ServerName, WireError> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.rsplit_once(':'));
    let parsed = parsed.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    match parsed {
        Some((host, port)) if !host.is_empty() => Ok(ServerName {
            host_name: host.to_owned(),
            port: Some(u32::from(port)),
            start_code,
        }),
        _ => Err(WireError::unexpected(
            "info:server",
            "host:port",
            text.escape_ascii().to_string(),
        )),
    }
}

/// The value of `info:regioninfo`.
pub fn encode_region_info(region: &RegionInfo) -> Bytes {
    let mut value = BytesMut::with_capacity(MAGIC.len() + region.encoded_len());
    value.put_slice(MAGIC);
    region.encode_raw(&mut value);
    value.freeze()
}

/// Reads the value of `info:regioninfo`.
///
/// # Errors
/// Bytes that are not a region.
pub fn decode_region_info(value: &Bytes) -> Result<RegionInfo, WireError> {
    let mut message = value.clone();
    if !message.starts_with(MAGIC) {
        let found = value.get(..MAGIC.len()).unwrap_or(value).escape_ascii().to_string();
        return Err(WireError::unexpected("info:regioninfo", "PBUF", found));
    }
    message.advance(MAGIC.len());
    messages::decode("RegionInfo", message)
}

/// First key of the backwards read that finds the region of a row.
pub fn lookup_start(table: &[u8], row: &[u8]) -> Bytes {
    [table, b",", row, b",", LAST_ID].concat().into()
}

/// Sorts below all regions of a table.
pub fn table_start(table: &[u8]) -> Bytes {
    [table, b",,"].concat().into()
}

/// Sorts above all regions of a table: no name of a table holds a space, and none sorts between.
pub fn table_end(table: &[u8]) -> Bytes {
    [table, b" ,,"].concat().into()
}

/// Order of two row keys of `hbase:meta`.
pub fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let ((a_table, a_rest), (b_table, b_rest)) = (split_first(a), split_first(b));
    a_table.cmp(b_table).then_with(|| match (a_rest, b_rest) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(a), Some(b)) => {
            let ((a_row, a_id), (b_row, b_id)) = (split_last(a), split_last(b));
            a_row.cmp(b_row).then_with(|| a_id.cmp(&b_id))
        }
    })
}

fn split_first(key: &[u8]) -> (&[u8], Option<&[u8]>) {
    match key.iter().position(|b| *b == b',') {
        Some(comma) => (key.get(..comma).unwrap_or_default(), key.get(comma + 1..)),
        None => (key, None),
    }
}

fn split_last(rest: &[u8]) -> (&[u8], Option<&[u8]>) {
    match rest.iter().rposition(|b| *b == b',') {
        Some(comma) => (rest.get(..comma).unwrap_or_default(), rest.get(comma + 1..)),
        None => (rest, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellType;
    use crate::messages::TableName;
    use proptest::prelude::*;

    fn cell(qualifier: &'static [u8], value: Bytes) -> Cell {
        Cell {
            row: Bytes::from_static(b"t,,1.x."),
            family: Bytes::from_static(INFO_FAMILY),
            qualifier: Bytes::from_static(qualifier),
            timestamp: 1,
            kind: CellType::Put,
            value,
        }
    }

    fn region() -> RegionInfo {
        RegionInfo {
            region_id: 1,
            table_name: TableName {
                namespace: "default".into(),
                qualifier: "t".into(),
            },
            start_key: Some("a".into()),
            end_key: Some(Bytes::new()),
            ..RegionInfo::default()
        }
    }

    fn row() -> Vec<Cell> {
        vec![
            cell(REGION_INFO, encode_region_info(&region())),
            cell(SERVER, "::1:16020".into()),
            cell(SERVER_START_CODE, Bytes::copy_from_slice(&5u64.to_be_bytes())),
            cell(SEQUENCE_NUMBER, Bytes::copy_from_slice(&6u64.to_be_bytes())),
        ]
    }

    #[test]
    fn a_row_says_which_server_has_the_region() {
        let row = MetaRow::decode(&row()).unwrap();
        let server = ServerName {
            host_name: "::1".into(),
            port: Some(16020),
            start_code: Some(5),
        };
        assert_eq!((row.server, row.sequence_number), (Some(server), Some(6)));
        assert_eq!((row.region, &row.name[..]), (region(), &b"t,,1.x."[..]));
    }

    #[test]
    fn a_region_may_have_no_server() {
        let row = MetaRow::decode(&row()[..1]).unwrap();
        assert_eq!(row.server, None);
        assert!(MetaRow::decode(&[]).is_err());
    }

    #[test]
    fn damaged_columns_are_refused() {
        for (at, value) in [
            (0, "PBUX"),
            (0, "PBUF\u{1}"),
            (1, "host"),
            (1, ":1"),
            (1, "h:99999"),
            (2, "short"),
            (3, ""),
        ] {
            let mut cells = row();
            cells[at].value = value.into();
            assert!(MetaRow::decode(&cells).is_err(), "{at}: {value}");
        }
    }

    #[test]
    fn keys_sort_by_table_then_row_then_id() {
        let ascending: [&[u8]; 9] = [
            b"t",
            b"t,,1",
            b"t,,2",
            b"t,\x01,1",
            b"t,a,1",
            b"t,a,b,1",
            b"t,b,1",
            b"t ,,",
            b"tt,,1",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(
                    compare(a, b),
                    i.cmp(&j),
                    "{:?} {:?}",
                    a.escape_ascii(),
                    b.escape_ascii()
                );
            }
        }
    }

    #[test]
    fn a_lookup_starts_behind_the_region_and_ends_before_the_table() {
        let found = b"t,a,1396437624367.33fe702ff20c1a8d1900b304283a3b12.";
        assert_eq!(compare(&lookup_start(b"t", b"b"), found), Ordering::Greater);
        assert_eq!(compare(&lookup_start(b"t", b"a"), found), Ordering::Greater);
        assert_eq!(compare(&lookup_start(b"t", b"A"), found), Ordering::Less);
        assert_eq!(compare(&table_start(b"t"), found), Ordering::Less);
        assert_eq!(compare(&table_end(b"t"), found), Ordering::Greater);
    }

    proptest! {
        #[test]
        fn regions_survive_the_round_trip(
            region_id: u64, start in prop::collection::vec(any::<u8>(), 0..20), end in prop::collection::vec(any::<u8>(), 0..20),
            offline: Option<bool>, replica_id: Option<i32>,
        ) {
            let start_key = Some(Bytes::from(start));
            let end_key = Some(Bytes::from(end));
            let region = RegionInfo { region_id, start_key, end_key, offline, replica_id, ..region() };
            prop_assert_eq!(decode_region_info(&encode_region_info(&region)), Ok(region));
        }

        #[test]
        fn the_order_of_keys_is_total(keys in prop::collection::vec("[a,]{0,6}", 3)) {
            let [a, b, c] = [0, 1, 2].map(|i: usize| keys[i].as_bytes());
            prop_assert_eq!(compare(a, b), compare(b, a).reverse());
            prop_assert!(compare(a, b).is_gt() || compare(b, c).is_gt() || compare(a, c).is_le());
            prop_assert_eq!(compare(a, b).is_eq(), a == b);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100), at in 0usize..4) {
            let mut cells = row();
            cells[at].value = bytes.into();
            let _ = MetaRow::decode(&cells);
        }
    }
}
