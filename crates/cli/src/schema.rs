//! `tables`, `create-table` and `drop-table`.

use crate::client::admin::{NewFamily, TableInfo};
use crate::client::{Client, TableRef};
use crate::connection::Connection;
use crate::query::parse_bytes;
use crate::show::print;
use anyhow::{Result, bail};
use bytes::Bytes;
use clap::Args;
use std::fmt::Write as _;
use std::process::ExitCode;
use stele_adminapi::KeptTable;

/// Arguments of `tables`.
#[derive(Args, Clone, Debug)]
pub struct TablesArgs {
    /// Only this instance
    pub instance: Option<String>,
    /// The tables that the server keeps although they were deleted, or rows or families of them were dropped
    #[arg(long)]
    deleted: bool,
    #[command(flatten)]
    connection: Connection,
}

/// A table to be made.
#[derive(Args, Clone, Debug)]
pub struct NewTable {
    /// The table, as instance/table; the instance is created if it is missing
    pub table: TableRef,
    /// A family; may be repeated
    #[arg(long = "family", value_name = "NAME", required = true)]
    families: Vec<String>,
    /// Versions kept per column of these families [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    max_versions: Option<i32>,
    /// A key at which the new table is split; may be repeated
    #[arg(long = "split", value_name = "KEY", value_parser = parse_bytes)]
    splits: Vec<Bytes>,
}

/// Arguments of `create-table`.
#[derive(Args, Clone, Debug)]
pub struct CreateTableArgs {
    #[command(flatten)]
    new: NewTable,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `drop-table`.
#[derive(Args, Clone, Debug)]
pub struct DropTableArgs {
    /// The table, as instance/table
    pub table: TableRef,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `undelete`.
#[derive(Args, Clone, Debug)]
pub struct UndeleteArgs {
    /// The table, as instance/table
    pub table: TableRef,
    #[command(flatten)]
    connection: Connection,
}

/// Lists tables with their families and garbage-collection rules.
pub async fn tables(args: TablesArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    if args.deleted {
        print(&show_kept(&client.list_kept_tables(args.instance.as_deref()).await?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let tables = list(&client, args.instance).await?;
    if tables.is_empty() {
        eprintln!("no tables");
    }
    for (instance, table) in tables {
        print(&show_table(&instance, &table))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The tables of an instance, or of all, with their instances.
pub(crate) async fn list(client: &Client, instance: Option<String>) -> Result<Vec<(String, TableInfo)>> {
    let instances = match instance {
        Some(instance) => vec![instance],
        None => match client.list_instances().await? {
            Some(instances) => instances,
            None => bail!("this server does not list instances; name one: tables INSTANCE"),
        },
    };
    let mut found = Vec::new();
    for instance in instances {
        let tables = client.list_tables(&instance).await?;
        found.extend(tables.into_iter().map(|table| (instance.clone(), table)));
    }
    Ok(found)
}

/// A table for people.
pub(crate) fn show_table(instance: &str, table: &TableInfo) -> String {
    let mut out = format!("{instance}/{}\n", table.name);
    let width = table.families.keys().map(String::len).max().unwrap_or(0);
    for (family, rule) in &table.families {
        let rule = match rule.as_str() {
            "all versions" => "keeps all versions".to_owned(),
            rule => format!("drops {rule}"),
        };
        out.push_str(&format!("    {family:width$}  {rule}\n"));
    }
    out
}

fn show_kept(tables: &[KeptTable]) -> String {
    let seconds = |micros: i64| micros / 1_000_000;
    let mut out = String::new();
    for kept in tables {
        let (at, hours) = (
            seconds(kept.kept_micros),
            seconds(kept.expires_micros - kept.kept_micros) / 3_600,
        );
        let instance = kept.table.split('/').next().unwrap_or_default();
        let _ = writeln!(
            out,
            "{}  {} at {at} s since 1970, kept for {hours} h after that, as snapshot {instance}/{}",
            kept.table, kept.event, kept.snapshot
        );
    }
    out
}

/// Makes a deleted table again.
pub async fn undelete(args: UndeleteArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    client.undelete_table(&args.table).await?;
    print(&format!("undeleted {}\n", args.table))?;
    Ok(ExitCode::SUCCESS)
}

impl NewTable {
    /// Creates the table; if it exists, adds the families that it lacks. Returns a sentence about it.
    pub async fn run(self, client: &Client) -> Result<String> {
        let versions_max = self.max_versions;
        let families: Vec<NewFamily> = self
            .families
            .into_iter()
            .map(|name| NewFamily { name, versions_max })
            .collect();
        if client.create_table(&self.table, &families, &self.splits).await? {
            return Ok(format!("created {}", self.table));
        }
        let existing = client.get_table(&self.table).await?.map(|table| table.families);
        let existing = existing.unwrap_or_default();
        let missing: Vec<NewFamily> = families
            .into_iter()
            .filter(|family| !existing.contains_key(&family.name))
            .collect();
        client.create_families(&self.table, &missing).await?;
        let names: Vec<&str> = missing.iter().map(|family| family.name.as_str()).collect();
        let added = if names.is_empty() {
            "nothing".to_owned()
        } else {
            names.join(", ")
        };
        Ok(format!("{} exists; added {added}", self.table))
    }
}

/// Creates a table.
pub async fn create_table(args: CreateTableArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let done = args.new.run(&client).await?;
    print(&format!("{done}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Drops a table.
pub async fn drop_table(args: DropTableArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    client.drop_table(&args.table).await?;
    print(&format!("dropped {}\n", args.table))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_tables_are_named_with_their_snapshots() {
        let kept = KeptTable {
            table: "i/t".to_owned(),
            event: "rows dropped".to_owned(),
            kept_micros: 1_600_000_000_000_000,
            expires_micros: 1_600_086_400_000_000,
            snapshot: "kept-07".to_owned(),
            bytes: 7,
        };
        assert_eq!(
            show_kept(&[kept]),
            "i/t  rows dropped at 1600000000 s since 1970, kept for 24 h after that, as snapshot i/kept-07\n"
        );
    }

    #[test]
    fn tables_are_listed_with_their_rules() {
        let families = [("d", "all versions"), ("log", "age > 60 s")];
        let families = families.map(|(name, rule)| (name.to_owned(), rule.to_owned())).into();
        let table = TableInfo {
            name: "t".to_owned(),
            families,
        };
        assert_eq!(
            show_table("i", &table),
            "i/t\n    d    keeps all versions\n    log  drops age > 60 s\n"
        );
    }
}
