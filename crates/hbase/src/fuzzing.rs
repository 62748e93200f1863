//! Checks of decoders for fuzz targets.
//!
//! They are here, because stored descriptors, blocks of cells and numbers are no interface of the crate.

use crate::compression::BlockCompression;
use crate::coprocessor::number::{Interpreter, Number, add};
use crate::descriptors;
use crate::master::snapshots::description;
use crate::namespace_data::NamespaceData;
use crate::packing::unpack;
use crate::trace_context;
use bytes::Bytes;
use prost::Message;
use std::cmp::Ordering;
use std::io::Write;
use std::sync::Arc;
use stele_client::{SnapshotInfo, SnapshotName};
use stele_env::Env;
use stele_memory::{Part, Pool};
use stele_types::{DeleteRule, Deletes, Family, FamilyId, GcRule, KeepDeleted, SnapshotId, TableSchema};
use stele_wire::messages::{BigDecimalMsg, DoubleMsg, LongMsg, RequestHeader};

/// Bytes that a block of cells is unpacked to at most.
const UNPACKED_MAX: usize = 1 << 20;

const INTERPRETERS: [Interpreter; 3] = [Interpreter::Long, Interpreter::Double, Interpreter::Decimal];

/// Checks bytes as HBase's part of a namespace's record.
///
/// # Panics
/// If a record that can be read cannot be changed, or if the change is not exactly that of the own field.
pub fn namespace(record: &Bytes) {
    let Ok(data) = NamespaceData::decode("n", record) else {
        return;
    };
    let put = |data: NamespaceData, into| Bytes::from(data.put_into("n", into).expect("it was read"));
    let others = put(NamespaceData::default(), record);
    let again = put(data.clone(), record);
    assert_eq!(NamespaceData::decode("n", &again), Ok(data));
    assert_eq!(put(NamespaceData::default(), &again), others);
    assert_eq!(NamespaceData::decode("n", &others), Ok(NamespaceData::default()));
}

/// Checks bytes as the kept descriptor of a table, which is given other rules and deletes here.
///
/// # Panics
/// If the shown descriptor is not that of the table, or changes when it is stored.
pub fn descriptor(kept: &[u8], mut schema: TableSchema) {
    schema.front_end_data = kept.to_vec();
    change_families(&mut schema);
    let shown = descriptors::shown(&schema);
    let families: Vec<&Family> = schema.families.values().collect();
    assert_eq!(shown.column_families.len(), families.len());
    for shown in &shown.column_families {
        let family = families.iter().find(|family| family.name.as_bytes() == shown.name);
        let family = family.expect("a family of the table");
        descriptors::check_shown(shown, family, &schema);
    }
    schema.front_end_data = descriptors::stored(&shown);
    assert_eq!(descriptors::shown(&schema), shown);
}

/// Checks bytes as the kept description of a snapshot of a table.
///
/// # Panics
/// If the shown description changes when it is stored.
pub fn snapshot(kept: &Bytes, schema: TableSchema) {
    for expires_micros in [None, Some(61_000_001)] {
        let mut snapshot = SnapshotInfo {
            id: SnapshotId(1),
            name: SnapshotName {
                namespace: schema.name.namespace.clone(),
                name: "s".to_owned(),
            },
            schema: Arc::new(schema.clone()),
            created_micros: 1_000,
            completed_micros: 2_000,
            expires_micros,
            tablets: 1,
            bytes: 1,
            kept: None,
            front_end_data: kept.clone(),
        };
        let shown = description(&snapshot);
        snapshot.front_end_data = shown.encode_to_vec().into();
        assert_eq!(description(&snapshot), shown);
    }
}

/// Checks bytes as a block of cells, compressed and not.
///
/// # Panics
/// If a block is unpacked to more than is allowed or without memory, or if packing has no inverse.
pub async fn block(bytes: &Bytes, env: &Env) {
    let pool = Pool::default().limited(Part::Requests, 4 * UNPACKED_MAX);
    for compression in [BlockCompression::None, BlockCompression::Gzip, BlockCompression::Zlib] {
        let memory = pool.of(Part::Requests).empty();
        if let Ok(plain) = unpack(compression, bytes, UNPACKED_MAX, &memory, env).await {
            assert!(plain.len() <= UNPACKED_MAX && plain.len() <= memory.counted());
        }
        let packed = Bytes::from(packed(compression, bytes));
        let memory = pool.of(Part::Requests).empty();
        let plain = unpack(compression, &packed, bytes.len(), &memory, env).await;
        assert_eq!(plain.as_ref(), Ok(bytes));
    }
}

/// Cells as a block of each codec, from which fuzzing starts.
pub fn blocks(cells: &[u8]) -> Vec<Vec<u8>> {
    let codecs = [BlockCompression::Gzip, BlockCompression::Zlib];
    codecs.map(|codec| packed(codec, cells)).into()
}

fn packed(compression: BlockCompression, cells: &[u8]) -> Vec<u8> {
    let mut encoder = compression.encoder();
    encoder.write_all(cells).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

/// Checks bytes as the trace information of a call.
///
/// # Panics
/// If the span of a client has no number.
pub fn trace(info: &Bytes) {
    let header = RequestHeader {
        trace_info: Some(info.clone()),
        ..RequestHeader::default()
    };
    if let Some(parent) = trace_context::parent(&header) {
        assert!(parent.at.trace != 0 && parent.at.span != 0);
    }
}

/// Checks two cells of an aggregation.
///
/// # Panics
/// If a number is not the one that is sent, or if sums depend on their order.
pub fn numbers(first: &[u8], second: &[u8]) {
    for interpreter in INTERPRETERS {
        let (first, second) = (interpreter.read(first), interpreter.read(second));
        for number in [&first, &second] {
            if let Ok(Some(number)) = number {
                sent(interpreter, *number);
                if let Ok(square) = number.squared() {
                    sent(interpreter, square);
                }
            }
        }
        let (Ok(first), Ok(second)) = (first, second) else {
            continue;
        };
        let bytes = |sum: &Option<Number>| interpreter.sum(*sum);
        let is_nan = |sum: &Option<Number>| matches!(sum, Some(Number::Double(sum)) if sum.is_nan());
        match (add(first, second), add(second, first)) {
            // The sign of a sum that is no number is not fixed.
            (Ok(one), Ok(other)) if is_nan(&one) => assert!(is_nan(&other)),
            (Ok(one), Ok(other)) => assert_eq!(bytes(&one), bytes(&other)),
            (one, other) => assert_eq!(one.is_err(), other.is_err()),
        }
        if let (Some(first), Some(second)) = (first, second) {
            assert_eq!(first.cmp(&second), second.cmp(&first).reverse());
            assert_eq!(first.cmp(&first), Ordering::Equal);
        }
    }
}

/// The number of a message is the one that was sent.
fn sent(interpreter: Interpreter, number: Number) {
    let message = number.message();
    let value = match interpreter {
        Interpreter::Long => LongMsg::decode(message).map(|sent| sent.long_msg.to_be_bytes().to_vec()),
        Interpreter::Double => DoubleMsg::decode(message).map(|sent| sent.double_msg.to_be_bytes().to_vec()),
        Interpreter::Decimal => BigDecimalMsg::decode(message).map(|sent| sent.bigdecimal_msg.to_vec()),
    };
    let again = interpreter.read(&value.expect("what was encoded"));
    let again = again.expect("a number that was sent").expect("it has its length");
    assert_eq!(again.message(), number.message());
}

/// Rules and deletes that HBase's attributes can say, other ones for each family.
fn change_families(schema: &mut TableSchema) {
    let hour = GcRule::MaxAgeMicros(3_600_000_000);
    let spared = GcRule::Intersection(vec![hour, GcRule::MaxVersions(2)]);
    let changes = [
        (Some(GcRule::MaxVersions(3)), None, KeepDeleted::No),
        (None, Some(DeleteRule::ByTimestamp), KeepDeleted::Yes),
        (
            Some(GcRule::Union(vec![GcRule::MaxVersions(5), spared])),
            Some(DeleteRule::BySequence),
            KeepDeleted::For(3_600_000_000),
        ),
    ];
    for (id, (gc_rule, rule, keep)) in (1..).map(FamilyId).zip(changes) {
        if let Some(family) = schema.families.get_mut(&id) {
            let rule = rule.filter(|rule| *rule != schema.delete_rule);
            (family.gc_rule, family.deletes) = (gc_rule, Deletes { rule, keep });
        }
    }
}
