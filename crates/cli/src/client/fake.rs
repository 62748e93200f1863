//! A server for tests: it fails, or answers nothing.

use super::Client;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{self, Poll};
use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Status};

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
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap().to_string();
        tokio::spawn(Server::builder().serve_with_incoming(fake.clone(), incoming));
        (fake, Client::connect(&address, "p").await.unwrap())
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
