//! Statements of the shell: arguments as those of commands, without the server.

use crate::client::TableRef;
use crate::explain::Explain;
use crate::output::Output;
use crate::schema::NewTable;
use crate::show::{Count, Delete, Get, Put, Scan};
use clap::{Parser, Subcommand};

/// A line of input.
#[derive(Parser, Debug)]
#[command(name = "", no_binary_name = true, disable_help_flag = true, max_term_width = 100)]
pub struct Line {
    /// The statement.
    #[command(subcommand)]
    pub statement: Statement,
}

/// A statement.
#[derive(Subcommand, Debug)]
pub enum Statement {
    /// List tables and their families
    Tables {
        /// Only this instance
        instance: Option<String>,
    },
    /// Create a table, or add families to one
    Create(NewTable),
    /// Drop a table and everything in it
    Drop {
        /// The table, as instance/table
        table: TableRef,
    },
    /// Tell the families and settings of a table
    Describe {
        /// The table, as instance/table
        table: TableRef,
    },
    /// Write cells of one row
    Put(Put),
    /// Print one row
    Get(Get),
    /// Print rows
    Scan(Scan),
    /// Delete a row, or cells of it
    Delete(Delete),
    /// Count rows
    Count(Count),
    /// Make a read and tell the work that it took
    Explain(Explain),
    /// Choose the form of results
    Output {
        /// The form
        form: Output,
    },
    /// Leave the shell
    #[command(alias = "quit")]
    Exit,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn statements_are_consistent() {
        Line::command().debug_assert();
    }

    #[test]
    fn statements_have_the_arguments_of_commands() {
        for line in [
            "tables",
            "create shop/orders --family f --max-versions 1",
            "put shop/orders k f:q=v",
            "get shop/orders k --versions 0",
            "scan shop/orders --prefix k --limit 5 --columns f:q",
            "delete shop/orders k f:q g",
            "count shop/orders",
            "explain shop/orders --row k",
            "output json",
            "quit",
        ] {
            let parsed = Line::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
        assert!(Line::try_parse_from(["explain", "a/b", "--row", "k", "--prefix", "k"]).is_err());
    }
}
