//! Tests of the arguments and the starting point of an import.

use super::*;
use crate::client::fake::Fake;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: ImportArgs,
}

fn args(input: &Path, more: &[&str]) -> ImportArgs {
    let input = input.to_str().unwrap();
    let words = [
        "import", "i/t", input, "--format", "csv", "--key", "id", "--family", "d",
    ];
    Line::try_parse_from(words.iter().chain(more)).unwrap().args
}

fn start(args: &ImportArgs) -> Result<Start> {
    args.start(
        Some(source::identify(&args.input)?),
        args.source_options(Some(&args.input))?,
    )
}

/// A file whose import was interrupted after seven records, and the checkpoint's path.
fn interrupted(dir: &Path) -> (PathBuf, PathBuf) {
    let input = dir.join("in.csv");
    std::fs::write(&input, "id\n1\n").unwrap();
    let (path, checkpoint) = start(&args(&input, &[])).unwrap().resumable.unwrap();
    let checkpoint = ImportCheckpoint {
        records: 7,
        timestamp_micros: 5000,
        ..checkpoint
    };
    checkpoint::store(&path, &checkpoint).unwrap();
    (input, path)
}

/// They come from the input, and go to a terminal.
#[test]
fn missing_families_are_shown_escaped() {
    let table: TableRef = "i/t".parse().unwrap();
    let error = missing_families(&table, &["a\u{1b}b".to_owned()], &BTreeSet::new());
    assert!(
        error.to_string().contains("no family a\\x1bb (it has: none)"),
        "{error}"
    );
}

#[test]
fn the_same_command_continues() {
    let dir = tempfile::tempdir().unwrap();
    let (input, _) = interrupted(dir.path());
    let start = start(&args(&input, &["--batch-rows", "7", "--max-bad", "0"])).unwrap();
    assert_eq!((start.records, start.timestamp_micros), (7, 5000));
}

#[test]
fn a_list_of_bad_records_continues_or_another_one_gets_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let (input, state) = interrupted(dir.path());
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let list = |path: &Path| {
        let args = args(&input, &["--bad", path.to_str().unwrap()]);
        let mut start = start(&args).unwrap();
        let list = args
            .bad_list(Some(&input), &mut start)
            .map_err(|error| error.to_string());
        (list, start.resumable.unwrap().1)
    };
    let bad = bad::BadRecord {
        line: 3,
        reason: "r".to_owned(),
        raw: b"x".to_vec(),
    };
    let (made, checkpoint) = list(&first);
    let mut made = made.unwrap();
    made.note(1, bad.clone());
    made.write_before(2).unwrap();
    let (bad_records, bad_bytes) = made.written();
    let checkpoint = ImportCheckpoint {
        bad_records,
        bad_bytes,
        ..checkpoint
    };
    checkpoint::store(&state, &checkpoint).unwrap();
    // Another file keeps all that it has.
    std::fs::write(&second, "a longer file than the list\n").unwrap();
    let (made, noted) = list(&second);
    let mut made = made.unwrap();
    assert_eq!((noted.bad_records, noted.bad_bytes), (1, 28));
    made.note(8, bad);
    made.write_before(9).unwrap();
    assert_eq!(
        std::fs::read_to_string(&second).unwrap(),
        "a longer file than the list\n3\tr\tx\n"
    );
    assert_eq!(made.count(), 2);
    // The same file must have all that was listed.
    assert!(list(&first).0.is_ok());
    std::fs::write(&first, "3\t").unwrap();
    assert!(list(&first).0.unwrap_err().contains("2 bytes, but"));
    std::fs::remove_file(&first).unwrap();
    assert!(list(&first).0.unwrap_err().contains("--restart"));
    assert!(!first.exists());
}

#[test]
fn no_option_may_name_a_file_that_the_import_reads_or_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (input, _) = interrupted(dir.path());
    let link = dir.path().join("link");
    std::fs::hard_link(&input, &link).unwrap();
    let check = |more: &[&str]| args(&input, more).check_files(Some(&input));
    let (input_name, link, new) = (input.to_str().unwrap(), link.to_str().unwrap(), dir.path().join("new"));
    let new = new.to_str().unwrap();
    check(&[]).unwrap();
    check(&["--bad", new]).unwrap();
    for refused in [["--bad", input_name], ["--bad", link], ["--state", link]] {
        let why = check(&refused).unwrap_err().to_string();
        assert!(why.contains("names the input"), "{why}");
    }
    check(&["--bad", new, "--state", new]).unwrap_err();
}

#[test]
fn a_file_that_is_no_checkpoint_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (input, _) = interrupted(dir.path());
    let other = dir.path().join("other.json");
    std::fs::write(&other, "{\"format\":\"something else\"}").unwrap();
    start(&args(&input, &["--restart", "--state", other.to_str().unwrap()])).unwrap_err();
    assert!(other.exists());
}

#[test]
fn another_command_or_input_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (input, path) = interrupted(dir.path());
    let why = start(&args(&input, &["--keep-empty"])).unwrap_err().to_string();
    assert!(why.contains("other options") && why.contains("--restart"), "{why}");
    std::fs::write(&input, "id\n1\n2\n").unwrap();
    assert!(
        start(&args(&input, &[]))
            .unwrap_err()
            .to_string()
            .contains("input has changed")
    );
    assert_eq!(start(&args(&input, &["--restart"])).unwrap().records, 0);
    assert!(!path.exists());
}

#[test]
fn a_file_lends_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.csv");
    std::fs::write(&input, "id\n1\n").unwrap();
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_micros(1_600_000_000_123_456);
    std::fs::File::options()
        .write(true)
        .open(&input)
        .unwrap()
        .set_modified(modified)
        .unwrap();
    assert_eq!(
        start(&args(&input, &[])).unwrap().timestamp_micros,
        1_600_000_000_123_000
    );
    let fixed = args(&input, &["--timestamp", "7000"]);
    assert_eq!(start(&fixed).unwrap().timestamp_micros, 7000);
}

#[test]
fn impossible_combinations_are_refused() {
    let input = Path::new("-");
    let stdin = args(input, &["--state", "x"]);
    let source = stdin.source_options(None).unwrap();
    assert!(stdin.start(None, source).is_err());
    assert!(args(input, &[]).mapping(InputFormat::Cells, 0).is_err());
    assert!(args(input, &[]).mapping(InputFormat::Jsonl, 0).is_ok());
}

/// Everything the parser hands over, with the given file and options.
fn produced(content: &str, more: &[&str], skip: u64) -> std::io::Result<Vec<batch::Batch>> {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.csv");
    std::fs::write(&input, content).unwrap();
    let args = args(&input, more);
    let source = args.source_options(Some(&input)).unwrap();
    let (reader, _) = source::open(Some(&input), source).unwrap();
    let mapping = args.mapping(source.format, 1000).unwrap();
    let (sender, mut receiver) = tokio::sync::mpsc::channel(100);
    source::produce(reader, &mapping, skip, 2, &sender)?;
    drop(sender);
    Ok(std::iter::from_fn(|| receiver.blocking_recv()).collect())
}

#[test]
fn records_become_batches() {
    let all = produced("id,a\n1,x\n2\n3,y\n4,z\n", &[], 0).unwrap();
    let shape: Vec<_> = all
        .iter()
        .map(|batch| (batch.records.clone(), batch.entries.len()))
        .collect();
    assert_eq!(shape, [(0..3, 2), (3..4, 1)]);
    let (record, bad) = &all[0].bad[0];
    assert_eq!((*record, bad.line, &bad.raw[..]), (1, 3, &b"2"[..]));
}

#[test]
fn skipping_continues_the_same_sequence() {
    let content = "id,a\n1,x\n2\n3,y\n4,z\n";
    let all = produced(content, &[], 3).unwrap();
    assert_eq!(all.len(), 1);
    let origin = all[0].origins[0][0];
    assert_eq!((all[0].records.clone(), origin.record, origin.line), (3..4, 3, 5));
    assert!(produced(content, &[], 4).unwrap().is_empty());
    assert!(
        produced(content, &[], 5)
            .unwrap_err()
            .to_string()
            .contains("has 4 records")
    );
}

const MUTATE_ROWS: &str = "/google.bigtable.v2.Bigtable/MutateRows";

/// An import in a directory that continues after seven records, and the path of its checkpoint.
fn pipeline(client: crate::client::Client, dir: &Path) -> (Pipeline, PathBuf) {
    let state = dir.join("state");
    let (_, checkpoint) = interrupted(dir);
    let checkpoint: ImportCheckpoint = checkpoint::load(&checkpoint).unwrap().unwrap();
    let pipeline = Pipeline {
        client,
        table: "i/t".parse().unwrap(),
        in_flight_max: 1,
        bad_max: 0,
        families: None,
        create: false,
        bad: BadList::new(dir.join("bad"), 0, 0),
        prefix: Prefix::new(checkpoint.records),
        resumable: Some(Resumable {
            path: state.clone(),
            checkpoint,
        }),
        progress: Progress::new("imported", None, 0),
        bytes_read: Default::default(),
        totals: Totals::default(),
    };
    (pipeline, state)
}

/// The list is written when the run begins its loop, fails, and is tried again at the end.
#[tokio::test]
async fn no_checkpoint_passes_a_bad_record_that_could_not_be_listed() {
    let (_, client) = Fake::start(MUTATE_ROWS, &[]).await;
    let dir = tempfile::tempdir().unwrap();
    let (mut pipeline, state) = pipeline(client, dir.path());
    std::fs::create_dir(pipeline.bad.path()).unwrap();
    let bad = bad::BadRecord {
        line: 9,
        reason: "r".to_owned(),
        raw: b"x".to_vec(),
    };
    pipeline.bad.note(7, bad);
    pipeline.prefix.complete(7..9);
    let (_sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let run = pipeline.run_until(&mut receiver, std::future::pending::<()>);
    let error = run.await.unwrap_err().to_string();
    assert!(error.contains("cannot write"), "{error}");
    let saved: ImportCheckpoint = checkpoint::load(&state).unwrap().unwrap();
    assert_eq!((saved.records, saved.bad_records), (7, 0));
}

/// Of an import whose server answers no write.
#[tokio::test]
async fn a_second_interrupt_ends_at_once() {
    let (fake, client) = Fake::start(MUTATE_ROWS, &[None]).await;
    let dir = tempfile::tempdir().unwrap();
    let (mut pipeline, state) = pipeline(client, dir.path());
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let mut builder = batch::BatchBuilder::new(7, 1);
    let cell = crate::records::CellValue {
        family: "f".to_owned(),
        qualifier: "q".into(),
        timestamp: 1000,
        value: "v".into(),
    };
    let row = crate::records::RowCells {
        key: "r".into(),
        cells: vec![cell],
    };
    assert!(builder.add_row(1, row, &mut |batch| sender.try_send(batch).is_ok()));
    // The first interrupt comes when the write is on its way, the second one while its answer is awaited.
    let interrupt = || fake.arrived();
    let run = pipeline.run_until(&mut receiver, interrupt);
    let ended = tokio::time::timeout(std::time::Duration::from_secs(10), run).await;
    assert_eq!(ended.unwrap().unwrap_err().to_string(), "interrupted");
    let saved: ImportCheckpoint = checkpoint::load(&state).unwrap().unwrap();
    assert_eq!(saved.records, 7);
}

/// Both would write one checkpoint, and cut off the records that the other has listed.
#[tokio::test]
async fn one_run_at_a_time_imports_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (input, state) = interrupted(dir.path());
    let held = FileLock::of(&state).unwrap();
    // Nothing listens there, which would be another error.
    let args = args(&input, &["--address", "127.0.0.1:1"]);
    let refused = run(args.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("in use by another process"), "{refused}");
    drop(held);
    assert!(args.lock(Some(&input)).unwrap().is_some());
    assert!(args.lock(None).unwrap().is_none());
}
