//! Callers of the running server: identities, tokens, and the audit log.
//!
//! The file of tokens is read again when it changes. It is this server's own, also in a cluster: each server has a file.

use super::{files, keys};
use crate::node::Node;
use anyhow::Context;
use std::path::PathBuf;
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
    let tokens = read_tokens(config)?;
    let oidc = match &config.oidc {
        Some(oidc) => Some(keys::follow(oidc, env, metrics).await?),
        None => None,
    };
    Ok(Proofs { tokens, oidc })
}

fn read_tokens(config: &AccessConfig) -> anyhow::Result<Option<TokenFile>> {
    let Some(path) = config.tokens.clone() else {
        return Ok(None);
    };
    let bytes = files::read(&path).context("tokens")?;
    let tokens = parse(&bytes).context("tokens")?;
    Ok(Some(TokenFile { path, bytes, tokens }))
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
            "1 while the file of tokens cannot be used: the server goes on with the tokens that it read before.",
        );
        reload(path, bytes, &access, env, failing);
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

/// Starts the task that replaces tokens.
fn reload(path: PathBuf, mut last: Vec<u8>, access: &Arc<Access>, env: &Env, failing: IntGauge) {
    let (access, clock) = (Arc::clone(access), env.clone());
    env.spawn_background("tokens", async move {
        loop {
            clock.sleep(RELOAD_INTERVAL).await;
            let file = path.clone();
            let Ok(read) = clock.blocking(move || files::read(&file)).await else {
                return;
            };
            let tokens = match read {
                Ok(bytes) if bytes == last && failing.get() == 0 => continue,
                Ok(bytes) => parse(&bytes).inspect(|_| last = bytes),
                Err(error) => Err(error),
            };
            let had_failed = failing.get() > 0;
            failing.set(i64::from(tokens.is_err()));
            match tokens {
                Ok(tokens) => {
                    tracing::info!(tokens = tokens.len(), "the file of tokens was read again");
                    access.set_tokens(tokens);
                }
                Err(error) if !had_failed => tracing::error!("the former tokens stay in use: {error:#}"),
                Err(_) => {}
            }
        }
    });
}
