use super::*;
use bytes::Bytes;
use stele_memory::{Part, Pool};
use stele_types::RowRange;

const TABLE: TableId = TableId(7);

fn map_of(bytes: usize) -> (Pool, HeatMap) {
    let pool = Pool::with_limits(|_| bytes);
    let map = HeatMap::new(pool.of(Part::Heat).empty(), bytes);
    (pool, map)
}

fn reads(reads: u64) -> Operations {
    Operations { reads, writes: 0 }
}

fn query(from: i64, to: i64) -> HeatQuery {
    HeatQuery {
        table: TABLE,
        rows: RowRange::all(),
        from,
        to,
        columns_max: 100,
        ranges_max: 16,
    }
}

fn total(grid: &HeatGrid) -> u64 {
    grid.operations.iter().map(|operations| operations.sum()).sum()
}

#[test]
fn operations_are_shown_at_their_time_and_row() {
    let (_pool, mut map) = map_of(4 << 20);
    for (second, key, count) in [(1_000, "a", 3), (1_004, "m", 5), (1_011, "a", 7), (1_012, "z", 1)] {
        map.advance(second);
        map.add(TABLE, key.as_bytes(), reads(count));
        map.add(TableId(8), b"other", reads(100));
    }
    let grid = map.grid(&query(990, 1_030));
    assert_eq!(grid.columns, [1_000, 1_010]);
    assert_eq!(grid.starts, [&b""[..], b"a", b"m", b"z"]);
    let shown: Vec<u64> = grid.operations.iter().map(|operations| operations.reads).collect();
    assert_eq!(shown, [0, 3, 5, 0, 0, 7, 0, 1]);
    let part = map.grid(&HeatQuery {
        rows: RowRange {
            start: Bytes::from_static(b"b"),
            end: Some(Bytes::from_static(b"n")),
        },
        ..query(1_000, 1_010)
    });
    assert_eq!((part.starts.len(), total(&part)), (2, 5));
}

#[test]
fn hot_rows_keep_cells_of_their_own() {
    let (_pool, mut map) = map_of(1 << 20);
    map.advance(1_000);
    for n in 0..10_000u32 {
        map.add(TABLE, format!("key{n:05}").as_bytes(), reads(1));
        map.add(TABLE, b"key05000", reads(9));
    }
    let grid = map.grid(&query(0, 2_000));
    assert_eq!(total(&grid), 100_000);
    assert!(grid.starts.len() <= 16, "{}", grid.starts.len());
    let hottest = grid
        .operations
        .iter()
        .enumerate()
        .max_by_key(|(_, it)| it.sum())
        .unwrap();
    assert_eq!(grid.starts[hottest.0], b"key05000");
    assert!(
        hottest.1.sum() < 93_000,
        "neighbours are not in it: {}",
        hottest.1.sum()
    );
}

#[test]
fn coarser_levels_have_what_finer_ones_forget() {
    let (_pool, mut map) = map_of(16 << 20);
    let day = 86_400;
    for step in 0..(day / 10) {
        map.advance(step * 10);
        map.add(TABLE, b"k", reads(1));
    }
    let end = day - 10;
    let whole = map.grid(&query(0, day));
    assert_eq!(whole.seconds, 1_200);
    // The last ten minutes are open or not here yet.
    assert!(total(&whole) >= (day as u64 - 1_200) / 10, "{}", total(&whole));
    let recent = map.grid(&query(end - 600, day));
    assert_eq!((recent.seconds, recent.columns.len()), (10, 61));
    assert_eq!(map.grid(&query(end - 3 * 3_600, day)).seconds, 120);
}

#[test]
fn the_reservation_bounds_the_map() {
    let limit = 1 << 20;
    let (pool, mut map) = map_of(limit);
    for step in 0..3_000i64 {
        map.advance(step * 10);
        for n in 0..200u64 {
            let key = format!("{:060}", (n * 2_654_435_761 + step as u64) % 1_000_000);
            map.add(TableId(n % 5), key.as_bytes(), reads(1 + n));
        }
    }
    let used = pool.of(Part::Heat).used();
    assert!(used <= limit && used > BUFFER_BYTES, "{used}");
    let bytes = map.levels.iter().map(Level::bytes).sum::<usize>();
    // The open columns have grown since the last reservation.
    assert!(bytes < limit, "{bytes}");
}

#[test]
fn more_tables_than_cells_are_cut_to_the_hottest() {
    let (_pool, mut map) = map_of(0);
    map.advance(1_000);
    for n in 0..1_000u64 {
        map.add(TableId(n), b"k", reads(n));
    }
    let tables = map.levels[0].open.cells().count();
    assert!(tables <= map.cells_max, "{tables}");
    assert!(map.levels[0].open.cells().any(|cell| cell.table == TableId(999)));
}

#[test]
fn a_clock_that_goes_backward_is_waited_for() {
    let (_pool, mut map) = map_of(1 << 20);
    for second in [1_000, 900, 1_005, 1_010] {
        map.advance(second);
        map.add(TABLE, b"k", reads(1));
    }
    assert_eq!(map.grid(&query(990, 1_030)).columns, [1_000, 1_010]);
}

/// A scan of many rows is seen at all of them, although a column has few cells.
#[test]
fn wide_cells_are_spread_over_their_ranges() {
    let (_pool, mut map) = map_of(1 << 20);
    for second in [1_000, 1_010, 1_020] {
        map.advance(second);
        for n in 0..4_000i64 {
            map.add(
                TABLE,
                format!("key{:05}", (n * 7 + second) % 4_000).as_bytes(),
                reads(1),
            );
        }
    }
    let grid = map.grid(&query(1_000, 1_030));
    assert_eq!((grid.columns.len(), total(&grid)), (3, 12_000));
    let cold = grid
        .operations
        .iter()
        .filter(|operations| operations.sum() == 0)
        .count();
    assert!(cold <= 6, "{cold} of {}", grid.operations.len());
}
