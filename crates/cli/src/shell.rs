//! `shell`: statements one after the other on one connection.
//!
//! They are typed at a terminal or read from standard input; a statement is a line. At a terminal the shell goes on after an error, and Ctrl-C ends the statement that runs. Otherwise
//! the first error ends the shell with status 1, after a message that names the line.

mod editor;
mod statement;
mod words;

use crate::client::Client;
use crate::connection::Connection;
use crate::formats::lines::Lines;
use crate::output::Output;
use crate::schema;
use crate::show::print;
use anyhow::{Context, Result, anyhow, bail};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser};
use editor::{Input, Names};
use statement::{Line, Statement};
use std::io::{BufReader, IsTerminal};
use std::ops::ControlFlow;
use std::process::ExitCode;

/// Arguments of `shell`.
#[derive(Args, Clone, Debug)]
pub struct ShellArgs {
    /// A statement, instead of those of the terminal or of standard input; may be repeated
    #[arg(long = "execute", short = 'e', value_name = "STATEMENT")]
    statements: Vec<String>,
    /// Goes on after a statement that fails; the exit status is 1 nevertheless
    #[arg(long)]
    keep_going: bool,
    /// Form of results
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// A session.
struct Shell {
    client: Client,
    output: Output,
    /// The tables may be others than at the last look.
    has_changed_tables: bool,
}

/// Whether the session goes on.
type Next = ControlFlow<()>;

/// Runs a session to its end.
pub async fn shell(args: ShellArgs) -> Result<ExitCode> {
    let mut shell = Shell {
        client: args.connection.connect().await?,
        output: args.output,
        has_changed_tables: true,
    };
    if !args.statements.is_empty() {
        let mut statements = args.statements.iter();
        let next = || Ok(statements.next().map(|statement| statement.as_bytes().to_vec()));
        return shell.script(args.keep_going, next).await;
    }
    if std::io::stdin().is_terminal() {
        let address = args.connection.address();
        return shell.interactive(&address).await;
    }
    let mut lines = Lines::new(BufReader::new(std::io::stdin()));
    let next = || match lines.advance().context("cannot read standard input")? {
        true => Ok(Some(lines.line().to_vec())),
        false => Ok(None),
    };
    shell.script(args.keep_going, next).await
}

impl Shell {
    /// Runs statements that nobody types.
    async fn script(
        &mut self,
        keep_going: bool,
        mut next: impl FnMut() -> Result<Option<Vec<u8>>>,
    ) -> Result<ExitCode> {
        let (mut number, mut code) = (0, ExitCode::SUCCESS);
        while let Some(line) = next()? {
            number += 1;
            let ran = match std::str::from_utf8(&line) {
                Ok(line) => self.line(line).await,
                // Stored as they are, its bytes would be others than in a terminal; replaced, they would be lost.
                Err(_) => Err(anyhow!("it is not UTF-8; write other bytes as \\xNN")),
            };
            match ran {
                Ok(Next::Continue(())) => {}
                Ok(Next::Break(())) => break,
                Err(error) if keep_going => {
                    eprintln!("error: line {number}: {error:#}");
                    code = ExitCode::FAILURE;
                }
                Err(error) => return Err(error.context(format!("line {number}"))),
            }
        }
        Ok(code)
    }

    /// Runs statements of a terminal.
    async fn interactive(&mut self, address: &str) -> Result<ExitCode> {
        let statements = Line::command();
        let statements = statements
            .get_subcommands()
            .map(|statement| statement.get_name().to_owned());
        let mut input = Input::new(Names {
            statements: statements.chain(["help".to_owned()]).collect(),
            tables: Vec::new(),
        })?;
        print(&format!(
            "Connected to {address}. `help` lists the statements, Ctrl-D leaves.\n"
        ))?;
        loop {
            if std::mem::take(&mut self.has_changed_tables) {
                input.set_tables(self.tables().await);
            }
            // The editor waits for keys.
            let reading = tokio::task::spawn_blocking(move || {
                let line = input.next_line();
                (input, line)
            });
            let (back, line) = reading.await?;
            input = back;
            let Some(line) = line? else { break };
            let ran = tokio::select! {
                ran = self.line(&line) => ran,
                _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
            };
            match ran {
                Ok(Next::Continue(())) => {}
                Ok(Next::Break(())) => break,
                Err(error) => eprintln!("error: {error:#}"),
            }
        }
        input.save();
        Ok(ExitCode::SUCCESS)
    }

    /// The names of tables, as far as the server lists them.
    async fn tables(&self) -> Vec<String> {
        let found = schema::list(&self.client, None).await.unwrap_or_default();
        let names = found
            .into_iter()
            .map(|(instance, table)| format!("{instance}/{}", table.name));
        names.collect()
    }

    /// Runs a line.
    async fn line(&mut self, line: &str) -> Result<Next> {
        let words = words::split(line).map_err(|error| anyhow!(error))?;
        if words.is_empty() {
            return Ok(Next::Continue(()));
        }
        match Line::try_parse_from(words) {
            Ok(line) => self.run(line.statement).await,
            Err(help) if help.kind() == ErrorKind::DisplayHelp => {
                print(&help.to_string())?;
                Ok(Next::Continue(()))
            }
            Err(error) => {
                let text = error.to_string();
                let lines = text.lines().map(str::trim);
                let about = lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
                let about: Vec<&str> = about.filter(|line| !line.is_empty()).collect();
                bail!("{}", about.join(" ").trim_start_matches("error: "))
            }
        }
    }

    /// Runs a statement. The session ends when nobody reads its output any more.
    async fn run(&mut self, statement: Statement) -> Result<Next> {
        let (client, output) = (&self.client, self.output);
        let is_read = match statement {
            Statement::Tables { instance } => {
                let found = schema::list(client, instance).await?;
                let mut is_read = true;
                for (instance, table) in found {
                    is_read = is_read && output.table(&instance, &table, None)?;
                }
                is_read
            }
            Statement::Create(new) => {
                self.has_changed_tables = true;
                output.done(&new.run(client).await?)?
            }
            Statement::Drop { table } => {
                self.has_changed_tables = true;
                client.drop_table(&table).await?;
                output.done(&format!("dropped {table}"))?
            }
            Statement::Describe { table } => {
                let Some(found) = client.get_table(&table).await? else {
                    bail!("there is no table {table}");
                };
                // Other servers of the API have no such settings.
                let settings = client.table_settings(&table).await.ok();
                output.table(&table.instance, &found, settings.as_ref())?
            }
            Statement::Put(put) => {
                put.run(client).await?;
                true
            }
            Statement::Get(get) => output.row(&get.run(client).await?)?,
            Statement::Scan(scan) => {
                let rows = scan.run(client, |row| output.row(&row)).await?;
                output.rows(rows)?
            }
            Statement::Delete(delete) => {
                delete.run(client).await?;
                true
            }
            Statement::Count(count) => output.count(count.run(client).await?)?,
            Statement::Explain(explain) => output.explained(&explain.run(client).await?)?,
            Statement::Output { form } => {
                self.output = form;
                true
            }
            Statement::Exit => false,
        };
        Ok(match is_read {
            true => Next::Continue(()),
            false => Next::Break(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::fake::Fake;

    #[tokio::test]
    async fn a_line_of_other_bytes_stores_nothing() {
        let (fake, client) = Fake::start("/google.bigtable.v2.Bigtable/MutateRows", &[]).await;
        let mut shell = Shell {
            client,
            output: Output::default(),
            has_changed_tables: false,
        };
        let mut lines = [&b"# caf\xc3\xa9"[..], b"put i/t r f:q=caf\xe9"].into_iter();
        let next = || Ok(lines.next().map(<[u8]>::to_vec));
        let error = format!("{:#}", shell.script(false, next).await.unwrap_err());
        assert_eq!(error, "line 2: it is not UTF-8; write other bytes as \\xNN");
        assert_eq!(fake.calls(), 0);
    }
}
