//! `stele token create`: a bearer token, shown once.

use anyhow::{Context, bail};
use std::io::{Read, Seek, Write};
use std::path::PathBuf;
use stele_access::tokens::{self, RANDOM_BYTES};

/// Arguments of `token`.
#[derive(clap::Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(clap::Subcommand)]
enum TokenCommand {
    /// Makes a token and prints it. It is shown this once: the file has only its hash
    Create(CreateArgs),
}

#[derive(clap::Args)]
struct CreateArgs {
    /// Name of the caller that the token is for
    name: String,
    /// File to add it to, which the server's setting `tokens` names; made when missing
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Days after which the server refuses it [default: never]
    #[arg(long, value_name = "DAYS")]
    days: Option<u64>,
}

const SECONDS_PER_DAY: u64 = 86_400;

/// Runs a command for tokens, and returns its output. `now` is in seconds since 1970.
pub fn run(args: &TokenArgs, now: u64) -> anyhow::Result<String> {
    let TokenCommand::Create(args) = &args.command;
    let seconds = |days: u64| days.checked_mul(SECONDS_PER_DAY)?.checked_add(now);
    let expires = match args.days {
        None => None,
        Some(days) => Some(seconds(days).context("--days: too many")?),
    };
    let Some(new) = tokens::make(&args.name, &random()?, expires) else {
        bail!("{:?} is no name of a caller: up to 256 bytes without spaces", args.name);
    };
    append(args, &new.line).with_context(|| args.file.display().to_string())?;
    Ok(format!("{}\n", new.token))
}

/// Bytes of the system's generator for keys.
fn random() -> anyhow::Result<[u8; RANDOM_BYTES]> {
    let mut bytes = [0; RANDOM_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = bytes.get_mut(filled..).unwrap_or_default();
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()).context("random bytes")?;
    }
    Ok(bytes)
}

/// Adds a line to the file, which only its owner may read.
#[allow(clippy::disallowed_types, reason = "the operator's file")]
fn append(args: &CreateArgs, line: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .create(true)
        .read(true)
        .append(true)
        .mode(0o600)
        .open(&args.file)?;
    // The last line of a file from elsewhere may have no end.
    let mut last = [0];
    let is_ended = match file.seek(std::io::SeekFrom::End(-1)) {
        Ok(_) => file.read(&mut last)? == 0 || last == *b"\n",
        Err(_) => true,
    };
    let end = if is_ended { "" } else { "\n" };
    // One write, so that two commands at a time do not mix their lines.
    file.write_all(format!("{end}{line}\n").as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(file: &std::path::Path, name: &str, days: Option<u64>) -> anyhow::Result<String> {
        let args = CreateArgs {
            name: name.to_owned(),
            file: file.to_owned(),
            days,
        };
        run(
            &TokenArgs {
                command: TokenCommand::Create(args),
            },
            1_000,
        )
    }

    #[test]
    #[allow(clippy::disallowed_types, reason = "the operator's file")]
    fn a_last_line_without_an_end_stays_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        let alice = create(&file, "alice", None).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let shorter = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        shorter.set_len(text.trim_end().len() as u64).unwrap();
        let bob = create(&file, "bob", None).unwrap();
        let tokens = tokens::Tokens::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(tokens.holder(alice.trim(), 0), Ok(("alice", None)));
        assert_eq!(tokens.holder(bob.trim(), 0), Ok(("bob", None)));
    }

    #[test]
    fn the_file_knows_the_token_that_was_printed() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        let alice = create(&file, "alice", None).unwrap();
        let bob = create(&file, "bob", Some(1)).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let tokens = tokens::Tokens::parse(&text).unwrap();
        assert_eq!(tokens.holder(alice.trim(), u64::MAX), Ok(("alice", None)));
        assert_eq!(
            tokens.holder(bob.trim(), 1_000),
            Ok(("bob", Some(1_000 + SECONDS_PER_DAY)))
        );
        assert!(tokens.holder(bob.trim(), 1_000 + SECONDS_PER_DAY).is_err());
        assert!(!text.contains(alice.trim().rsplit('_').next().unwrap()));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(create(&file, "a b", None).is_err() && create(&file, "a", Some(u64::MAX)).is_err());
    }
}
