//! Text formats, each as a reader over bytes, a writer, or both.
//!
//! None of them opens files or knows tables.
//!
//! | format | reads | writes | record |
//! |---|---|---|---|
//! | CSV, TSV ([`delimited`]) | yes | yes | a line, or several when quoted |
//! | JSON Lines ([`jsonl`]) | yes | yes (`flat`) | an object per line |
//! | cells ([`cells`]) | yes | yes | a whole row per line, with families and timestamps |

pub mod cells;
pub mod delimited;
pub mod jsonl;
pub mod lines;

use clap::ValueEnum;
use std::path::Path;

/// A format of `import`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    /// By the extension of the file.
    Auto,
    /// Comma-separated values with a header line.
    Csv,
    /// Tab-separated values with a header line.
    Tsv,
    /// One JSON object per line.
    Jsonl,
    /// Rows with all their cells, as `export --format jsonl` writes them.
    Cells,
}

/// A format of `export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// By the extension of the file; JSON Lines on standard output.
    Auto,
    /// Comma-separated values with a header line.
    Csv,
    /// Tab-separated values with a header line.
    Tsv,
    /// Rows with all their cells, one JSON object per line; `import --format cells` reads it.
    #[value(alias = "cells")]
    Jsonl,
    /// One flat JSON object per row, `family:qualifier` to the newest value.
    Flat,
}

/// The extension that tells the format: the last one, after a compression's.
pub fn extension(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let name = [".gz", ".zst", ".lz4"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .unwrap_or(&name);
    name.rsplit_once('.').map(|(_, extension)| extension.to_owned())
}

impl InputFormat {
    /// Replaces `Auto` by the format that the name of the file implies; `None` when it implies none.
    pub fn resolve(self, path: Option<&Path>) -> Option<InputFormat> {
        if self != InputFormat::Auto {
            return Some(self);
        }
        match extension(path?)?.as_str() {
            "csv" => Some(InputFormat::Csv),
            "tsv" | "tab" => Some(InputFormat::Tsv),
            "jsonl" | "ndjson" => Some(InputFormat::Jsonl),
            "cells" => Some(InputFormat::Cells),
            _ => None,
        }
    }
}

impl OutputFormat {
    /// Replaces `Auto` by the format that the name of the file implies; `None` when it implies none.
    pub fn resolve(self, path: Option<&Path>) -> Option<OutputFormat> {
        if self != OutputFormat::Auto {
            return Some(self);
        }
        let Some(path) = path else {
            return Some(OutputFormat::Jsonl);
        };
        match extension(path)?.as_str() {
            "csv" => Some(OutputFormat::Csv),
            "tsv" | "tab" => Some(OutputFormat::Tsv),
            "jsonl" | "ndjson" | "cells" => Some(OutputFormat::Jsonl),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_by_name() {
        let input = |name: &str| InputFormat::Auto.resolve(Some(Path::new(name)));
        assert_eq!(input("a/b.CSV.gz"), Some(InputFormat::Csv));
        assert_eq!(input("b.tsv.zst"), Some(InputFormat::Tsv));
        assert_eq!(input("b.ndjson"), Some(InputFormat::Jsonl));
        assert_eq!(input("Packages.gz"), None);
        assert_eq!(InputFormat::Auto.resolve(None), None);
        assert_eq!(OutputFormat::Auto.resolve(None), Some(OutputFormat::Jsonl));
        assert_eq!(
            OutputFormat::Auto.resolve(Some(Path::new("x.csv.gz"))),
            Some(OutputFormat::Csv)
        );
    }
}
