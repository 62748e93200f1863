//! Translates ReadModifyWriteRow: the rules of a request, and the written cells as a row.

use crate::mutations::{Resolver, check_mutation_count, check_qualifier, check_row_key, check_value};
use crate::pb::v2;
use crate::pb::v2::read_modify_write_rule::Rule;
use crate::status::invalid;
use crate::times::TableTime;
use bytes::Bytes;
use stele_client::{RmwOperation, RmwRule, Step};
use stele_types::{Cell, FamilyId, TableSchema, ValueType};
use tonic::Status;

/// The rules of a request, as the steps of a row operation; at least one.
pub(crate) fn steps(
    resolver: &Resolver<'_>,
    row: &[u8],
    rules: Vec<v2::ReadModifyWriteRule>,
) -> Result<Vec<Step>, Status> {
    check_row_key(row)?;
    check_mutation_count(rules.len())?;
    if rules.is_empty() {
        return Err(invalid("No rules provided"));
    }
    rules.into_iter().map(|r| rule(resolver, r).map(Step::Modify)).collect()
}

fn rule(resolver: &Resolver<'_>, rule: v2::ReadModifyWriteRule) -> Result<RmwRule, Status> {
    let (family, value_type) = resolver.family(&rule.family_name)?;
    if value_type != ValueType::Bytes {
        return Err(invalid(format!(
            "ReadModifyWriteRow is not supported by family {:?}, which has an aggregate type",
            rule.family_name
        )));
    }
    check_qualifier(&rule.column_qualifier)?;
    let operation = match rule.rule {
        Some(Rule::AppendValue(value)) => {
            check_value(&value)?;
            RmwOperation::Append(value)
        }
        Some(Rule::IncrementAmount(amount)) => RmwOperation::Increment(amount),
        None => return Err(invalid("A rule must have append_value or increment_amount")),
    };
    Ok(RmwRule::new(family, rule.column_qualifier, operation))
}

/// The written cells, grouped by family and column in their order.
pub(crate) fn row(schema: &TableSchema, key: Bytes, cells: Vec<Cell>) -> Result<v2::Row, Status> {
    let time = TableTime::of(schema);
    let mut row = v2::Row {
        key,
        families: Vec::new(),
    };
    let mut previous: Option<FamilyId> = None;
    for cell in cells {
        let Some(family) = schema.families.get(&cell.family) else {
            continue;
        };
        if previous != Some(cell.family) {
            row.families.push(v2::Family {
                name: family.name.clone(),
                columns: Vec::new(),
            });
            previous = Some(cell.family);
        }
        let written = v2::Cell {
            // It is written: an error would have the caller repeat it.
            timestamp_micros: time.micros(cell.timestamp).unwrap_or(i64::MAX),
            value: cell.value,
            labels: cell.labels.into_vec(),
        };
        let Some(family) = row.families.last_mut() else {
            continue;
        };
        match family.columns.last_mut() {
            Some(column) if column.qualifier == cell.qualifier => column.cells.push(written),
            _ => family.columns.push(v2::Column {
                qualifier: cell.qualifier,
                cells: vec![written],
            }),
        }
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use stele_types::Timestamp;

    fn rule_of(family: &str, rule: Option<Rule>) -> v2::ReadModifyWriteRule {
        v2::ReadModifyWriteRule {
            family_name: family.into(),
            column_qualifier: Bytes::new(),
            rule,
        }
    }

    #[test]
    fn rules_are_checked() {
        let schema = testing::schema();
        let resolver = Resolver::new(&schema, 0);
        let increment = || Some(Rule::IncrementAmount(1));
        assert_eq!(
            steps(&resolver, b"r", vec![rule_of("f", increment())]).unwrap().len(),
            1
        );
        let code = |steps: Result<_, Status>| steps.map(|_: Vec<Step>| ()).unwrap_err().code();
        assert_eq!(
            code(steps(&resolver, b"", vec![rule_of("f", increment())])),
            tonic::Code::InvalidArgument
        );
        assert_eq!(code(steps(&resolver, b"r", vec![])), tonic::Code::InvalidArgument);
        assert_eq!(
            code(steps(&resolver, b"r", vec![rule_of("f", None)])),
            tonic::Code::InvalidArgument
        );
        assert_eq!(
            code(steps(&resolver, b"r", vec![rule_of("sum", increment())])),
            tonic::Code::InvalidArgument
        );
        assert_eq!(
            code(steps(&resolver, b"r", vec![rule_of("x", increment())])),
            tonic::Code::NotFound
        );
    }

    #[test]
    fn cells_group_into_columns() {
        let cell = |family, qualifier: &'static str| {
            Cell::put(
                FamilyId(family),
                qualifier.into(),
                Timestamp(1_000),
                Bytes::from_static(b"v"),
            )
        };
        let row = row(
            &testing::schema(),
            "r".into(),
            vec![cell(1, "a"), cell(1, "b"), cell(2, "b")],
        )
        .unwrap();
        let shape: Vec<_> = row
            .families
            .iter()
            .map(|f| (f.name.as_str(), f.columns.len()))
            .collect();
        assert_eq!(shape, [("f", 2), ("g", 1)]);
    }
}
