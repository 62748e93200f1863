//! The command line of `migrate`.

use crate::address::{Source, Target};
use clap::Args;
use regex::Regex;
use std::path::PathBuf;
use stele_cli::client::SecurityOptions;
use stele_cli::sizes::parse_size;

/// Copies tables of a live HBase, and compares both.
#[derive(Args, Clone, Debug)]
pub struct MigrateArgs {
    /// The HBase cluster: hbase://HOST:PORT[,HOST:PORT...], any of its servers; hbases:// under TLS
    pub source: Source,
    /// HOST:PORT of the HBase API of the server that takes the tables, with hbases:// in front if it is under TLS
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:16020")]
    pub to: Target,
    /// TLS of the ends that are under TLS, and the token for the target.
    #[command(flatten)]
    pub security: SecurityOptions,
    /// The tables.
    #[command(flatten)]
    pub selection: Selection,
    /// Only make the tables; the peer of a replication can then be added before cells are copied
    #[arg(long, conflicts_with_all = ["verify", "verify_only"])]
    pub schema_only: bool,
    /// Compare the rows of both sides after the copy
    #[arg(long)]
    pub verify: bool,
    /// Compare, and copy nothing
    #[arg(long, conflicts_with = "verify")]
    pub verify_only: bool,
    /// Copy rows that differ once more, and compare them again
    #[arg(long)]
    pub repair: bool,
    /// With --repair: delete cells that only the target has. Never after clients write to the target
    #[arg(long, requires = "repair")]
    pub delete_extra: bool,
    /// Times that a row that differs is read again, after 1, 2, 4, 8, 16, 16, ... seconds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub attempts: u8,
    /// Ranges that are copied or compared at a time; each takes up to 40 MiB of memory
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub parallel: u16,
    /// Most bytes read from the source in a second, such as 20MiB [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub max_bytes_per_second: Option<u64>,
    /// File that records the progress
    #[arg(long, value_name = "FILE", default_value = "stele-migrate.state")]
    pub state: PathBuf,
    /// Start over instead of continuing an interrupted copy
    #[arg(long)]
    pub restart: bool,
    /// Leave out an attribute of tables and families that the target refuses; repeatable
    #[arg(long, value_name = "NAME")]
    pub drop_attribute: Vec<String>,
    /// Copy cells without tags that the target does not have, such as visibility labels
    #[arg(long)]
    pub ignore_tags: bool,
}

/// The tables to migrate: all of users when empty.
#[derive(Args, Clone, Debug, Default)]
pub struct Selection {
    /// Only tables whose whole name, `table` or `namespace:table`, matches
    #[arg(long, value_name = "REGEX", value_parser = whole_names)]
    pub tables: Option<Regex>,
    /// Only tables of this namespace; repeatable
    #[arg(long, value_name = "NAME")]
    pub namespace: Vec<String>,
}

impl Selection {
    /// Whether a table is chosen.
    pub fn has(&self, namespace: &str, name: &str) -> bool {
        self.tables.as_ref().is_none_or(|pattern| pattern.is_match(name))
            && (self.namespace.is_empty() || self.namespace.iter().any(|chosen| chosen == namespace))
    }
}

/// Compiles a pattern of whole names. The first match of `a|ab` in `ab` is only `a`, so the pattern itself needs the anchors.
fn whole_names(pattern: &str) -> Result<Regex, regex::Error> {
    // By itself first: brackets around it would make patterns such as `a)|(b` valid.
    Regex::new(pattern)?;
    Regex::new(&format!(r"\A(?:{pattern})\z"))
}

#[cfg(test)]
impl MigrateArgs {
    /// The arguments of a command line; the first word is the program's name.
    pub(crate) fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, clap::Error> {
        use clap::{Command, FromArgMatches};
        let matches = Self::augment_args(Command::new("migrate")).try_get_matches_from(words)?;
        Self::from_arg_matches(&matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_manual_parse() {
        let manual = include_str!("../../../docs/migrating-from-hbase.md");
        let mut examples = manual
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("$ stele "));
        assert!(examples.clone().count() > 2);
        assert!(examples.all(|example| MigrateArgs::of(example.split(' ')).is_ok()));
        let parse = |options: &str| MigrateArgs::of(format!("migrate hbase://h:1 {options}").split(' '));
        assert!(parse("--verify --schema-only").is_err() && parse("--verify --delete-extra").is_err());
        let args = parse("--max-bytes-per-second 20MiB");
        assert_eq!(args.unwrap().max_bytes_per_second, Some(20 << 20));
        let selection = parse("--tables orders|orders_items").map(|args| args.selection);
        assert!(selection.unwrap().has("default", "orders_items"));
    }

    #[test]
    fn tables_are_chosen_by_their_whole_name_and_namespace() {
        let by = |tables: &str, namespace: &[&str]| Selection {
            tables: Some(whole_names(tables).unwrap()),
            namespace: namespace.iter().map(|&name| name.to_owned()).collect(),
        };
        assert!(Selection::default().has("default", "t"));
        assert!(by("t.*", &[]).has("default", "t1") && !by("t", &[]).has("default", "t1"));
        assert!(by("ns:.*", &["ns"]).has("ns", "ns:t") && !by(".*", &["ns"]).has("default", "t"));
        assert!(by("(?:a|ab)$", &[]).has("default", "ab"));
        let either = by("a|ab", &[]);
        assert!(either.has("default", "a") && either.has("default", "ab") && !either.has("default", "abc"));
        assert!(whole_names("a)|(b").is_err());
    }
}
