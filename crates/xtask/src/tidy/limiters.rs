//! Finds limiters outside the memory pool: semaphores and channels without a bound.
//!
//! Memory of requests is reserved from the pool, or has a row in the table of bounds in the `memory` crate. A semaphore
//! elsewhere is a limit that nobody adds up. So each one is listed here with the thing that it counts.

use super::Problem;
use super::product::ProductFile;

/// The things that a semaphore counts.
enum Counts {
    /// Bytes, whose number is the row of this name in the table of bounds.
    Bytes(&'static str),
    /// Tasks, files, connections or permits; no memory but their own small state.
    Things,
}

/// Every file with a semaphore, and the semaphores in it.
const KNOWN: &[(&str, &[Counts])] = &[
    ("crates/bigtable/src/accounting.rs", &[Counts::Things]),
    (
        "crates/bigtable/src/response_memory.rs",
        &[Counts::Bytes("UNRESERVED_RESPONSES")],
    ),
    ("crates/commitlog/src/stream.rs", &[Counts::Bytes("LOG_QUEUES")]),
    ("crates/console/src/lib.rs", &[Counts::Things]),
    ("crates/hbase/src/replications.rs", &[Counts::Things]),
    ("crates/memory/src/pool.rs", &[Counts::Things]),
    ("crates/objects/src/lib.rs", &[Counts::Bytes("UPLOADS")]),
    ("crates/serving/src/acceptor.rs", &[Counts::Things]),
    (
        "crates/storage/src/remote/cache.rs",
        &[
            Counts::Bytes("CHUNKS_AHEAD"),
            Counts::Bytes("CHUNKS_KEPT"),
            Counts::Things,
        ],
    ),
    ("crates/tablet/src/files.rs", &[Counts::Things]),
    ("crates/tabletserver/src/admission.rs", &[Counts::Things]),
    ("crates/tabletserver/src/assignments.rs", &[Counts::Things]),
    ("crates/tabletserver/src/latch.rs", &[Counts::Things]),
    ("crates/tabletserver/src/loads.rs", &[Counts::Things]),
];

/// Files with a channel that has no bound of its own, because its messages are limited otherwise.
const CHANNELS: &[&str] = &[
    // Rows from another server come as far as the receiver has granted bytes.
    "crates/peer/src/remote/rows.rs",
];

/// The table of bounds.
const TABLE: &str = "crates/memory/src/bounds.rs";

/// Semaphores that are not listed, listed ones that are gone, bounds without a row, and channels without a bound.
pub fn check(files: &[ProductFile]) -> Vec<Problem> {
    check_against(KNOWN, files)
}

fn check_against(known: &[(&str, &[Counts])], files: &[ProductFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let bounds = files.iter().find(|file| file.path == TABLE);
    for (path, semaphores) in known {
        let made = files.iter().find(|file| file.path == *path);
        if made.is_none_or(|file| count(&file.code) != semaphores.len()) {
            problems.push(Problem::new(
                path,
                0,
                "has other semaphores than tidy's list of limiters says",
            ));
        }
        for counts in *semaphores {
            let Counts::Bytes(row) = counts else { continue };
            let declaration = format!("pub const {row}: Bound");
            if !bounds.is_some_and(|file| file.code.contains(&declaration)) {
                problems.push(Problem::new(TABLE, 0, format!("has no row {row}")));
            }
        }
    }
    for file in files.iter().filter(|file| file.is_product()) {
        let is_known = known.iter().any(|(path, _)| *path == file.path);
        if !is_known && count(&file.code) > 0 {
            problems.push(Problem::new(
                &file.path,
                0,
                "a semaphore: reserve memory from the pool, or name the thing that it counts in tidy's list of limiters",
            ));
        }
        if !CHANNELS.contains(&file.path.as_str()) && file.code.contains("unbounded_channel(") {
            problems.push(Problem::new(&file.path, 0, "a channel without a bound"));
        }
    }
    problems
}

fn count(code: &str) -> usize {
    code.matches("Semaphore::new(").count() + code.matches("Semaphore::const_new(").count()
}

#[cfg(test)]
mod tests {
    use super::super::SourceFile;
    use super::super::product;
    use super::*;

    fn problems(sources: &[(&str, &str)]) -> Vec<String> {
        let known: &[(&str, &[Counts])] = &[("crates/a/src/queue.rs", &[Counts::Bytes("QUEUE")])];
        let source = |(path, text): &(&str, &str)| SourceFile {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        let sources: Vec<SourceFile> = sources.iter().map(source).collect();
        let found = check_against(known, &product::files(&sources));
        found.iter().map(ToString::to_string).collect()
    }

    const BOUNDS: (&str, &str) = (TABLE, "pub const QUEUE: Bound = Bound::fixed(8);\n");
    const QUEUE: (&str, &str) = (
        "crates/a/src/queue.rs",
        "fn new() -> Queue { Queue(Semaphore::new(8)) }\n",
    );

    #[test]
    fn listed_semaphores_with_a_row_are_fine() {
        assert_eq!(problems(&[BOUNDS, QUEUE]), Vec::<String>::new());
    }

    #[test]
    fn a_new_semaphore_is_a_problem() {
        let new = (
            "crates/b/src/lib.rs",
            "static TURN: Semaphore = Semaphore::const_new(1);\n",
        );
        let found = problems(&[BOUNDS, QUEUE, new]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/b/src/lib.rs:0: a semaphore"), "{found:?}");
    }

    #[test]
    fn one_that_is_gone_and_a_bound_without_a_row_are_problems() {
        let gone = ("crates/a/src/queue.rs", "fn new() {}\n");
        assert_eq!(problems(&[BOUNDS, gone]).len(), 1);
        assert_eq!(problems(&[QUEUE]).len(), 1);
    }

    #[test]
    fn semaphores_of_tests_and_of_load_generators_are_free() {
        let test = (
            "crates/b/src/lib.rs",
            "#[cfg(test)]\nmod tests {\n    fn new() -> Semaphore { Semaphore::new(1) }\n}\n",
        );
        let bench = (
            "crates/bench/src/lib.rs",
            "fn new() -> Semaphore { Semaphore::new(1) }\n",
        );
        assert_eq!(problems(&[BOUNDS, QUEUE, test, bench]), Vec::<String>::new());
    }

    #[test]
    fn a_channel_without_a_bound_is_a_problem() {
        let channel = ("crates/b/src/lib.rs", "fn new() { mpsc::unbounded_channel() }\n");
        assert_eq!(problems(&[BOUNDS, QUEUE, channel]).len(), 1);
    }
}
