use super::*;

fn encoded(kind: FrameKind, flags: u8, header: &[u8], body: &[u8]) -> BytesMut {
    let mut content = Segments::default();
    content.slice(body);
    let frame = Encoded::new(kind, flags, 7, header, content).unwrap();
    let mut out = BytesMut::from(frame.head());
    frame.body.iter().for_each(|part| out.extend_from_slice(part));
    out
}

fn take(bytes: &mut BytesMut) -> Decoded<Option<Frame>> {
    match Head::peek(bytes)? {
        Some(head) => Frame::take(bytes, &head),
        None => Ok(None),
    }
}

/// Writes the checksum of a changed head.
fn seal(bytes: &mut BytesMut) {
    let crc = crc32fast::hash(&bytes[..20]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_frame_arrives_whole_or_not_at_all() {
    let whole = encoded(FrameKind::Error, OUTCOME_UNKNOWN, &[9, 0], b"lost");
    for length in 0..whole.len() {
        assert_eq!(take(&mut BytesMut::from(&whole[..length])), Ok(None));
    }
    let mut two = whole.clone();
    two.extend_from_slice(&whole);
    for _ in 0..2 {
        let frame = take(&mut two).unwrap().unwrap();
        assert_eq!(
            (frame.kind, frame.flags, frame.call),
            (FrameKind::Error, OUTCOME_UNKNOWN, 7)
        );
        assert_eq!((&frame.header[..], &frame.body[..]), (&[9, 0][..], &b"lost"[..]));
    }
    assert!(two.is_empty());
}

#[test]
fn a_flipped_bit_is_found() {
    let whole = encoded(FrameKind::Rows, LAST, &[], b"body");
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(take(&mut damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn heads_that_no_frame_has_are_refused() {
    let change = |at: usize, to: &[u8]| {
        let mut bytes = encoded(FrameKind::Rows, 0, &[], b"");
        bytes[at..at + to.len()].copy_from_slice(to);
        seal(&mut bytes);
        Head::peek(&bytes).unwrap_err()
    };
    let long = FRAME_BYTES_MAX as u32 + 1;
    assert_eq!(change(0, &long.to_le_bytes()), ProtocolError::FrameLength(long));
    assert_eq!(change(0, &[23, 0, 0, 0]), ProtocolError::FrameLength(23));
    assert_eq!(change(4, &[99]), ProtocolError::FrameKind(99));
    assert_eq!(change(5, &[2]), ProtocolError::Flags { kind: 5, flags: 2 });
    assert!(matches!(change(6, &[1]), ProtocolError::Malformed { what: "head", .. }));
    // A cancel has no body.
    let mut bytes = encoded(FrameKind::Cancel, 0, &[], b"");
    bytes[0] = 25;
    seal(&mut bytes);
    assert_eq!(Head::peek(&bytes), Err(ProtocolError::FrameLength(25)));
}

#[test]
fn a_frame_gets_its_call_late() {
    let mut frame = Encoded::bare(FrameKind::Need, 0, &5u64.to_le_bytes());
    frame.set_call(u64::MAX);
    let taken = take(&mut BytesMut::from(frame.head())).unwrap().unwrap();
    assert_eq!((taken.call, taken.amount()), (u64::MAX, Ok(5)));
}
