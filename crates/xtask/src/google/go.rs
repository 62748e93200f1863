//! The tests of the Go client, which are in its module.

use super::{Secured, say_left_out};
use crate::clients::go_tests;
use crate::shell::{Run, root};
use crate::tally::Tally;
use anyhow::Result;

/// Tests that need calls which the server refuses with UNIMPLEMENTED, or services besides Bigtable.
const LEFT_OUT: [(&str, &str); 13] = [
    ("TestIntegration_Admin$", "tiered storage"),
    ("TestIntegration_AdminCreateInstance", "editions of instances"),
    (
        "TestIntegration_AdminEncryptionInfo",
        "a key of Google's service for keys",
    ),
    ("TestIntegration_AdminLogicalView", "logical views"),
    ("TestIntegration_AdminMaterializedView", "materialized views"),
    ("TestIntegration_AdminSchemaBundle", "schema bundles"),
    ("TestIntegration_CreateTableWithRowKeySchema", "schemas of row keys"),
    ("TestIntegration_DataMaterializedView", "materialized views"),
    ("TestIntegration_EnableChangeStream", "change streams"),
    ("TestIntegration_Execute", "SQL"),
    ("TestIntegration_ExportBuiltInMetrics", "Google's service for metrics"),
    ("TestIntegration_SessionVRpc", "no server: they bring one of their own"),
    ("TestIntegration_UpdateRowKeySchemaInTable", "schemas of row keys"),
];

/// Runs them.
pub(super) fn check(secured: &Secured) -> Result<Tally> {
    fetch_modules()?;
    let tally = go_tests(command(secured))?;
    say_left_out(&LEFT_OUT);
    Ok(tally)
}

/// Fetches the modules of the tests. The tests themselves run with a proxy and an authority that lead to the server only.
fn fetch_modules() -> Result<()> {
    let list = ["list", "-deps", "-test", "cloud.google.com/go/bigtable"];
    let run = Run::new("go").args(list).dir(root().join("tests/clients/go"));
    run.output().map(drop)
}

fn command(secured: &Secured) -> Run {
    let left_out: Vec<&str> = LEFT_OUT.iter().map(|(test, _)| *test).collect();
    Run::new("go")
        .args([
            "test",
            "-trimpath",
            "-json",
            "-count=1",
            "-timeout=15m",
            "-run=TestIntegration",
        ])
        .args([format!("-skip={}", left_out.join("|"))])
        .args(["cloud.google.com/go/bigtable", "-args", "-it.use-prod"])
        // A server has an instance of each name, with this cluster.
        .args(["-it.project=p", "-it.instance=i", "-it.cluster=stele"])
        .args([
            format!("-it.admin-endpoint={}", secured.endpoint),
            format!("-it.data-endpoint={}", secured.endpoint),
        ])
        .dir(root().join("tests/clients/go"))
        .env("GCE_METADATA_HOST", &secured.metadata)
        .env("HTTPS_PROXY", format!("http://{}", secured.metadata))
        .env("SSL_CERT_FILE", &secured.authority)
        .env("GCLOUD_TESTS_BIGTABLE_UNIVERSE_DOMAIN", "googleapis.com")
}
