//! Counts the parts of decoded requests, for tests and fuzzers to compare with the estimate.

use super::{Estimated, SizeEstimate};
use crate::limits::Element;
use crate::pb::{admin, own, v2};
use crate::wire;
use prost::Message;

/// A decoded request whose parts can be counted.
pub(crate) trait Decoded: Estimated {
    /// Kinds of parts, and how many there are.
    fn parts(&self) -> Vec<(Element, usize)>;
}

/// Elements of arrays and structs, and types within types.
#[derive(Clone, Copy, Default)]
struct Parts {
    values: usize,
    types: usize,
}

impl Parts {
    fn plus(self, other: Parts) -> Parts {
        Parts {
            values: self.values + other.values,
            types: self.types + other.types,
        }
    }

    fn sum(parts: impl Iterator<Item = Parts>) -> Parts {
        parts.fold(Parts::default(), Parts::plus)
    }

    fn listed(self) -> [(Element, usize); 2] {
        [(Element::ValuePart, self.values), (Element::TypePart, self.types)]
    }
}

fn value_parts<'m>(mutations: impl Iterator<Item = &'m wire::Mutation>) -> Parts {
    let of_mutation = |kind: &v2::mutation::Mutation| match kind {
        v2::mutation::Mutation::AddToCell(add) => parts_of_values([&add.column_qualifier, &add.timestamp, &add.input]),
        v2::mutation::Mutation::MergeToCell(merge) => {
            parts_of_values([&merge.column_qualifier, &merge.timestamp, &merge.input])
        }
        _ => Parts::default(),
    };
    Parts::sum(mutations.filter_map(|m| m.mutation.as_ref()).map(of_mutation))
}

fn parts_of_values(values: [&Option<v2::Value>; 3]) -> Parts {
    Parts::sum(values.into_iter().flatten().map(parts_of_value))
}

fn parts_of_value(value: &v2::Value) -> Parts {
    let mut parts = value.r#type.as_ref().map_or_else(Parts::default, parts_of_type);
    if let Some(v2::value::Kind::ArrayValue(array)) = &value.kind {
        parts.values += array.values.len();
        parts = parts.plus(Parts::sum(array.values.iter().map(parts_of_value)));
    }
    parts
}

/// A function that counts the parts of a type: both APIs have their own, with the same fields.
macro_rules! parts_of_types {
    ($name:ident, $api:ident) => {
        fn $name(of: &$api::Type) -> Parts {
            use $api::r#type::Kind;
            let boxed = |of: &Option<Box<$api::Type>>| {
                let within = of
                    .as_deref()
                    .map(|of| Parts { values: 0, types: 1 }.plus($name(of)));
                within.unwrap_or_default()
            };
            match &of.kind {
                Some(Kind::StructType(of)) => {
                    let within = Parts::sum(of.fields.iter().filter_map(|f| f.r#type.as_ref()).map($name));
                    within.plus(Parts {
                        values: of.fields.len(),
                        types: 0,
                    })
                }
                Some(Kind::ArrayType(of)) => boxed(&of.element_type),
                Some(Kind::MapType(of)) => boxed(&of.key_type).plus(boxed(&of.value_type)),
                Some(Kind::AggregateType(of)) => boxed(&of.input_type).plus(boxed(&of.state_type)),
                _ => Parts::default(),
            }
        }
    };
}

parts_of_types!(parts_of_type, v2);
parts_of_types!(parts_of_admin_type, admin);

fn rules_of(rule: &admin::GcRule) -> usize {
    use admin::gc_rule::Rule;
    match &rule.rule {
        Some(Rule::Intersection(of)) => of.rules.len() + of.rules.iter().map(rules_of).sum::<usize>(),
        Some(Rule::Union(of)) => of.rules.len() + of.rules.iter().map(rules_of).sum::<usize>(),
        _ => 0,
    }
}

impl Decoded for wire::ReadRowsRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        let rows = self.rows.clone().unwrap_or_default();
        vec![
            (Element::RowKey, rows.row_keys.len()),
            (Element::RowRange, rows.row_ranges.len()),
            (
                Element::FilterByte,
                self.filter.as_ref().map_or(0, Message::encoded_len),
            ),
        ]
    }
}

impl Decoded for wire::MutateRowsRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        let all = || self.entries.iter().flat_map(|entry| &entry.mutations);
        let mut parts = vec![(Element::Entry, self.entries.len()), (Element::Mutation, all().count())];
        parts.extend(value_parts(all()).listed());
        parts
    }
}

impl Decoded for wire::MutateRowRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        let mut parts = vec![(Element::Mutation, self.mutations.len())];
        parts.extend(value_parts(self.mutations.iter()).listed());
        parts
    }
}

impl Decoded for wire::CheckAndMutateRowRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        let all = || self.true_mutations.iter().chain(&self.false_mutations);
        let filter = self.predicate_filter.as_ref().map_or(0, Message::encoded_len);
        let mut parts = vec![(Element::Mutation, all().count()), (Element::FilterByte, filter)];
        parts.extend(value_parts(all()).listed());
        parts
    }
}

impl Decoded for v2::ReadModifyWriteRowRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        vec![(Element::Rule, self.rules.len())]
    }
}

/// Parts of the rules and the types of families.
fn family_parts<'f>(families: impl Iterator<Item = &'f admin::ColumnFamily> + Clone) -> [(Element, usize); 3] {
    let rules = families.clone().filter_map(|family| family.gc_rule.as_ref());
    let types = families.filter_map(|family| family.value_type.as_ref());
    let [values, types] = Parts::sum(types.map(parts_of_admin_type)).listed();
    [(Element::GcRule, rules.map(rules_of).sum()), values, types]
}

impl Decoded for admin::CreateTableRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        let table = self.table.clone().unwrap_or_default();
        let mut parts = vec![
            (Element::Split, self.initial_splits.len()),
            (Element::Family, table.column_families.len()),
            (Element::MapEntry, table.cluster_states.len()),
        ];
        parts.extend(family_parts(table.column_families.values()));
        parts
    }
}

impl Decoded for admin::ModifyColumnFamiliesRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        use admin::modify_column_families_request::modification::Mod;
        let families = self.modifications.iter().filter_map(|m| match &m.r#mod {
            Some(Mod::Create(family) | Mod::Update(family)) => Some(family),
            _ => None,
        });
        let masks = self.modifications.iter().filter_map(|m| m.update_mask.as_ref());
        let mut parts = vec![
            (Element::FamilyChange, self.modifications.len()),
            (Element::MapEntry, masks.map(|mask| mask.paths.len()).sum()),
        ];
        parts.extend(family_parts(families));
        parts
    }
}

impl Decoded for admin::UpdateTableRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        let table = self.table.clone().unwrap_or_default();
        let paths = self.update_mask.as_ref().map_or(0, |mask| mask.paths.len());
        let mut parts = vec![
            (Element::Family, table.column_families.len()),
            (Element::MapEntry, table.cluster_states.len() + paths),
        ];
        parts.extend(family_parts(table.column_families.values()));
        parts
    }
}

impl Decoded for own::ModifyLocalityGroupsRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        vec![(Element::FamilyChange, self.modifications.len())]
    }
}

/// Checks that every part that prost decodes was counted, or that the request was refused.
///
/// # Panics If a part was not counted.
pub(crate) fn check_bound<M: Decoded>(bytes: &[u8]) {
    let estimate = SizeEstimate::of::<M>(bytes);
    if let (Ok(estimate), Ok(message)) = (estimate, M::decode(bytes)) {
        for (part, count) in message.parts() {
            assert!(
                estimate.count(part) >= count,
                "{part:?}: {} < {count}",
                estimate.count(part)
            );
        }
    }
}
