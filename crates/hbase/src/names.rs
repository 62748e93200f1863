//! Names of tables and namespaces, as HBase writes them and as the service interface does.

use crate::failure::{Failure, Outcome};
use bytes::Bytes;
use stele_types::TableName;
use stele_wire::exception;
use stele_wire::messages::{self, DEFAULT_NAMESPACE};

/// The namespace of HBase's own tables.
pub(crate) const SYSTEM_NAMESPACE: &str = "hbase";

/// The table of HBase's rights, which has no rows here.
pub(crate) const ACL_TABLE: &str = "hbase:acl";

/// Namespaces that exist also when they have no record.
pub(crate) const RESERVED_NAMESPACES: [&str; 2] = [DEFAULT_NAMESPACE, SYSTEM_NAMESPACE];

/// The table of a message.
pub(crate) fn from_message(name: &messages::TableName) -> Outcome<TableName> {
    let namespace = match &name.namespace[..] {
        b"" => DEFAULT_NAMESPACE,
        given => text(given)?,
    };
    Ok(TableName::new(namespace, text(&name.qualifier)?))
}

/// The table of `name` or `namespace:name`.
pub(crate) fn from_text(name: &[u8]) -> Outcome<TableName> {
    from_message(&stele_wire::region::table_name(&Bytes::copy_from_slice(name)))
}

fn text(bytes: &[u8]) -> Outcome<&str> {
    std::str::from_utf8(bytes).map_err(|_| {
        let message = format!("Illegal name of a table: {}", bytes.escape_ascii());
        Failure::do_not_retry(message)
    })
}

/// The table's name in messages.
pub(crate) fn to_message(name: &TableName) -> messages::TableName {
    messages::TableName {
        namespace: Bytes::copy_from_slice(name.namespace.as_bytes()),
        qualifier: Bytes::copy_from_slice(name.table.as_bytes()),
    }
}

/// The table's name as text, without the default namespace.
pub(crate) fn to_text(name: &TableName) -> String {
    if name.namespace == DEFAULT_NAMESPACE {
        name.table.clone()
    } else {
        format!("{}:{}", name.namespace, name.table)
    }
}

/// Whether HBase can have a table of this name. Clients fail on any response with a name that it cannot have, and other
/// front ends may have given one.
pub(crate) fn is_legal(name: &TableName) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let table = name.table.as_bytes();
    let begins_well = table.first().is_some_and(|first| !matches!(first, b'-' | b'.'));
    is_legal_namespace(&name.namespace) && begins_well && table.iter().all(|byte| is_legal(*byte))
}

/// The same for a namespace.
pub(crate) fn is_legal_namespace(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// There is no such table.
pub(crate) fn table_not_found(name: &TableName) -> Failure {
    Failure::new(exception::TABLE_NOT_FOUND, to_text(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_front_ends_may_be_illegal() {
        for (namespace, table, legal) in [
            ("default", "t-1.2_x", true),
            ("my-instance", "t", false),
            ("n", ".t", false),
            ("n", "-t", false),
            ("n", "", false),
            ("", "t", false),
        ] {
            assert_eq!(
                is_legal(&TableName::new(namespace, table)),
                legal,
                "{namespace}:{table}"
            );
        }
    }

    #[test]
    fn the_default_namespace_is_left_out() {
        for (written, namespace, table) in [("t", "default", "t"), ("n:t", "n", "t")] {
            let name = from_text(written.as_bytes()).unwrap();
            assert_eq!(name, TableName::new(namespace, table));
            assert_eq!(to_text(&name), written);
            assert_eq!(from_message(&to_message(&name)).unwrap(), name);
        }
        assert!(from_text(b"\xff").is_err());
    }
}
