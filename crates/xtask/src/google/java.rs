//! The tests of the Java client, from its published jar of tests.
//!
//! `tests/clients/java-it` fetches the jars, and has the program that runs JUnit. Classes run in groups, each with a JVM of its own:
//! two tests sleep for two minutes, and one sends a row of 100 MiB.

use super::{Secured, say_left_out};
use crate::server::stele;
use crate::shell::Run;
use crate::tally::Tally;
use crate::tools;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;

const PACKAGE: &str = "com.google.cloud.bigtable";

/// Classes below [`PACKAGE`]. Those of a group run one after the other.
const GROUPS: [&[&str]; 3] = [
    &["admin.v2.it.BigtableBackupIT"],
    &[
        "admin.v2.it.BigtableTableAdminClientIT",
        "admin.v2.it.BigtableInstanceAdminClientIT",
        "admin.v2.it.BigtableAuthorizedViewIT",
    ],
    &[
        "data.v2.it.ReadIT",
        "data.v2.it.LargeRowIT",
        "data.v2.it.MutateRowIT",
        "data.v2.it.BulkMutateIT",
        "data.v2.it.BulkReadIT",
        "data.v2.it.CheckAndMutateIT",
        "data.v2.it.ReadModifyWriteIT",
        "data.v2.it.SampleRowsIT",
        "data.v2.it.RowMutationEntryBatcherIT",
        "data.v2.it.StreamingMetricsMetadataIT",
        "data.v2.it.UnaryMetricsMetadataIT",
    ],
];

/// Tests that need calls or answers which the server does not have, or services besides Bigtable. Those without a method are
/// whole classes.
const LEFT_OUT: [(&str, &str); 11] = [
    (
        "BigtableBackupIT.createAndGetBackupTest",
        "a backup whose size is not known yet",
    ),
    ("BigtableCmekIT", "a key of Google's service for keys"),
    ("BigtableLogicalViewIT", "logical views"),
    ("BigtableMaterializedViewIT", "materialized views"),
    ("BigtableTableAdminClientIT.createTable", "change streams"),
    ("BigtableTableAdminClientIT.updateTable", "change streams"),
    ("BuiltinMetricsIT", "Google's service for metrics"),
    ("DirectPathFallbackIT", "Google's own network"),
    ("ExecuteQueryIT", "SQL"),
    (
        "StreamingMetricsMetadataIT.testSuccess",
        "the cluster in the headers of an answer",
    ),
    (
        "UnaryMetricsMetadataIT.testSuccess",
        "the cluster in the headers of an answer",
    ),
];

/// The instance: the tests look for a cluster of its name, and a server has this one.
const INSTANCE: &str = "stele";
/// The table that the tests of data expect, with the family `cf`.
const TABLE: &str = "integration-tests";
/// A trust store must have a password. It holds nothing secret.
const PASSWORD: &str = "certificates";

/// Runs them.
pub(super) fn check(secured: &Secured) -> Result<Tally> {
    let jars = tools::java_integration_tests()?;
    fs::create_dir_all(&secured.dir).with_context(|| format!("making {}", secured.dir.display()))?;
    let trust = trust_store(secured)?;
    make_table(secured)?;
    let mut results = Results::default();
    std::thread::scope(|scope| -> Result<()> {
        let start = |group: &'static [&'static str]| scope.spawn(|| run(secured, &jars, &trust, group));
        let running: Vec<ScopedJoinHandle<'_, Result<Results>>> = GROUPS.into_iter().map(start).collect();
        for group in running {
            results.0.append(&mut group.join().expect("it does not panic")?.0);
        }
        Ok(())
    })?;
    say_left_out(&LEFT_OUT);
    Ok(results.report())
}

/// How each test ended, by class, as the program says it.
#[derive(Default)]
struct Results(BTreeMap<String, Vec<Outcome>>);

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    ended: String,
    test: String,
    message: String,
}

impl Results {
    /// Takes a line; another than a result is a failure.
    fn line(&mut self, line: &str) {
        let mut parts = line.splitn(3, '\t');
        let mut part = || parts.next().unwrap_or_default().to_owned();
        let (ended, test, message) = (part(), part(), part());
        let class = test.split('.').next().unwrap_or_default().to_owned();
        self.0.entry(class).or_default().push(Outcome { ended, test, message });
    }

    /// Prints all but passed tests, and the counts of each class.
    fn report(&self) -> Tally {
        let mut all = Tally::default();
        for (class, outcomes) in &self.0 {
            let mut tally = Tally::default();
            for outcome in outcomes {
                match outcome.ended.as_str() {
                    "passed" => tally.passed += 1,
                    "skipped" => tally.skipped += 1,
                    _ => tally.failed += 1,
                }
                if outcome.ended != "passed" {
                    println!("{} {}: {}", outcome.ended, outcome.test, outcome.message);
                }
            }
            println!("{class}: {tally}");
            all.add(tally);
        }
        all
    }
}

fn run(secured: &Secured, jars: &Path, trust: &Path, classes: &[&str]) -> Result<Results> {
    let mut results = Results::default();
    let name = classes.first().copied().unwrap_or_default();
    let log = secured.dir.join(format!("{name}.log"));
    let errors = File::create(&log).with_context(|| format!("making {}", log.display()))?;
    let success = command(secured, jars, trust)
        .args(classes.iter().map(|class| format!("{PACKAGE}.{class}")))
        .args(["--without"])
        .args(LEFT_OUT.map(|(test, _)| test))
        .errors_to(errors)
        .lines(|line| results.line(line))?;
    if !success {
        results.line(&format!("failed\t{name}\tthe program failed; see {}", log.display()));
    }
    Ok(results)
}

fn command(secured: &Secured, jars: &Path, trust: &Path) -> Run {
    let (proxy_host, proxy_port) = secured.metadata.rsplit_once(':').unwrap_or_default();
    Run::new("java")
        // The row of 100 MiB is in memory several times.
        .args(["-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .args(["-cp", &format!("{}/*", jars.display())])
        .args([format!("-Djavax.net.ssl.trustStore={}", trust.display())])
        .args([format!("-Djavax.net.ssl.trustStorePassword={PASSWORD}")])
        // Where the client reports its own metrics, as for the Go client.
        .args([format!("-Dhttps.proxyHost={proxy_host}")])
        .args([format!("-Dhttps.proxyPort={proxy_port}")])
        .args(["-Dhttp.nonProxyHosts=localhost|127.*"])
        .args(["-Dbigtable.env=cloud", "-Dbigtable.project=p"])
        .args([format!("-Dbigtable.instance={INSTANCE}")])
        .args([format!("-Dbigtable.table={TABLE}")])
        .args([format!("-Dbigtable.data-endpoint={}", secured.endpoint)])
        .args([format!("-Dbigtable.admin-endpoint={}", secured.endpoint)])
        .args(["RunTests"])
        .env("GCE_METADATA_HOST", &secured.metadata)
}

/// The authority of the server as the JVM reads it.
fn trust_store(secured: &Secured) -> Result<PathBuf> {
    let store = secured.dir.join("trust.p12");
    Run::new("keytool")
        .args([
            "-importcert",
            "-noprompt",
            "-alias",
            "authority",
            "-storetype",
            "PKCS12",
        ])
        .args(["-storepass", PASSWORD, "-keystore"])
        .args([&store])
        .args(["-file"])
        .args([&secured.authority])
        .check()?;
    Ok(store)
}

fn make_table(secured: &Secured) -> Result<()> {
    Run::new(stele())
        .args(["create-table", &format!("{INSTANCE}/{TABLE}"), "--family", "cf"])
        .args(["--project", "p", "--address", &format!("https://{}", secured.endpoint)])
        .args(["--tls-ca"])
        .args([&secured.authority])
        .args(["--token-file"])
        .args([&secured.token])
        .check()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let mut results = Results::default();
        for line in [
            "passed\tReadIT.read\t",
            "skipped\tReadIT.reversed\twhy",
            "failed\tLargeRowIT\twhy",
            "odd",
        ] {
            results.line(line);
        }
        let tally = results.report();
        assert_eq!((tally.passed, tally.failed, tally.skipped), (1, 2, 1));
        let skipped = &results.0["ReadIT"][1];
        assert_eq!(
            (skipped.test.as_str(), skipped.message.as_str()),
            ("ReadIT.reversed", "why")
        );
    }
}
