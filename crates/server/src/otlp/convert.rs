//! From finished requests to the messages of OTLP.
//!
//! Attributes that OpenTelemetry's conventions name have that name. All others begin with `stele.`.

use super::messages::{
    AnyValue, ExportTraceServiceRequest, InstrumentationScope, KeyValue, Resource, ResourceSpans, ScopeSpans, Span,
    SpanKind, SpanStatus, StatusCode, Value,
};
use stele_env::trace::{Facts, Finished, FinishedStage};
use stele_env::work::Work;

/// The server, as spans name it.
pub(super) struct Source {
    resource: Resource,
    scope: InstrumentationScope,
}

impl Source {
    /// A server at this address, of this version.
    pub fn new(address: &str, version: &str) -> Source {
        let attributes = vec![
            text("service.name", "stele"),
            text("service.version", version),
            text("service.instance.id", address),
        ];
        Source {
            resource: Resource { attributes },
            scope: InstrumentationScope {
                name: "stele".to_owned(),
                version: version.to_owned(),
            },
        }
    }

    /// The request that exports a batch.
    pub fn request(&self, batch: Vec<Finished>) -> ExportTraceServiceRequest {
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(self.scope.clone()),
                    spans: batch.into_iter().flat_map(spans).collect(),
                }],
            }],
        }
    }
}

/// The span of a request, and those of its stages.
fn spans(finished: Finished) -> Vec<Span> {
    let Finished {
        name: (system, method),
        own,
        parent,
        state,
        started_nanos,
        ended_nanos,
        facts,
        work,
        stages,
        left_out,
    } = finished;
    let state = state.as_deref().unwrap_or_default();
    let mut all = Vec::with_capacity(1 + stages.len());
    let mut attributes = vec![text("rpc.system", system), text("rpc.method", method)];
    add_facts(&facts, &mut attributes);
    add_work(&work, &mut attributes);
    add_count("stele.stages_left_out", left_out, &mut attributes);
    let request = Span {
        trace_id: own.trace.to_be_bytes().to_vec(),
        span_id: own.span.to_be_bytes().to_vec(),
        trace_state: state.to_owned(),
        parent_span_id: parent.map_or_else(Vec::new, |parent| parent.to_be_bytes().to_vec()),
        name: method.to_owned(),
        kind: SpanKind::Server as i32,
        start_time_unix_nano: started_nanos,
        end_time_unix_nano: ended_nanos,
        attributes,
        status: facts.is_error.then_some(SpanStatus {
            code: StatusCode::Error as i32,
        }),
        flags: 1,
    };
    let below = |stage: FinishedStage| stage_span(stage, &request);
    let stages: Vec<Span> = stages.into_iter().map(below).collect();
    all.push(request);
    all.extend(stages);
    all
}

fn stage_span(stage: FinishedStage, request: &Span) -> Span {
    let facts = &stage.facts;
    let mut attributes = Vec::new();
    attributes.extend(facts.tablet.map(|tablet| number("stele.tablet", tablet)));
    attributes.extend(facts.server.map(|server| number("stele.server", server)));
    attributes.extend(facts.rows.map(|rows| number("stele.rows", rows)));
    add_count("stele.bytes", facts.bytes, &mut attributes);
    let kind = match facts.server {
        Some(_) => SpanKind::Client,
        None => SpanKind::Internal,
    };
    Span {
        trace_id: request.trace_id.clone(),
        span_id: stage.span.to_be_bytes().to_vec(),
        trace_state: request.trace_state.clone(),
        parent_span_id: request.span_id.clone(),
        name: stage.name.to_owned(),
        kind: kind as i32,
        start_time_unix_nano: stage.started_nanos,
        end_time_unix_nano: stage.ended_nanos,
        attributes,
        status: None,
        flags: 1,
    }
}

fn add_facts(facts: &Facts, attributes: &mut Vec<KeyValue>) {
    attributes.extend(facts.table.as_deref().map(|table| text("stele.table", table)));
    attributes.extend(facts.tablet.map(|tablet| number("stele.tablet", tablet)));
    add_count("stele.tablets", facts.tablets, attributes);
    add_count("stele.rows", facts.rows, attributes);
    add_count("stele.request_bytes", facts.request_bytes, attributes);
    add_count("stele.response_bytes", facts.response_bytes, attributes);
    if !facts.outcome.is_empty() {
        attributes.push(text("stele.outcome", facts.outcome));
    }
}

fn add_work(work: &Work, attributes: &mut Vec<KeyValue>) {
    for (name, count) in [
        ("stele.row_cache_hits", work.row_cache_hits),
        ("stele.files_used", work.files_used()),
        ("stele.blocks_cached", work.blocks_cached),
        ("stele.blocks_read", work.blocks_read),
        ("stele.block_bytes_read", work.block_bytes_read),
        ("stele.values_read", work.values_read),
        ("stele.value_bytes_read", work.value_bytes_read),
    ] {
        add_count(name, count, attributes);
    }
}

/// Adds a count, unless there is nothing.
fn add_count(key: &'static str, count: u64, attributes: &mut Vec<KeyValue>) {
    if count > 0 {
        attributes.push(number(key, count));
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use stele_env::trace::{Carried, StageFacts};

    fn finished() -> Finished {
        Finished {
            name: ("grpc", "ReadRows"),
            own: Carried { trace: 1, span: 2 },
            parent: Some(3),
            state: Some("a=b".into()),
            started_nanos: 1_000,
            ended_nanos: 3_000,
            facts: Facts {
                table: Some("main/t".to_owned()),
                rows: 5,
                outcome: "INTERNAL",
                is_error: true,
                ..Facts::default()
            },
            work: Work::default(),
            stages: vec![FinishedStage {
                name: "read block",
                span: 4,
                started_nanos: 1_500,
                ended_nanos: 2_000,
                facts: StageFacts {
                    server: Some(9),
                    bytes: 8_192,
                    ..StageFacts::default()
                },
            }],
            left_out: 0,
        }
    }

    /// Byte for byte as Python's generated code of opentelemetry-proto encodes the same request.
    #[test]
    fn a_batch_is_encoded_as_the_protocol_has_it() {
        let request = Source::new("host:1", "0").request(vec![finished()]);
        let recorded: &[u8] = include_bytes!("../../testdata/otlp-request.bin");
        let bytes = request.encode_to_vec();
        assert_eq!(bytes.escape_ascii().to_string(), recorded.escape_ascii().to_string());
    }
}
