//! `export` writes a table, or a part of it, to a file or standard output.
//!
//! The file grows as `<out>.part` and takes its name when it is complete. Every few seconds the part is synced. A
//! checkpoint `<out>.part.state` then records how many of its bytes are whole rows, and the last of these. The same
//! command run again truncates the part to that length and reads on after that row. Compressed outputs are concatenated
//! members of whole rows, so the same holds for them. A lock on the part keeps a second run of the command away from it.
//!
//! An export is not a snapshot, resumed or not: it has each row as of the moment of its read.

use crate::checkpoint::{self, EXPORT_FORMAT, ExportCheckpoint, with_suffix};
use crate::client::TableRef;
use crate::client::read::RowStream;
use crate::compression::{self, Compression};
use crate::connection::Connection;
use crate::file_lock::FileLock;
use crate::formats::delimited::{DelimitedWriter, Layout};
use crate::formats::{OutputFormat, cells, jsonl};
use crate::interrupt::interrupted;
use crate::progress::{Progress, count};
use crate::query::{CellArgs, RangeArgs, chain};
use crate::records::RowCells;
use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Args;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Text gathered before it is compressed and written: large enough for a good ratio and few system calls.
const MEMBER_BYTES: usize = 4 << 20;
/// Between checkpoints: how much work an interruption costs at most.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);

/// Arguments of `export`.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// The table, as instance/table
    pub table: TableRef,
    /// The file to write; - for standard output
    #[arg(default_value = "-")]
    pub output: PathBuf,
    /// Format of the output
    #[arg(long, value_enum, default_value = "auto")]
    format: OutputFormat,
    /// Compression of the output
    #[arg(long, value_enum, default_value = "auto")]
    compression: Compression,
    #[command(flatten)]
    range: RangeArgs,
    #[command(flatten)]
    cells: CellArgs,
    /// Replace the output if it exists
    #[arg(long)]
    force: bool,
    /// Start over instead of continuing an interrupted export
    #[arg(long)]
    restart: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Runs an export.
pub async fn run(args: ExportArgs) -> Result<ExitCode> {
    let path = (args.output != Path::new("-")).then_some(args.output.as_path());
    let format = args
        .format
        .resolve(path)
        .ok_or_else(|| anyhow!("the name of the output does not tell its format; give --format"))?;
    let writer = RowWriter::new(format, &args.cells)?;
    let compression = compression::for_output(path, args.compression)?;
    let mut output = match path {
        None => Output::to_stdout(writer, compression),
        Some(path) => {
            let lock = lock(path, args.force)?;
            Output::to_file(
                writer,
                compression,
                path,
                options_hash(&args, format),
                args.restart,
                lock,
            )?
        }
    };
    let client = args.connection.connect().await?;
    let mut range = args.range.clone();
    if let Some(last) = &output.state.last_row {
        eprintln!("continuing after {}", count(output.state.rows, "row"));
        // The successor of a key is the key followed by a zero byte.
        let next: Bytes = [&last[..], b"\0"].concat().into();
        range.start = Some(range.start.map_or(next.clone(), |start| start.max(next)));
    }
    let mut progress = Progress::new("exported", None, output.state.rows);
    if let Some(query) = range.query(chain(args.cells.filters()), 0) {
        let mut stream = client.read_rows(&args.table, query);
        match copy(&mut stream, &mut output, &mut progress).await {
            Ok(true) => {}
            // The reader of standard output has closed it.
            Ok(false) => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(output.stop(error)),
        }
    }
    let state = output.finish()?;
    let seconds = progress.finish().as_secs_f64();
    let summary = format!(
        "exported {}, {} from {} in {seconds:.1} s",
        count(state.rows, "row"),
        count(state.cells, "cell"),
        args.table
    );
    match path {
        // Standard output carries the data.
        None => eprintln!("{summary}"),
        Some(path) => println!("{summary} to {}", path.display()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Copies rows until the end (true) or until the reader of the output closes it (false).
async fn copy(stream: &mut RowStream, output: &mut Output, progress: &mut Progress) -> Result<bool> {
    let mut stop = std::pin::pin!(interrupted());
    loop {
        let row = tokio::select! {
            biased;
            () = &mut stop => bail!("interrupted"),
            row = stream.next() => row?,
        };
        let Some(row) = row else { return Ok(true) };
        match output.push(&row) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
            result => result.context("cannot write the output")?,
        }
        output.checkpoint_if_due()?;
        if output.state.rows.is_multiple_of(256) {
            progress.update(output.state.rows, output.text_bytes);
        }
    }
}

fn options_hash(args: &ExportArgs, format: OutputFormat) -> String {
    // The options that affect the content of the output, not its place.
    checkpoint::options_hash(&[
        args.connection.address(),
        args.connection.project.clone(),
        args.table.to_string(),
        format!("{format:?}"),
        format!("{:?}", args.compression),
        format!("{:?}", args.range),
        format!("{:?}", args.cells),
    ])
}

/// Rows as text.
enum RowWriter {
    Delimited(DelimitedWriter),
    Cells,
    Flat,
}

impl RowWriter {
    fn new(format: OutputFormat, args: &CellArgs) -> Result<RowWriter> {
        let delimiter = match format {
            OutputFormat::Auto | OutputFormat::Jsonl => return Ok(RowWriter::Cells),
            OutputFormat::Flat => return Ok(RowWriter::Flat),
            OutputFormat::Csv => b',',
            OutputFormat::Tsv => b'\t',
        };
        if args.columns.is_empty() {
            return Ok(RowWriter::Delimited(DelimitedWriter::new(delimiter, Layout::Long)));
        }
        if args.versions != 1 {
            bail!("with --columns there is one line per row, which holds one version only");
        }
        let columns = args.columns.iter().map(|at| (at.family.clone(), at.qualifier.clone()));
        Ok(RowWriter::Delimited(DelimitedWriter::new(
            delimiter,
            Layout::Wide(columns.collect()),
        )))
    }

    fn header(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        match self {
            RowWriter::Delimited(writer) => writer.header(out),
            RowWriter::Cells | RowWriter::Flat => Ok(()),
        }
    }

    fn row(&self, row: &RowCells, out: &mut Vec<u8>) -> std::io::Result<()> {
        match self {
            RowWriter::Delimited(writer) => writer.row(row, out),
            RowWriter::Cells => cells::write_row(row, out),
            RowWriter::Flat => jsonl::write_flat(row, out),
        }
    }
}

/// How far the output has come.
#[derive(Clone, Debug, Default)]
struct State {
    last_row: Option<Bytes>,
    rows: u64,
    cells: u64,
    /// Bytes written to the sink; whole members of whole rows.
    output_bytes: u64,
}

enum Sink {
    Stdout,
    File {
        file: File,
        path: PathBuf,
        options: String,
        /// Of the part, until the file has its name and the checkpoint is removed.
        _lock: Option<FileLock>,
    },
}

/// Where rows go, through a buffer that becomes one compressed member.
struct Output {
    sink: Sink,
    writer: RowWriter,
    compression: Compression,
    buffer: Vec<u8>,
    state: State,
    /// Text before compression, for the progress.
    text_bytes: u64,
    last_checkpoint: Instant,
}

impl Output {
    fn new(sink: Sink, writer: RowWriter, compression: Compression, state: State) -> Output {
        let text_bytes = state.output_bytes;
        let last_checkpoint = Instant::now();
        Output {
            sink,
            writer,
            compression,
            buffer: Vec::new(),
            state,
            text_bytes,
            last_checkpoint,
        }
    }

    fn to_stdout(writer: RowWriter, compression: Compression) -> Output {
        Output::new(Sink::Stdout, writer, compression, State::default())
    }

    fn to_file(
        writer: RowWriter,
        compression: Compression,
        path: &Path,
        options: String,
        restart: bool,
        lock: Option<FileLock>,
    ) -> Result<Output> {
        let (part, state_path) = (part_path(path), state_path(path));
        let state = match checkpoint::load::<ExportCheckpoint>(&state_path)? {
            Some(found) if !restart => resume_state(&found, &options, &part, &state_path)?,
            _ => State::default(),
        };
        let open = || -> std::io::Result<File> {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&part)?;
            file.set_len(state.output_bytes)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file = open().with_context(|| format!("cannot open {}", part.display()))?;
        if state.last_row.is_none() {
            // The remains of an abandoned export must not be taken for the state of this one.
            checkpoint::remove(&state_path)?;
        }
        let sink = Sink::File {
            file,
            path: path.to_owned(),
            options,
            _lock: lock,
        };
        Ok(Output::new(sink, writer, compression, state))
    }

    fn push(&mut self, row: &RowCells) -> std::io::Result<()> {
        let before = self.buffer.len();
        self.header_if_first()?;
        self.writer.row(row, &mut self.buffer)?;
        self.text_bytes += (self.buffer.len() - before) as u64;
        self.state.rows += 1;
        self.state.cells += row.cells.len() as u64;
        self.state.last_row = Some(row.key.clone());
        if self.buffer.len() >= MEMBER_BYTES {
            self.write_member()?;
        }
        Ok(())
    }

    fn header_if_first(&mut self) -> std::io::Result<()> {
        match self.state.rows {
            0 => self.writer.header(&mut self.buffer),
            _ => Ok(()),
        }
    }

    fn write_member(&mut self) -> std::io::Result<()> {
        let compressed;
        let member = match self.compression {
            Compression::None => &self.buffer,
            compression => {
                compressed = compression::compress_member(&self.buffer, compression)?;
                &compressed
            }
        };
        match &mut self.sink {
            Sink::Stdout => std::io::stdout().write_all(member)?,
            Sink::File { file, .. } => {
                // An attempt that failed, on a full disk perhaps, may have left a part, over which this one goes.
                file.seek(SeekFrom::Start(self.state.output_bytes))?;
                file.write_all(member)?;
            }
        }
        self.state.output_bytes += member.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn checkpoint_if_due(&mut self) -> Result<()> {
        if self.last_checkpoint.elapsed() >= CHECKPOINT_INTERVAL {
            self.checkpoint()?;
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.last_checkpoint = Instant::now();
        if matches!(self.sink, Sink::Stdout) || self.state.last_row.is_none() {
            return Ok(());
        }
        if !self.buffer.is_empty() {
            self.write_member().context("cannot write the output")?;
        }
        let Sink::File {
            file, path, options, ..
        } = &mut self.sink
        else {
            return Ok(());
        };
        file.sync_data()
            .with_context(|| format!("cannot sync {}", part_path(path).display()))?;
        let checkpoint = ExportCheckpoint {
            format: EXPORT_FORMAT.to_owned(),
            options: options.clone(),
            last_row: self.state.last_row.as_ref().map(|key| STANDARD.encode(key)),
            output_bytes: self.state.output_bytes,
            rows: self.state.rows,
            cells: self.state.cells,
        };
        checkpoint::store(&state_path(path), &checkpoint)
    }

    /// Saves the state after a failure, and adds to the error how to continue.
    fn stop(mut self, error: anyhow::Error) -> anyhow::Error {
        if matches!(self.sink, Sink::Stdout) {
            return error;
        }
        match self.checkpoint() {
            Ok(()) => error.context(format!(
                "stopped after {}; run the same command again to continue",
                count(self.state.rows, "row")
            )),
            Err(second) => error.context(format!("{second:#}")),
        }
    }

    fn finish(mut self) -> Result<State> {
        let mut write = || -> std::io::Result<()> {
            self.header_if_first()?;
            // An empty table still makes a valid compressed file.
            if !self.buffer.is_empty() || self.state.output_bytes == 0 {
                self.write_member()?;
            }
            match &mut self.sink {
                Sink::Stdout => std::io::stdout().flush(),
                Sink::File { file, path, .. } => {
                    file.sync_all()?;
                    fs::rename(part_path(path), &*path)?;
                    checkpoint::sync_directory(path)
                }
            }
        };
        write().context("cannot finish the output")?;
        if let Sink::File { path, .. } = &self.sink {
            checkpoint::remove(&state_path(path))?;
        }
        Ok(self.state)
    }
}

/// Locks the part of an output, which must not exist unless it is replaced.
fn lock(path: &Path, force: bool) -> Result<Option<FileLock>> {
    let lock = FileLock::if_possible(&part_path(path))?;
    // Looked at under the lock: a run that held it until now has made the file.
    if path.exists() && !force {
        bail!("{} exists; replace it with --force", path.display());
    }
    Ok(lock)
}

fn part_path(path: &Path) -> PathBuf {
    with_suffix(path, ".part")
}

fn state_path(path: &Path) -> PathBuf {
    with_suffix(path, ".part.state")
}

/// The state a checkpoint describes, checked against the options and the part it belongs to.
fn resume_state(found: &ExportCheckpoint, options: &str, part: &Path, state_path: &Path) -> Result<State> {
    if let Some(why) = found.mismatch(options) {
        checkpoint::refuse(state_path, &why)?;
    }
    let length = fs::metadata(part).map_or(0, |metadata| metadata.len());
    if length < found.output_bytes {
        bail!(
            "{} has {length} bytes, but its checkpoint counts {}; start over with --restart",
            part.display(),
            found.output_bytes
        );
    }
    let last_row = found
        .last_row()
        .map_err(|why| anyhow!("{}: {why}", state_path.display()))?;
    Ok(State {
        last_row: last_row.map(Bytes::from),
        rows: found.rows,
        cells: found.cells,
        output_bytes: found.output_bytes,
    })
}

#[cfg(test)]
mod tests;
