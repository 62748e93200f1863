//! Tests of the arguments and the starting point of an import.

use super::*;
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

#[test]
fn the_same_command_continues() {
    let dir = tempfile::tempdir().unwrap();
    let (input, _) = interrupted(dir.path());
    let start = start(&args(&input, &["--batch-rows", "7", "--max-bad", "0"])).unwrap();
    assert_eq!((start.records, start.timestamp_micros), (7, 5000));
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
    assert_eq!((all[0].records.clone(), all[0].origins[0]), (3..4, (3, 5)));
    assert!(produced(content, &[], 4).unwrap().is_empty());
    assert!(
        produced(content, &[], 5)
            .unwrap_err()
            .to_string()
            .contains("has 4 records")
    );
}
