use super::*;
use stele_catalog::TabletEntry;
use stele_env::tokio_env::TokioRuntime;
use stele_memory::Part;
use stele_types::{RowRange, TableId, TableName, TableSchema, TabletId};

/// A view with one table, of a version, and with data of a number of bytes.
fn view(version: u64, bytes: usize) -> CatalogView {
    let schema = TableSchema {
        version,
        front_end_data: vec![0; bytes],
        ..TableSchema::new(TableId(7), TableName::new("space", "t"))
    };
    let name = schema.name.clone();
    let tablet = TabletEntry {
        id: TabletId(8),
        range: RowRange::all(),
        assignment: Default::default(),
        version: 1,
    };
    let entry = TableEntry::new(Arc::new(schema), version, vec![tablet]).unwrap();
    CatalogView {
        tables: [(name, Arc::new(entry))].into(),
        ..CatalogView::default()
    }
}

/// Those of a round under way included.
#[tokio::test]
async fn changes_that_wait_are_bounded_in_bytes() {
    const LIMIT: usize = 50_000;
    let pool = Pool::with_limits(|_| LIMIT);
    let changes = Changes::new(LogClock::new(TokioRuntime::current(), 0), &pool);
    let used = || pool.of(Part::Archive).used();
    let note = |versions: std::ops::Range<u64>| {
        for version in versions {
            changes.note(&view(version, 10_000), &view(version + 1, 10_000));
            assert!(used() <= LIMIT, "{} bytes", used());
        }
    };
    note(0..4);
    assert!(used() > 40_000);
    assert_eq!(changes.take().unwrap().len(), 4);
    assert!(used() > 40_000, "the round holds them");
    // A fifth and a sixth are too many next to them.
    note(4..6);
    assert_eq!(changes.take(), None);
    changes.archived();
    assert_eq!(used(), 0);
    note(6..10);
    assert_eq!(changes.take().unwrap().len(), 4);
    changes.archived();
    assert_eq!(used(), 0);
}
