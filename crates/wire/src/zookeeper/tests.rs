//! The protocol against bytes as ZooKeeper's Java client writes and reads them.

use super::*;
use bytes::BufMut as _;

#[test]
fn frames_are_taken_whole_and_their_length_is_bounded() {
    let mut received = BytesMut::from(&[0, 0, 0, 2, 7][..]);
    assert_eq!(take_frame(&mut received), Ok(None));
    received.put_slice(&[8, 9]);
    assert_eq!(take_frame(&mut received), Ok(Some(Bytes::from_static(&[7, 8]))));
    assert_eq!(&received[..], [9]);
    for length in [-1, FRAME_BYTES_MAX as i32 + 1, i32::MIN, i32::MAX] {
        let mut received = BytesMut::from(&length.to_be_bytes()[..]);
        assert!(take_frame(&mut received).is_err(), "{length}");
    }
}

#[test]
fn a_connection_is_asked_for_with_and_without_the_newer_flag() {
    let mut bytes = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 1, 0x5f, 0x90];
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16]);
    bytes.extend([0; 16]);
    let old = ConnectRequest {
        last_zxid_seen: 5,
        timeout_ms: 90_000,
        password: Bytes::from_static(&[0; 16]),
        ..ConnectRequest::default()
    };
    assert_eq!(ConnectRequest::decode(bytes.clone().into()), Ok(old.clone()));
    bytes.push(1);
    let new = ConnectRequest {
        read_only: Some(true),
        ..old
    };
    assert_eq!(ConnectRequest::decode(bytes.into()), Ok(new.clone()));
    let mut frame = BytesMut::new();
    new.encode(&mut frame);
    let frame = take_frame(&mut frame).unwrap().unwrap();
    assert_eq!(ConnectRequest::decode(frame), Ok(new));
}

#[test]
fn requests_are_read_as_they_are_written() {
    let path = || "/hbase/master".to_owned();
    let requests = [
        Request::Exists(path()),
        Request::GetData(path()),
        Request::GetAcl(path()),
        Request::GetChildren(path()),
        Request::GetChildren2(path()),
        Request::GetAllChildrenNumber(path()),
        Request::Sync(path()),
        Request::Ping,
        Request::Auth("digest".to_owned(), Bytes::from_static(b"user:secret")),
        Request::SetWatches(Watches { count: 3 }),
        Request::Close,
        Request::Write(1),
        Request::Other(106),
    ];
    for request in requests {
        let mut frame = BytesMut::new();
        request.encode(7, &mut frame);
        let frame = take_frame(&mut frame).unwrap().unwrap();
        let (header, same) = Request::decode(frame.clone()).unwrap();
        assert_eq!((header.xid, same), (7, request));
        for length in 0..frame.len() {
            // Nothing to assert: a part of a frame is refused or is another request, and does not panic.
            let _ = Request::decode(frame.slice(..length));
        }
    }
    let get = [0, 0, 0, 9, 0, 0, 0, 4, 0, 0, 0, 2, b'/', b'a', 1];
    let (header, request) = Request::decode(Bytes::copy_from_slice(&get)).unwrap();
    assert_eq!((header.xid, request), (9, Request::GetData("/a".to_owned())));
    let (header, _) = Request::decode(Bytes::copy_from_slice(&get[..10])).unwrap_err();
    assert_eq!(header.map(|header| header.xid), Some(9));
}

#[test]
fn responses_have_the_lengths_that_clients_expect() {
    let length = |code, body| {
        let mut out = BytesMut::new();
        Response { xid: 1, code, body }.encode(&mut out);
        take_frame(&mut out).unwrap().unwrap().len()
    };
    let stat = Stat::default();
    assert_eq!(length(Code::NoNode, Body::Empty), 16);
    assert_eq!(length(Code::Ok, Body::Stat(stat)), 16 + 68);
    assert_eq!(
        length(Code::Ok, Body::Data(Bytes::from_static(b"PBUF"), stat)),
        16 + 8 + 68
    );
    assert_eq!(
        length(Code::Ok, Body::Children(vec!["rs".to_owned()], None)),
        16 + 4 + 6
    );
    assert_eq!(length(Code::Ok, Body::Number(1)), 16 + 4);
    let connected = ConnectResponse {
        timeout_ms: 40_000,
        session_id: 9,
        has_read_only: true,
    };
    let mut out = BytesMut::new();
    connected.encode(&mut out);
    let frame = take_frame(&mut out).unwrap().unwrap();
    assert_eq!(frame.len(), 37);
    assert_eq!(ConnectResponse::decode(frame), Ok(connected));
}
