//! Callers of the running server: identities, tokens, and the audit log.
//!
//! The file of tokens is read again when it changes.

use super::files;
use crate::config::AccessConfig;
use crate::node::Node;
use anyhow::{Context, bail};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stele_access::audit::Audit;
use stele_access::tokens::Tokens;
use stele_access::{Access, AccessOptions, Rules};
use stele_bigtable::BigtableFrontEnd;
use stele_env::Env;
use stele_env::metrics::{IntGauge, Metrics};
use stele_hbase::HBaseFrontEnd;
use stele_storage::local::LocalStorage;

/// How often the file of tokens is compared with the tokens in use. A token that is deleted from it counts for as long.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// The parts that decide about callers, if callers are known.
pub struct Callers {
    access: Option<Arc<Access>>,
    audit: Option<Audit>,
}

impl Callers {
    /// Makes the audit log durable.
    pub async fn finish(&self) {
        if let Some(audit) = &self.audit {
            audit.flush().await;
        }
    }
}

/// Reads the files of the settings, and reads the tokens again as they change.
pub async fn start(
    config: Option<&AccessConfig>,
    node: &Node,
    env: &Env,
    metrics: &Metrics,
) -> anyhow::Result<Callers> {
    let Some(config) = config else {
        return Ok(Callers {
            access: None,
            audit: None,
        });
    };
    let Some(rules) = &node.rules else {
        bail!("access: a cluster has no access rules yet: leave access off");
    };
    let audit = match &config.audit_log {
        None => None,
        Some(folder) => Some(open_audit(folder, env, metrics).await.context("audit_log")?),
    };
    let bytes = config
        .tokens
        .as_deref()
        .map(files::read)
        .transpose()
        .context("tokens")?;
    let options = AccessOptions {
        superusers: config.superusers.clone(),
        tokens: parse(bytes.as_deref().unwrap_or_default()).context("tokens")?,
        trusts_users: config.trusts_users,
        audits_rows: config.audits_rows,
    };
    let access = Access::new(Arc::clone(rules), options, audit.clone(), env.clone());
    if let (Some(path), Some(bytes)) = (&config.tokens, bytes) {
        let failing = metrics.gauge(
            "stele_tokens_reload_failing",
            "1 while the file of tokens cannot be used: the server goes on with the tokens that it read before.",
        );
        reload(path, bytes, &access, env, failing);
    }
    Ok(Callers {
        access: Some(access),
        audit,
    })
}

/// Front ends that know their callers, if callers are known. Rules can be administered in any case.
pub fn secured(
    callers: &Callers,
    node: &Node,
    bigtable: BigtableFrontEnd,
    hbase: Option<HBaseFrontEnd>,
) -> (BigtableFrontEnd, Option<HBaseFrontEnd>) {
    let bigtable = match &node.rules {
        Some(rules) => bigtable.with_rules(Rules::open(Arc::clone(rules))),
        None => bigtable,
    };
    match &callers.access {
        None => (bigtable, hbase),
        Some(access) => (
            bigtable.with_access(Arc::clone(access)),
            hbase.map(|hbase| hbase.with_access(Arc::clone(access))),
        ),
    }
}

async fn open_audit(folder: &Path, env: &Env, metrics: &Metrics) -> anyhow::Result<Audit> {
    let storage = LocalStorage::open(folder, env.clone())?;
    Ok(Audit::start(storage, env.clone(), metrics).await?)
}

fn parse(bytes: &[u8]) -> anyhow::Result<Tokens> {
    let text = std::str::from_utf8(bytes).context("not text")?;
    Tokens::parse(text).map_err(anyhow::Error::msg)
}

/// Starts the task that replaces tokens.
fn reload(path: &Path, mut last: Vec<u8>, access: &Arc<Access>, env: &Env, failing: IntGauge) {
    let (path, access, clock) = (path.to_owned(), Arc::clone(access), env.clone());
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
