//! Skips that the resolver returns: each refers to the column of the pushed entry.

use super::*;
use stele_types::key::KeyBuf;
use stele_types::{GroupId, LocalityGroup, TableId, TableName};

fn schema() -> Arc<TableSchema> {
    let group = LocalityGroup::new(GroupId(0), "default", stele_types::Compression::None);
    Arc::new(TableSchema {
        next_family: FamilyId(3),
        groups: vec![group],
        ..TableSchema::new(TableId(1), TableName::new("n", "t"))
    })
}

/// Takes the newest version of each column.
#[derive(Default)]
struct Newest(Vec<(u32, Bytes)>);

impl Sink for Newest {
    fn wants_family(&mut self, _: FamilyId) -> bool {
        true
    }

    fn begin_column(&mut self, _: &[u8], _: &KeyParts) -> Skip {
        Skip::Nothing
    }

    fn tombstone(&mut self, _: &[u8], _: &KeyParts, _: &Bytes) {}

    fn version(&mut self, version: Version<'_>) -> Skip {
        if let Outcome::Value(value) = version.outcome {
            self.0.push((version.parts.family.0, value));
        }
        Skip::Column
    }
}

#[test]
fn an_entry_behind_the_snapshot_skips_nothing_of_the_next_column() {
    let mut resolver = Resolver::new(schema(), SeqNo(10));
    let mut sink = Newest::default();
    resolver.begin_row();
    let mut push = |family, qualifier: &[u8], timestamp, seq| {
        let mut key = KeyBuf::new();
        key.set(
            b"row",
            FamilyId(family),
            qualifier,
            Timestamp(timestamp),
            SeqNo(seq),
            CellKind::Put,
        );
        let key = key.as_slice();
        let parts = KeyParts::parse(key).unwrap();
        resolver.push(key, &parts, || Bytes::copy_from_slice(qualifier), &mut sink)
    };
    assert_eq!(push(1, b"a", 3, 3), Skip::Column);
    assert_eq!(push(1, b"a", 2, 2), Skip::Column);
    // Written after the snapshot: the first entry of its column must not make the reader jump behind the column.
    assert_eq!(push(1, b"b", 9, 11), Skip::Nothing);
    assert_eq!(push(1, b"b", 1, 1), Skip::Column);
    assert_eq!(push(1, b"b", 0, 0), Skip::Column);
    assert_eq!(push(2, b"c", 9, 12), Skip::Nothing);
    assert_eq!(push(2, b"c", 1, 4), Skip::Column);
    resolver.end_row(&mut sink);
    let expected = [(1, &b"a"[..]), (1, b"b"), (2, b"c")];
    assert_eq!(
        sink.0,
        expected.map(|(family, value)| (family, Bytes::from_static(value)))
    );
}
