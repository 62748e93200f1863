//! Tests of `frame`.

use super::*;
use crate::messages::{ExceptionResponse, GetProcedureResultRequest, UserInformation};
use proptest::prelude::*;

fn request(call_id: u32, cells: &'static [u8]) -> BytesMut {
    let mut out = BytesMut::new();
    let method_name = Some(Bytes::from_static(b"Get"));
    let header = RequestHeader {
        call_id: Some(call_id),
        method_name,
        ..RequestHeader::default()
    };
    let message = GetProcedureResultRequest { proc_id: 7 };
    encode_request(&mut out, header, &message, &Bytes::from_static(cells)).unwrap();
    out
}

#[test]
fn a_request_has_the_layout_of_the_documentation() {
    let expected = [
        &[0, 0, 0, 19, 13, 8, 5, 26, 3][..],
        b"Get",
        &[32, 1, 42, 2, 8, 2, 2, 8, 7],
        b"zz",
    ]
    .concat();
    assert_eq!(&request(5, b"zz")[..], &expected[..]);
}

#[test]
fn a_frame_is_taken_when_its_last_byte_is_there() {
    let whole = request(5, b"cells");
    for len in 0..whole.len() {
        let mut part = BytesMut::from(&whole[..len]);
        assert_eq!(take_frame(&mut part, 1000), Ok(None));
        assert_eq!(part.len(), len);
    }
    let mut two = whole.clone();
    two.extend_from_slice(&whole);
    let first = take_frame(&mut two, 1000).unwrap().unwrap();
    let request = decode_request(first).unwrap();
    assert_eq!((request.header.call_id, &request.cells[..]), (Some(5), &b"cells"[..]));
    assert_eq!(two, whole);
}

#[test]
fn a_frame_above_the_limit_is_refused_by_its_length() {
    let mut received = BytesMut::from(&[0, 0, 1, 0][..]);
    assert_eq!(frame_bytes(&received, 256), Ok(Some(260)));
    assert_eq!(take_frame(&mut received, 256), Ok(None));
    let refused = take_frame(&mut received, 255);
    assert_eq!(
        refused,
        Err(WireError::TooLong {
            what: "frame",
            limit: 255,
            found: 256
        })
    );
}

#[test]
fn a_response_with_an_exception_has_no_message() {
    let exception = Some(ExceptionResponse {
        exception_class_name: Some(crate::exception::NOT_SERVING_REGION.into()),
        ..ExceptionResponse::default()
    });
    let header = ResponseHeader {
        call_id: Some(9),
        exception,
        cell_block_meta: None,
    };
    let mut out = BytesMut::new();
    encode_response(&mut out, header.clone(), None::<&GetProcedureResultRequest>, &()).unwrap();
    let frame = take_frame(&mut out, 1000).unwrap().unwrap();
    assert_eq!(decode_response(frame.clone()).unwrap().header, header);
    let longer = [&frame[..], &[0]].concat();
    assert!(decode_response(longer.into()).is_err(), "nothing may follow");
}

#[test]
fn a_preamble_survives_the_round_trip_and_others_are_refused() {
    let header = ConnectionHeader {
        user_info: Some(UserInformation {
            effective_user: "u".into(),
            real_user: None,
        }),
        service_name: Some("ClientService".into()),
        ..ConnectionHeader::default()
    };
    let mut out = BytesMut::new();
    encode_preamble(&mut out, &header);
    for len in 0..out.len() {
        assert_eq!(take_preamble(&mut BytesMut::from(&out[..len])), Ok(None));
    }
    let mut kerberos = out.clone();
    kerberos[5] = 81;
    assert!(take_preamble(&mut kerberos).is_err());
    let mut long = out.clone();
    long[6] = 1;
    assert!(take_preamble(&mut long).is_err());
    assert_eq!(take_preamble(&mut out), Ok(Some(header)));
    assert!(out.is_empty());
}

proptest! {
    #[test]
    fn requests_and_responses_survive_the_round_trip(
        call_id: u32, cells in prop::collection::vec(any::<u8>(), 0..100), proc_id: u64,
    ) {
        let cells = Bytes::from(cells);
        let message = GetProcedureResultRequest { proc_id };
        let mut out = BytesMut::new();
        let header = RequestHeader { call_id: Some(call_id), ..RequestHeader::default() };
        encode_request(&mut out, header, &message, &cells).unwrap();
        let header = ResponseHeader { call_id: Some(call_id), ..ResponseHeader::default() };
        encode_response(&mut out, header, Some(&message), &cells).unwrap();
        let request = decode_request(take_frame(&mut out, 1000).unwrap().unwrap()).unwrap();
        let response = decode_response(take_frame(&mut out, 1000).unwrap().unwrap()).unwrap();
        prop_assert_eq!(request.header.call_id, Some(call_id));
        prop_assert_eq!(response.header.call_id, Some(call_id));
        prop_assert_eq!((&request.message, &request.cells), (&response.message, &cells));
        prop_assert_eq!(response.cells, cells);
        prop_assert_eq!(GetProcedureResultRequest::decode(response.message).unwrap(), message);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_request(bytes.clone().into());
        let _ = decode_response(bytes.clone().into());
        let _ = take_preamble(&mut BytesMut::from(&bytes[..]));
        let _ = take_frame(&mut BytesMut::from(&bytes[..]), 1000);
    }
}
