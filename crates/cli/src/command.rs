//! The command line: one variant per subcommand.

use crate::{
    access, backups, explain, export, groups, health, import, schema, settings, shell, show, slow, snapshots, top,
};
use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Commands that work against any server of the Bigtable API.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Load a CSV, TSV or JSON Lines file into a table
    Import(import::ImportArgs),
    /// Write a table, or a part of it, to a file
    Export(export::ExportArgs),
    /// Count rows
    Count(show::CountArgs),
    /// Print rows
    Scan(show::ScanArgs),
    /// Print one row
    Get(show::GetArgs),
    /// Write cells of one row
    Put(show::PutArgs),
    /// Delete a row, or cells of it
    Delete(show::DeleteArgs),
    /// Make a read and tell the work that it took: files, blocks, bloom filters, cells, time
    Explain(explain::ExplainArgs),
    /// Run statements of a terminal or of standard input on one connection
    Shell(shell::ShellArgs),
    /// List tables and their families
    Tables(schema::TablesArgs),
    /// Create a table, or add families to one
    CreateTable(schema::CreateTableArgs),
    /// Drop a table and everything in it
    DropTable(schema::DropTableArgs),
    /// Make a deleted table again, as long as the server keeps it
    Undelete(schema::UndeleteArgs),
    /// Tell the settings of a table: durability, row cache, size of tablets
    Settings(settings::SettingsArgs),
    /// Change settings of a table
    AlterTable(settings::AlterTableArgs),
    /// Take, list, restore and delete snapshots of tables
    Snapshot(snapshots::SnapshotArgs),
    /// Create, list, restore, verify and delete backups outside of the data root
    Backup(backups::BackupArgs),
    /// Describe the locality groups of a table
    Groups(groups::GroupsArgs),
    /// Make a locality group: families with files and options of their own
    CreateGroup(groups::GroupArgs),
    /// Change options of a locality group; new files follow, old ones when they are compacted
    AlterGroup(groups::GroupArgs),
    /// Move a family, with all it has, to another locality group
    MoveFamily(groups::MoveFamilyArgs),
    /// Show rates, latencies, memory and the busiest tablets of a server
    Top(top::TopArgs),
    /// List the calls on which a server worked for long
    Slow(slow::SlowArgs),
    /// Tell whether a server serves requests; exits with 1 if not
    Health(health::HealthArgs),
    /// List access rules
    Rules(access::RulesArgs),
    /// Give rights on the cluster, an instance, a table or a part of it
    Grant(access::RuleArgs),
    /// Take rights
    Revoke(access::RuleArgs),
}

/// Runs one command to its end; must be called within a tokio runtime with time and I/O enabled. An error is one line
/// for the user.
pub async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Import(args) => import::run(args).await,
        Command::Export(args) => export::run(args).await,
        Command::Count(args) => show::count(args).await,
        Command::Scan(args) => show::scan(args).await,
        Command::Get(args) => show::get(args).await,
        Command::Put(args) => show::put(args).await,
        Command::Delete(args) => show::delete(args).await,
        Command::Explain(args) => explain::explain(args).await,
        Command::Shell(args) => shell::shell(args).await,
        Command::Tables(args) => schema::tables(args).await,
        Command::CreateTable(args) => schema::create_table(args).await,
        Command::DropTable(args) => schema::drop_table(args).await,
        Command::Undelete(args) => schema::undelete(args).await,
        Command::Settings(args) => settings::settings(args).await,
        Command::AlterTable(args) => settings::alter_table(args).await,
        Command::Snapshot(args) => snapshots::run(args).await,
        Command::Backup(args) => backups::run(args).await,
        Command::Groups(args) => groups::groups(args).await,
        Command::CreateGroup(args) => groups::create_group(args).await,
        Command::AlterGroup(args) => groups::alter_group(args).await,
        Command::MoveFamily(args) => groups::move_family(args).await,
        Command::Top(args) => top::top(args).await,
        Command::Slow(args) => slow::slow(args).await,
        Command::Health(args) => health::health(args).await,
        Command::Rules(args) => access::rules(args).await,
        Command::Grant(args) => access::grant(args).await,
        Command::Revoke(args) => access::revoke(args).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Binary {
        #[command(subcommand)]
        command: Command,
    }

    #[test]
    fn the_command_line_is_consistent() {
        Binary::command().debug_assert();
    }

    #[test]
    fn examples_of_the_manual_parse() {
        let manuals = [
            include_str!("../../../docs/import-export.md"),
            include_str!("../../../docs/locality-groups.md"),
            include_str!("../../../docs/table-settings.md"),
            include_str!("../../../docs/snapshots.md"),
            include_str!("../../../docs/backups.md"),
            include_str!("../../../docs/console.md"),
            include_str!("../../../docs/shell.md"),
            include_str!("../../../docs/explain.md"),
        ];
        for line in manuals.into_iter().flat_map(str::lines) {
            let Some(arguments) = line.strip_prefix("$ stele ") else {
                continue;
            };
            let parsed = Binary::try_parse_from(split(&format!("stele {arguments}")));
            assert!(parsed.is_ok(), "{line}: {}", parsed.err().unwrap());
        }
    }

    /// Words as a shell would split them, up to a redirection; single quotes are enough for the manual.
    fn split(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
        for c in line.chars().chain([' ']) {
            match c {
                '\'' => quoted = !quoted,
                ' ' if !quoted && word.is_empty() => {}
                ' ' if !quoted => words.push(std::mem::take(&mut word)),
                c => word.push(c),
            }
        }
        let end = words.iter().position(|word| matches!(word.as_str(), ">" | "<" | "|"));
        words.truncate(end.unwrap_or(words.len()));
        words
    }
}
