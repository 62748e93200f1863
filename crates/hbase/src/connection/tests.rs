//! Clients that take or send too little.

use super::*;
use crate::test_service::{Client, Model, message};
use bytes::Bytes;
use std::sync::atomic::Ordering;
use stele_memory::Pool;
use stele_wire::messages::{
    ColumnValue, Get, GetRequest, GetResponse, MutateRequest, MutationProto, MutationType, QualifierValue,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn get(model: &Model, row: &'static str) -> GetRequest {
    GetRequest {
        region: model.region(row),
        get: Get {
            row: row.into(),
            ..Get::default()
        },
    }
}

fn put(model: &Model, row: &'static str) -> MutateRequest {
    MutateRequest {
        region: model.region(row),
        mutation: MutationProto {
            row: Some(row.into()),
            mutate_type: Some(MutationType::Put as i32),
            column_value: vec![ColumnValue {
                family: "info".into(),
                qualifier_value: vec![QualifierValue {
                    qualifier: Some("q".into()),
                    value: Some("v".into()),
                    ..QualifierValue::default()
                }],
            }],
            ..MutationProto::default()
        },
        ..MutateRequest::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_responses_does_not_hold_latches() {
    let model = Model::new(&[""]);
    model.put("r", "q", Bytes::from(vec![7; 200_000]));
    model.writes.forget_permits(1_000);
    let front_end = model.front_end(&Pool::default());
    let (mut stalled, served) = Client::connect(&front_end, 64 << 10, None).await;
    stalled.send("Mutate", &put(&model, "w"), &()).await;
    for _ in 0..20 {
        stalled.send("Get", &get(&model, "r"), &()).await;
    }
    // The write has its latch and waits, and the output is full.
    env_passes(Duration::from_secs(1)).await;
    assert!(model.latch.try_lock().is_none());
    model.writes.add_permits(2);
    env_passes(Duration::from_secs(1)).await;
    assert!(model.latch.try_lock().is_some(), "the write went on");
    let (mut other, _served) = Client::connect(&front_end, 64 << 10, None).await;
    other.call("Mutate", &put(&model, "w")).await;
    // The stalled client gets all of its responses if it reads on, and they no longer count as reserved.
    for _ in 0..21 {
        stalled.response().await;
    }
    drop(stalled);
    served.await.unwrap().unwrap();
    assert_eq!(front_end.shared.requests.used(), 0);
}

/// Lets time pass.
#[allow(clippy::disallowed_methods, reason = "the clock of the test's runtime")]
async fn env_passes(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_must_send_the_rest_of_a_frame() {
    let model = Model::new(&[""]);
    let front_end = model.front_end(&Pool::default());
    let (mut idle, idle_served) = Client::connect(&front_end, 64 << 10, None).await;
    let found: GetResponse = message(&idle.call("Get", &get(&model, "r")).await);
    assert!(found.result.is_some());
    let (mut partial, partial_served) = Client::connect(&front_end, 64 << 10, None).await;
    partial.socket.write_all(&[0, 1, 0, 0]).await.unwrap();
    let ended = partial_served.await.unwrap();
    assert!(matches!(ended, Err(ConnectionError::NotSent)), "{ended:?}");
    // A connection without a request in progress may be silent.
    env_passes(10 * INPUT_WAIT).await;
    assert!(!idle_served.is_finished());
    idle.call("Get", &get(&model, "r")).await;
    // Nor is it the client's fault if the server does not read.
    model.is_in_memory.store(false, Ordering::Relaxed);
    idle.call("Get", &get(&model, "r")).await;
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_a_client_that_sends_no_more_have_an_end() {
    let model = Model::new(&[""]);
    let front_end = model.front_end(&Pool::default());
    for is_served in [true, false] {
        model.writes.forget_permits(1_000);
        let (mut client, served) = Client::connect(&front_end, 64 << 10, None).await;
        client.send("Mutate", &put(&model, "w"), &()).await;
        client.send("Get", &get(&model, "r"), &()).await;
        client.socket.shutdown().await.unwrap();
        // It may have closed its own direction only, and still gets its responses.
        client.response().await;
        env_passes(LAST_CALLS_WAIT / 2).await;
        if is_served {
            model.writes.add_permits(1);
            client.response().await;
        }
        env_passes(LAST_CALLS_WAIT).await;
        assert!(served.is_finished(), "with a call that ends: {is_served}");
        served.await.unwrap().unwrap();
        assert!(model.latch.try_lock().is_some());
        assert_eq!(front_end.shared.requests.used(), 0);
    }
}

/// A socket with unread requests would be reset when it is closed, and a response that is on its way be lost.
#[tokio::test(start_paused = true)]
async fn a_drained_connection_is_read_until_its_client_closes_it() {
    let model = Model::new(&[""]);
    let front_end = model.front_end(&Pool::default());
    let header = stele_wire::messages::ConnectionHeader {
        service_name: Some(stele_wire::messages::CLIENT_SERVICE.to_owned()),
        ..Default::default()
    };
    for closes in [true, false] {
        model.writes.forget_permits(1_000);
        let (drain, drained) = tokio::sync::oneshot::channel::<()>();
        let drained = async move { drained.await.expect("the test drains it") };
        let (mut client, served) = Client::open_until(&front_end, 8 << 10, &header, drained).await;
        client.send("Mutate", &put(&model, "w"), &()).await;
        env_passes(Duration::from_millis(1)).await;
        drain.send(()).unwrap();
        env_passes(Duration::from_millis(1)).await;
        // The server takes no more of these.
        for _ in 0..10 {
            client.send("Get", &get(&model, "r"), &()).await;
        }
        model.writes.add_permits(1);
        client.response().await;
        assert_eq!(
            client.socket.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        // More than the pipe holds.
        client.socket.write_all(&[0; 64 << 10]).await.unwrap();
        assert!(!served.is_finished());
        if closes {
            drop(client);
        } else {
            env_passes(Duration::from_secs(2)).await;
            assert!(served.is_finished(), "a client may not hold up the end of the server");
        }
        served.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn the_future_of_a_call_is_small() {
    let model = Model::new(&[""]);
    let front_end = model.front_end(&Pool::default());
    let running = Running {
        started: Duration::ZERO,
        method: Method::Mutate,
        call: Call {
            client: crate::call::Client {
                cells: crate::cells::CellPlace::Block,
                compression: crate::compression::BlockCompression::None,
            },
            regions: Arc::default(),
            request: stele_wire::frame::Request {
                header: stele_wire::messages::RequestHeader::default(),
                message: Bytes::new(),
                cells: Bytes::new(),
            },
            memory: front_end.shared.requests.empty(),
        },
        shared: Arc::clone(&front_end.shared),
        trace: None,
    };
    let bytes = size_of_val(&run(running, Service::Client, None));
    assert!(bytes <= 4 << 10, "{bytes} bytes");
}
