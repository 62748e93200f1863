//! `import`: loads a file into a table.
//!
//! A thread reads, parses and maps records ([`source`], [`crate::mapping`]). [`batch`] groups rows, [`pipeline`] writes
//! them and maintains the checkpoint, [`bad`] lists bad records.
//!
//! Repeating an import is harmless: cells of one import share one timestamp, by default the modification time of the
//! input, so the same file writes the same versions again. An interrupted import stores its timestamp in the
//! checkpoint.

pub mod bad;
pub mod batch;
pub mod pipeline;
mod refused;
pub mod source;

use crate::checkpoint::{self, IMPORT_FORMAT, IMPORT_KIND, ImportCheckpoint, InputIdentity, Prefix, with_suffix};
use crate::client::admin::NewFamily;
use crate::client::{Client, TableRef};
use crate::compression::Compression;
use crate::connection::Connection;
use crate::escape::escape;
use crate::file_lock::FileLock;
use crate::formats::InputFormat;
use crate::mapping::{MapRule, Mapping, MappingOptions};
use crate::progress::{Progress, count};
use crate::show::{now_micros, print};
use crate::timestamp::{self, Unit};
use anyhow::{Context, Result, anyhow, bail};
use bad::BadList;
use clap::Args;
use pipeline::{Pipeline, Resumable, Totals, missing_families};
use source::SourceOptions;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tonic::Code;

/// The import finished, but some records are bad.
const EXIT_BAD_RECORDS: u8 = 3;
/// Batches that wait for a free place; one is enough to keep the parser ahead.
const BATCHES_WAITING: usize = 2;

/// Arguments of `import`.
#[derive(Args, Clone, Debug)]
pub struct ImportArgs {
    /// The table, as instance/table
    pub table: TableRef,
    /// The file to read; - for standard input
    pub input: PathBuf,
    /// Format of the input
    #[arg(long, value_enum, default_value = "auto")]
    format: InputFormat,
    /// Compression of the input
    #[arg(long, value_enum, default_value = "auto")]
    compression: Compression,
    /// Columns whose values make the row key
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    key: Vec<String>,
    /// Put between the parts of the key
    #[arg(long, value_name = "TEXT", default_value = "#")]
    key_separator: String,
    /// Store a column under this family and qualifier; may be repeated
    #[arg(long = "map", value_name = "COLUMN=FAMILY:QUALIFIER")]
    rules: Vec<MapRule>,
    /// Store all other columns in this family; without it they are skipped
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
    /// Take the timestamp of each row's cells from this column
    #[arg(long, value_name = "COLUMN", conflicts_with = "timestamp")]
    timestamp_column: Option<String>,
    /// How the timestamp column is written
    #[arg(long, value_enum, default_value = "micros", requires = "timestamp_column")]
    timestamp_unit: Unit,
    /// One timestamp for all cells, in microseconds since 1970 or "now" [default: modification time of the input]
    #[arg(long, value_name = "MICROS|now", value_parser = parse_fixed_timestamp)]
    timestamp: Option<FixedTimestamp>,
    /// Store empty values instead of skipping them
    #[arg(long)]
    keep_empty: bool,
    /// CSV and TSV: quotes are ordinary characters
    #[arg(long)]
    no_quotes: bool,
    /// CSV and TSV: decode fields that begin with "base64:", as export writes them
    #[arg(long)]
    base64: bool,
    /// Create the instance, the table and its families if they are missing
    #[arg(long)]
    create: bool,
    /// Rows per request
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch_rows: u32,
    /// Requests on the way at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    in_flight: u32,
    /// Where bad records are listed [default: INPUT.bad]
    #[arg(long, value_name = "FILE")]
    bad: Option<PathBuf>,
    /// Stop when there are more bad records than this
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_bad: u64,
    /// File for the progress of an interrupted import [default: INPUT.import-state]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Start over instead of continuing an interrupted import
    #[arg(long)]
    restart: bool,
    #[command(flatten)]
    connection: Connection,
}

/// The argument of `--timestamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FixedTimestamp {
    Now,
    Micros(i64),
}

fn parse_fixed_timestamp(text: &str) -> Result<FixedTimestamp, String> {
    match text {
        "now" => Ok(FixedTimestamp::Now),
        text => timestamp::parse(text.as_bytes(), Unit::Micros).map(FixedTimestamp::Micros),
    }
}

/// The starting point of an import, from the options and an earlier run.
#[derive(Debug)]
struct Start {
    timestamp_micros: i64,
    /// Records of an earlier run.
    records: u64,
    bad_records: u64,
    bad_bytes: u64,
    resumable: Option<(PathBuf, ImportCheckpoint)>,
}

/// Whether both names are of one file, which need not exist.
fn is_same_file(one: &Path, other: &Path) -> Result<bool> {
    if let (Ok(one), Ok(other)) = (std::fs::metadata(one), std::fs::metadata(other)) {
        return Ok((one.dev(), one.ino()) == (other.dev(), other.ino()));
    }
    Ok(std::path::absolute(one)? == std::path::absolute(other)?)
}

/// Runs an import.
pub async fn run(args: ImportArgs) -> Result<ExitCode> {
    let path = (args.input != Path::new("-")).then_some(args.input.as_path());
    let source = args.source_options(path)?;
    args.check_files(path)?;
    let _lock = args.lock(path)?;
    let identity = path.map(source::identify).transpose()?;
    let mut start = args.start(identity.clone(), source)?;
    let bad = args.bad_list(path, &mut start)?;
    let mapping = args.mapping(source.format, start.timestamp_micros)?;
    let in_input = || format!("cannot read {}", args.input.display());
    let (reader, bytes_read) = source::open(path, source).with_context(in_input)?;
    if let Some(header) = reader.header() {
        mapping
            .check_header(header)
            .map_err(|why| anyhow!("{}: {why}", args.input.display()))?;
    }
    let client = args.connection.connect().await?;
    let families = prepare_table(&client, &args.table, &mapping.families(), args.create).await?;
    if path.is_none() {
        eprintln!("reading standard input: if interrupted, this import cannot be continued");
    } else if start.records > 0 {
        eprintln!("continuing after {} of an earlier run", count(start.records, "record"));
    }
    let (sender, mut receiver) = tokio::sync::mpsc::channel(BATCHES_WAITING);
    let (skip, rows_max) = (start.records, args.batch_rows as usize);
    let (done, parsed) = tokio::sync::oneshot::channel();
    // A thread of its own: the runtime would wait for one of its threads that waits for standard input.
    std::thread::Builder::new().name("parser".to_owned()).spawn(move || {
        // The pipeline does not wait for the result of a parser that was told to stop.
        let _ = done.send(source::produce(reader, &mapping, skip, rows_max, &sender));
    })?;
    let mut pipeline = Pipeline {
        client,
        table: args.table.clone(),
        in_flight_max: args.in_flight as usize,
        bad_max: args.max_bad,
        families,
        create: args.create,
        bad,
        prefix: Prefix::new(start.records),
        resumable: start.resumable.map(|(path, checkpoint)| Resumable { path, checkpoint }),
        progress: Progress::new("imported", identity.map(|identity| identity.bytes), 0),
        bytes_read,
        totals: Totals::default(),
    };
    let mut result = pipeline.run(&mut receiver).await;
    drop(receiver);
    if result.is_ok() || path.is_some() {
        // After a failure a parser of standard input may wait for more of it; that of a file ends soon.
        let parsed = parsed.await.context("the parser failed")?;
        result = result.and(parsed.with_context(in_input));
    }
    if let Err(error) = result {
        return Err(pipeline.explain_stop(error));
    }
    args.conclude(pipeline)
}

/// Checks that the table and its families exist. With `create` it creates the missing ones. Returns the families, or
/// `None` if the server or the user's rights do not allow to list them.
async fn prepare_table(
    client: &Client,
    table: &TableRef,
    needed: &[String],
    create: bool,
) -> Result<Option<BTreeSet<String>>> {
    let new = |name: &String| NewFamily {
        name: name.clone(),
        versions_max: None,
    };
    let found = match client.find_table(table).await {
        Ok(found) => found,
        Err(status) if matches!(status.code(), Code::Unimplemented | Code::PermissionDenied) => {
            return Ok(None);
        }
        Err(status) => {
            return Err(crate::client::describe(&status)).with_context(|| format!("cannot look up {table}"));
        }
    };
    let Some(found) = found else {
        if !create {
            bail!("{table} does not exist; --create creates it");
        }
        let families: Vec<NewFamily> = needed.iter().map(new).collect();
        client.create_table(table, &families, &[]).await?;
        return Ok(Some(needed.iter().cloned().collect()));
    };
    let mut known: BTreeSet<String> = found.families.into_keys().collect();
    let missing: Vec<String> = needed.iter().filter(|name| !known.contains(*name)).cloned().collect();
    if !missing.is_empty() {
        if !create {
            return Err(missing_families(table, &missing, &known));
        }
        let families: Vec<NewFamily> = missing.iter().map(new).collect();
        client.create_families(table, &families).await?;
        known.extend(missing);
    }
    Ok(Some(known))
}

impl Pipeline {
    /// Adds to an error how far the import came and how to continue.
    fn explain_stop(self, error: anyhow::Error) -> anyhow::Error {
        self.progress.finish();
        let done = count(self.prefix.records(), "record");
        let then = match self.resumable {
            Some(_) => "run the same command again to continue",
            None => "standard input cannot be continued",
        };
        error.context(format!("stopped after {done}; {then}"))
    }
}

impl ImportArgs {
    fn source_options(&self, path: Option<&Path>) -> Result<SourceOptions> {
        let format = self
            .format
            .resolve(path)
            .ok_or_else(|| anyhow!("the name of the input does not tell its format; give --format"))?;
        Ok(SourceOptions {
            format,
            compression: self.compression,
            no_quotes: self.no_quotes,
            base64: self.base64,
        })
    }

    fn bad_path(&self, input: Option<&Path>) -> PathBuf {
        match (&self.bad, input) {
            (Some(given), _) => given.clone(),
            (None, Some(input)) => with_suffix(input, ".bad"),
            (None, None) => PathBuf::from("stdin.bad"),
        }
    }

    fn state_path(&self) -> PathBuf {
        let default = || with_suffix(&self.input, ".import-state");
        self.state.clone().unwrap_or_else(default)
    }

    /// Refuses to write progress or bad records over the input, or over each other.
    fn check_files(&self, input: Option<&Path>) -> Result<()> {
        let bad = self.bad_path(input);
        let mut written = vec![("--bad", bad.clone())];
        if let Some(input) = input {
            written.push(("--state", self.state_path()));
            for (option, path) in &written {
                if is_same_file(path, input)? {
                    bail!("{option} names the input, {}: name another file", input.display());
                }
            }
            if is_same_file(&bad, &self.state_path())? {
                bail!("--bad and --state name the same file, {}", bad.display());
            }
        }
        Ok(())
    }

    /// Keeps a second run of the import away from the progress and the list of bad records. Standard input has no progress.
    fn lock(&self, input: Option<&Path>) -> Result<Option<FileLock>> {
        input.map_or(Ok(None), |_| FileLock::if_possible(&self.state_path()))
    }

    /// The list of bad records, which the checkpoint names from now on.
    fn bad_list(&self, input: Option<&Path>, start: &mut Start) -> Result<BadList> {
        let path = self.bad_path(input);
        let Some((_, checkpoint)) = &mut start.resumable else {
            return BadList::begin(path);
        };
        let name = escape(std::path::absolute(&path)?.as_os_str().as_encoded_bytes());
        let list = match checkpoint.bad_list.replace(name.clone()) {
            Some(former) if former != name => {
                if start.bad_records > 0 {
                    eprintln!(
                        "{} of the earlier run in {former}",
                        count(start.bad_records, "bad record")
                    );
                }
                BadList::append_to(path, start.bad_records)?
            }
            _ if start.bad_bytes == 0 => BadList::begin(path)?,
            _ => BadList::resume(path, start.bad_bytes, start.bad_records)?,
        };
        (checkpoint.bad_records, checkpoint.bad_bytes) = list.written();
        Ok(list)
    }

    fn mapping(&self, format: InputFormat, fixed_timestamp: i64) -> Result<Mapping> {
        let timestamp_column = self.timestamp_column.clone();
        let mapping = Mapping::new(MappingOptions {
            key: self.key.clone(),
            separator: self.key_separator.clone(),
            rules: self.rules.clone(),
            default_family: self.family.clone(),
            timestamp_column: timestamp_column.map(|column| (column, self.timestamp_unit)),
            fixed_timestamp,
            keep_empty: self.keep_empty,
        })
        .map_err(|why| anyhow!(why))?;
        if format != InputFormat::Cells {
            mapping.check_for_columns().map_err(|why| anyhow!(why))?;
        } else if !self.key.is_empty() || self.family.is_some() || !self.rules.is_empty() {
            bail!("--format cells carries keys and families itself; --key, --family and --map do not apply");
        }
        Ok(mapping)
    }

    /// Every option that affects the written cells, and none that affects only speed.
    fn options_hash(&self, source: SourceOptions) -> String {
        checkpoint::options_hash(&[
            self.connection.address(),
            self.connection.project.clone(),
            self.table.to_string(),
            format!("{source:?}"),
            format!("{:?}", self.key),
            self.key_separator.clone(),
            format!("{:?}", self.rules),
            format!("{:?}", self.family),
            format!("{:?} {:?}", self.timestamp_column, self.timestamp_unit),
            format!("{:?} {}", self.timestamp, self.keep_empty),
        ])
    }

    /// The starting point: after the records of the checkpoint of the same import, else the beginning.
    fn start(&self, identity: Option<InputIdentity>, source: SourceOptions) -> Result<Start> {
        let Some(input) = identity else {
            if self.state.is_some() {
                bail!("standard input cannot be continued, so --state does not apply");
            }
            let timestamp_micros = self.fixed_timestamp(now_micros());
            let (records, bad_records, bad_bytes) = (0, 0, 0);
            return Ok(Start {
                timestamp_micros,
                records,
                bad_records,
                bad_bytes,
                resumable: None,
            });
        };
        let path = self.state_path();
        let mut now = ImportCheckpoint {
            format: IMPORT_FORMAT.to_owned(),
            timestamp_micros: self.fixed_timestamp(timestamp::to_granularity(input.modified_micros.max(0))),
            input,
            options: self.options_hash(source),
            records: 0,
            bad_records: 0,
            bad_bytes: 0,
            bad_list: None,
        };
        if self.restart {
            checkpoint::start_over(&path, IMPORT_KIND)?;
        } else if let Some(found) = checkpoint::load::<ImportCheckpoint>(&path)? {
            if let Some(why) = found.mismatch(&now) {
                checkpoint::refuse(&path, &why)?;
            }
            now = found;
        }
        Ok(Start {
            timestamp_micros: now.timestamp_micros,
            records: now.records,
            bad_records: now.bad_records,
            bad_bytes: now.bad_bytes,
            resumable: Some((path, now)),
        })
    }

    fn fixed_timestamp(&self, default: i64) -> i64 {
        match self.timestamp {
            None => default,
            Some(FixedTimestamp::Now) => now_micros(),
            Some(FixedTimestamp::Micros(micros)) => micros,
        }
    }

    /// Removes the checkpoint and sums up.
    fn conclude(&self, mut pipeline: Pipeline) -> Result<ExitCode> {
        pipeline.bad.write_before(u64::MAX)?;
        if let Some(resumable) = &pipeline.resumable {
            checkpoint::remove(&resumable.path)?;
        }
        let bad = pipeline.bad.count();
        let (rows, totals) = (pipeline.totals.rows, pipeline.totals);
        let seconds = pipeline.progress.finish().as_secs_f64().max(0.001);
        let mut summary = format!(
            "imported {}, {} into {} in {seconds:.1} s ({}/s)",
            count(rows, "row"),
            count(totals.cells, "cell"),
            self.table,
            count((rows as f64 / seconds) as u64, "row"),
        );
        if totals.without_cells > 0 {
            let empty = count(totals.without_cells, "record");
            summary.push_str(&format!("; {empty} had nothing to store"));
        }
        if bad > 0 {
            let path = pipeline.bad.path().display();
            summary.push_str(&format!("; {} listed in {path}", count(bad, "bad record")));
        }
        print(&format!("{summary}\n"))?;
        Ok(if bad > 0 {
            ExitCode::from(EXIT_BAD_RECORDS)
        } else {
            ExitCode::SUCCESS
        })
    }
}

#[cfg(test)]
mod tests;
