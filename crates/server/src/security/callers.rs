//! Callers of the running server: identities, tokens, and the audit log.
//!
//! The file of tokens is read again when it changes. It is this server's own, also in a cluster: each server has a file.

use super::{files, keys};
use crate::node::Node;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stele_access::audit::Audit;
use stele_access::oidc::Oidc;
use stele_access::tokens::Tokens;
use stele_access::{Access, AccessOptions, Forwarded, Rules};
use stele_bigtable::BigtableFrontEnd;
use stele_env::Env;
use stele_env::metrics::{IntGauge, Metrics};
use stele_hbase::HBaseFrontEnd;
use stele_settings::{AccessConfig, SecurityConfig};
use stele_storage::local::LocalStorage;

/// How often the file of tokens is compared with the tokens in use. A token that is deleted from it counts for as long.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// The parts that decide about callers, if callers are known.
pub struct Callers {
    access: Option<Arc<Access>>,
    audit: Option<Audit>,
}

impl Callers {
    /// Finds the callers; `None` where everybody may do everything.
    pub fn access(&self) -> Option<Arc<Access>> {
        self.access.clone()
    }

    /// Makes the audit log durable.
    pub async fn finish(&self, env: &Env, wait_max: Duration) {
        if let Some(audit) = &self.audit
            && env.timeout(wait_max, audit.flush()).await.is_err()
        {
            tracing::warn!("the audit log lacks the last calls: it could not be written within {wait_max:?}");
        }
    }
}

/// Opens the audit log, if there is one, also for calls that other servers forward: those come before clients do.
pub async fn open_audit(
    config: &SecurityConfig,
    env: &Env,
    metrics: &Metrics,
) -> anyhow::Result<(Option<Audit>, Option<Arc<Forwarded>>)> {
    let access = config.access.as_ref();
    let Some((folder, audits_rows)) = access.and_then(|access| Some((access.audit_log.as_ref()?, access.audits_rows)))
    else {
        return Ok((None, None));
    };
    let storage = LocalStorage::open(folder, env.clone()).context("audit_log")?;
    let audit = Audit::start(storage, env.clone(), metrics).await.context("audit_log")?;
    let forwarded = Arc::new(Forwarded::new(audit.clone(), audits_rows));
    Ok((Some(audit), Some(forwarded)))
}

/// The file of tokens, and its content.
struct TokenFile {
    path: PathBuf,
    bytes: Vec<u8>,
    tokens: Tokens,
}

/// The means to know callers: tokens and keys.
#[derive(Default)]
pub struct Proofs {
    tokens: Option<TokenFile>,
    oidc: Option<Arc<Oidc>>,
}

/// Reads the file of tokens and the keys of the issuer, if there are any. A server whose start fails for them must not have
/// joined its cluster.
pub async fn read_proofs(config: Option<&AccessConfig>, env: &Env, metrics: &Metrics) -> anyhow::Result<Proofs> {
    let Some(config) = config else {
        return Ok(Proofs::default());
    };
    let tokens = config.tokens.as_deref().map(read_tokens).transpose()?;
    let oidc = match &config.oidc {
        Some(oidc) => Some(keys::follow(oidc, env, metrics).await?),
        None => None,
    };
    Ok(Proofs { tokens, oidc })
}

fn read_tokens(path: &Path) -> anyhow::Result<TokenFile> {
    let bytes = files::read(path).context("tokens")?;
    let tokens = parse(&bytes).context("tokens")?;
    Ok(TokenFile {
        path: path.to_owned(),
        bytes,
        tokens,
    })
}

/// Knows callers by the tokens and by the settings, and reads the tokens again as they change.
pub fn start(
    config: Option<&AccessConfig>,
    (proofs, audit): (Proofs, Option<Audit>),
    node: &Node,
    (env, metrics): (&Env, &Metrics),
) -> Callers {
    let Some(config) = config else {
        return Callers { access: None, audit };
    };
    let (tokens, followed) = match proofs.tokens {
        Some(TokenFile { path, bytes, tokens }) => (tokens, Some((path, bytes))),
        None => (Tokens::default(), None),
    };
    let options = AccessOptions {
        superusers: config.superusers.clone(),
        tokens,
        oidc: proofs.oidc,
        trusts_users: config.trusts_users,
        audits_rows: config.audits_rows,
    };
    let access = Access::new(Arc::clone(&node.rules), options, audit.clone(), env.clone());
    if let Some((path, bytes)) = followed {
        let failing = metrics.gauge(
            "stele_tokens_reload_failing",
            "1 while the file of tokens cannot be read, and the server goes on with the tokens that it read before, or while the \
             file is gone or has faulty lines, which do not count.",
        );
        let follower = TokenFollower {
            path,
            last: Seen::File(bytes),
            access: Arc::clone(&access),
            failing,
        };
        env.spawn_background("tokens", follower.run(env.clone()));
    }
    Callers {
        access: Some(access),
        audit,
    }
}

/// Front ends that know their callers, if callers are known. Rules can be administered in any case.
pub fn secured(
    callers: &Callers,
    node: &Node,
    bigtable: BigtableFrontEnd,
    hbase: Option<HBaseFrontEnd>,
) -> (BigtableFrontEnd, Option<HBaseFrontEnd>) {
    let rules = Rules::open(Arc::clone(&node.rules));
    let hbase = hbase.map(|hbase| hbase.with_rules(rules.clone()));
    let bigtable = bigtable.with_rules(rules);
    match &callers.access {
        None => (bigtable, hbase),
        Some(access) => (
            bigtable.with_access(Arc::clone(access)),
            hbase.map(|hbase| hbase.with_access(Arc::clone(access))),
        ),
    }
}

fn parse(bytes: &[u8]) -> anyhow::Result<Tokens> {
    let text = std::str::from_utf8(bytes).context("not text")?;
    Tokens::parse(text).map_err(anyhow::Error::msg)
}

/// The file of tokens as it was seen the last time.
#[derive(PartialEq, Eq)]
enum Seen {
    File(Vec<u8>),
    Missing,
    /// Nothing is known of its content.
    Unreadable,
}

/// Replaces the tokens as their file changes.
///
/// A line that is gone takes its token with it, also where other lines have mistakes. A file that is gone takes all of them. The
/// start of a server is stricter, because such files are mistakes then.
struct TokenFollower {
    path: PathBuf,
    last: Seen,
    access: Arc<Access>,
    failing: IntGauge,
}

impl TokenFollower {
    async fn run(mut self, env: Env) {
        loop {
            env.sleep(RELOAD_INTERVAL).await;
            let file = self.path.clone();
            let Ok(read) = env.blocking(move || files::read(&file)).await else {
                return;
            };
            self.take(read);
        }
    }

    /// Uses the file as it is now, if it has changed.
    fn take(&mut self, read: anyhow::Result<Vec<u8>>) {
        let (seen, fault) = match read {
            Ok(bytes) => (Seen::File(bytes), None),
            Err(error) if is_missing(&error) => (Seen::Missing, Some(error)),
            Err(error) => (Seen::Unreadable, Some(error)),
        };
        if seen == self.last {
            return;
        }
        let (tokens, fault) = match &seen {
            Seen::File(bytes) => {
                let (tokens, faults) = Tokens::parse_lines(bytes);
                let fault =
                    faults.map(|faults| format!("{} faulty lines do not count: {}", faults.lines, faults.first));
                (Some(tokens), fault)
            }
            Seen::Missing => {
                let fault = fault.map(|error| format!("the file is gone, so no token counts: {error:#}"));
                (Some(Tokens::default()), fault)
            }
            Seen::Unreadable => (
                None,
                fault.map(|error| format!("the former tokens stay in use: {error:#}")),
            ),
        };
        self.last = seen;
        self.failing.set(i64::from(fault.is_some()));
        if let Some(fault) = fault {
            tracing::error!("the file of tokens: {fault}");
        }
        if let Some(tokens) = tokens {
            tracing::info!(tokens = tokens.len(), "the file of tokens was read again");
            self.access.set_tokens(tokens);
        }
    }
}

fn is_missing(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the operator's file")]
mod tests {
    use super::*;
    use stele_access::testing::MemoryRules;
    use stele_access::{Shown, tokens};
    use stele_env::tokio_env::TokioRuntime;

    fn token_of(name: &str, seed: u8) -> tokens::NewToken {
        tokens::make(name, &[seed; tokens::RANDOM_BYTES], None).unwrap()
    }

    fn knows(access: &Access, token: &str) -> bool {
        let shown = Shown {
            token: Some(token),
            ..Shown::default()
        };
        access.identify(shown).is_ok()
    }

    #[tokio::test]
    async fn tokens_that_are_gone_do_not_count_beside_other_faults() {
        let (alice, bob) = (token_of("alice", 1), token_of("bob", 2));
        let folder = tempfile::tempdir().unwrap();
        let rules = Arc::new(MemoryRules::default());
        let env = TokioRuntime::current();
        let access = Access::new(rules, AccessOptions::default(), None, env);
        let failing = Metrics::new().gauge("failing", "1 while the file has a fault.");
        let mut follower = TokenFollower {
            path: folder.path().join("nowhere"),
            last: Seen::Unreadable,
            access: Arc::clone(&access),
            failing: failing.clone(),
        };
        let both = format!("{}\n{}\n", alice.line, bob.line);
        let of = |text: &str| Ok(text.as_bytes().to_vec());
        let missing = || files::read(&folder.path().join("nowhere"));
        // After each read: whether the tokens of alice and bob count, and whether there is a fault.
        let cases = [
            (of(&both), true, true, 0),
            (of(&format!("typo\n{}", bob.line)), false, true, 1),
            (of(&both), true, true, 0),
            (files::read(folder.path()), true, true, 1),
            (missing(), false, false, 1),
            (missing(), false, false, 1),
            (of(&alice.line), true, false, 0),
            (of(""), false, false, 0),
        ];
        for (at, (read, has_alice, has_bob, fails)) in cases.into_iter().enumerate() {
            follower.take(read);
            let found = (knows(&access, &alice.token), knows(&access, &bob.token), failing.get());
            assert_eq!(found, (has_alice, has_bob, fails), "{at}");
        }
    }

    #[test]
    fn a_start_needs_a_file_without_mistakes() {
        let read = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("tokens");
            std::fs::write(&path, text).unwrap();
            read_tokens(&path)
        };
        let alice = token_of("alice", 1).line;
        assert_eq!(read(&alice).unwrap().tokens.len(), 1);
        assert!(read(&format!("{alice}\ntypo")).is_err());
        assert!(read_tokens(std::path::Path::new("nowhere/tokens")).is_err());
    }
}
