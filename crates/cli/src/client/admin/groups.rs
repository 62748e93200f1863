//! Locality groups of a table: a service of Stele's own, which other servers of the Bigtable API do not have.

use super::super::{Client, Stub, TableRef, describe};
use super::{ADMIN_TIMEOUT, Retry};
use anyhow::{Context, Result, anyhow};
use stele_adminapi::{
    GET_PATH, GetLocalityGroupsRequest, LocalityGroup, LocalityGroupsResponse, MODIFY_PATH, Modification,
    ModifyLocalityGroupsRequest,
};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

/// The calls of the service.
#[derive(Clone)]
pub struct LocalityGroupsClient(Stub);

impl LocalityGroupsClient {
    pub(in crate::client) fn new(stub: Stub) -> Self {
        LocalityGroupsClient(stub)
    }

    async fn get(
        &mut self,
        request: Request<GetLocalityGroupsRequest>,
    ) -> Result<Response<LocalityGroupsResponse>, Status> {
        self.unary(GET_PATH, request).await
    }

    async fn modify(
        &mut self,
        request: Request<ModifyLocalityGroupsRequest>,
    ) -> Result<Response<LocalityGroupsResponse>, Status> {
        self.unary(MODIFY_PATH, request).await
    }

    async fn unary<Q, A>(&mut self, path: &'static str, request: Request<Q>) -> Result<Response<A>, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut calls = tonic::client::Grpc::new(self.0.clone());
        let ready = calls.ready().await;
        ready.map_err(|error| Status::unavailable(format!("the connection is lost: {error}")))?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        calls.unary(request, PathAndQuery::from_static(path), codec).await
    }
}

impl Client {
    /// The locality groups of a table.
    pub async fn locality_groups(&self, table: &TableRef) -> Result<Vec<LocalityGroup>> {
        let name = self.table_name(table);
        let answer = call!(self.groups, get, GetLocalityGroupsRequest { name: name.clone() });
        let answer = answer.map_err(|status| refusal(&status));
        Ok(answer
            .with_context(|| format!("cannot describe the locality groups of {table}"))?
            .groups)
    }

    /// Changes locality groups, all or nothing; what they are then.
    pub async fn modify_locality_groups(
        &self,
        table: &TableRef,
        modifications: Vec<Modification>,
    ) -> Result<Vec<LocalityGroup>> {
        let request = ModifyLocalityGroupsRequest {
            name: self.table_name(table),
            modifications,
        };
        let answer = call!(self.groups, modify, request).map_err(|status| refusal(&status));
        Ok(answer
            .with_context(|| format!("cannot change the locality groups of {table}"))?
            .groups)
    }
}

fn refusal(status: &Status) -> anyhow::Error {
    match status.code() {
        Code::Unimplemented => anyhow!("this server has no locality groups: it is not Stele, or an older one"),
        _ => describe(status),
    }
}
