//! The rules for names of tables and families.

use crate::failure::{Failure, Outcome};
use crate::names;
use stele_types::TableName;

/// Refuses a name that HBase does not have for tables.
pub(crate) fn check_table(name: &TableName) -> Outcome<()> {
    if names::is_legal(name) {
        return Ok(());
    }
    let message = format!(
        "Illegal table name {}: namespaces have letters, digits and _, and tables also - and ., which no name begins with",
        names::to_text(name)
    );
    Err(Failure::do_not_retry(message))
}

/// Refuses a name that HBase does not have for families, and returns the text of others.
pub(crate) fn check_family(name: &[u8]) -> Outcome<&str> {
    let is_legal = |byte: &u8| !byte.is_ascii_control() && !matches!(byte, b':' | b'/' | b'\\');
    match std::str::from_utf8(name) {
        Ok(text)
            if !name.is_empty() && name.iter().all(is_legal) && !text.starts_with('.') && text != "recovered.edits" =>
        {
            Ok(text)
        }
        _ => {
            let message = format!("Illegal family name {:?}", name.escape_ascii().to_string());
            Err(Failure::do_not_retry(message))
        }
    }
}
