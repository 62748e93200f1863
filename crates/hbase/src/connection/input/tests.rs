//! Frames that arrive in pieces, from a pipe in memory.

use super::*;
use stele_memory::{Part, Pool};
use stele_wire::messages::{Empty, RequestHeader};
use tokio::io::AsyncWriteExt;

/// Reads until a request has arrived.
async fn arrived(input: &mut Input, socket: &mut (impl AsyncRead + Unpin)) -> Arrived {
    loop {
        if let Some(arrived) = input.take().unwrap() {
            return arrived;
        }
        let n = std::future::poll_fn(|cx| input.poll_read(socket, cx)).await.unwrap();
        assert!(n > 0, "the pipe stays open");
    }
}

fn request(call_id: Option<u32>, cells: usize) -> BytesMut {
    let mut out = BytesMut::new();
    let header = RequestHeader {
        call_id,
        method_name: Some("Mutate".into()),
        ..RequestHeader::default()
    };
    frame::encode_request(&mut out, header, &Empty {}, &Bytes::from(vec![7; cells])).unwrap();
    out
}

#[tokio::test]
async fn a_length_alone_reserves_and_allocates_nothing() {
    let pool = Pool::default().limited(Part::Requests, 64 << 20);
    let requests = pool.of(Part::Requests);
    let mut input = Input::new(&requests);
    let (mut client, mut server) = tokio::io::duplex(1 << 20);
    let frame = request(Some(1), 40 << 20);
    let (begin, rest) = frame.split_at(4);
    client.write_all(begin).await.unwrap();
    std::future::poll_fn(|cx| input.poll_read(&mut server, cx))
        .await
        .unwrap();
    assert!(input.take().unwrap().is_none());
    assert!(input.is_within_frame());
    assert_eq!(requests.used(), 0);
    assert!(input.received.capacity() <= 2 * READ_BYTES);
    // The rest comes in pieces, and never is more than twice its size reserved.
    let mut sent = 4;
    for piece in rest.chunks(1 << 20) {
        client.write_all(piece).await.unwrap();
        sent += piece.len();
        while input.taken() < sent as u64 {
            std::future::poll_fn(|cx| input.poll_read(&mut server, cx))
                .await
                .unwrap();
            if input.taken() == frame.len() as u64 {
                break;
            }
            assert!(input.take().unwrap().is_none());
            let (here, capacity) = (input.received.len(), input.received.capacity());
            assert!(requests.used() <= 2 * here, "{} for {here}", requests.used());
            assert!(capacity <= 3 * here.max(READ_BYTES), "{capacity} for {here}");
        }
    }
    match input.take().unwrap() {
        Some(Arrived::Request(request, memory)) => {
            assert_eq!((request.cells.len(), memory.counted()), (40 << 20, frame.len()));
        }
        _ => unreachable!("the request has arrived"),
    }
    assert_eq!(requests.used(), 0);
    assert!(
        input.received.capacity() <= READ_BYTES,
        "the large buffer goes with its frame"
    );
}

#[tokio::test]
async fn a_refused_request_is_answered_by_its_number_even_if_its_header_is_long() {
    let pool = Pool::default().limited(Part::Requests, 1 << 20);
    let mut input = Input::new(&pool.of(Part::Requests));
    let (mut client, mut server) = tokio::io::duplex(4 << 20);
    let mut out = BytesMut::new();
    let header = RequestHeader {
        call_id: Some(77),
        method_name: Some(vec![b'm'; 8 << 10].into()),
        ..RequestHeader::default()
    };
    frame::encode_request(&mut out, header, &Empty {}, &Bytes::from(vec![7; 2 << 20])).unwrap();
    out.extend_from_slice(&request(Some(78), 10));
    client.write_all(&out).await.unwrap();
    match arrived(&mut input, &mut server).await {
        Arrived::Refused(77, failure) => assert_eq!(failure.class, exception::REQUEST_TOO_BIG),
        _ => unreachable!("refused by its number"),
    }
    // The next request follows it.
    assert!(matches!(arrived(&mut input, &mut server).await, Arrived::Request(..)));
}

#[tokio::test]
async fn a_request_that_is_longer_than_any_may_be_is_answered_by_its_number() {
    let mut input = Input::new(&Pool::default().of(Part::Requests));
    let (mut client, mut server) = tokio::io::duplex(4 << 20);
    let mut out = request(Some(79), 8 << 10);
    let here = out.len();
    out[..4].copy_from_slice(&(300u32 << 20).to_be_bytes());
    client.write_all(&out).await.unwrap();
    match arrived(&mut input, &mut server).await {
        Arrived::Refused(79, failure) => assert_eq!(failure.class, exception::REQUEST_TOO_BIG),
        _ => unreachable!("refused by its number"),
    }
    // The rest of it is skipped, and the next request follows.
    assert!(input.received.is_empty() && input.is_within_frame());
    assert_eq!(input.skipping, (300 << 20) + 4 - here);
    input.skipping = 0;
    client.write_all(&request(Some(80), 10)).await.unwrap();
    assert!(matches!(arrived(&mut input, &mut server).await, Arrived::Request(..)));
    // No client can write such a length.
    client.write_all(&[0xFF; 16]).await.unwrap();
    std::future::poll_fn(|cx| input.poll_read(&mut server, cx))
        .await
        .unwrap();
    assert!(input.take().is_err());
}

#[tokio::test]
async fn a_refused_request_without_a_number_ends_the_connection() {
    let pool = Pool::default().limited(Part::Requests, 1 << 20);
    let mut input = Input::new(&pool.of(Part::Requests));
    let (mut client, mut server) = tokio::io::duplex(4 << 20);
    client.write_all(&request(None, 2 << 20)).await.unwrap();
    let error = loop {
        match input.take() {
            Ok(None) => {}
            Ok(Some(_)) => unreachable!("nothing to answer to"),
            Err(error) => break error,
        }
        std::future::poll_fn(|cx| input.poll_read(&mut server, cx))
            .await
            .unwrap();
    };
    assert!(error.to_string().contains("the number of the call"), "{error}");
}
