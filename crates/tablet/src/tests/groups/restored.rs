//! Families that moved, where the catalog or a file does not tell all.
//!
//! Cases: a catalog restored to an older state, files that name no families, damaged files.

use super::super::damage::{flip, read_row};
use super::*;
use crate::SpaceLimit;
use crate::manifest::FileRef;
use crate::misplaced::Misplaced;
use stele_sstable::footer::{FOOTER_BYTES, Footer};
use stele_sstable::frame;
use stele_types::{ErrorKind, FileId};

/// As many families and groups, each family in the group that it shares its place with, from 1 and from 0.
fn groups(count: u32) -> TableSchema {
    let mut schema = two_groups([GroupOptions::default(), GroupOptions::default()]);
    for n in 2..count {
        let family = Family {
            name: format!("h{n}"),
            group: GroupId(n),
            ..schema.families[&FamilyId(2)].clone()
        };
        schema.families.insert(FamilyId(n + 1), family);
        let group = LocalityGroup::new(GroupId(n), format!("g{n}"), Compression::None);
        schema.groups.push(group);
    }
    schema
}

/// A catalog that has forgotten which families have left a group.
fn without_left(schema: &TableSchema, group: u32) -> Arc<TableSchema> {
    let mut schema = schema.clone();
    schema.groups[group as usize].left.clear();
    Arc::new(schema)
}

/// Family, group that it has left, whether that is known to be the oldest of it.
fn misplaced(tablet: &Tablet) -> Vec<(u32, u32, bool)> {
    let state = tablet.state();
    let known = |misplaced_cells: &Misplaced| {
        (
            misplaced_cells.family.0,
            misplaced_cells.left.0,
            misplaced_cells.is_oldest,
        )
    };
    state.misplaced().iter().map(known).collect()
}

/// Space for every compaction, and too little for all files to be rewritten together.
const NOT_ALL: SpaceLimit = SpaceLimit {
    any: 0,
    into_bottom: u64::MAX,
};

/// The tombstone is in the group that the catalog says the family has left. The cell that it hides is in one that the
/// catalog does not mention: nobody knows that it is older.
#[tokio::test]
async fn a_marker_stays_while_a_family_is_left_in_another_group_for_unknown_reasons() {
    let schema = groups(3);
    let tablet = tablet(Arc::new(schema.clone())).await;
    write(&tablet, vec![put_in(1, 1, b"old".to_vec())]);
    tablet.flush().await.unwrap();
    let once = moved(&schema, FamilyId(1), GroupId(1));
    tablet.set_schema(once.clone());
    for timestamp in 2..4 {
        write(&tablet, vec![delete_family(1), put_in(2, timestamp, b"x".to_vec())]);
        tablet.flush().await.unwrap();
    }
    tablet.set_schema(without_left(&moved(&once, FamilyId(1), GroupId(2)), 0));
    assert_eq!(misplaced(&tablet), [(1, 0, false), (1, 1, false)]);
    let state = tablet.state();
    assert!((0..3).all(|group| state.is_above_misplaced(GroupId(group))));
    let expected = "2=x 3=x";
    assert_eq!(sorted(&read(&tablet).await), expected);
    // A disk that is all but full merges as many runs as it can.
    for _ in 0..4 {
        tablet.compact_for_space(NOT_ALL).await.unwrap();
        assert_eq!(
            sorted(&read(&tablet).await),
            expected,
            "the marker has gone before what it hides"
        );
    }
    tablet.compact_all().await.unwrap();
    assert_eq!(
        (misplaced(&tablet), sorted(&read(&tablet).await)),
        (vec![], expected.to_owned())
    );
}

/// Nothing is dropped while the table is unfinished, so the moved family brings tombstones of rows with it that its new group has, too.
#[tokio::test]
async fn a_marker_of_two_groups_is_in_one_of_them_once() {
    for rule in [DeleteRule::BySequence, DeleteRule::ByTimestamp] {
        let mut schema = groups(2);
        (schema.enabled, schema.restoring) = (false, Some("restore".to_owned()));
        schema.delete_rule = rule;
        let tablet = tablet(Arc::new(schema.clone())).await;
        write(
            &tablet,
            vec![put_in(1, 1, b"old".to_vec()), put_in(2, 2, b"old".to_vec())],
        );
        write(&tablet, vec![Mutation::DeleteRow { up_to: Timestamp(5) }]);
        write(&tablet, vec![put_in(1, 7, b"new".to_vec())]);
        tablet.flush().await.unwrap();
        let once = moved(&schema, FamilyId(1), GroupId(1));
        tablet.set_schema(once.clone());
        tablet.compact_all().await.unwrap();
        assert_eq!(misplaced(&tablet), []);
        write(&tablet, vec![put_in(2, 8, b"new".to_vec())]);
        tablet.flush().await.unwrap();
        tablet.compact_all().await.unwrap();
        assert_eq!(sorted(&read(&tablet).await), "7=new 8=new");
        let mut whole = TableSchema::clone(&once);
        (whole.enabled, whole.restoring) = (true, None);
        tablet.set_schema(Arc::new(whole));
        tablet.compact_all().await.unwrap();
        assert_eq!(sorted(&read(&tablet).await), "7=new 8=new");
    }
}

fn sorted(cells: &str) -> String {
    let mut cells: Vec<&str> = cells.split(' ').collect();
    cells.sort_unstable();
    cells.join(" ")
}

/// Runs of the group that a family has left are merged with each other only when nothing of the family lies between them in
/// age, wherever it is.
#[tokio::test]
async fn operands_are_not_merged_over_those_of_another_group() {
    let mut schema = groups(3);
    schema.families.get_mut(&FamilyId(1)).unwrap().value_type = ValueType::Aggregate(AggregateKind::Sum);
    schema.families.get_mut(&FamilyId(1)).unwrap().group = GroupId(1);
    let add = |n: i64| Mutation::Merge {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        operand: Bytes::copy_from_slice(&n.to_be_bytes()),
    };
    let tablet = tablet(Arc::new(schema.clone())).await;
    write(&tablet, vec![add(1)]);
    tablet.flush().await.unwrap();
    let away = moved(&schema, FamilyId(1), GroupId(0));
    tablet.set_schema(away.clone());
    write(&tablet, vec![delete_family(1), add(10)]);
    tablet.flush().await.unwrap();
    let back = moved(&away, FamilyId(1), GroupId(1));
    tablet.set_schema(back.clone());
    for _ in 0..12 {
        write(&tablet, vec![add(100)]);
        tablet.flush().await.unwrap();
    }
    // Of the way there and back again the catalog knows nothing.
    tablet.set_schema(without_left(&moved(&back, FamilyId(1), GroupId(2)), 0));
    assert_eq!(misplaced(&tablet), [(1, 0, false), (1, 1, false)]);
    let state = tablet.state();
    assert!((0..3).all(|group| state.is_entangled(GroupId(group))));
    let sum = format!("1={}", 1_210i64.to_be_bytes().escape_ascii());
    assert_eq!(read(&tablet).await, sum);
    let reservation = SpaceLimit {
        any: state.file_bytes() - 1,
        into_bottom: u64::MAX,
    };
    while tablet.compact_within(reservation).await.unwrap().is_some() {}
    assert_eq!(read(&tablet).await, sum);
    tablet.compact_all().await.unwrap();
    assert_eq!((misplaced(&tablet), read(&tablet).await), (vec![], sum));
}

/// Makes a file one of the time before lists of families: the former list is a field that nobody knows.
async fn forget_families(storage: &Arc<dyn Storage>, file: FileId) {
    let path = FileRef::path(file);
    let mut bytes = storage.read_all(&path).await.unwrap().to_vec();
    let footer = bytes.last_chunk::<FOOTER_BYTES>().unwrap();
    let place = Footer::decode(footer).unwrap().properties;
    let (start, len) = (place.offset as usize, place.len as usize);
    let block = &mut bytes[start..start + len];
    // Field 18, packed; the last of that key that is there, because no value before it is as long.
    let list = block.windows(3).rposition(|window| window == [0x92, 0x01, 2]).unwrap();
    block[list] = 0xfa;
    let sealed = frame::seal(file, place.offset, block.to_vec(), Compression::None);
    bytes[start..start + sealed.len()].copy_from_slice(&sealed);
    storage.delete(&path).await.unwrap();
    storage.put_if_absent(&path, bytes.into()).await.unwrap();
}

async fn created(storage: &Arc<dyn Storage>, schema: &TableSchema) -> Arc<Tablet> {
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 1,
        ..Manifest::default()
    };
    let context = context(storage, &Arc::new(Cache::new(0)), 1);
    Tablet::create(context, Arc::new(schema.clone()), manifest)
        .await
        .unwrap()
}

async fn reopened_as(storage: &Arc<dyn Storage>, schema: &Arc<TableSchema>, epoch: u32) -> Arc<Tablet> {
    reopened(storage, &Arc::new(Cache::new(0)), schema, epoch).await
}

/// Such a file has cells written before there was a second group. It is no reason to take families of other groups for
/// moved, or all files would be rewritten; and it has everything that the catalog says has left its group.
#[tokio::test]
async fn a_file_without_a_list_has_what_the_catalog_says() {
    let mut schema = groups(3);
    // The second group was made later.
    schema.families.get_mut(&FamilyId(2)).unwrap().group = GroupId(0);
    let away = moved(&schema, FamilyId(2), GroupId(1));
    for (catalog, expected, due) in [
        (Arc::new(schema.clone()), vec![], false),
        (away.clone(), vec![(2, 0, true)], true),
        // Restored to before the move, after which something was written.
        (Arc::new(schema.clone()), vec![(2, 1, false)], true),
    ] {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let tablet = created(&storage, &schema).await;
        write(&tablet, vec![put_in(1, 1, b"a".to_vec()), put_in(2, 1, b"b".to_vec())]);
        tablet.flush().await.unwrap();
        let mut all = vec!["1=a", "1=b"];
        if expected.contains(&(2, 1, false)) {
            tablet.set_schema(away.clone());
            write(&tablet, vec![delete_family(2), put_in(2, 2, b"c".to_vec())]);
            tablet.flush().await.unwrap();
            all = vec!["1=a", "2=c"];
        }
        let oldest = tablet.manifest().await.files(GroupId(0))[0].id();
        forget_families(&storage, oldest).await;
        let tablet = reopened_as(&storage, &catalog, 2).await;
        assert_eq!(families(&tablet, 0), [Vec::<u32>::new()], "the list is gone");
        assert_eq!((misplaced(&tablet), tablet.compaction_due()), (expected, due));
        assert_eq!(sorted(&read(&tablet).await), all.join(" "));
        assert_eq!((scan(&tablet, Some("f")).await, scan(&tablet, Some("g")).await), (1, 1));
        while tablet.compact_if_due().await.unwrap() {}
        assert_eq!(misplaced(&tablet), []);
        assert_eq!(sorted(&read(&tablet).await), all.join(" "));
        tablet.compact_all().await.unwrap();
        assert_eq!((scan(&tablet, Some("f")).await, scan(&tablet, Some("g")).await), (1, 1));
        let kept = u32::from(catalog.group_of(FamilyId(2)) == GroupId(0)) + 1;
        assert_eq!(families(&tablet, 0), [[1, kept]], "new files have one");
    }
}

/// Rows of a kilobyte in each of some families: several blocks, of which the first has the first rows.
const ROWS: usize = 40;

async fn write_families(tablet: &Tablet, wanted: &[u32]) {
    for row in 0..ROWS {
        let puts = wanted
            .iter()
            .map(|family| put_in(*family, 1, vec![*family as u8; 1000]));
        write_row(tablet, Bytes::from(format!("{row:02}")), puts.collect());
    }
    tablet.flush().await.unwrap();
}

/// The outcomes of compactions, one after the other.
async fn outcomes(tablet: &Tablet) -> Vec<Result<bool, ErrorKind>> {
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        outcomes.push(tablet.compact_if_due().await.map_err(|error| error.kind()));
    }
    outcomes
}

/// A file is damaged in a block or as a whole. It has a family that is there for no known reason, or such a family is
/// in another file. Cells that concern that family stay where they are, and the others are moved to their group.
#[tokio::test]
async fn a_known_residue_is_relocated_beside_a_damaged_file() {
    const MIXED: (u32, u32, bool) = (3, 2, false);
    for (group, at) in [(2, 5), (2, -1), (4, 5), (4, -1)] {
        // A file that cannot be opened says nothing of its families.
        let stays = if (group, at) == (2, -1) { vec![] } else { vec![MIXED] };
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let schema = groups(5);
        let tablet = created(&storage, &schema).await;
        write_families(&tablet, &[1, 3, 5]).await;
        let catalog = without_left(&moved(&schema, FamilyId(3), GroupId(3)), 2);
        let catalog = moved(&catalog, FamilyId(1), GroupId(1));
        let damaged = tablet.manifest().await.files(GroupId(group))[0].id();
        flip(&storage, &FileRef::path(damaged), at).await;
        let tablet = reopened_as(&storage, &catalog, 2).await;
        assert_eq!(misplaced(&tablet), [&[(1, 0, true)], &stays[..]].concat());
        write_row(&tablet, Bytes::from_static(b"new"), vec![put_in(1, 1, b"n".to_vec())]);
        tablet.flush().await.unwrap();
        let met = usize::from(at > 0);
        let done = outcomes(&tablet).await;
        assert_eq!(done[..met], vec![Err(ErrorKind::Corruption); met], "damage is met once");
        assert_eq!(done[met..met + 2], [Ok(true), Ok(false)]);
        assert!(!tablet.compaction_due(), "nothing can be done any more");
        assert_eq!(misplaced(&tablet), stays, "what is not moved is not forgotten");
        assert_eq!(families(&tablet, 0).len(), 0);
        assert_eq!(scan(&tablet, Some("f")).await, ROWS + 1);
        let rows = ["00", "39"].map(|row| read_row(&tablet, row));
        let [first, last] = futures::future::join_all(rows).await.try_into().unwrap();
        assert_eq!(first.unwrap_err().kind(), ErrorKind::Corruption);
        assert_eq!(
            last.map_err(|error| error.kind()),
            if at > 0 { Ok(3) } else { Err(ErrorKind::Corruption) }
        );
        tablet.close();
        flip(&storage, &FileRef::path(damaged), at).await;
        let tablet = reopened_as(&storage, &catalog, 3).await;
        assert_eq!(misplaced(&tablet), [MIXED]);
        while tablet.compact_if_due().await.unwrap() {}
        assert_eq!((misplaced(&tablet), families(&tablet, 2)), (vec![], vec![]));
        for (name, rows) in [("f", ROWS + 1), ("h2", ROWS), ("h4", ROWS)] {
            assert_eq!(scan(&tablet, Some(name)).await, rows);
        }
    }
}

/// The damage is in cells that a family has left behind. Until they are whole again the family is not moved, and cells
/// deleted since stay deleted by tombstones that no compaction drops.
#[tokio::test]
async fn a_damaged_residue_stays_and_so_does_what_hides_it() {
    for at in [5, -1] {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let schema = groups(2);
        let tablet = created(&storage, &schema).await;
        write_families(&tablet, &[1, 2]).await;
        let damaged = tablet.manifest().await.files(GroupId(0))[0].id();
        flip(&storage, &FileRef::path(damaged), at).await;
        let catalog = moved(&schema, FamilyId(1), GroupId(1));
        let tablet = reopened_as(&storage, &catalog, 2).await;
        for row in 0..ROWS {
            write_row(&tablet, Bytes::from(format!("{row:02}")), vec![delete_family(1)]);
            if row % 10 == 9 {
                tablet.flush().await.unwrap();
            }
        }
        let met = usize::from(at > 0);
        let done = outcomes(&tablet).await;
        assert_eq!(done[..met], vec![Err(ErrorKind::Corruption); met]);
        assert!(
            done[met..].iter().all(Result::is_ok) && done[3] == Ok(false),
            "{done:?}"
        );
        assert!(!tablet.compaction_due());
        assert_eq!(misplaced(&tablet), [(1, 0, true)]);
        assert_eq!(scan(&tablet, Some("g")).await, ROWS);
        assert_eq!(tablet.compact_all().await.unwrap_err().kind(), ErrorKind::Corruption);
        tablet.close();
        flip(&storage, &FileRef::path(damaged), at).await;
        let tablet = reopened_as(&storage, &catalog, 3).await;
        for _ in 0..2 {
            assert_eq!((scan(&tablet, Some("f")).await, scan(&tablet, None).await), (0, ROWS));
            while tablet.compact_if_due().await.unwrap() {}
        }
        assert_eq!(misplaced(&tablet), []);
    }
}
