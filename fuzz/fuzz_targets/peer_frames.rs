//! Frames and handshakes between servers.
//!
//! Any bytes are refused or decoded, independent of how they arrive.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use stele_peer::{ANSWER_BYTES, Answer, Frame, HEAD_BYTES, HELLO_BYTES, Head, Hello};

fuzz_target!(|bytes: &[u8]| {
    if let Some(hello) = bytes.first_chunk::<HELLO_BYTES>()
        && let Ok(decoded) = Hello::decode(hello)
    {
        assert_eq!(&decoded.encode(), hello);
    }
    if let Some(answer) = bytes.first_chunk::<ANSWER_BYTES>()
        && let Ok(decoded) = Answer::decode(answer)
    {
        assert_eq!(&decoded.encode(), answer);
    }
    let mut whole = BytesMut::from(bytes);
    let mut pieces = BytesMut::new();
    let mut late = bytes.iter();
    while let Ok(Some(frame)) = take(&mut whole) {
        let same = loop {
            if let Ok(Some(same)) = take(&mut pieces) {
                break same;
            }
            pieces.extend_from_slice(&[*late.next().expect("the frame was there")]);
        };
        assert_eq!(frame, same);
        body(&frame.body);
    }
    // Checksums would refuse nearly everything: the bytes as a body in frames with right ones.
    for frame in stele_peer::fuzzing::frames(&Bytes::copy_from_slice(bytes)) {
        let mut received = BytesMut::from(&frame[..]);
        let taken = take(&mut received).expect("valid").expect("whole");
        assert_eq!(taken.body, bytes);
        let mut damaged = BytesMut::from(&frame[..]);
        let at = bytes.len() % HEAD_BYTES;
        damaged[at] ^= 1;
        assert!(!matches!(take(&mut damaged), Ok(Some(_))), "a damaged head");
    }
});

fn take(received: &mut BytesMut) -> Result<Option<Frame>, stele_peer::ProtocolError> {
    match Head::peek(received)? {
        Some(head) => Frame::take(received, &head),
        None => Ok(None),
    }
}

fn body(body: &Bytes) {
    stele_peer::fuzzing::requests(body);
    stele_peer::fuzzing::answers(body);
}
