//! Translates column families between the admin API and the schema: garbage-collection rules and value types.

use crate::names::check_family_id;
use crate::pb::admin;
use crate::pb::admin::gc_rule::{Intersection, Rule, Union};
use crate::pb::admin::r#type::aggregate::Aggregator;
use crate::pb::admin::r#type::int64::{Encoding as Int64Encoding, encoding};
use crate::pb::admin::r#type::{Aggregate, Int64, Kind};
use crate::status::invalid;
use prost::Message as _;
use stele_client::NewFamily;
use stele_types::gc::GC_RULE_DEPTH_MAX;
use stele_types::{AggregateKind, Family, GcRule, ValueType};
use tonic::Status;

/// Bytes of a serialized rule (table.proto, `ColumnFamily.gc_rule`).
const GC_RULE_BYTES_MAX: usize = 500;

/// Bytes of a serialized value type. Not in the API; a type describes one value and is stored with every schema.
const VALUE_TYPE_BYTES_MAX: usize = 16 << 10;

/// Age below which a rule is refused (table.proto, `GcRule.max_age`).
const MAX_AGE_MICROS_MIN: i64 = 1_000;

/// A family to be created.
pub(crate) fn new_family(name: String, family: admin::ColumnFamily) -> Result<NewFamily, Status> {
    check_family_id(&name)?;
    let (value_type, front_end_data) = value_type(family.value_type)?;
    Ok(NewFamily {
        name,
        gc_rule: gc_rule(family.gc_rule)?,
        value_type,
        deletes: Default::default(),
        front_end_data,
    })
}

/// A family as the API shows it.
pub(crate) fn family_proto(family: &Family) -> admin::ColumnFamily {
    admin::ColumnFamily {
        // An empty rule rather than none: prost leaves a default message out of a map entry, and Google's Node client
        // fails on an entry without its message.
        gc_rule: Some(
            family
                .gc_rule
                .as_ref()
                .map_or_else(admin::GcRule::default, gc_rule_proto),
        ),
        value_type: value_type_proto(family),
    }
}

/// The rule of a request. `None` retains everything, and so does a rule without a kind.
pub(crate) fn gc_rule(rule: Option<admin::GcRule>) -> Result<Option<GcRule>, Status> {
    let Some(rule) = rule else { return Ok(None) };
    let bytes = rule.encoded_len();
    if bytes > GC_RULE_BYTES_MAX {
        return Err(invalid(format!(
            "The garbage-collection rule has {bytes} bytes, the limit is {GC_RULE_BYTES_MAX}"
        )));
    }
    rule.rule.map(|rule| convert_rule(rule, GC_RULE_DEPTH_MAX)).transpose()
}

fn convert_rule(rule: Rule, depth_left: usize) -> Result<GcRule, Status> {
    if depth_left == 0 {
        return Err(invalid(format!(
            "The garbage-collection rule nests deeper than {GC_RULE_DEPTH_MAX} levels"
        )));
    }
    let members = |rules: Vec<admin::GcRule>, what: &str| -> Result<Vec<GcRule>, Status> {
        if rules.is_empty() {
            return Err(invalid(format!("A garbage-collection {what} must have rules")));
        }
        let convert = |member: admin::GcRule| match member.rule {
            Some(rule) => convert_rule(rule, depth_left - 1),
            None => Err(invalid(format!(
                "Every rule in a garbage-collection {what} must be set"
            ))),
        };
        rules.into_iter().map(convert).collect()
    };
    match rule {
        Rule::MaxNumVersions(versions) => match u32::try_from(versions) {
            Ok(versions) if versions > 0 => Ok(GcRule::MaxVersions(versions)),
            _ => Err(invalid(format!("max_num_versions must be at least 1, not {versions}"))),
        },
        Rule::MaxAge(age) => max_age(age),
        Rule::Intersection(intersection) => Ok(GcRule::Intersection(members(intersection.rules, "intersection")?)),
        Rule::Union(union) => Ok(GcRule::Union(members(union.rules, "union")?)),
    }
}

fn max_age(age: prost_types::Duration) -> Result<GcRule, Status> {
    let micros = age
        .seconds
        .checked_mul(1_000_000)
        .and_then(|micros| micros.checked_add(i64::from(age.nanos / 1_000)))
        .ok_or_else(|| invalid("max_age is out of range"))?;
    if micros < MAX_AGE_MICROS_MIN {
        return Err(invalid("max_age must be at least 1 millisecond"));
    }
    Ok(GcRule::MaxAgeMicros(micros))
}

fn gc_rule_proto(rule: &GcRule) -> admin::GcRule {
    let members = |rules: &[GcRule]| rules.iter().map(gc_rule_proto).collect();
    let rule = match rule {
        GcRule::MaxVersions(versions) => Rule::MaxNumVersions(i32::try_from(*versions).unwrap_or(i32::MAX)),
        GcRule::MaxAgeMicros(micros) => Rule::MaxAge(prost_types::Duration {
            seconds: micros / 1_000_000,
            nanos: (micros % 1_000_000 * 1_000) as i32,
        }),
        GcRule::Intersection(rules) => Rule::Intersection(Intersection { rules: members(rules) }),
        GcRule::Union(rules) => Rule::Union(Union { rules: members(rules) }),
    };
    admin::GcRule { rule: Some(rule) }
}

/// The type of a family's values, and the declared type in the form that is returned to clients.
pub(crate) fn value_type(declared: Option<admin::Type>) -> Result<(ValueType, Vec<u8>), Status> {
    let Some(admin::Type { kind: Some(kind) }) = declared else {
        return Ok((ValueType::Bytes, Vec::new()));
    };
    let (value_type, kind) = match kind {
        Kind::AggregateType(aggregate) => {
            let (kind, aggregate) = aggregate_kind(*aggregate)?;
            (ValueType::Aggregate(kind), Kind::AggregateType(Box::new(aggregate)))
        }
        other => (ValueType::Bytes, other),
    };
    let bytes = admin::Type { kind: Some(kind) }.encode_to_vec();
    if bytes.len() > VALUE_TYPE_BYTES_MAX {
        return Err(invalid(format!(
            "value_type has {} bytes, the limit is {VALUE_TYPE_BYTES_MAX}",
            bytes.len()
        )));
    }
    Ok((value_type, bytes))
}

/// The aggregate with its state type filled in, which is an output of the API.
fn aggregate_kind(mut aggregate: Aggregate) -> Result<(AggregateKind, Aggregate), Status> {
    let kind = match &aggregate.aggregator {
        Some(Aggregator::Sum(_)) => AggregateKind::Sum,
        Some(Aggregator::Min(_)) => AggregateKind::Min,
        Some(Aggregator::Max(_)) => AggregateKind::Max,
        Some(Aggregator::HllppUniqueCount(_)) => {
            return Err(Status::unimplemented(
                "Aggregates of type hllpp_unique_count are not implemented",
            ));
        }
        None => return Err(invalid("aggregate_type must have an aggregator")),
    };
    let input_type = aggregate.input_type.get_or_insert_with(|| Box::new(big_endian_int64()));
    if !matches!(&input_type.kind, Some(Kind::Int64Type(_))) {
        return Err(invalid("The input_type of an aggregate_type must be int64_type"));
    }
    aggregate.state_type = Some(Box::new(big_endian_int64()));
    Ok((kind, aggregate))
}

fn big_endian_int64() -> admin::Type {
    let encoding = encoding::Encoding::BigEndianBytes(encoding::BigEndianBytes::default());
    admin::Type {
        kind: Some(Kind::Int64Type(Int64 {
            encoding: Some(Int64Encoding {
                encoding: Some(encoding),
            }),
        })),
    }
}

/// The declared type, or an equivalent one for a family that another front end created.
fn value_type_proto(family: &Family) -> Option<admin::Type> {
    let declared = admin::Type::decode(family.front_end_data.as_slice())
        .ok()
        .filter(|t| t.kind.is_some());
    let ValueType::Aggregate(kind) = family.value_type else {
        return declared;
    };
    if declared.is_some() {
        return declared;
    }
    let aggregator = match kind {
        AggregateKind::Sum => Aggregator::Sum(Default::default()),
        AggregateKind::Min => Aggregator::Min(Default::default()),
        AggregateKind::Max => Aggregator::Max(Default::default()),
    };
    let aggregate = Aggregate {
        input_type: Some(Box::new(big_endian_int64())),
        state_type: Some(Box::new(big_endian_int64())),
        aggregator: Some(aggregator),
    };
    Some(admin::Type {
        kind: Some(Kind::AggregateType(Box::new(aggregate))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(rule: Rule) -> Option<admin::GcRule> {
        Some(admin::GcRule { rule: Some(rule) })
    }

    fn age(seconds: i64, nanos: i32) -> Rule {
        Rule::MaxAge(prost_types::Duration { seconds, nanos })
    }

    #[test]
    fn rules_round_trip() {
        let nested = rule(Rule::Union(Union {
            rules: vec![
                admin::GcRule {
                    rule: Some(age(3_600, 5_000)),
                },
                admin::GcRule {
                    rule: Some(Rule::Intersection(Intersection {
                        rules: rule(Rule::MaxNumVersions(3)).into_iter().collect(),
                    })),
                },
            ],
        }));
        let converted = gc_rule(nested.clone()).unwrap().unwrap();
        assert_eq!(
            converted,
            GcRule::Union(vec![
                GcRule::MaxAgeMicros(3_600_000_005),
                GcRule::Intersection(vec![GcRule::MaxVersions(3)])
            ])
        );
        assert_eq!(Some(gc_rule_proto(&converted)), nested);
        assert_eq!(gc_rule(None).unwrap(), None);
        assert_eq!(gc_rule(Some(admin::GcRule::default())).unwrap(), None);
    }

    #[test]
    fn bad_rules_are_refused() {
        let deep = (0..40).fold(Rule::MaxNumVersions(1), |inner, _| {
            Rule::Union(Union {
                rules: vec![admin::GcRule { rule: Some(inner) }],
            })
        });
        let wide = Rule::Union(Union {
            rules: vec![
                admin::GcRule {
                    rule: Some(Rule::MaxNumVersions(1))
                };
                200
            ],
        });
        let empty_member = Rule::Union(Union {
            rules: vec![admin::GcRule::default()],
        });
        for bad in [
            Rule::MaxNumVersions(0),
            Rule::MaxNumVersions(-1),
            age(0, 999_999),
            age(-1, 0),
            age(i64::MAX, 0),
            Rule::Union(Union::default()),
            Rule::Intersection(Intersection::default()),
            empty_member,
            deep,
            wide,
        ] {
            assert_eq!(
                gc_rule(rule(bad.clone())).unwrap_err().code(),
                tonic::Code::InvalidArgument,
                "{bad:?}"
            );
        }
        assert!(gc_rule(rule(age(0, 1_000_000))).is_ok());
    }

    #[test]
    fn aggregates_get_their_state_type() {
        let aggregate = |aggregator, input: Option<Kind>| {
            value_type(Some(admin::Type {
                kind: Some(Kind::AggregateType(Box::new(Aggregate {
                    input_type: input.map(|kind| Box::new(admin::Type { kind: Some(kind) })),
                    state_type: None,
                    aggregator,
                }))),
            }))
        };
        let (kind, data) = aggregate(
            Some(Aggregator::Max(Default::default())),
            Some(Kind::Int64Type(Int64::default())),
        )
        .unwrap();
        assert_eq!(kind, ValueType::Aggregate(AggregateKind::Max));
        let Some(Kind::AggregateType(stored)) = admin::Type::decode(data.as_slice()).unwrap().kind else {
            unreachable!("an aggregate was stored")
        };
        assert_eq!(stored.state_type, Some(Box::new(big_endian_int64())));
        let code = |result: Result<_, Status>| result.map(|_: (ValueType, Vec<u8>)| ()).unwrap_err().code();
        assert_eq!(code(aggregate(None, None)), tonic::Code::InvalidArgument);
        let text = Some(Kind::StringType(Default::default()));
        assert_eq!(
            code(aggregate(Some(Aggregator::Sum(Default::default())), text)),
            tonic::Code::InvalidArgument
        );
        let hll = Some(Aggregator::HllppUniqueCount(Default::default()));
        assert_eq!(code(aggregate(hll, None)), tonic::Code::Unimplemented);
    }
}
