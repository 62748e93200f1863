//! The part of HBase in the record of a namespace.
//!
//! A namespace has one record for all front ends, a message of which each has fields of its own. This module reads and
//! replaces field 100, and keeps all other bytes of the record as they are.

use crate::failure::{Failure, Outcome};
use crate::shared_fields;
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use stele_wire::messages::NameStringPair;

/// The field of HBase.
const OWN_FIELD: u32 = 100;

/// The content of the field.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NamespaceData {
    /// Settings of the namespace, by name.
    #[prost(btree_map = "string, string", tag = "1")]
    pub configuration: BTreeMap<String, String>,
    /// The id of the cluster; only in the namespace of the system.
    #[prost(string, tag = "2")]
    pub cluster_id: String,
}

/// The field in a record.
#[derive(Clone, PartialEq, prost::Message)]
struct OwnField {
    #[prost(message, optional, tag = "100")]
    data: Option<NamespaceData>,
}

impl NamespaceData {
    /// Reads a record.
    pub fn decode(namespace: &str, record: &Bytes) -> Outcome<Self> {
        let field = <OwnField as Message>::decode(record.clone()).map_err(|error| damaged(namespace, &error))?;
        Ok(field.data.unwrap_or_default())
    }

    /// The record with this as its content of the field.
    pub fn put_into(self, namespace: &str, record: &Bytes) -> Outcome<Vec<u8>> {
        let others = shared_fields::others(record, |number| number == OWN_FIELD);
        let mut record = others.map_err(|error| damaged(namespace, &error))?;
        if self != NamespaceData::default() {
            OwnField { data: Some(self) }.encode_raw(&mut record);
        }
        Ok(record)
    }

    /// The settings, as messages have them.
    pub fn pairs(&self) -> Vec<NameStringPair> {
        let pair = |(name, value): (&String, &String)| NameStringPair {
            name: name.clone(),
            value: value.clone(),
        };
        self.configuration.iter().map(pair).collect()
    }
}

fn damaged(namespace: &str, error: &prost::DecodeError) -> Failure {
    Failure::do_not_retry(format!("The record of namespace {namespace} cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::encoding;

    #[test]
    fn fields_of_others_survive() {
        let mut others = Vec::new();
        for (number, value) in [
            (1, &b"instance"[..]),
            (2, b"one"),
            (2, b"two"),
            (3, b""),
            (77, b"unknown"),
        ] {
            encoding::bytes::encode(number, &value.to_vec(), &mut others);
        }
        encoding::uint64::encode(78, &5, &mut others);
        let others = Bytes::from(others);
        let data = NamespaceData {
            configuration: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
            cluster_id: String::new(),
        };
        let record = Bytes::from(data.clone().put_into("n", &others).unwrap());
        assert_eq!(NamespaceData::decode("n", &record).unwrap(), data);
        let replaced = NamespaceData {
            cluster_id: "id".to_owned(),
            ..NamespaceData::default()
        };
        let again = Bytes::from(replaced.clone().put_into("n", &record).unwrap());
        assert_eq!(NamespaceData::decode("n", &again).unwrap(), replaced);
        assert_eq!(NamespaceData::default().put_into("n", &again).unwrap(), others);
    }

    #[test]
    fn damaged_records_are_refused() {
        for record in [&b"\xff"[..], b"\x0a\x05x", b"\xa2\x06\x01\xff"] {
            let record = Bytes::from_static(record);
            assert!(NamespaceData::decode("n", &record).is_err(), "{record:?}");
        }
        assert!(
            NamespaceData::default()
                .put_into("n", &Bytes::from_static(b"\x0a\x05x"))
                .is_err()
        );
    }
}
