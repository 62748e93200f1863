//! The line editor of the terminal: history, and completion of statements and tables.
//!
//! The history is a file that only its owner may read: `$STELE_HISTORY`, or `stele/history` in the user's folder of states.
//! An empty variable keeps none.

use anyhow::Result;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};
use std::path::PathBuf;

/// Lines of the history.
const HISTORY_LINES_MAX: usize = 1_000;

/// The names that words are completed to.
#[derive(Default)]
pub struct Names {
    /// Statements.
    pub statements: Vec<String>,
    /// Tables.
    pub tables: Vec<String>,
}

impl Completer for Names {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let before = line.get(..at).unwrap_or(line);
        let start = before.rfind(char::is_whitespace).map_or(0, |blank| blank + 1);
        let word = before.get(start..).unwrap_or_default();
        let names = match before.get(..start).unwrap_or_default().split_whitespace().count() {
            0 => &self.statements,
            1 => &self.tables,
            _ => return Ok((start, Vec::new())),
        };
        let begins = names.iter().filter(|name| name.starts_with(word));
        Ok((start, begins.cloned().collect()))
    }
}

impl Hinter for Names {
    type Hint = String;
}

impl Highlighter for Names {}
impl Validator for Names {}
impl Helper for Names {}

/// The editor.
pub struct Input {
    editor: Editor<Names, DefaultHistory>,
    history: Option<PathBuf>,
}

impl Input {
    /// With the history of former sessions.
    pub fn new(names: Names) -> Result<Self> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)?
            .history_ignore_space(true);
        let mut editor = Editor::with_config(config.build())?;
        editor.set_helper(Some(names));
        let history = history_file();
        if let Some(path) = &history {
            // There is none before the first session.
            let _ = editor.load_history(path);
        }
        Ok(Input { editor, history })
    }

    /// Replaces the tables that words are completed to.
    pub fn set_tables(&mut self, tables: Vec<String>) {
        if let Some(names) = self.editor.helper_mut() {
            names.tables = tables;
        }
    }

    /// The next line; `None` at the end of the input. A line that the user gives up is empty.
    pub fn next_line(&mut self) -> Result<Option<String>> {
        match self.editor.readline("stele> ") {
            Ok(line) => {
                if !line.trim().is_empty() {
                    self.editor.add_history_entry(line.as_str())?;
                }
                Ok(Some(line))
            }
            Err(ReadlineError::Interrupted) => Ok(Some(String::new())),
            Err(ReadlineError::Eof) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Saves the history. A failure is reported, and otherwise of no consequence.
    pub fn save(&mut self) {
        let Some(path) = &self.history else { return };
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let saved = made
            .map_err(ReadlineError::from)
            .and_then(|()| self.editor.save_history(path));
        if let Err(error) = saved {
            eprintln!("the history was not saved: {}: {error}", path.display());
        }
    }
}

fn history_file() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name);
    if let Some(path) = variable("STELE_HISTORY") {
        return (!path.is_empty()).then(|| path.into());
    }
    let states = variable("XDG_STATE_HOME")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    let states = states.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/state")))?;
    Some(states.join("stele/history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed_by_their_place() {
        let names = Names {
            statements: vec!["get".to_owned(), "scan".to_owned()],
            tables: vec!["shop/orders".to_owned(), "shop/items".to_owned()],
        };
        let history = DefaultHistory::new();
        let complete = |line: &str| names.complete(line, line.len(), &Context::new(&history)).unwrap();
        assert_eq!(complete("s"), (0, vec!["scan".to_owned()]));
        assert_eq!(complete("get shop/o"), (4, vec!["shop/orders".to_owned()]));
        assert_eq!(complete("get shop/orders k"), (16, Vec::new()));
    }
}
