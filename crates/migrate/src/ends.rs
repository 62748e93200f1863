//! The two clusters of a migration.

use crate::args::MigrateArgs;
use anyhow::{Context, Result, ensure};
use std::sync::Arc;
use std::time::Duration;
use stele_hbaseclient::dial::Dial;
use stele_hbaseclient::{Cluster, Settings, Token};
use stele_wire::messages::KEY_VALUE_CODEC_WITH_TAGS;

/// Longest time of repeating a call: a cluster that has lost a server assigns its regions within minutes.
const RETRY_FOR: Duration = Duration::from_secs(300);

/// Source and target. Constant after construction.
#[derive(Debug)]
pub struct Ends {
    /// The HBase cluster.
    pub source: Arc<Cluster>,
    /// Its id.
    pub source_id: String,
    /// The server that takes the tables.
    pub target: Arc<Cluster>,
    /// Its id.
    pub target_id: String,
}

impl Ends {
    /// Connects to both.
    ///
    /// # Errors
    /// A cluster that does not respond, or one that is both ends.
    pub async fn connect(args: &MigrateArgs) -> Result<Ends> {
        let tls = &args.security.tls;
        let dial = |is_tls: bool| match is_tls {
            true => tls.of_stream().map(Dial::tls),
            false => Ok(Dial::default()),
        };
        let has_files = tls.tls_ca.is_some() || tls.tls_cert.is_some();
        ensure!(
            !has_files || args.source.is_tls || args.to.is_tls,
            "certificates are of no use to plain text: write hbases:// before an address"
        );
        let of_source = settings(dial(args.source.is_tls)?);
        let of_target = with_token(args, settings(dial(args.to.is_tls)?))?;
        let source = Arc::new(Cluster::new(args.source.servers.clone(), of_source));
        let target = Arc::new(Cluster::new(vec![args.to.server.clone()], of_target));
        let (source_id, target_id) = futures::join!(source.cluster_id(), target.cluster_id());
        let source_id = source_id.context("the source does not respond")?;
        let target_id = target_id.with_context(|| format!("the target {} does not respond", args.to.server))?;
        ensure!(
            source_id != target_id,
            "source and target are the same cluster, {source_id}"
        );
        Ok(Ends {
            source,
            source_id,
            target,
            target_id,
        })
    }
}

fn settings(dial: Dial) -> Settings {
    Settings {
        retry_for: RETRY_FOR,
        // Only this codec carries the lifetimes of cells.
        codec: KEY_VALUE_CODEC_WITH_TAGS,
        dial,
        ..Settings::default()
    }
}

/// Settings for the target, which alone gets the token. The cluster names other servers than the one of the address.
fn with_token(args: &MigrateArgs, settings: Settings) -> Result<Settings> {
    let token = args.security.bearer(&args.to.server, args.to.is_tls, "hbases://")?;
    Ok(Settings {
        token: token.map(Token::new),
        token_in_clear: args.security.insecure,
        ..settings
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_goes_to_other_servers_of_the_target_with_insecure_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "secret").unwrap();
        let of_target = |more: &[&str]| {
            let token = ["--token-file", file.path().to_str().unwrap()];
            let words = [&["migrate", "hbase://h:1"], &token[..], more].concat();
            let args = MigrateArgs::of(words).unwrap();
            with_token(&args, settings(Dial::default()))
        };
        let near = of_target(&[]).unwrap();
        assert!(near.token.is_some() && !near.token_in_clear);
        assert!(of_target(&["--to", "h:1"]).is_err());
        assert!(of_target(&["--to", "h:1", "--insecure"]).unwrap().token_in_clear);
    }
}
