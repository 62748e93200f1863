//! gRPC messages in HTTP bodies.
//!
//! A message is preceded by one byte that says whether it is compressed, and four bytes with its length. A request has
//! exactly one message. Most requests arrive in one piece, which is used as it is; others are joined. The memory of a
//! request grows with the bytes that have arrived, never with an announced length. Refusals have the words of tonic.

use crate::status::{not_decoded, unimplemented};
use bytes::{BufMut, Bytes, BytesMut};
use http_body::Body as HttpBody;
use prost::Message;
use std::pin::Pin;
use std::time::Duration;
use tonic::Status;
use tonic::codegen::http;

/// Bytes before every message: whether it is compressed, and its length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// Bytes allocated for a message in several pieces because it announces as many. More is allocated as bytes arrive.
const JOINED_BYTES_FIRST: usize = 256 << 10;

/// Growth of the buffer relative to the bytes that have arrived. Pages that are not written to are not resident. While
/// a message moves to a larger buffer it is in memory twice.
const JOINED_GROWTH: usize = 4;

/// Once this part of a message has arrived, the buffer grows to its full size. The message is moved only while at most
/// a quarter of it has arrived, so it never takes more memory than when it is complete.
const JOINED_PART_LAST: usize = JOINED_GROWTH * JOINED_GROWTH;

const ENCODING_HEADER: &str = "grpc-encoding";
const TIMEOUT_HEADER: &str = "grpc-timeout";

/// Refuses a compressed request; no compression was offered.
pub(crate) fn check_encoding(headers: &http::HeaderMap) -> Result<(), Status> {
    let Some(encoding) = headers.get(ENCODING_HEADER).filter(|value| *value != "identity") else {
        return Ok(());
    };
    let encoding = String::from_utf8_lossy(encoding.as_bytes());
    let mut status = unimplemented(format!("Content is compressed with `{encoding}` which isn't supported"));
    let identity = tonic::metadata::MetadataValue::from_static("identity");
    status.metadata_mut().insert("grpc-accept-encoding", identity);
    Err(status)
}

/// The client's deadline, if the header can be parsed: up to eight digits and a unit.
pub(crate) fn time_limit(headers: &http::HeaderMap) -> Option<Duration> {
    let (unit, digits) = headers.get(TIMEOUT_HEADER)?.as_bytes().split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The message of a request. Reads to the end of the request, because a request that is answered before that would be
/// reset.
pub(crate) async fn message<B>(body: &mut B) -> Result<Bytes, Status>
where
    B: HttpBody<Data = Bytes, Error = Status> + Unpin,
{
    let mut there = Arrived::Nothing;
    while !body.is_end_stream() {
        let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        let Some(frame) = frame else { break };
        if let Ok(data) = frame?.into_data()
            && !is_whole(there.bytes())
        {
            there = there.with(data);
            check_prefix(there.bytes())?;
        }
    }
    let mut all = there.into_bytes();
    let Some((_, length)) = prefix(&all) else {
        return Err(if all.is_empty() {
            Status::internal("Missing request message.")
        } else {
            Status::internal("Unexpected EOF decoding stream.")
        });
    };
    let end = PREFIX_BYTES.saturating_add(length);
    if all.len() < end {
        return Err(Status::internal("Unexpected EOF decoding stream."));
    }
    Ok(all.split_to(end).split_off(PREFIX_BYTES))
}

/// Bytes of a request up to which it is copied before it is decoded. It may be the smaller part of the buffer that it
/// arrived in: a socket is read some ten kilobytes at a time, and only larger messages have most of their buffer. A copy
/// keeps nothing else in memory for as long as the call uses parts of its request.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// Decodes a request, whose decoded form has been charged.
pub(crate) fn decode<M: Message + Default>(bytes: Bytes) -> Result<M, Status> {
    let bytes = if bytes.len() <= COPIED_BYTES_MAX {
        Bytes::copy_from_slice(&bytes)
    } else {
        bytes
    };
    M::decode(bytes).map_err(|error| not_decoded(&error))
}

/// A message with its prefix.
pub(crate) fn framed(message: &impl Message) -> Result<Bytes, Status> {
    let length = message.encoded_len();
    let too_large = || Status::resource_exhausted(format!("A message of {length} bytes is more than fits in one"));
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + length);
    out.put_u8(0);
    out.put_u32(u32::try_from(length).map_err(|_| too_large())?);
    message.encode(&mut out).map_err(|_| too_large())?;
    Ok(out.freeze())
}

/// The part of a request that has arrived.
enum Arrived {
    Nothing,
    /// In one piece.
    Whole(Bytes),
    Joined(BytesMut),
}

impl Arrived {
    fn with(self, data: Bytes) -> Self {
        match self {
            there if data.is_empty() => there,
            Arrived::Nothing => Arrived::Whole(data),
            Arrived::Whole(first) => {
                let announced = prefix(&first).map_or(0, |(_, length)| length + PREFIX_BYTES);
                let capacity = announced.min(JOINED_BYTES_FIRST).max(2 * (first.len() + data.len()));
                let mut joined = BytesMut::with_capacity(capacity);
                joined.extend_from_slice(&first);
                joined.extend_from_slice(&data);
                Arrived::Joined(joined)
            }
            Arrived::Joined(mut joined) => {
                let full = joined.len() + data.len();
                if joined.capacity() < full {
                    let announced = prefix(&joined).map_or(0, |(_, length)| length + PREFIX_BYTES);
                    let capacity = if announced <= JOINED_PART_LAST * joined.len() {
                        announced
                    } else {
                        JOINED_GROWTH * joined.len()
                    }
                    .max(full);
                    joined.reserve(capacity - joined.len());
                }
                joined.extend_from_slice(&data);
                Arrived::Joined(joined)
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Arrived::Nothing => &[],
            Arrived::Whole(bytes) => bytes,
            Arrived::Joined(bytes) => bytes,
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Arrived::Nothing => Bytes::new(),
            Arrived::Whole(bytes) => bytes,
            Arrived::Joined(bytes) => bytes.freeze(),
        }
    }
}

/// The flag and the length at the front of a message, when they are there.
fn prefix(bytes: &[u8]) -> Option<(u8, usize)> {
    let [flag, length @ ..] = *bytes.first_chunk::<PREFIX_BYTES>()?;
    Some((flag, u32::from_be_bytes(length) as usize))
}

/// Whether the message is complete. Bytes after it are ignored.
fn is_whole(bytes: &[u8]) -> bool {
    prefix(bytes).is_some_and(|(_, length)| bytes.len() >= length + PREFIX_BYTES)
}

/// Refuses a message because of its prefix, if that has arrived.
fn check_prefix(bytes: &[u8]) -> Result<(), Status> {
    match prefix(bytes) {
        Some((1, _)) => Err(Status::internal(
            "protocol error: received message with compressed-flag but no grpc-encoding was specified",
        )),
        Some((flag, _)) if flag > 1 => Err(Status::internal(format!(
            "protocol error: received message with invalid compression flag: {flag} (valid flags are 0 and 1), while \
             sending request"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;
    use tonic::body::Body;

    /// A body that arrives in these pieces.
    struct Pieces(std::vec::IntoIter<Vec<u8>>);

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
            let piece = self.0.next();
            std::task::Poll::Ready(piece.map(|piece| Ok(http_body::Frame::data(piece.into()))))
        }
    }

    async fn read(bytes: &[u8], piece_bytes: usize) -> Result<Bytes, Status> {
        let pieces: Vec<Vec<u8>> = bytes.chunks(piece_bytes).map(<[u8]>::to_vec).collect();
        message(&mut Pieces(pieces.into_iter())).await
    }

    #[tokio::test]
    async fn requests_arrive_in_any_pieces() {
        let body = [&[0, 0, 0, 0, 4][..], b"abcd", b"trailing"].concat();
        for piece_bytes in 1..=body.len() {
            assert_eq!(read(&body, piece_bytes).await.unwrap(), "abcd", "{piece_bytes}");
            assert_eq!(read(&body[..9], piece_bytes).await.unwrap(), "abcd", "{piece_bytes}");
            for cut in 1..9 {
                let error = read(&body[..cut], piece_bytes).await.unwrap_err();
                assert_eq!(error.message(), "Unexpected EOF decoding stream.");
            }
        }
        assert_eq!(read(&[0; 5], 2).await.unwrap(), "");
    }

    #[tokio::test]
    async fn malformed_requests_are_refused() {
        let code = |bytes: &'static [u8]| async move { read(bytes, 3).await.unwrap_err().code() };
        assert_eq!(code(&[]).await, Code::Internal);
        assert_eq!(code(&[1, 0, 0, 0, 0]).await, Code::Internal);
        assert_eq!(code(&[7, 0, 0, 0, 0]).await, Code::Internal);
        assert_eq!(message(&mut Body::empty()).await.unwrap_err().code(), Code::Internal);
        let mut headers = http::HeaderMap::new();
        assert!(check_encoding(&headers).is_ok());
        headers.insert(ENCODING_HEADER, http::HeaderValue::from_static("identity"));
        assert!(check_encoding(&headers).is_ok());
        headers.insert(ENCODING_HEADER, http::HeaderValue::from_static("gzip"));
        assert_eq!(check_encoding(&headers).unwrap_err().code(), Code::Unimplemented);
    }

    #[test]
    fn frames_begin_with_their_length() {
        assert_eq!(
            framed(&"abc".to_owned()).unwrap()[..],
            [0, 0, 0, 0, 5, 0x0a, 3, b'a', b'b', b'c']
        );
    }

    #[test]
    fn time_limits_are_digits_and_a_unit() {
        let of = |text: &str| {
            let mut headers = http::HeaderMap::new();
            headers.insert(TIMEOUT_HEADER, text.parse().unwrap());
            time_limit(&headers)
        };
        assert_eq!(time_limit(&http::HeaderMap::new()), None);
        let good = [
            ("2H", Duration::from_secs(7_200)),
            ("3M", Duration::from_secs(180)),
            ("00000004S", Duration::from_secs(4)),
            ("5m", Duration::from_millis(5)),
            ("6u", Duration::from_micros(6)),
            ("99999999n", Duration::from_nanos(99_999_999)),
            ("0S", Duration::ZERO),
        ];
        for (text, limit) in good {
            assert_eq!(of(text), Some(limit), "{text}");
        }
        for bad in ["", "S", "5", "5s", "-5S", "+5S", "5 S", "123456789S", "5SS"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
