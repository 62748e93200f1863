//! The record of a tablet: its rows, and in a cluster its assignment.

use super::{VERSION, decode_up_to, encode_as};
use bytes::Bytes;
use prost::Message;
use stele_assignment::{Assignment, Owner};
use stele_types::{Epoch, RowRange, ServerId};

/// Version byte of a tablet that is assigned to a server: a program that did not know would serve it from anywhere.
const VERSION_ASSIGNED: u8 = 2;

#[derive(Clone, PartialEq, Message)]
struct TabletRecord {
    /// First row.
    #[prost(bytes = "bytes", tag = "1")]
    start: Bytes,
    /// First row past it; absent at the end of the table.
    #[prost(bytes = "bytes", optional, tag = "2")]
    end: Option<Bytes>,
    /// The server that owns it; 0 for none.
    #[prost(uint32, tag = "3")]
    owner: u32,
    /// The epoch of that assignment.
    #[prost(uint32, tag = "4")]
    epoch: u32,
    /// The server that shall have it next; 0 for none.
    #[prost(uint32, tag = "5")]
    moving_to: u32,
    /// Servers whose logs may have records that the tablet's files lack, ascending.
    #[prost(uint32, repeated, tag = "6")]
    logs: Vec<u32>,
}

/// Encodes a tablet.
pub fn encode_tablet(range: &RowRange, assignment: &Assignment) -> Bytes {
    let number = |server: ServerId| server.0;
    let owner = assignment.owner;
    let record = TabletRecord {
        start: range.start.clone(),
        end: range.end.clone(),
        owner: owner.map_or(0, |owner| owner.server.0),
        epoch: owner.map_or(0, |owner| owner.epoch.0),
        moving_to: assignment.moving_to.map_or(0, number),
        logs: assignment.logs.iter().copied().map(number).collect(),
    };
    let version = match *assignment == Assignment::default() {
        true => VERSION,
        false => VERSION_ASSIGNED,
    };
    encode_as(version, &record)
}

/// Decodes a tablet; the error says why not.
pub fn decode_tablet(bytes: &[u8]) -> Result<(RowRange, Assignment), String> {
    let record: TabletRecord = decode_up_to(VERSION_ASSIGNED, bytes)?;
    let owner = match (record.owner, record.epoch) {
        (0, 0) => None,
        (server, epoch) if server > 0 && epoch > 0 => Some(Owner {
            server: ServerId(server),
            epoch: Epoch(epoch),
        }),
        (server, epoch) => return Err(format!("server {server} under epoch {epoch}")),
    };
    if !record.logs.windows(2).all(|pair| pair[0] < pair[1]) {
        return Err("the servers of its logs are not ascending".to_owned());
    }
    let range = RowRange {
        start: record.start,
        end: record.end,
    };
    let assignment = Assignment {
        owner,
        moving_to: (record.moving_to > 0).then_some(ServerId(record.moving_to)),
        logs: record.logs.into_iter().map(ServerId).collect(),
    };
    Ok((range, assignment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_is_as_it_was() {
        let range = RowRange {
            start: Bytes::from_static(b"b"),
            end: None,
        };
        let assignment = Assignment {
            owner: Some(Owner {
                server: ServerId(7),
                epoch: Epoch(300),
            }),
            moving_to: Some(ServerId(9)),
            logs: vec![ServerId(2), ServerId(5)],
        };
        let bytes = b"\x02\x0a\x01b\x18\x07\x20\xac\x02\x28\x09\x32\x02\x02\x05";
        assert_eq!(
            encode_tablet(&range, &assignment).escape_ascii().to_string(),
            bytes.escape_ascii().to_string()
        );
        assert_eq!(decode_tablet(bytes), Ok((range, assignment)));
    }

    #[test]
    fn contradictions_are_refused() {
        for (bytes, why) in [
            (&b"\x02\x18\x07"[..], "server 7 under epoch 0"),
            (b"\x02\x20\x07", "server 0 under epoch 7"),
            (b"\x02\x32\x02\x05\x02", "not ascending"),
            (b"\x02\x32\x02\x05\x05", "not ascending"),
            (b"\x03", "record version 3"),
        ] {
            let refused = decode_tablet(bytes).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
