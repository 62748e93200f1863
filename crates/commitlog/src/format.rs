//! The encoding of segments: headers, groups, records. Byte tables: `docs/formats/commit-log.md`.
//!
//! Decoders are total: any bytes give a value or `None`, never a panic.

use bytes::{BufMut, Bytes, BytesMut};
use stele_types::{SeqNo, TabletId};

/// First bytes of a segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"STELELOG";
/// Newest format version.
pub const VERSION: u32 = 1;
/// Bytes of the segment header.
pub const SEGMENT_HEADER_BYTES: usize = 56;
/// First bytes of a group.
pub const GROUP_MAGIC: [u8; 4] = *b"GRP1";
/// Bytes of a group header.
pub const GROUP_HEADER_BYTES: usize = 28;
/// Bytes of a record before its payload.
pub const RECORD_HEADER_BYTES: usize = 36;
/// Largest payload: a 256 MiB request, twice for escaped keys and per-entry headers.
pub const PAYLOAD_BYTES_MAX: usize = 512 << 20;

/// The decoded header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Format version.
    pub version: u32,
    /// Which stream.
    pub stream: u32,
    /// Which segment.
    pub number: u64,
    /// The segment before it by the same process, 0 for none.
    pub previous: u64,
    /// Acknowledged bytes of the previous segment.
    pub previous_len: u64,
    /// Synced bytes of the previous segment, at most the acknowledged ones.
    pub previous_synced: u64,
}

impl SegmentHeader {
    /// Encodes the header.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(SEGMENT_HEADER_BYTES);
        out.put_slice(&SEGMENT_MAGIC);
        out.put_u32_le(self.version);
        out.put_u32_le(self.stream);
        out.put_u64_le(self.number);
        out.put_u64_le(self.previous);
        out.put_u32_le(0);
        out.put_u64_le(self.previous_len);
        out.put_u64_le(self.previous_synced);
        out.put_u32_le(crc32fast::hash(&out));
        assert_eq!(out.len(), SEGMENT_HEADER_BYTES, "a segment header has a fixed size");
        out.freeze()
    }

    /// Decodes a header; `None` when it does not check.
    pub fn decode(bytes: &[u8]) -> Option<SegmentHeader> {
        let bytes = bytes.get(..SEGMENT_HEADER_BYTES)?;
        let (body, _) = bytes.split_at_checked(52)?;
        if body.get(..8)? != SEGMENT_MAGIC || read_u32(bytes, 52)? != crc32fast::hash(body) {
            return None;
        }
        // A newer version may use the reserved bytes. In this version they are 0.
        let version = read_u32(bytes, 8)?;
        if version == 0 || (version <= VERSION && read_u32(bytes, 32)? != 0) {
            return None;
        }
        Some(SegmentHeader {
            version,
            stream: read_u32(bytes, 12)?,
            number: read_u64(bytes, 16)?,
            previous: read_u64(bytes, 24)?,
            previous_len: read_u64(bytes, 36)?,
            previous_synced: read_u64(bytes, 44)?,
        })
    }
}

/// The decoded header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Bytes of the records.
    pub records_len: u32,
    /// Number of records.
    pub records: u32,
    /// The offset of the group in the file.
    pub offset: u64,
    /// The distance back from the group to the first byte that was not known to be synced.
    pub unsynced: u32,
}

impl GroupHeader {
    /// Encodes the header for a group of segment `segment`.
    pub fn encode(&self, segment: u64) -> [u8; GROUP_HEADER_BYTES] {
        let mut out = [0; GROUP_HEADER_BYTES];
        let mut rest = &mut out[..];
        rest.put_slice(&GROUP_MAGIC);
        rest.put_u32_le(self.records_len);
        rest.put_u32_le(self.records);
        rest.put_u64_le(self.offset);
        rest.put_u32_le(self.unsynced);
        if let Some((body, field)) = out.split_first_chunk_mut() {
            field.copy_from_slice(&group_crc(segment, body).to_le_bytes());
        }
        out
    }

    /// Decodes the header of a group of segment `segment`; `None` when it does not check.
    pub fn decode(segment: u64, bytes: &[u8]) -> Option<GroupHeader> {
        let bytes = bytes.get(..GROUP_HEADER_BYTES)?;
        let body: &[u8; GROUP_HEADER_BYTES - 4] = bytes.first_chunk()?;
        if body.get(..4)? != GROUP_MAGIC || read_u32(bytes, 24)? != group_crc(segment, body) {
            return None;
        }
        if read_u32(bytes, 8)? == 0 {
            return None;
        }
        Some(GroupHeader {
            records_len: read_u32(bytes, 4)?,
            records: read_u32(bytes, 8)?,
            offset: read_u64(bytes, 12)?,
            unsynced: read_u32(bytes, 20)?,
        })
    }

    /// Everything before this offset was synced when the group was written.
    pub fn synced_through(&self) -> u64 {
        self.offset.saturating_sub(u64::from(self.unsynced))
    }
}

fn group_crc(segment: u64, body: &[u8; GROUP_HEADER_BYTES - 4]) -> u32 {
    let mut covered = [0; 8 + GROUP_HEADER_BYTES - 4];
    covered[..8].copy_from_slice(&segment.to_le_bytes());
    covered[8..].copy_from_slice(body);
    crc32fast::hash(&covered)
}

/// One tablet's batch of mutations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The tablet it belongs to.
    pub tablet: TabletId,
    /// Sequence number of its first mutation.
    pub first: SeqNo,
    /// Sequence number of its last mutation.
    pub last: SeqNo,
    /// The tablet's encoding of the mutations.
    pub payload: Payload,
}

/// A payload with its checksum, computed once, on the thread that made it. It may consist of several slices, so that large
/// values need not be copied next to the others. In the file the slices are contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    bytes: Bytes,
    /// The slices behind `bytes`; mostly none.
    rest: Vec<Bytes>,
    crc: u32,
}

impl Payload {
    /// Checksums a payload.
    pub fn new(bytes: Bytes) -> Self {
        let rest = Vec::new();
        let crc = Self::checksum(&bytes, &rest);
        Payload { bytes, rest, crc }
    }

    /// The checksum of a payload of several slices.
    pub fn checksum(bytes: &[u8], rest: &[Bytes]) -> u32 {
        if rest.is_empty() {
            return crc32fast::hash(bytes);
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(bytes);
        rest.iter().for_each(|piece| hasher.update(piece));
        hasher.finalize()
    }

    /// A payload of several slices whose checksum is known.
    pub fn with_crc(bytes: Bytes, rest: Vec<Bytes>, crc: u32) -> Self {
        debug_assert_eq!(crc, Self::checksum(&bytes, &rest), "the checksum is the payload's");
        Payload { bytes, rest, crc }
    }

    /// The first slice. A payload that was read has no other.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// All slices.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.bytes).chain(&self.rest)
    }

    /// Bytes of all slices.
    pub(crate) fn len(&self) -> usize {
        self.pieces().map(Bytes::len).sum()
    }
}

/// A record with a borrowed payload, for a write that ends before the borrow does.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    /// The tablet it belongs to.
    pub tablet: TabletId,
    /// Sequence number of its first mutation.
    pub first: SeqNo,
    /// Sequence number of its last mutation.
    pub last: SeqNo,
    /// The tablet's encoding of the mutations.
    pub payload: &'a [u8],
    /// The further slices of the encoding.
    pub rest: &'a [Bytes],
    /// CRC-32 of the payload.
    pub crc: u32,
}

impl RecordRef<'_> {
    /// Bytes of the framed record.
    pub fn frame_len(&self) -> usize {
        RECORD_HEADER_BYTES + self.payload_len()
    }

    fn payload_len(&self) -> usize {
        self.payload.len() + self.rest.iter().map(Bytes::len).sum::<usize>()
    }

    /// The bytes that precede the payload on disk.
    pub fn encode_header(&self) -> [u8; RECORD_HEADER_BYTES] {
        let payload_len = self.payload_len();
        assert!(payload_len <= PAYLOAD_BYTES_MAX, "a larger payload was refused a slot");
        debug_assert!(self.first <= self.last, "the sequence numbers of a record ascend");
        let mut out = [0; RECORD_HEADER_BYTES];
        let mut rest = &mut out[..];
        rest.put_u32_le(payload_len as u32);
        rest.put_u32_le(self.crc);
        rest.put_u64_le(self.tablet.0);
        rest.put_u64_le(self.first.0);
        rest.put_u64_le(self.last.0);
        let crc = crc32fast::hash(&out[..RECORD_HEADER_BYTES - 4]);
        out[RECORD_HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        out
    }
}

impl Record {
    /// Bytes of the framed record.
    pub fn frame_len(&self) -> usize {
        RECORD_HEADER_BYTES + self.payload.len()
    }

    /// The bytes that precede the payload on disk. Separate, so that a large payload is not copied.
    pub fn encode_header(&self) -> [u8; RECORD_HEADER_BYTES] {
        self.borrowed().encode_header()
    }

    /// The record, borrowed.
    pub fn borrowed(&self) -> RecordRef<'_> {
        RecordRef {
            tablet: self.tablet,
            first: self.first,
            last: self.last,
            payload: &self.payload.bytes,
            rest: &self.payload.rest,
            crc: self.payload.crc,
        }
    }

    /// Takes one framed record off the front of `input`; `None` when it does not check.
    pub fn decode(input: &mut Bytes) -> Option<Record> {
        let header = input.get(..RECORD_HEADER_BYTES)?;
        let len = read_u32(header, 0)? as usize;
        if len > PAYLOAD_BYTES_MAX || read_u32(header, 32)? != crc32fast::hash(header.get(..32)?) {
            return None;
        }
        let end = RECORD_HEADER_BYTES + len;
        let crc = read_u32(header, 4)?;
        if crc32fast::hash(input.get(RECORD_HEADER_BYTES..end)?) != crc {
            return None;
        }
        let record = Record {
            tablet: TabletId(read_u64(header, 8)?),
            first: SeqNo(read_u64(header, 16)?),
            last: SeqNo(read_u64(header, 24)?),
            payload: Payload {
                bytes: input.slice(RECORD_HEADER_BYTES..end),
                rest: Vec::new(),
                crc,
            },
        };
        *input = input.slice(end..);
        (record.first <= record.last).then_some(record)
    }
}

/// The path of a segment.
pub fn segment_path(stream: u32, number: u64) -> String {
    format!("{}{number:016x}.log", stream_directory(stream))
}

/// The directory of a stream's segments.
pub fn stream_directory(stream: u32) -> String {
    format!("log/{stream:04x}/")
}

/// The stream of a directory directly below `log/`, by its name.
pub fn parse_stream_name(name: &str) -> Option<u32> {
    let stream = u32::from_str_radix(name, 16).ok()?;
    (stream_directory(stream).strip_prefix("log/")?.strip_suffix('/')? == name).then_some(stream)
}

/// The stream and number of a segment's path. Only a path that [`segment_path`] makes has them: no capital digits, no signs.
pub fn parse_segment_path(path: &str) -> Option<(u32, u64)> {
    let (stream, file) = path.strip_prefix("log/")?.split_once('/')?;
    let number = file.strip_suffix(".log")?;
    if stream.len() != 4 || number.len() != 16 {
        return None;
    }
    let (stream, number) = (
        u32::from_str_radix(stream, 16).ok()?,
        u64::from_str_radix(number, 16).ok()?,
    );
    (segment_path(stream, number) == path).then_some((stream, number))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_checksum_does_not_excuse_what_we_never_write() {
        let header = SegmentHeader {
            version: VERSION,
            stream: 1,
            number: 2,
            previous: 1,
            previous_len: 90,
            previous_synced: 56,
        };
        let with = |at: usize, value: u32| {
            let mut bytes = header.encode().to_vec();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let crc = crc32fast::hash(&bytes[..52]);
            bytes[52..].copy_from_slice(&crc.to_le_bytes());
            SegmentHeader::decode(&bytes)
        };
        assert_eq!(with(8, VERSION), Some(header));
        assert_eq!(with(8, 0), None, "version 0");
        assert_eq!(with(32, 1), None, "reserved bytes");
        assert_eq!(with(8, VERSION + 1).map(|h| h.version), Some(VERSION + 1));
        let group = |records| GroupHeader {
            records_len: 0,
            records,
            offset: 56,
            unsynced: 0,
        };
        assert_eq!(GroupHeader::decode(2, &group(1).encode(2)), Some(group(1)));
        assert_eq!(
            GroupHeader::decode(2, &group(0).encode(2)),
            None,
            "a group without records"
        );
    }

    #[test]
    fn paths_have_one_spelling() {
        assert_eq!(parse_stream_name("b2af"), Some(0xb2af));
        for other in ["B2af", "0b2af", "b2", "+b2a", ""] {
            assert_eq!(parse_stream_name(other), None, "{other}");
        }
        let path = segment_path(0xb2af, 0xab);
        assert_eq!(parse_segment_path(&path), Some((0xb2af, 0xab)));
        for other in [
            path.to_uppercase(),
            path.replace("b2af", "B2AF"),
            path.replace("b2af", "+2af"),
        ] {
            assert_eq!(parse_segment_path(&other), None, "{other}");
        }
    }
}
