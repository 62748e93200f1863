//! The outcomes of the entries of a MutateRows request, encoded as response messages.

use crate::messages::PREFIX_BYTES;
use crate::protobuf::{bytes_field_len, put_bytes_field, put_bytes_head, put_varint_field, varint_len};
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use tonic::Status;

/// The outcome of one entry.
pub(crate) type Outcome = Result<(), Status>;

/// Entries of one message: with texts of up to 400 bytes each, all failing, this stays below 4 MiB.
const ENTRIES_PER_MESSAGE: usize = 10_000;

/// Bytes of an entry's error message; longer ones are cut.
const ENTRY_MESSAGE_BYTES_MAX: usize = 300;

/// Bytes of an entry that succeeded, at most: numbers below 100,000 take three.
const GOOD_ENTRY_BYTES: usize = 8;

/// The service returned fewer results than rows: it is unknown whether the row was written.
pub(crate) fn missing() -> Status {
    Status::internal("The server did not report the outcome of the write; it may or may not have been applied")
}

/// The part of an entry's refusal that is sent. There may be a hundred thousand refusals, each of which quotes a name
/// in six times the bytes that it has in the request.
pub(crate) fn kept(refusal: &Status) -> Status {
    Status::new(refusal.code(), cut(refusal.message(), ENTRY_MESSAGE_BYTES_MAX))
}

/// Messages behind their prefixes, with one result for every entry, in order.
pub(crate) fn messages(outcomes: &[Outcome]) -> Result<VecDeque<Bytes>, Status> {
    let mut messages = VecDeque::with_capacity(outcomes.len().div_ceil(ENTRIES_PER_MESSAGE));
    for (number, entries) in outcomes.chunks(ENTRIES_PER_MESSAGE).enumerate() {
        let mut out = BytesMut::with_capacity(PREFIX_BYTES + entries.len() * GOOD_ENTRY_BYTES);
        out.put_bytes(0, PREFIX_BYTES);
        for (index, outcome) in entries.iter().enumerate() {
            put_entry(&mut out, (number * ENTRIES_PER_MESSAGE + index) as u64, outcome);
        }
        let length = u32::try_from(out.len() - PREFIX_BYTES)
            .map_err(|_| Status::resource_exhausted("The response does not fit into a message"))?;
        if let Some(prefix) = out.first_chunk_mut::<PREFIX_BYTES>() {
            prefix[1..].copy_from_slice(&length.to_be_bytes());
        }
        messages.push_back(out.freeze());
    }
    Ok(messages)
}

/// Appends `google.bigtable.v2.MutateRowsResponse.Entry`: the index, and a `google.rpc.Status`, which is empty for OK.
fn put_entry(out: &mut BytesMut, index: u64, outcome: &Outcome) {
    if outcome.is_ok() && (1..0x80).contains(&index) {
        // The same bytes as below, written in one step: nearly all entries of nearly all responses.
        return out.put_slice(&[0x0a, 4, 0x08, index as u8, 0x12, 0]);
    }
    let (code, text) = match outcome {
        Ok(()) => (0, ""),
        Err(status) => (status.code() as u64, cut(status.message(), ENTRY_MESSAGE_BYTES_MAX)),
    };
    let number = |value: u64| if value == 0 { 0 } else { 1 + varint_len(value) };
    let text_len = if text.is_empty() {
        0
    } else {
        bytes_field_len(text.len())
    };
    let status_len = number(code) + text_len;
    put_bytes_head(out, 1, number(index) + bytes_field_len(status_len));
    if index != 0 {
        put_varint_field(out, 1, index);
    }
    put_bytes_head(out, 2, status_len);
    if code != 0 {
        put_varint_field(out, 1, code);
    }
    if !text.is_empty() {
        put_bytes_field(out, 2, text.as_bytes());
    }
}

/// At most `max` bytes of a text, whole characters.
fn cut(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::v2;
    use crate::status::{family_not_found, invalid};
    use prost::Message as _;
    use tonic::Code;

    fn decoded(message: &Bytes) -> v2::MutateRowsResponse {
        let (prefix, content) = message.split_first_chunk::<PREFIX_BYTES>().unwrap();
        assert_eq!(prefix[0], 0);
        assert_eq!(
            u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize,
            content.len()
        );
        let decoded = v2::MutateRowsResponse::decode(content).unwrap();
        assert_eq!(decoded.encode_to_vec(), content, "as prost would have written it");
        decoded
    }

    #[test]
    fn every_entry_has_one_result_in_small_messages() {
        let outcomes: Vec<Outcome> = (0..25_000)
            .map(|i| match i % 3 {
                0 => Ok(()),
                1 => Err(invalid("é".repeat(1_000))),
                _ => Err(invalid("")),
            })
            .collect();
        let messages = messages(&outcomes).unwrap();
        assert!(messages.iter().all(|m| m.len() < 4 << 20));
        let messages: Vec<_> = messages.iter().map(decoded).collect();
        let entries: Vec<_> = messages.iter().flat_map(|m| &m.entries).collect();
        assert_eq!(entries.len(), outcomes.len());
        for ((index, entry), outcome) in entries.iter().enumerate().zip(&outcomes) {
            let status = entry.status.as_ref().unwrap();
            assert_eq!(entry.index, index as i64);
            let (code, text) = match outcome {
                Ok(()) => (Code::Ok, String::new()),
                Err(status) => (status.code(), status.message().chars().take(150).collect()),
            };
            assert_eq!((status.code, &status.message), (code as i32, &text));
        }
    }

    #[test]
    fn no_more_is_kept_of_a_refusal_than_is_sent() {
        for text in ["short".to_owned(), format!("{:?}", "\u{7f}".repeat(10_000))] {
            let refusal = family_not_found(&text);
            let kept = kept(&refusal);
            assert!(kept.message().len() <= ENTRY_MESSAGE_BYTES_MAX);
            assert_eq!(messages(&[Err(kept)]).unwrap(), messages(&[Err(refusal)]).unwrap());
        }
    }

    #[test]
    fn an_empty_request_has_an_empty_response() {
        assert!(messages(&[]).unwrap().is_empty());
    }
}
