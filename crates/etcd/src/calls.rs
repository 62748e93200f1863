//! The calls of etcd's API over one connection to one member. Each is tried once.

use crate::failure::Failure;
use crate::messages::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseRequest, LeaseResponse, LeaseRevokeResponse, RangeRequest,
    RangeResponse, TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use futures::Stream;
use futures::stream;
use http::uri::PathAndQuery;
use std::time::Duration;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// To reach an existing host takes less than a second.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// A connection with an open watch is asked this often whether it lives. etcd refuses more than one ping in five seconds.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_LIMIT: Duration = Duration::from_secs(5);

/// A connection to a member, made by the first call.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    channel: Channel,
}

type Answer<A> = Result<A, Failure>;

impl Connection {
    /// `member` is `host:port`. Needs a tokio runtime.
    pub(crate) fn new(member: &str) -> Answer<Connection> {
        let endpoint = Endpoint::from_shared(format!("http://{member}"));
        let endpoint = endpoint.map_err(|error| Failure::Lost(format!("{member} is not an address: {error}")))?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_LIMIT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_LIMIT);
        Ok(Connection {
            channel: endpoint.connect_lazy(),
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
        let requests = stream::iter([LeaseRequest { id }]);
        let mut responses = self.streams("/etcdserverpb.Lease/LeaseKeepAlive", requests).await?;
        let response = responses.message().await.map_err(Failure::from)?;
        response.ok_or_else(|| Failure::Lost("the stream ended before the response".to_owned()))
    }

    /// The requests must not end before the watch is to end.
    pub(crate) async fn watch(
        &self,
        requests: impl Stream<Item = WatchRequest> + Send + 'static,
    ) -> Answer<Streaming<WatchResponse>> {
        self.streams("/etcdserverpb.Watch/Watch", requests).await
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q) -> Answer<A>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut calls = tonic::client::Grpc::new(self.channel.clone());
        calls.ready().await.map_err(unreachable)?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let response = calls
            .unary(with_leader(request), PathAndQuery::from_static(path), codec)
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
            .streaming(with_leader(requests), PathAndQuery::from_static(path), codec)
            .await;
        Ok(response.map_err(Failure::from)?.into_inner())
    }
}

/// A member without a leader refuses such a request immediately, and ends such a stream.
fn with_leader<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("hasleader", MetadataValue::from_static("true"));
    request
}

fn unreachable(error: tonic::transport::Error) -> Failure {
    Failure::from(Status::from_error(Box::new(error)))
}
