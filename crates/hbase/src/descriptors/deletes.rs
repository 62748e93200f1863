//! Effects of deletes in families, and the attributes that express them.

use super::attributes::{self, get, is_true, set};
use super::rules;
use crate::failure::{Failure, Outcome};
use stele_types::{DeleteRule, Deletes, Family, KeepDeleted, TableSchema};
use stele_wire::messages::{BytesBytesPair, ColumnFamilySchema};

/// The effect of deletes in a family of a table with this rule.
pub(super) fn deletes(family: &ColumnFamilySchema, of_table: DeleteRule) -> Outcome<Deletes> {
    let rule = match is_true(&family.attributes, attributes::NEW_VERSION_BEHAVIOR) {
        true => DeleteRule::BySequence,
        false => DeleteRule::ByTimestamp,
    };
    let kept = get(&family.attributes, attributes::KEEP_DELETED_CELLS).unwrap_or("FALSE");
    let keep = match kept.to_ascii_uppercase().as_str() {
        "FALSE" => KeepDeleted::No,
        "TRUE" => KeepDeleted::Yes,
        // Without a TTL no tombstone is ever older than it.
        "TTL" => rules::lifetime_micros(family)?.map_or(KeepDeleted::Yes, KeepDeleted::For),
        _ => {
            let message = format!("KEEP_DELETED_CELLS is {kept:?}, and not FALSE, TRUE or TTL");
            return Err(Failure::do_not_retry(message));
        }
    };
    Ok(Deletes {
        rule: (rule != of_table).then_some(rule),
        keep,
    })
}

/// Makes the attributes say the effect of deletes in a family.
pub(super) fn show(attributes: &mut Vec<BytesBytesPair>, family: &Family, schema: &TableSchema) {
    let by_sequence = family.deletes.rule.unwrap_or(schema.delete_rule) == DeleteRule::BySequence;
    // Absent stands for false.
    if by_sequence != is_true(attributes, attributes::NEW_VERSION_BEHAVIOR) {
        let shown = if by_sequence { "true" } else { "false" };
        set(attributes, attributes::NEW_VERSION_BEHAVIOR, shown);
    }
    let keep = match family.deletes.keep {
        KeepDeleted::No => "FALSE",
        KeepDeleted::Yes => "TRUE",
        KeepDeleted::For(_) => "TTL",
    };
    set(attributes, attributes::KEEP_DELETED_CELLS, keep);
}
