//! `stele completions` and `stele man`: texts that follow from the definition of the command line.

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use std::path::PathBuf;

/// Arguments of `completions`.
#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `man`.
#[derive(clap::Args)]
pub struct ManArgs {
    /// Folder for the pages of all commands, instead of one page on standard output; it must exist
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The script that completes commands and options in a shell.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> anyhow::Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "stele", &mut script);
    Ok(String::from_utf8(script)?)
}

/// The page of the program, or an empty text when all pages have been written to a folder.
pub fn man(args: &ManArgs, command: Command) -> anyhow::Result<String> {
    match &args.dir {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            Ok(String::from_utf8(page)?)
        }
        Some(dir) => {
            clap_mangen::generate_to(command, dir).with_context(|| dir.display().to_string())?;
            Ok(String::new())
        }
    }
}
