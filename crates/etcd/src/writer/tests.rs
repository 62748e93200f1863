//! Transactions on a member without space, which refuses them or carries them out nevertheless.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "serves the member on a real socket"
)]

use super::*;
use crate::messages::{
    Compare, KeyValue, LeaseGrantRequest, LeaseGrantResponse, Number, Operation, RangeRequest, RangeResponse,
    RequestOp, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use crate::security::{EtcdSecurity, Secured};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use stele_coord::{Condition, Write};
use stele_env::tokio_env::TokioRuntime;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// How the member treats transactions that write. All but the first value answer that there is no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Enough,
    /// The check before a proposal, and all writes after the alarm.
    Refused,
    /// The check as a write is carried out.
    Exceeded,
    /// Likewise, and the guard's lease ends then.
    ExceededWithoutGuard,
    /// Likewise, and reads are refused.
    ExceededWithoutReads,
}

/// A member of etcd with the calls that the writer makes.
#[derive(Clone)]
struct Member(Arc<Mutex<State>>);

struct State {
    space: Space,
    revision: i64,
    keys: BTreeMap<Bytes, KeyValue>,
}

impl State {
    fn header(&self) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: 1,
            member_id: 1,
            revision: self.revision,
        })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let found = self.keys.get(&compare.key).cloned().unwrap_or_default();
        match &compare.number {
            Some(Number::Create(0)) => found.create_revision == 0,
            Some(Number::Mod(revision)) => found.mod_revision == *revision,
            other => unreachable!("{other:?}"),
        }
    }

    fn range(&self, request: &RangeRequest) -> RangeResponse {
        RangeResponse {
            header: self.header(),
            kvs: self.keys.get(&request.key).into_iter().cloned().collect(),
            ..RangeResponse::default()
        }
    }

    fn put(&mut self, key: Bytes, value: Bytes) {
        let former = self.keys.get(&key);
        let current = KeyValue {
            key: key.clone(),
            value,
            create_revision: former.map_or(self.revision, |former| former.create_revision),
            mod_revision: self.revision,
            ..KeyValue::default()
        };
        self.keys.insert(key, current);
    }

    fn carry_out(&mut self, request: TxnRequest) -> TxnResponse {
        let succeeded = request.compare.iter().all(|compare| self.holds(compare));
        self.revision += i64::from(succeeded);
        let run = |RequestOp { request }| match request {
            Some(Operation::Range(read)) => ResponseOp {
                range: Some(self.range(&read)),
            },
            Some(Operation::Put(put)) => {
                self.put(put.key, put.value);
                ResponseOp::default()
            }
            other => unreachable!("{other:?}"),
        };
        let operations = if succeeded { request.success } else { request.failure };
        let responses = operations.into_iter().map(run).collect();
        TxnResponse {
            header: self.header(),
            succeeded,
            responses,
        }
    }

    fn txn(&mut self, request: TxnRequest) -> Result<TxnResponse, Status> {
        let full = Err(Status::resource_exhausted("etcdserver: mvcc: database space exceeded"));
        match self.space {
            Space::Enough => Ok(self.carry_out(request)),
            Space::Refused => full,
            Space::Exceeded | Space::ExceededWithoutReads => {
                self.carry_out(request);
                full
            }
            Space::ExceededWithoutGuard => {
                self.carry_out(request);
                self.keys.retain(|key, _| !key.starts_with(b"n/guards/"));
                full
            }
        }
    }
}

type Result<A, E = CoordError> = std::result::Result<A, E>;
type Answer<A> = Ready<Result<Response<A>, Status>>;

fn answer<A>(answer: Result<A, Status>) -> Answer<A> {
    ready(answer.map(Response::new))
}

impl UnaryService<TxnRequest> for Member {
    type Response = TxnResponse;
    type Future = Answer<TxnResponse>;

    fn call(&mut self, request: Request<TxnRequest>) -> Self::Future {
        answer(self.0.lock().txn(request.into_inner()))
    }
}

impl UnaryService<RangeRequest> for Member {
    type Response = RangeResponse;
    type Future = Answer<RangeResponse>;

    fn call(&mut self, request: Request<RangeRequest>) -> Self::Future {
        let state = self.0.lock();
        answer(match state.space {
            Space::ExceededWithoutReads => Err(Status::permission_denied("etcdserver: permission denied")),
            _ => Ok(state.range(&request.into_inner())),
        })
    }
}

impl UnaryService<LeaseGrantRequest> for Member {
    type Response = LeaseGrantResponse;
    type Future = Answer<LeaseGrantResponse>;

    fn call(&mut self, request: Request<LeaseGrantRequest>) -> Self::Future {
        answer(Ok(LeaseGrantResponse {
            header: self.0.lock().header(),
            id: 7,
            ttl: request.into_inner().ttl,
            error: String::new(),
        }))
    }
}

impl Service<http::Request<Body>> for Member {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let member = self.clone();
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            Ok(match path.as_str() {
                "/etcdserverpb.KV/Txn" => {
                    let codec: ProstCodec<TxnResponse, TxnRequest> = ProstCodec::default();
                    Grpc::new(codec).unary(member, request).await
                }
                "/etcdserverpb.KV/Range" => {
                    let codec: ProstCodec<RangeResponse, RangeRequest> = ProstCodec::default();
                    Grpc::new(codec).unary(member, request).await
                }
                "/etcdserverpb.Lease/LeaseGrant" => {
                    let codec: ProstCodec<LeaseGrantResponse, LeaseGrantRequest> = ProstCodec::default();
                    Grpc::new(codec).unary(member, request).await
                }
                other => unreachable!("{other}"),
            })
        })
    }
}

/// A writer with a guard, its member, and the deadline of its calls.
struct Fixture {
    writer: Writer,
    member: Member,
    deadline: Duration,
}

impl Fixture {
    async fn new() -> Fixture {
        let member = Member(Arc::new(Mutex::new(State {
            space: Space::Enough,
            revision: 1,
            keys: BTreeMap::new(),
        })));
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap().to_string();
        tokio::spawn(Server::builder().serve_with_incoming(member.clone(), incoming));
        let env = TokioRuntime::current();
        let secured = Secured::new(false, EtcdSecurity::default());
        let members = Members::new(env.clone(), vec![address], secured, Duration::from_secs(60));
        let members = Arc::new(members);
        let leases = Arc::new(Leases::new(env.clone(), Arc::clone(&members)));
        let deadline = members.deadline();
        let writer = Writer::new(env, members, Keys::new("n", "1"), leases);
        let mut fixture = Fixture {
            writer,
            member,
            deadline,
        };
        fixture.commit("first").await;
        fixture
    }

    fn set(&self, space: Space) {
        self.member.0.lock().space = space;
    }

    async fn create(&mut self, key: &str) -> Result<TxnOutcome> {
        let write = Write::Put {
            key: key.to_owned(),
            value: Bytes::new(),
        };
        let txn = Txn {
            conditions: vec![Condition::absent(key)],
            writes: vec![write],
        };
        self.writer.write(&txn, self.deadline).await
    }

    async fn commit(&mut self, key: &str) {
        let outcome = self.create(key).await;
        assert!(matches!(outcome, Ok(TxnOutcome::Committed { .. })), "{outcome:?}");
    }

    fn revision_of(&self, key: &str) -> Option<i64> {
        let stored = Bytes::from(format!("n/keys/{key}"));
        self.member.0.lock().keys.get(&stored).map(|kv| kv.mod_revision)
    }
}

/// Its caller would otherwise undo the preparation of a change that everybody sees.
#[tokio::test]
async fn a_transaction_that_exceeds_the_space_happened() {
    let mut fixture = Fixture::new().await;
    fixture.set(Space::Exceeded);
    let outcome = fixture.create("k").await;
    let revision = fixture.revision_of("k").expect("the member carried it out") as u64;
    assert_eq!(outcome, Ok(TxnOutcome::Committed { revision }));
    // The alarm follows.
    fixture.set(Space::Refused);
    let error = fixture.create("l").await.expect_err("etcd is full");
    assert!(matches!(error, CoordError::Full { .. }), "{error:?}");
    assert!(!error.is_ambiguous());
    assert_eq!(fixture.revision_of("l"), None);
    fixture.set(Space::Enough);
    fixture.commit("l").await;
}

#[tokio::test]
async fn without_the_guard_the_outcome_is_unknown() {
    for space in [Space::ExceededWithoutGuard, Space::ExceededWithoutReads] {
        let mut fixture = Fixture::new().await;
        fixture.set(space);
        let error = fixture.create("k").await.expect_err("nothing tells that it happened");
        assert!(error.is_ambiguous(), "{error:?}");
        assert!(fixture.revision_of("k").is_some());
        fixture.set(Space::Refused);
        let error = fixture.create("l").await.expect_err("etcd is full");
        assert!(!error.is_ambiguous(), "{error:?}");
        fixture.set(Space::Enough);
        fixture.commit("l").await;
    }
}
