//! Servers for tests: one that fails, or answers nothing, and parts of those that answer.

use super::Client;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{self, Poll};
use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::Grpc;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

/// Answers each call of a path with the next of some codes, `None` never, and after them with NOT_FOUND.
#[derive(Clone)]
pub(crate) struct Fake {
    path: &'static str,
    codes: Arc<Mutex<Vec<Option<Code>>>>,
    calls: Arc<watch::Sender<usize>>,
}

impl Fake {
    /// A client of such a server.
    pub(crate) async fn start(path: &'static str, codes: &[Option<Code>]) -> (Fake, Client) {
        let fake = Fake {
            path,
            codes: Arc::new(Mutex::new(codes.iter().rev().copied().collect())),
            calls: Arc::new(watch::Sender::new(0)),
        };
        let client = serve(fake.clone()).await;
        (fake, client)
    }

    /// Calls of the path so far.
    pub(crate) fn calls(&self) -> usize {
        *self.calls.borrow()
    }

    /// Completes when the path was called.
    pub(crate) async fn arrived(&self) {
        let mut calls = self.calls.subscribe();
        calls.wait_for(|calls| *calls > 0).await.unwrap();
    }
}

impl Service<http::Request<Body>> for Fake {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut code = Some(Code::Unimplemented);
        if request.uri().path() == self.path {
            self.calls.send_modify(|calls| *calls += 1);
            code = self.codes.lock().unwrap().pop().unwrap_or(Some(Code::NotFound));
        }
        Box::pin(async move {
            match code {
                Some(code) => Ok(Status::new(code, "said the server").into_http()),
                None => std::future::pending().await,
            }
        })
    }
}

/// A client of a server that answers calls so.
pub(crate) async fn serve<S>(service: S) -> Client
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap().to_string();
    tokio::spawn(Server::builder().serve_with_incoming(service, incoming));
    Client::connect(&address, "p").await.unwrap()
}

/// The answer to a unary call, whose request is not looked at.
pub(crate) async fn answer<A>(request: http::Request<Body>, answer: Result<A, Status>) -> http::Response<Body>
where
    A: prost::Message + Send + Sync + 'static,
{
    let codec: ProstCodec<A, ()> = ProstCodec::default();
    Grpc::new(codec).unary(Prepared(Some(answer)), request).await
}

/// Gives one answer.
struct Prepared<A>(Option<Result<A, Status>>);

impl<A> Service<Request<()>> for Prepared<A> {
    type Response = Response<A>;
    type Error = Status;
    type Future = Ready<Result<Response<A>, Status>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let answer = self.0.take().expect("a unary call is one call");
        ready(answer.map(Response::new))
    }
}
