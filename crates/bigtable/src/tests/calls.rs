use super::*;
use tonic::codegen::http;

/// Calls a method by path, for calls the published clients do not know.
async fn call_raw(service: BigtableService, path: &'static str) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(service);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let path = http::uri::PathAndQuery::from_static(path);
    client.unary(Request::new(()), path, codec).await.map(|_| ())
}

#[tokio::test]
async fn calls_without_implementation_are_named() {
    let harness = Harness::new();
    for path in [
        "/google.bigtable.v2.Bigtable/ExecuteQuery",
        "/google.bigtable.v2.Bigtable/GetClientConfiguration",
        "/google.bigtable.admin.v2.BigtableTableAdmin/CreateSchemaBundle",
        "/google.bigtable.admin.v2.BigtableInstanceAdmin/CreateLogicalView",
        "/grpc.health.v1.Health/Check",
    ] {
        let error = call_raw(harness.service.clone(), path).await.unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented, "{path}");
        let (service, method) = path[1..].split_once('/').unwrap();
        assert_eq!(error.message(), format!("{method} of {service} is not implemented"));
    }
    let metrics = harness.metrics.render();
    let line = r#"stele_bigtable_requests_total{code="UNIMPLEMENTED",method="unimplemented"} 5"#;
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn calls_are_counted_by_outcome() {
    let harness = Harness::with_table().await;
    harness.put("r", "f", "q", "v").await;
    let read = |table: &str| v2::ReadRowsRequest {
        table_name: format!("{INSTANCE}/tables/{table}"),
        ..Default::default()
    };
    let mut stream = harness.data().read_rows(read("t")).await.unwrap().into_inner();
    while stream.message().await.unwrap().is_some() {}
    drop(stream);
    drop(harness.data().read_rows(read("t")).await.unwrap());
    assert_eq!(code(harness.data().read_rows(read("none")).await), Code::NotFound);
    let metrics = harness.metrics.render();
    for line in [
        r#"stele_bigtable_requests_total{code="OK",method="MutateRow"} 1"#,
        r#"stele_bigtable_requests_total{code="OK",method="ReadRows"} 1"#,
        r#"stele_bigtable_requests_total{code="CANCELLED",method="ReadRows"} 1"#,
        r#"stele_bigtable_requests_total{code="NOT_FOUND",method="ReadRows"} 1"#,
        r#"stele_bigtable_request_seconds_count{method="ReadRows"} 3"#,
        "stele_bigtable_requests_in_flight 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[tokio::test]
async fn overload_is_unavailable_and_passes() {
    let harness = Harness::with_limits(CallLimits {
        calls_max: 1,
        request_bytes_max: 20_000,
        overdraft_request_bytes: 0,
        ..CallLimits::default()
    });
    harness.tables().create_table(table_request("t")).await.unwrap();
    let read = v2::ReadRowsRequest {
        table_name: TABLE.into(),
        ..Default::default()
    };
    let held = harness.data().read_rows(read.clone()).await.unwrap();
    assert_eq!(code(harness.data().read_rows(read.clone()).await), Code::Unavailable);
    drop(held);
    assert_eq!(code(harness.data().read_rows(read).await), Code::Ok);

    let write = |bytes: usize| v2::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        mutations: vec![set("f", "q", 0, vec![0; bytes])],
        ..Default::default()
    };
    assert_eq!(
        code(harness.data().mutate_row(write(30_000)).await),
        Code::ResourceExhausted,
        "never fits"
    );
    assert_eq!(code(harness.data().mutate_row(write(15_000)).await), Code::Ok);
    assert_eq!(code(harness.data().mutate_row(write(15_000)).await), Code::Ok);
}

#[tokio::test]
async fn one_request_larger_than_all_may_be_is_taken_at_a_time() {
    let harness = Harness::with_limits(CallLimits {
        request_bytes_max: 20_000,
        overdraft_request_bytes: 40_000,
        ..CallLimits::default()
    });
    harness.tables().create_table(table_request("t")).await.unwrap();
    let write = |bytes: usize| v2::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        mutations: vec![set("f", "q", 0, vec![0; bytes])],
        ..Default::default()
    };
    assert_eq!(code(harness.data().mutate_row(write(30_000)).await), Code::Ok);
    assert_eq!(
        code(harness.data().mutate_row(write(50_000)).await),
        Code::ResourceExhausted,
        "more than the allowance"
    );
    // Another holder has it, such as a response.
    let taken = harness.pool.try_overdraft().unwrap();
    assert_eq!(code(harness.data().mutate_row(write(30_000)).await), Code::Unavailable);
    assert_eq!(code(harness.data().mutate_row(write(10_000)).await), Code::Ok);
    drop(taken);
    assert_eq!(code(harness.data().mutate_row(write(30_000)).await), Code::Ok);
    assert!(!harness.pool.is_overdrawn());
    // All memory has been released.
    assert_eq!(code(harness.data().mutate_row(write(15_000)).await), Code::Ok);
}

#[tokio::test]
async fn warming_is_answered() {
    let harness = Harness::new();
    let ping = |name: &str| v2::PingAndWarmRequest {
        name: name.into(),
        ..Default::default()
    };
    assert_eq!(code(harness.data().ping_and_warm(ping(INSTANCE)).await), Code::Ok);
    assert_eq!(
        code(harness.data().ping_and_warm(ping("x")).await),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn a_real_connection_serves_large_messages() {
    let harness = Harness::with_table().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = async {
        let (socket, _) = listener.accept().await.unwrap();
        let env = TokioRuntime::current();
        stele_serving::serve(
            socket,
            harness.service.clone(),
            crate::HTTP2_SETTINGS,
            env,
            std::future::pending(),
        )
        .await
    };
    let client = async {
        let channel = tonic::transport::Endpoint::new(format!("http://{address}"))
            .unwrap()
            .connect()
            .await
            .unwrap();
        let mut client = BigtableClient::new(channel);
        let value = Bytes::from(vec![7; 20 << 20]);
        let write = v2::MutateRowRequest {
            table_name: TABLE.into(),
            row_key: "r".into(),
            mutations: vec![set("f", "q", 0, value.clone())],
            ..Default::default()
        };
        client.mutate_row(write).await.unwrap();
        let read = v2::ReadRowsRequest {
            table_name: TABLE.into(),
            ..Default::default()
        };
        let mut stream = client.read_rows(read).await.unwrap().into_inner();
        let mut got = Vec::new();
        while let Some(response) = stream.message().await.unwrap() {
            response
                .chunks
                .iter()
                .for_each(|chunk| got.extend_from_slice(&chunk.value));
        }
        assert_eq!(got, value);
    };
    tokio::select! {
        result = serving => unreachable!("the server ended: {result:?}"),
        () = client => {}
    }
}

/// The part of a request that a client sends.
struct Sent {
    bytes: Option<Bytes>,
    /// The request ends after these bytes; otherwise it stalls.
    ends: bool,
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        match self.bytes.take() {
            Some(bytes) => std::task::Poll::Ready(Some(Ok(http_body::Frame::data(bytes)))),
            None if self.ends => std::task::Poll::Ready(None),
            None => std::task::Poll::Pending,
        }
    }
}

#[tokio::test]
async fn a_request_that_does_not_arrive_is_cancelled() {
    use tonic::codegen::Service as _;
    let mut harness = Harness::with_limits(CallLimits {
        calls_max: 1,
        arrival_wait: std::time::Duration::from_millis(20),
        ..CallLimits::default()
    });
    // One that the data plane reads itself, and one that prost decodes.
    for path in [
        "/google.bigtable.v2.Bigtable/MutateRow",
        "/google.bigtable.v2.Bigtable/CheckAndMutateRow",
    ] {
        let begun = Bytes::from_static(&[0, 0, 0, 1, 0, 1, 2, 3]);
        let request = http::Request::builder()
            .method("POST")
            .uri(path)
            .header("content-type", "application/grpc")
            .body(Sent {
                bytes: Some(begun),
                ends: false,
            })
            .unwrap();
        let response = harness.service.call(request).await.unwrap();
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{path}: {status}");
        assert!(status.message().contains("8 bytes of the request"), "{status}");
    }
    harness.tables().create_table(table_request("t")).await.unwrap();
}

#[tokio::test]
async fn the_decoded_form_is_charged() {
    let harness = Harness::with_limits(CallLimits {
        request_bytes_max: 1 << 20,
        ..CallLimits::default()
    });
    // 40,000 bytes on the wire; several megabytes decoded.
    let request = v2::ReadModifyWriteRowRequest {
        table_name: TABLE.into(),
        rules: vec![v2::ReadModifyWriteRule::default(); 20_000],
        ..Default::default()
    };
    let error = harness.data().read_modify_write_row(request).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    let request = v2::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        true_mutations: vec![v2::Mutation::default(); 20_000],
        ..Default::default()
    };
    let error = harness.data().check_and_mutate_row(request).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
}

/// A pattern of forty bytes may be an automaton of megabytes.
#[tokio::test]
async fn automata_of_filters_are_charged() {
    let harness = Harness::with_limits(CallLimits {
        request_bytes_max: 1 << 20,
        overdraft_request_bytes: 0,
        ..CallLimits::default()
    });
    harness.tables().create_table(table_request("t")).await.unwrap();
    let filter = |pattern: &str| {
        let filter = v2::row_filter::Filter::ValueRegexFilter(pattern.to_owned().into());
        Some(v2::RowFilter { filter: Some(filter) })
    };
    let dots = ".".repeat(30);
    for (pattern, expected) in [
        (&format!("({dots}){{1000}}"), Code::ResourceExhausted),
        (&format!("({dots}){{10}}"), Code::Ok),
    ] {
        let read = v2::ReadRowsRequest {
            table_name: TABLE.into(),
            filter: filter(pattern),
            ..Default::default()
        };
        assert_eq!(code(harness.data().read_rows(read).await), expected, "{pattern}");
        let check = v2::CheckAndMutateRowRequest {
            table_name: TABLE.into(),
            row_key: "r".into(),
            predicate_filter: filter(pattern),
            true_mutations: vec![set("f", "q", 0, b"v".to_vec())],
            ..Default::default()
        };
        assert_eq!(
            code(harness.data().check_and_mutate_row(check).await),
            expected,
            "{pattern}"
        );
    }
}

#[tokio::test]
async fn the_response_of_a_read_modify_write_is_charged_until_it_is_sent() {
    use tonic::codegen::Service as _;
    use v2::read_modify_write_rule::Rule;
    let mut harness = Harness::with_limits(CallLimits {
        request_bytes_max: 1 << 20,
        overdraft_request_bytes: 0,
        ..CallLimits::default()
    });
    harness.tables().create_table(table_request("t")).await.unwrap();
    let append = |bytes: usize| {
        let rule = v2::ReadModifyWriteRule {
            family_name: "f".into(),
            column_qualifier: "q".into(),
            rule: Some(Rule::AppendValue(vec![7; bytes].into())),
        };
        let message = v2::ReadModifyWriteRowRequest {
            table_name: TABLE.into(),
            row_key: "r".into(),
            rules: vec![rule],
            ..Default::default()
        };
        let message = message.encode_to_vec();
        let length = (message.len() as u32).to_be_bytes();
        http::Request::builder()
            .method("POST")
            .uri("/google.bigtable.v2.Bigtable/ReadModifyWriteRow")
            .header("content-type", "application/grpc")
            .body(Sent {
                bytes: Some([&[0][..], &length, &message].concat().into()),
                ends: true,
            })
            .unwrap()
    };
    let write = v2::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: "s".into(),
        mutations: vec![set("f", "q", 0, vec![0; 600_000])],
        ..Default::default()
    };
    drop(harness.service.call(append(600_000)).await.unwrap());
    assert_eq!(code(harness.data().mutate_row(write.clone()).await), Code::Ok);
    // A request of some bytes, whose client does not read the response.
    let answer = harness.service.call(append(1)).await.unwrap();
    assert_eq!(code(harness.data().mutate_row(write.clone()).await), Code::Unavailable);
    drop(answer);
    assert_eq!(code(harness.data().mutate_row(write).await), Code::Ok);
}

/// A table's families may be a megabyte, and a client need not read the response.
#[tokio::test]
async fn tables_in_responses_are_charged_until_they_are_sent() {
    use tonic::codegen::Service as _;
    let mut harness = Harness::with_limits(CallLimits {
        request_bytes_max: 8 << 20,
        overdraft_request_bytes: 0,
        ..CallLimits::default()
    });
    let mut request = table_request("t");
    let families = (0..2_000).map(|n| (format!("f{n}"), admin::ColumnFamily::default()));
    if let Some(table) = &mut request.table {
        table.column_families = families.collect();
    }
    harness.tables().create_table(request).await.unwrap();
    let get = admin::GetTableRequest {
        name: TABLE.into(),
        ..Default::default()
    };
    let posted = || {
        let message = get.encode_to_vec();
        let length = (message.len() as u32).to_be_bytes();
        http::Request::builder()
            .method("POST")
            .uri("/google.bigtable.admin.v2.BigtableTableAdmin/GetTable")
            .header("content-type", "application/grpc")
            .body(Sent {
                bytes: Some([&[0][..], &length, &message].concat().into()),
                ends: true,
            })
            .unwrap()
    };
    let mut untaken = Vec::new();
    let refused = loop {
        let response = harness.service.call(posted()).await.unwrap();
        match Status::from_header_map(response.headers()) {
            Some(status) => break status,
            None => untaken.push(response),
        }
        assert!(untaken.len() < 100, "responses that are not read add up");
    };
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(!untaken.is_empty(), "one of them fits");
    drop(untaken);
    let shown = harness.tables().get_table(get).await.unwrap().into_inner();
    assert_eq!(shown.column_families.len(), 2_000);
}

/// A request of one message, all of which has arrived.
fn posted(method: &str, message: &[u8]) -> http::Request<Sent> {
    let length = (message.len() as u32).to_be_bytes();
    http::Request::builder()
        .method("POST")
        .uri(format!("/google.bigtable.v2.Bigtable/{method}"))
        .header("content-type", "application/grpc")
        .body(Sent {
            bytes: Some([&[0][..], &length, message].concat().into()),
            ends: true,
        })
        .unwrap()
}

/// The memory of a write is charged until memtables have it, even if no caller waits.
#[tokio::test]
async fn a_large_write_is_charged_until_its_end_even_if_its_caller_goes_away() {
    use tonic::codegen::Service as _;
    let harness = Harness::with_limits(CallLimits {
        request_bytes_max: 3 << 20,
        overdraft_request_bytes: 0,
        ..CallLimits::default()
    });
    harness.tables().create_table(table_request("t")).await.unwrap();
    let (env, fake, mut service) = (
        TokioRuntime::current(),
        Arc::clone(&harness.fake),
        harness.service.clone(),
    );
    let plain = v2::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        mutations: vec![set("f", "q", 1_000, vec![7; 2 << 20])],
        ..Default::default()
    };
    let conditional = v2::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        false_mutations: plain.mutations.clone(),
        ..Default::default()
    };
    let requests = [
        ("MutateRow", plain.encode_to_vec()),
        ("CheckAndMutateRow", conditional.encode_to_vec()),
    ];
    for (method, message) in requests {
        let waits = fake.writes.lock().await;
        {
            let mut abandoned = service.call(posted(method, &message));
            for _ in 0..10 {
                assert!(futures::poll!(&mut abandoned).is_pending(), "{method}");
                env.yield_now().await;
            }
        }
        let second = service.call(posted(method, &message));
        let Ok(refused) = env.timeout(std::time::Duration::from_secs(10), second).await else {
            unreachable!("{method}: the memory of the first one is not charged");
        };
        let status = Status::from_header_map(refused.unwrap().headers()).unwrap();
        assert_eq!(status.code(), Code::Unavailable, "{method}: {status}");
        drop(waits);
        // The first write completes by itself, and then its memory is free.
        loop {
            let response = service.call(posted(method, &message)).await.unwrap();
            match Status::from_header_map(response.headers()) {
                Some(status) => assert_eq!(status.code(), Code::Unavailable, "{method}: {status}"),
                None => break,
            }
            env.yield_now().await;
        }
    }
    assert!(harness.metrics.render().contains("stele_bigtable_requests_in_flight 0"));
}
