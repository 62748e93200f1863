//! Messages as JSON.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stele_client::{ServiceError, ServiceResult};
use stele_types::ErrorKind;

/// An outcome within a message: of one of several things that were asked for, or one whose error is no error of the call.
pub(crate) type Outcome<T = ()> = Result<T, (u16, String)>;

/// Bytes of a message.
pub(crate) fn encode(message: &impl Serialize) -> ServiceResult<Bytes> {
    let bytes = serde_json::to_vec(message);
    let bytes = bytes.map_err(|error| ServiceError::new(ErrorKind::Internal, format!("a control call: {error}")))?;
    Ok(bytes.into())
}

/// A message from bytes.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> ServiceResult<T> {
    let message = serde_json::from_slice(bytes);
    message.map_err(|error| {
        let message = format!("a control call that this version does not know: {error}");
        ServiceError::new(ErrorKind::Unimplemented, message)
    })
}

/// A message with the time at which it is sent, which precedes it.
pub(crate) fn timed(wall_micros: i64, message: &[u8]) -> Bytes {
    [&wall_micros.to_le_bytes(), message].concat().into()
}

/// The time before a message, and the message.
pub(crate) fn untimed(bytes: &[u8]) -> ServiceResult<(i64, &[u8])> {
    let (time, message) = bytes.split_first_chunk().ok_or_else(|| {
        let why = "a message of a control call is shorter than its time";
        ServiceError::new(ErrorKind::Unimplemented, why)
    })?;
    Ok((i64::from_le_bytes(*time), message))
}

/// An outcome for the wire.
pub(crate) fn outcome<T>(result: ServiceResult<T>) -> Outcome<T> {
    result.map_err(|error| (error.kind.number(), error.message))
}

/// An outcome from the wire.
pub(crate) fn result<T>(outcome: Outcome<T>) -> ServiceResult<T> {
    outcome.map_err(|(number, message)| ServiceError::new(ErrorKind::of_number(number), message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_its_time() {
        for time in [i64::MIN, -1, 0, 1_700_000_000_000_000, i64::MAX] {
            assert_eq!(untimed(&timed(time, b"true")).unwrap(), (time, b"true".as_slice()));
        }
        for length in 0..8 {
            assert_eq!(untimed(&[0; 8][..length]).unwrap_err().kind, ErrorKind::Unimplemented);
        }
    }
}
