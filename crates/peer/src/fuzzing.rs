//! Checks of decoders for fuzz targets.
//!
//! Any bytes are refused or decoded, and decode to the same again once encoded. The checks are here, because encodings are no interface of the crate.

use crate::messages::CallKind;
use crate::segments::Segments;
use crate::{messages, origin, rows, traced, worked};
use bytes::Bytes;

/// Checks a body as each kind of request.
pub fn requests(body: &Bytes) {
    if let Ok(read) = messages::decode_read(body.clone()) {
        // A filter of the greatest depth and size can be encoded again.
        let again = messages::encode_read(&read).expect("a decoded read is within the limits");
        let same = messages::decode_read(again.into_bytes()).expect("an encoded read");
        assert_eq!(format!("{same:?}"), format!("{read:?}"));
    }
    if let Ok((writes, durability)) = messages::decode_mutate(body.clone()) {
        let again = messages::encode_mutate(&writes, durability).into_bytes();
        let (same, same_durability) = messages::decode_mutate(again).expect("encoded writes");
        assert_eq!(durability, same_durability);
        assert!(
            writes
                .iter()
                .map(|row| row.to_owned())
                .eq(same.iter().map(|row| row.to_owned()))
        );
    }
    if let Ok((writes, durability)) = messages::decode_timed_mutate(body.clone()) {
        let time = writes.server_time().expect("it is timed");
        let again = messages::encode_timed_mutate(&writes, durability, time.at).into_bytes();
        let (same, same_durability) = messages::decode_timed_mutate(again).expect("encoded writes");
        assert_eq!((durability, Some(time)), (same_durability, same.server_time()));
    }
    if let Ok(operation) = messages::decode_row_operation(body.clone()) {
        let (kind, again) = messages::encode_row_operation(&operation).expect("a decoded condition can travel");
        assert_eq!(kind, CallKind::RowOperation);
        let same = messages::decode_row_operation(again.into_bytes()).expect("an encoded operation");
        assert_eq!(format!("{same:?}"), format!("{operation:?}"));
    }
    if let Ok(operation) = messages::decode_tested_row_operation(body.clone()) {
        let (kind, again) = messages::encode_row_operation(&operation).expect("a decoded test can travel");
        assert_eq!(kind, CallKind::TestedRowOperation);
        let same = messages::decode_tested_row_operation(again.into_bytes()).expect("an encoded operation");
        assert_eq!(format!("{same:?}"), format!("{operation:?}"));
    }
    if let Ok(operation) = messages::decode_rows_operation(body.clone()) {
        let again = messages::encode_rows_operation(&operation).expect("decoded tests can travel");
        let same = messages::decode_rows_operation(again.into_bytes()).expect("an encoded operation");
        assert_eq!(format!("{same:?}"), format!("{operation:?}"));
    }
    same(body, messages::decode_sample_request, |every| {
        messages::encode_sample_request(*every)
    });
    if let Ok((carried, rest)) = traced::decode_trace(body.clone()) {
        let mut content = Segments::default();
        content.slice(&rest);
        assert_eq!(traced::with_trace(Some(carried), content).into_bytes(), body);
    }
    if let Ok((caller, rest)) = origin::decode_caller(body.clone()) {
        let mut content = Segments::default();
        content.slice(&rest);
        assert_eq!(origin::encode_caller(&caller, content).into_bytes(), body);
    }
}

/// Checks a body as each kind of answer.
pub fn answers(body: &Bytes) {
    same(body, rows::decode, rows::encode);
    same(body, messages::decode_outcome, messages::encode_outcome);
    same(body, messages::decode_sample, messages::encode_sample);
    same(body, messages::decode_figures, messages::encode_figures);
    same(body, messages::decode_held, |held| messages::encode_held(*held));
    same(body, worked::decode_work, worked::encode_work);
}

/// Valid bodies from which fuzzing starts: of requests and of answers.
pub fn seeds() -> (Vec<Bytes>, Vec<Bytes>) {
    let (mut requests, mut answers) = crate::messages::samples::bodies();
    requests.extend(crate::messages::samples::tested());
    requests.push(crate::messages::samples::timed());
    answers.extend(crate::messages::samples::figures());
    (requests, answers)
}

/// A valid frame around a body, as every kind that has one.
pub fn frames(body: &Bytes) -> Vec<Bytes> {
    use crate::frame::{Encoded, FrameKind};
    let kinds = [
        (FrameKind::Request, &[0u8; 24][..]),
        (FrameKind::Response, &[]),
        (FrameKind::Rows, &[]),
        (FrameKind::Error, &[8, 0]),
    ];
    let frame = |(kind, header): (FrameKind, &[u8])| {
        let mut content = Segments::default();
        content.slice(body);
        let frame = Encoded::new(kind, 0, 7, header, content)?;
        Some([frame.head(), &frame.body.concat()].concat().into())
    };
    kinds.into_iter().filter_map(frame).collect()
}

fn same<T: PartialEq + std::fmt::Debug>(
    body: &Bytes,
    decode: impl Fn(Bytes) -> crate::cursor::Decoded<T>,
    encode: impl Fn(&T) -> Segments,
) {
    if let Ok(decoded) = decode(body.clone()) {
        assert_eq!(decode(encode(&decoded).into_bytes()).as_ref(), Ok(&decoded));
    }
}
