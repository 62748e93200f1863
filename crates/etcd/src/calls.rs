//! The calls of etcd's API over one connection to one member. Each is tried once.

use crate::failure::Failure;
use crate::messages::{
    AuthenticateRequest, AuthenticateResponse, LeaseGrantRequest, LeaseGrantResponse, LeaseRequest, LeaseResponse,
    LeaseRevokeResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use crate::security::{Secured, User};
use futures::Stream;
use futures::stream;
use http::uri::PathAndQuery;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;
use stele_coord::CoordError;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// To reach an existing host takes less than a second.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// A connection with an open watch is asked this often whether it lives. etcd refuses more than one ping in five seconds.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_LIMIT: Duration = Duration::from_secs(5);

/// The call for a token.
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// A connection to a member, made by the first call.
#[derive(Clone)]
pub(crate) struct Connection {
    channel: Channel,
    user: Option<Arc<User>>,
}

type Answer<A> = Result<A, Failure>;

/// The scheme of a member, as the transport knows it.
fn endpoint(member: &str, secured: &Secured) -> Answer<Endpoint> {
    let scheme = if secured.tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{member}"));
    let endpoint = endpoint.map_err(|error| Failure::Lost(format!("{member} is not an address: {error}")))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_LIMIT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_LIMIT);
    let Some(tls) = &secured.tls else { return Ok(endpoint) };
    endpoint.tls_config(tls.clone()).map_err(|error| {
        let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let message = format!("the certificates for etcd cannot be used: {why}");
        Failure::Refused(CoordError::InvalidArgument { message })
    })
}

impl Secured {
    /// Whether connections can be made with it.
    pub(crate) fn check(&self) -> Answer<()> {
        endpoint("localhost", self).map(drop)
    }
}

impl Connection {
    /// `member` is `host:port`. Needs a tokio runtime.
    pub(crate) fn new(member: &str, secured: &Secured) -> Answer<Connection> {
        Ok(Connection {
            channel: endpoint(member, secured)?.connect_lazy(),
            user: secured.user.clone(),
        })
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Answer<RangeResponse> {
        self.unary("/etcdserverpb.KV/Range", request).await
    }

    pub(crate) async fn txn(&self, request: TxnRequest) -> Answer<TxnResponse> {
        self.unary("/etcdserverpb.KV/Txn", request).await
    }

    pub(crate) async fn lease_grant(&self, seconds: i64) -> Answer<LeaseGrantResponse> {
        let request = LeaseGrantRequest { ttl: seconds };
        self.unary("/etcdserverpb.Lease/LeaseGrant", request).await
    }

    pub(crate) async fn lease_revoke(&self, id: i64) -> Answer<LeaseRevokeResponse> {
        self.unary("/etcdserverpb.Lease/LeaseRevoke", LeaseRequest { id }).await
    }

    /// The seconds that a lease has left; not positive if there is none.
    pub(crate) async fn lease_time_to_live(&self, id: i64) -> Answer<LeaseResponse> {
        self.unary("/etcdserverpb.Lease/LeaseTimeToLive", LeaseRequest { id })
            .await
    }

    /// etcd has a stream for this; here it has one request.
    pub(crate) async fn lease_keep_alive(&self, id: i64) -> Answer<LeaseResponse> {
        match self.keep_alive_once(id).await {
            Err(Failure::Token(_)) if self.renew_token().await? => self.keep_alive_once(id).await,
            answered => answered,
        }
    }

    async fn keep_alive_once(&self, id: i64) -> Answer<LeaseResponse> {
        let requests = stream::iter([LeaseRequest { id }]);
        let mut responses = self.streams("/etcdserverpb.Lease/LeaseKeepAlive", requests).await?;
        let response = responses.message().await.map_err(Failure::from)?;
        response.ok_or_else(|| Failure::Lost("the stream ended before the response".to_owned()))
    }

    /// The requests must not end before the watch is to end. A stream tells late that its token is not known, so it gets a new one.
    pub(crate) async fn watch(
        &self,
        requests: impl Stream<Item = WatchRequest> + Send + 'static,
    ) -> Answer<Streaming<WatchResponse>> {
        self.renew_token().await?;
        self.streams("/etcdserverpb.Watch/Watch", requests).await
    }

    /// Gets a token for the user; whether there is a user.
    async fn renew_token(&self) -> Answer<bool> {
        let Some(user) = &self.user else { return Ok(false) };
        let request = AuthenticateRequest {
            name: user.name.clone(),
            password: user.password.clone(),
        };
        let answer: Answer<AuthenticateResponse> = self.once(AUTHENTICATE, request).await;
        match answer {
            Ok(answer) => user.set_token(&answer.token)?,
            // It knows no users, and will take any request.
            Err(Failure::Lost(message)) if message.contains("authentication is not enabled") => user.set_token("")?,
            Err(failure) => return Err(failure),
        }
        Ok(true)
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q) -> Answer<A>
    where
        Q: prost::Message + Clone + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let Some(user) = &self.user else {
            return self.once(path, request).await;
        };
        if user.token().is_none() {
            self.renew_token().await?;
        }
        match self.once(path, request.clone()).await {
            // It was refused before it was executed. An etcd that asked for no user before may do so now.
            Err(failure) if user.needs_token(&failure) => {
                self.renew_token().await?;
                self.once(path, request).await
            }
            answered => answered,
        }
    }

    async fn once<Q, A>(&self, path: &'static str, request: Q) -> Answer<A>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut calls = tonic::client::Grpc::new(self.channel.clone());
        calls.ready().await.map_err(unreachable)?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let response = calls
            .unary(self.request(path, request), PathAndQuery::from_static(path), codec)
            .await;
        Ok(response.map_err(Failure::from)?.into_inner())
    }

    async fn streams<Q, A>(
        &self,
        path: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Answer<Streaming<A>>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut calls = tonic::client::Grpc::new(self.channel.clone());
        calls.ready().await.map_err(unreachable)?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let response = calls
            .streaming(self.request(path, requests), PathAndQuery::from_static(path), codec)
            .await;
        Ok(response.map_err(Failure::from)?.into_inner())
    }

    /// A member without a leader refuses such a request immediately, and ends such a stream.
    fn request<T>(&self, path: &str, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        // etcd refuses also the request for a token if it comes with one that has ended.
        let user = self.user.as_ref().filter(|_| path != AUTHENTICATE);
        let token = user.and_then(|user| user.token());
        if let Some(token) = token.filter(|token| !token.is_empty()) {
            metadata.insert("token", token);
        }
        request
    }
}

fn unreachable(error: tonic::transport::Error) -> Failure {
    Failure::from(Status::from_error(Box::new(error)))
}
