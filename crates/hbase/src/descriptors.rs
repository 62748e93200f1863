//! Descriptors: tables as HBase describes them, as attributes of text.
//!
//! A table that was made through HBase keeps its descriptor, unchanged and with the attributes that nothing here acts
//! on, in the front end's data of the table. Attributes that act become properties of the table (`properties`). Others
//! may change these properties, so a descriptor that is shown ([`shown`]) is compared with them. Attributes that are no
//! longer true are replaced, and so are those of families that came or went.
//!
//! A table of another front end has no descriptor, so one is made from its properties.

mod attributes;
mod checks;
mod defaults;
mod deletes;
mod files;
mod maker;
mod meta;
mod names;
mod properties;
mod rules;

pub(crate) use attributes::is_false;
use attributes::{get, set};
pub(crate) use files::FileOptions;
pub(crate) use maker::{is_made_by, stored_after, stored_by};
pub(crate) use meta::meta_table;
pub(crate) use names::check_table;
pub(crate) use properties::{Properties, is_never_split};

use bytes::Bytes;
use prost::Message;
use stele_types::{DeleteRule, Family, TableSchema};
use stele_wire::messages::{self, ColumnFamilySchema};

/// Adds the attributes that a server gives to tables when it stores them, and sorts the families.
pub(crate) fn complete(table: &mut messages::TableSchema, rule: DeleteRule) {
    defaults::add_to_table(table);
    for family in &mut table.column_families {
        defaults::add_to_family(family);
        let decides = get(&family.attributes, attributes::NEW_VERSION_BEHAVIOR).is_some();
        if rule == DeleteRule::BySequence && !decides {
            set(&mut family.attributes, attributes::NEW_VERSION_BEHAVIOR, "true");
        }
    }
    table.column_families.sort_by(|a, b| a.name.cmp(&b.name));
}

/// The bytes that the service keeps of a descriptor. The name is the table's.
pub(crate) fn stored(table: &messages::TableSchema) -> Vec<u8> {
    let nameless = messages::TableSchema {
        table_name: None,
        ..table.clone()
    };
    nameless.encode_to_vec()
}

/// Bytes of a cell at most, if the table has a limit of its own; 0 stands for none.
pub(crate) fn cell_bytes_max(schema: &TableSchema) -> Option<usize> {
    let kept = messages::TableSchema::decode(&schema.front_end_data[..]).ok()?;
    let bytes = attributes::number(&kept.attributes, "hbase.server.keyvalue.maxsize");
    bytes.ok().flatten().filter(|bytes| *bytes > 0)
}

/// Whether HBase's clients can have this family in a descriptor. They refuse all descriptors of an answer in which another one is.
pub(crate) fn is_shown(family: &Family) -> bool {
    names::check_family(family.name.as_bytes()).is_ok()
}

/// The descriptor of a table.
pub(crate) fn shown(schema: &TableSchema) -> messages::TableSchema {
    let bytes = Bytes::copy_from_slice(&schema.front_end_data);
    // Data that is no descriptor is another front end's.
    let kept = messages::TableSchema::decode(bytes).unwrap_or_default();
    let mut table = messages::TableSchema {
        table_name: Some(crate::names::to_message(&schema.name)),
        attributes: kept.attributes,
        configuration: kept.configuration,
        column_families: Vec::new(),
    };
    defaults::add_to_table(&mut table);
    properties::correct_table(&mut table.attributes, schema);
    for family in schema.families.values().filter(|family| is_shown(family)) {
        let before = kept
            .column_families
            .iter()
            .find(|kept| kept.name == family.name.as_bytes());
        table.column_families.push(match before {
            Some(before) => corrected(before.clone(), family, schema),
            None => made(family, schema),
        });
    }
    table.column_families.sort_by(|a, b| a.name.cmp(&b.name));
    table
}

/// The descriptor of a family, with the attributes that were changed through another interface.
fn corrected(mut kept: ColumnFamilySchema, family: &Family, schema: &TableSchema) -> ColumnFamilySchema {
    if rules::rule(&kept).ok().as_ref() != Some(&family.gc_rule) {
        rules::show(&mut kept.attributes, family.gc_rule.as_ref());
    }
    let files = FileOptions::of_group(&schema.group_options(family.group));
    if FileOptions::of_family(&kept).ok() != Some(files) {
        files.show(&mut kept.attributes);
    }
    // The family of the descriptor may have been dropped, and another one has its name.
    if deletes::deletes(&kept, schema.delete_rule).ok() != Some(family.deletes) {
        deletes::show(&mut kept.attributes, family, schema);
    }
    kept
}

/// A descriptor of a family that has none.
fn made(family: &Family, schema: &TableSchema) -> ColumnFamilySchema {
    let mut made = ColumnFamilySchema {
        name: Bytes::copy_from_slice(family.name.as_bytes()),
        ..ColumnFamilySchema::default()
    };
    defaults::add_to_family(&mut made);
    rules::show(&mut made.attributes, family.gc_rule.as_ref());
    FileOptions::of_group(&schema.group_options(family.group)).show(&mut made.attributes);
    deletes::show(&mut made.attributes, family, schema);
    made
}

/// Checks for fuzz targets that the descriptor of a family says the properties that it has.
pub(crate) fn check_shown(shown: &ColumnFamilySchema, family: &Family, schema: &TableSchema) {
    assert_eq!(rules::rule(shown), Ok(family.gc_rule.clone()));
    assert_eq!(deletes::deletes(shown, schema.delete_rule), Ok(family.deletes));
    let files = FileOptions::of_group(&schema.group_options(family.group));
    assert_eq!(FileOptions::of_family(shown), Ok(files));
}

#[cfg(test)]
mod tests;
