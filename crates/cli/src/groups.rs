//! `groups`, `create-group`, `alter-group` and `move-family`.

use crate::client::{Client, TableRef};
use crate::connection::Connection;
use crate::show::print;
use crate::sizes::parse_size;
use anyhow::{Result, bail};
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use stele_adminapi::{Change, LocalityGroup, Modification, Options};

/// Arguments of `groups`.
#[derive(Args, Clone, Debug)]
pub struct GroupsArgs {
    /// The table, as instance/table
    pub table: TableRef,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `create-group` and `alter-group`.
#[derive(Args, Clone, Debug)]
pub struct GroupArgs {
    /// The table, as instance/table
    pub table: TableRef,
    /// The locality group
    pub group: String,
    #[command(flatten)]
    options: OptionArgs,
    #[command(flatten)]
    connection: Connection,
}

/// Options of a group; those that are not given take their defaults, or stay as they are.
#[derive(Args, Clone, Debug, Default)]
struct OptionArgs {
    /// Codec of blocks: none, lz4, snappy or zstd [default: lz4]
    #[arg(long, value_name = "CODEC", value_parser = ["none", "lz4", "snappy", "zstd"])]
    compression: Option<String>,
    /// Level of zstd, 1 to 19 [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=19))]
    zstd_level: Option<u32>,
    /// Compress each file with a dictionary of that many bytes, made from a sample of it; zstd only; 0 for none
    /// [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    dictionary: Option<u64>,
    /// Content of a data block [default: 6KiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    block_size: Option<u64>,
    /// Bits per row of the files' row filters, up to 16; 0 for none [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=16))]
    filter_bits: Option<u32>,
    /// Keep the group's blocks in memory before those of others, as far as the block cache allows [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    in_memory: Option<bool>,
    /// Bytes at which a file is ended [default: the server's, 64MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    file_size: Option<u64>,
}

/// Arguments of `move-family`.
#[derive(Args, Clone, Debug)]
pub struct MoveFamilyArgs {
    /// The table, as instance/table
    pub table: TableRef,
    /// The family
    pub family: String,
    /// The locality group it is moved to
    pub group: String,
    /// Wait until compactions have taken all of the family there
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Interval at which a pending move is polled.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// Prints the locality groups of a table, their options and families.
pub async fn groups(args: GroupsArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    print(&show(&client.locality_groups(&args.table).await?))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes a locality group.
pub async fn create_group(args: GroupArgs) -> Result<ExitCode> {
    let options = args.options.message()?;
    change(
        &args.connection.connect().await?,
        &args.table,
        args.group,
        Change::Create(options),
    )
    .await
}

/// Changes options of a locality group.
pub async fn alter_group(args: GroupArgs) -> Result<ExitCode> {
    let options = args.options.message()?;
    if options == Options::default() {
        bail!("give the options that shall change");
    }
    change(
        &args.connection.connect().await?,
        &args.table,
        args.group,
        Change::Alter(options),
    )
    .await
}

/// Moves a family to another locality group.
pub async fn move_family(args: MoveFamilyArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let modification = Modification {
        group: args.group,
        change: Some(Change::MoveFamily(args.family.clone())),
    };
    let mut groups = client.modify_locality_groups(&args.table, vec![modification]).await?;
    while args.wait && groups.iter().any(|group| group.arriving.contains(&args.family)) {
        tokio::time::sleep(POLL_EVERY).await;
        groups = client.locality_groups(&args.table).await?;
    }
    print(&show(&groups))?;
    Ok(ExitCode::SUCCESS)
}

async fn change(client: &Client, table: &TableRef, group: String, change: Change) -> Result<ExitCode> {
    let modification = Modification {
        group,
        change: Some(change),
    };
    print(&show(&client.modify_locality_groups(table, vec![modification]).await?))?;
    Ok(ExitCode::SUCCESS)
}

impl OptionArgs {
    fn message(self) -> Result<Options> {
        let small = |what: &str, bytes: Option<u64>| match bytes.map(u32::try_from).transpose() {
            Ok(bytes) => Ok(bytes),
            Err(_) => bail!("{what} has less than 4 GiB"),
        };
        Ok(Options {
            compression: self.compression,
            zstd_level: self.zstd_level,
            dictionary_bytes: small("a dictionary", self.dictionary)?,
            block_bytes: small("a block", self.block_size)?,
            filter_bits_per_row: self.filter_bits,
            in_memory: self.in_memory,
            file_bytes: self.file_size,
        })
    }
}

/// The groups, one paragraph each.
fn show(groups: &[LocalityGroup]) -> String {
    let mut out = String::new();
    for group in groups {
        let options = group.options.clone().unwrap_or_default();
        out.push_str(&format!("{}\n    {}\n", group.name, show_options(&options)));
        let family = |name: &String| {
            if group.arriving.contains(name) {
                format!("{name} (older cells are still in another group)")
            } else {
                name.clone()
            }
        };
        let families: Vec<String> = group.families.iter().map(family).collect();
        let families = if families.is_empty() {
            "no families".to_owned()
        } else {
            format!("families {}", families.join(", "))
        };
        out.push_str(&format!("    {families}\n"));
    }
    out
}

fn show_options(options: &Options) -> String {
    let mut parts = vec![options.compression.clone().unwrap_or_default()];
    parts.extend(options.zstd_level.map(|level| format!("level {level}")));
    let dictionary = options.dictionary_bytes.filter(|bytes| *bytes > 0);
    parts.extend(dictionary.map(|bytes| format!("dictionaries of {bytes} bytes")));
    parts.extend(options.block_bytes.map(|bytes| format!("blocks of {bytes} bytes")));
    parts.extend(options.filter_bits_per_row.map(|bits| match bits {
        0 => "no filter".to_owned(),
        bits => format!("filter of {bits} bits per row"),
    }));
    parts.extend(options.file_bytes.map(|bytes| format!("files of {bytes} bytes")));
    parts.extend(options.in_memory.filter(|kept| *kept).map(|_| "in memory".to_owned()));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_read_as_text() {
        let groups = [
            LocalityGroup {
                name: "default".to_owned(),
                options: Some(Options {
                    compression: Some("lz4".to_owned()),
                    in_memory: Some(false),
                    ..Options::default()
                }),
                ..LocalityGroup::default()
            },
            LocalityGroup {
                name: "cold".to_owned(),
                options: Some(Options {
                    compression: Some("zstd".to_owned()),
                    zstd_level: Some(9),
                    dictionary_bytes: Some(65536),
                    block_bytes: Some(32768),
                    filter_bits_per_row: Some(0),
                    in_memory: Some(true),
                    file_bytes: Some(1 << 20),
                }),
                families: vec!["a".to_owned(), "b".to_owned()],
                arriving: vec!["b".to_owned()],
            },
        ];
        let text = "default\n    lz4\n    no families\ncold\n    zstd, level 9, dictionaries of 65536 bytes, blocks of \
                    32768 bytes, no filter, files of 1048576 bytes, in memory\n    families a, b (older cells are still \
                    in another group)\n";
        assert_eq!(show(&groups), text);
    }
}
