//! Forms of the shell's results: for people, or a line of JSON each.

use crate::client::admin::TableInfo;
use crate::explain;
use crate::formats::cells;
use crate::records::RowCells;
use crate::schema::show_table;
use crate::settings;
use crate::show::{print, show_row};
use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};
use stele_adminapi::{ExplainReadResponse, Settings};

/// A form of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// A line of JSON for each result.
    Json,
}

impl Output {
    /// Prints a row; false if nobody reads the output any more.
    pub fn row(self, row: &RowCells) -> Result<bool> {
        match self {
            Output::Text => print(&show_row(row)),
            Output::Json => {
                let mut line = Vec::new();
                cells::write_row(row, &mut line)?;
                print(&String::from_utf8_lossy(&line))
            }
        }
    }

    /// Prints the end of a scan.
    pub fn rows(self, count: u64) -> Result<bool> {
        match self {
            Output::Text => print(&format!("({})\n", crate::progress::count(count, "row"))),
            // The lines are the rows alone.
            Output::Json => Ok(true),
        }
    }

    /// Prints a number of rows.
    pub fn count(self, rows: u64) -> Result<bool> {
        self.either(|| format!("{rows}\n"), || json!({"rows": rows}))
    }

    /// Prints that something was done.
    pub fn done(self, sentence: &str) -> Result<bool> {
        self.either(|| format!("{sentence}\n"), || json!({"done": sentence}))
    }

    /// Prints a table, with its settings if the server has told them.
    pub fn table(self, instance: &str, table: &TableInfo, of_table: Option<&Settings>) -> Result<bool> {
        let text = || {
            let settings = of_table.map(settings::show).unwrap_or_default();
            let settings: String = settings.lines().map(|line| format!("    {line}\n")).collect();
            show_table(instance, table) + &settings
        };
        self.either(text, || {
            let mut value = json!({"table": format!("{instance}/{}", table.name), "families": table.families});
            if let Some(of_table) = of_table {
                value["settings"] = json!({
                    "durability": of_table.durability, "row_cache": of_table.row_cache,
                    "tablet_bytes": of_table.tablet_bytes,
                });
            }
            value
        })
    }

    /// Prints the work behind a read.
    pub fn explained(self, explained: &ExplainReadResponse) -> Result<bool> {
        self.either(|| explain::show(explained), || explain::to_value(explained))
    }

    fn either(self, text: impl FnOnce() -> String, value: impl FnOnce() -> Value) -> Result<bool> {
        print(&match self {
            Output::Text => text(),
            Output::Json => format!("{}\n", value()),
        })
    }
}
