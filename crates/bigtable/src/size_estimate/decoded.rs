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

fn value_parts<'m>(mutations: impl Iterator<Item = &'m wire::Mutation>) -> usize {
    mutations
        .filter_map(|m| m.mutation.as_ref())
        .map(|kind| match kind {
            v2::mutation::Mutation::AddToCell(add) => [&add.column_qualifier, &add.timestamp, &add.input]
                .into_iter()
                .flatten()
                .map(parts_of_value)
                .sum(),
            v2::mutation::Mutation::MergeToCell(merge) => [&merge.column_qualifier, &merge.timestamp, &merge.input]
                .into_iter()
                .flatten()
                .map(parts_of_value)
                .sum(),
            _ => 0,
        })
        .sum()
}

fn parts_of_value(value: &v2::Value) -> usize {
    let own = match &value.kind {
        Some(v2::value::Kind::ArrayValue(array)) => {
            array.values.len() + array.values.iter().map(parts_of_value).sum::<usize>()
        }
        _ => 0,
    };
    own + value.r#type.as_ref().map_or(0, parts_of_type)
}

fn parts_of_type(of: &v2::Type) -> usize {
    use v2::r#type::Kind;
    let boxed = |of: &Option<Box<v2::Type>>| of.as_deref().map_or(0, parts_of_type);
    match &of.kind {
        Some(Kind::StructType(of)) => {
            let within = of.fields.iter().filter_map(|f| f.r#type.as_ref()).map(parts_of_type);
            of.fields.len() + within.sum::<usize>()
        }
        Some(Kind::ArrayType(of)) => boxed(&of.element_type),
        Some(Kind::MapType(of)) => boxed(&of.key_type) + boxed(&of.value_type),
        Some(Kind::AggregateType(of)) => boxed(&of.input_type) + boxed(&of.state_type),
        _ => 0,
    }
}

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
        vec![
            (Element::Entry, self.entries.len()),
            (Element::Mutation, all().count()),
            (Element::ValuePart, value_parts(all())),
        ]
    }
}

impl Decoded for wire::MutateRowRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        vec![
            (Element::Mutation, self.mutations.len()),
            (Element::ValuePart, value_parts(self.mutations.iter())),
        ]
    }
}

impl Decoded for wire::CheckAndMutateRowRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        let all = || self.true_mutations.iter().chain(&self.false_mutations);
        let filter = self.predicate_filter.as_ref().map_or(0, Message::encoded_len);
        vec![
            (Element::Mutation, all().count()),
            (Element::ValuePart, value_parts(all())),
            (Element::FilterByte, filter),
        ]
    }
}

impl Decoded for v2::ReadModifyWriteRowRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        vec![(Element::Rule, self.rules.len())]
    }
}

fn family_parts<'f>(families: impl Iterator<Item = &'f admin::ColumnFamily>) -> usize {
    families
        .filter_map(|family| family.gc_rule.as_ref())
        .map(rules_of)
        .sum()
}

impl Decoded for admin::CreateTableRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        let table = self.table.clone().unwrap_or_default();
        vec![
            (Element::Split, self.initial_splits.len()),
            (Element::Family, table.column_families.len()),
            (Element::GcRule, family_parts(table.column_families.values())),
            (Element::MapEntry, table.cluster_states.len()),
        ]
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
        vec![
            (Element::FamilyChange, self.modifications.len()),
            (Element::GcRule, family_parts(families)),
            (Element::MapEntry, masks.map(|mask| mask.paths.len()).sum()),
        ]
    }
}

impl Decoded for admin::UpdateTableRequest {
    fn parts(&self) -> Vec<(Element, usize)> {
        let table = self.table.clone().unwrap_or_default();
        let paths = self.update_mask.as_ref().map_or(0, |mask| mask.paths.len());
        vec![
            (Element::Family, table.column_families.len()),
            (Element::GcRule, family_parts(table.column_families.values())),
            (Element::MapEntry, table.cluster_states.len() + paths),
        ]
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
