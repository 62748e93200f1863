use super::*;
use stele_memory::Pool;
use stele_storage::memory::MemoryStorage;

const SEGMENT: u64 = 3 << 32 | 7;

async fn archive() -> Archive {
    Archive::open(MemoryStorage::new(), true).await.unwrap()
}

fn piece(segment: u64, from: u64, to: u64) -> Piece {
    Piece {
        stream: 0,
        segment,
        from,
        len: to - from,
        crc: 0,
    }
}

fn end(segment: u64, end: u64) -> StreamEnd {
    StreamEnd {
        stream: 0,
        segment,
        end,
    }
}

fn part(number: u64, pieces: Vec<Piece>, ends: Vec<StreamEnd>) -> Part {
    Part {
        number,
        range_first: 1,
        pieces,
        ends,
        ..Part::default()
    }
}

/// Begins with parts behind one that ends as said; the error of the last one.
async fn last(before: Option<&[StreamEnd]>, parts: Vec<Part>) -> Option<String> {
    let archive = archive().await;
    let before = before.map(|ends| part(1, Vec::new(), ends.to_vec()));
    let memory = RestoreMemory::new(&Pool::with_limits(|_| 1 << 20));
    let mut replay = Replay::new((&archive, &memory), 0, before.as_ref());
    let mut outcomes: Vec<Option<String>> = Vec::new();
    for part in parts {
        outcomes.push(replay.begin_part(part).err().map(|error| error.to_string()));
    }
    let last = outcomes.pop().flatten();
    assert!(outcomes.iter().all(Option::is_none), "{outcomes:?}");
    last
}

fn assert_says(error: Option<String>, why: &str) {
    let error = error.expect("log is missing");
    assert!(error.contains(why), "{error}");
}

/// The sound sequence that the tests below make holes in: within a segment, and on to the next one.
#[tokio::test]
async fn pieces_go_on_where_the_part_before_ends() {
    let sound = vec![
        part(2, vec![piece(SEGMENT, 100, 200)], vec![end(SEGMENT, 200)]),
        part(
            3,
            vec![piece(SEGMENT, 200, 300), piece(SEGMENT + 1, 0, 50)],
            vec![end(SEGMENT + 1, 50)],
        ),
        part(4, Vec::new(), vec![end(SEGMENT + 1, 50)]),
    ];
    assert_eq!(last(Some(&[end(SEGMENT, 100)]), sound.clone()).await, None);
    // Of the part before nobody knows: its first piece may begin anywhere.
    assert_eq!(last(None, sound).await, None);
}

/// Each of these is seen by one check alone.
#[tokio::test]
async fn log_that_is_missing_between_parts_is_seen() {
    let known = [end(SEGMENT, 100)];
    let holed = part(2, vec![piece(SEGMENT, 150, 200)], vec![end(SEGMENT, 200)]);
    assert_says(last(Some(&known), vec![holed]).await, "lacks log before it");
    let of_later_segment = part(2, vec![piece(SEGMENT + 1, 56, 90)], vec![end(SEGMENT + 1, 90)]);
    assert_says(last(Some(&known), vec![of_later_segment]).await, "lacks the beginning");
    let of_new_stream = part(2, vec![piece(SEGMENT, 56, 90)], vec![end(SEGMENT, 90)]);
    assert_says(last(Some(&[]), vec![of_new_stream]).await, "lacks the beginning");
}

/// A part whose pieces do not lead to its own end lacks some.
#[tokio::test]
async fn log_that_is_missing_at_the_end_of_a_part_is_seen() {
    let known = [end(SEGMENT, 100)];
    let without_pieces = part(2, Vec::new(), vec![end(SEGMENT, 200)]);
    assert_says(last(Some(&known), vec![without_pieces]).await, "lacks log of stream 0");
    let short = part(2, vec![piece(SEGMENT, 100, 150)], vec![end(SEGMENT, 200)]);
    assert_says(last(Some(&known), vec![short.clone()]).await, "lacks log of stream 0");
    assert_says(last(None, vec![short]).await, "lacks log of stream 0");
    // A stream that the parts before do not have.
    let unknown = part(2, Vec::new(), vec![end(SEGMENT, 100)]);
    assert_says(last(Some(&[]), vec![unknown]).await, "lacks log of stream 0");
}

#[test]
fn a_moment_between_times_that_descend_is_refused() {
    let groups = [(1, 10), (1, 100), (2, 50), (2, 120), (3, 60), (3, 130)];
    let refused = |at: i64| {
        let mut times = Times::default();
        groups.iter().any(|group| times.check(*group, at).is_err())
    };
    for at in [5, 10, 49, 120, 130, 500] {
        assert!(!refused(at), "{at}");
    }
    for at in [50, 60, 99, 100, 119] {
        assert!(refused(at), "{at}");
    }
}
