//! Tests of export: formats, resumption and failures.

use super::*;
use crate::records::CellValue;
use std::io::{Cursor, Read};

fn row(key: u32) -> RowCells {
    let cell = CellValue {
        family: "f".to_owned(),
        qualifier: Bytes::from_static(b"q"),
        timestamp: 1000,
        value: Bytes::from(key.to_string()),
    };
    RowCells {
        key: format!("{key:04}").into(),
        cells: vec![cell],
    }
}

fn open(path: &Path, compression: Compression, options: &str, restart: bool) -> Result<Output> {
    let args = CellArgs {
        versions: 1,
        columns: vec!["f:q".parse().unwrap()],
        ..CellArgs::default()
    };
    let writer = RowWriter::new(OutputFormat::Csv, &args)?;
    let lock = lock(path, false)?;
    Output::to_file(writer, compression, path, options.to_owned(), restart, lock)
}

fn text(path: &Path) -> String {
    let bytes = fs::read(path).unwrap();
    let mut text = String::new();
    let mut input = compression::decompress(Box::new(Cursor::new(bytes)), Compression::Auto).unwrap();
    input.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn an_interrupted_export_goes_on() {
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.csv");
        let mut output = open(&path, compression, "o", false).unwrap();
        output.push(&row(1)).unwrap();
        output.push(&row(2)).unwrap();
        output.checkpoint().unwrap();
        // Written after the checkpoint and lost with the process, except for bytes that must be cut off.
        output.push(&row(3)).unwrap();
        output.write_member().unwrap();
        drop(output);

        let mut output = open(&path, compression, "o", false).unwrap();
        assert_eq!(output.state.last_row.as_deref(), Some(&b"0002"[..]));
        assert_eq!((output.state.rows, output.state.cells), (2, 2));
        output.push(&row(3)).unwrap();
        output.finish().unwrap();
        assert_eq!(text(&path), "row,f:q\n0001,1\n0002,2\n0003,3\n", "{compression:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "part and state are gone");
    }
}

/// The parts that are written again when an export stops because of a failed write.
#[test]
fn a_member_takes_the_place_of_what_a_failed_attempt_left_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.csv");
    let mut output = open(&path, Compression::None, "o", false).unwrap();
    output.push(&row(1)).unwrap();
    output.write_member().unwrap();
    output.push(&row(2)).unwrap();
    if let Sink::File { file, .. } = &mut output.sink {
        file.write_all(b"000").unwrap();
    }
    let _ = output.stop(anyhow!("no space left"));
    open(&path, Compression::None, "o", false).unwrap().finish().unwrap();
    assert_eq!(text(&path), "row,f:q\n0001,1\n0002,2\n");
}

#[test]
fn one_run_at_a_time_writes_an_output() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.csv");
    let mut first = open(&path, Compression::None, "o", false).unwrap();
    first.push(&row(1)).unwrap();
    for restart in [false, true] {
        let refused = open(&path, Compression::None, "o", restart).err().unwrap();
        assert!(refused.to_string().contains("in use by another process"), "{refused}");
    }
    first.finish().unwrap();
    assert_eq!(text(&path), "row,f:q\n0001,1\n");
    assert!(lock(&path, true).unwrap().is_some());
}

/// Another run may finish the file between the start of this one and its lock.
#[test]
fn a_file_that_exists_is_refused_under_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.csv");
    fs::write(&path, "rows").unwrap();
    let held = lock(&path, true).unwrap();
    assert!(
        lock(&path, false)
            .unwrap_err()
            .to_string()
            .contains("in use by another process")
    );
    drop(held);
    let refused = lock(&path, false).unwrap_err().to_string();
    assert!(refused.ends_with("exists; replace it with --force"), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no lock is left");
}

#[test]
fn other_options_and_lost_parts_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.csv");
    let mut output = open(&path, Compression::None, "o", false).unwrap();
    output.push(&row(1)).unwrap();
    let error = output.stop(anyhow!("connection lost"));
    assert_eq!(
        format!("{error:#}"),
        "stopped after 1 row; run the same command again to continue: connection lost"
    );
    let refusal = |options: &str| open(&path, Compression::None, options, false).err().unwrap();
    assert!(refusal("other").to_string().contains("other options"));
    assert!(open(&path, Compression::None, "o", false).is_ok());
    fs::write(part_path(&path), "").unwrap();
    assert!(refusal("o").to_string().contains("has 0 bytes"));
    let output = open(&path, Compression::None, "o", true).unwrap();
    assert_eq!(output.state.rows, 0);
}

#[test]
fn an_empty_table_makes_a_valid_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.csv.gz");
    open(&path, Compression::Gzip, "o", false).unwrap().finish().unwrap();
    assert_eq!(text(&path), "row,f:q\n");
}

#[test]
fn wide_output_needs_one_version() {
    let args = CellArgs {
        versions: 2,
        columns: vec!["f:q".parse().unwrap()],
        ..CellArgs::default()
    };
    assert!(RowWriter::new(OutputFormat::Csv, &args).is_err());
    assert!(RowWriter::new(OutputFormat::Jsonl, &args).is_ok());
}
