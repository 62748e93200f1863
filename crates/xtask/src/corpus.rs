//! Fetches real text for the benchmark's values: the English descriptions of Debian's packages.
//!
//! The published evaluations cut their values from Wikipedia. This text is as real, free, and comes through apt's
//! ordinary client. Apt updates package lists of its own under `target/corpus`, with translations, without touching the
//! system's; the package lists themselves hold only the first line of each description. Debian prints each description
//! once for all architectures.

use crate::shell::{Run, target_dir};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Less would repeat itself too soon in the values of one block, and says that something went wrong.
const BYTES_MIN: u64 = 20_000_000;

/// Prints the path of the text, which is fetched if it is not there.
pub fn run() -> Result<bool> {
    let dir = target_dir().join("corpus");
    let text = dir.join("debian.txt");
    if !is_complete(&text) {
        let lists = dir.join("lists");
        fs::create_dir_all(lists.join("partial")).context("making room for package lists")?;
        update(&lists)?;
        // Under another name until it is whole.
        let partial = dir.join("debian.partial");
        write(&lists, &partial)?;
        let bytes = partial.metadata()?.len();
        ensure!(
            bytes >= BYTES_MIN,
            "descriptions of {bytes} B, expected {BYTES_MIN} at least"
        );
        fs::rename(&partial, &text).with_context(|| format!("naming {}", text.display()))?;
        fs::remove_dir_all(&lists).context("removing package lists")?;
    }
    println!("{}", text.display());
    Ok(true)
}

fn is_complete(text: &Path) -> bool {
    text.metadata().is_ok_and(|meta| meta.len() >= BYTES_MIN)
}

/// Has apt fetch the lists of the system's sources, with English descriptions, into a directory of ours.
fn update(lists: &Path) -> Result<()> {
    let state = format!("Dir::State::Lists={}", lists.display());
    Run::new("apt-get")
        // Standard output is for the path.
        .args(["-qq", "update", "-o", &state, "-o", "Acquire::Languages=en"])
        // Else apt's own user would have to be able to write here.
        .args(["-o", "APT::Sandbox::User=root"])
        .check()
        .context("updating package lists; this task needs a Debian")
}

/// Writes the descriptions out of all lists: first lines and the lines behind them.
fn write(lists: &Path, text: &Path) -> Result<()> {
    let mut out = BufWriter::new(File::create(text).with_context(|| format!("creating {}", text.display()))?);
    for list in translations(lists)? {
        let mut unpack = Run::new("/usr/lib/apt/apt-helper")
            .args(["cat-file".as_ref(), list.as_os_str()])
            .into_command();
        let mut unpack = unpack.stdout(Stdio::piped()).spawn().context("running apt-helper")?;
        let output = unpack.stdout.take().context("no standard output")?;
        let mut is_description = false;
        for line in BufReader::new(output).split(b'\n') {
            let line = line?;
            if let Some(first) = line.strip_prefix(b"Description-en: ") {
                is_description = true;
                writeln!(out)?;
                put_line(&mut out, first)?;
            } else if let Some(next) = line.strip_prefix(b" ").filter(|_| is_description) {
                // A dot alone stands for an empty line.
                put_line(&mut out, if next == b"." { b"" } else { next })?;
            } else {
                is_description = false;
            }
        }
        ensure!(unpack.wait()?.success(), "apt-helper could not read {}", list.display());
    }
    out.flush()?;
    Ok(())
}

fn put_line(out: &mut impl Write, line: &[u8]) -> Result<()> {
    out.write_all(line)?;
    out.write_all(b"\n")?;
    Ok(())
}

fn translations(lists: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(lists)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().contains("_Translation-en") {
            found.push(entry.path());
        }
    }
    // The same text whatever order the directory has.
    found.sort();
    Ok(found)
}
