//! Serves `ExecService`: services of a region that a client calls by name.
//!
//! Two services that HBase ships are there for every table, as if its configuration listed them for all regions:
//! `AggregateService` ([`aggregate`]) and `MultiRowMutationService` ([`multi_row`]). `AccessControlService` is there, too
//! ([`crate::access_control`]). No code of users runs here; other names get HBase's refusal.

mod aggregate;
mod multi_row;
pub(crate) mod number;

use crate::access_control;
use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::get::region_and_schema;
use crate::regions;
use bytes::Bytes;
use prost::Message as _;
use std::sync::Arc;
use stele_wire::exception;
use stele_wire::messages::{CoprocessorServiceRequest, CoprocessorServiceResponse, NameBytesPair, RegionSpecifier};

/// Serves a call.
pub(crate) async fn exec(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: CoprocessorServiceRequest = call.message("CoprocessorServiceRequest")?;
    let (service, method) = (&request.call.service_name[..], &request.call.method_name[..]);
    // It reads and changes nothing of the region.
    if service == access_control::SERVICE {
        let found = access_control::of_region(shared, call, &request).await?;
        let (class, value) = found.ok_or_else(|| no_method(service, method))?;
        return reply(call, request.region, class, value);
    }
    // Refused before the region is found, as every other unknown service of it.
    if !matches!(service, "AggregateService" | "MultiRowMutationService") || regions::is_meta(&request.region) {
        return Err(no_service(service));
    }
    let (region, schema) = region_and_schema(shared, call, &request.region)?;
    let (class, value) = match (service, method) {
        ("AggregateService", _) => {
            let question = aggregate::Question::named(method).ok_or_else(|| no_method(service, method))?;
            let argument = request.call.request.clone();
            let response = aggregate::serve(shared, call, &region, schema, question, argument).await?;
            ("AggregateProtos$AggregateResponse", response.encode_to_vec())
        }
        (_, "MutateRows") => {
            let response = multi_row::serve(shared, call, (&region, &schema), request.call.request.clone()).await?;
            ("MultiRowMutationProtos$MutateRowsResponse", response.encode_to_vec())
        }
        _ => return Err(no_method(service, method)),
    };
    reply(call, request.region, class, value)
}

/// The response of a method: the name of its class, and its bytes.
fn reply(call: &Call, region: RegionSpecifier, class: &str, value: Vec<u8>) -> Outcome<Reply> {
    call.reply(&CoprocessorServiceResponse {
        region,
        value: NameBytesPair {
            name: format!("org.apache.hadoop.hbase.protobuf.generated.{class}"),
            value: Some(Bytes::from(value)),
        },
    })
}

/// The refusal of a service that the region does not have.
pub(crate) fn no_service(name: &str) -> Failure {
    let message = format!("No registered coprocessor service found for {name}");
    Failure::new(exception::UNKNOWN_PROTOCOL, message)
}

fn no_method(service: &str, method: &str) -> Failure {
    let message = format!("Unknown method {method} called on service {service}");
    Failure::new(exception::UNKNOWN_PROTOCOL, message)
}
