//! Calls about the cluster in the audit log.

use super::*;
use stele_access::testing::AuditLog;
use stele_wire::messages::SetSplitOrMergeEnabledRequest;

#[tokio::test]
async fn calls_about_the_cluster_are_in_the_audit_log_with_their_names_and_outcomes() {
    let model = Model::new(&[""]);
    let rules = Arc::new(MemoryRules::default());
    let options = AccessOptions {
        superusers: HashSet::from(["root".to_owned()]),
        ..AccessOptions::default()
    };
    let env = TokioRuntime::current();
    let log = AuditLog::start(env.clone()).await;
    let access = Access::new(rules.clone(), options, Some(log.audit()), env);
    let front_end = model.front_end(&Pool::default()).with_access(access);
    let setting = Setting {
        model,
        rules,
        front_end,
    };
    let mut root = setting.connect(MASTER_SERVICE, Some("root"), None).await;
    assert_eq!(setting.outcome(&mut root, "RunCatalogScan", &Empty {}).await, "");
    let split = SetSplitOrMergeEnabledRequest {
        enabled: false,
        switch_types: vec![0],
        ..SetSplitOrMergeEnabledRequest::default()
    };
    assert_eq!(setting.outcome(&mut root, "SetSplitOrMergeEnabled", &split).await, "");
    let mut admin = setting.connect(ADMIN_SERVICE, Some("root"), None).await;
    assert_eq!(setting.outcome(&mut admin, "RollWALWriter", &Empty {}).await, "");
    let off = setting.outcome(&mut admin, "CompactionSwitch", &Empty {}).await;
    assert_eq!(off, exception::DO_NOT_RETRY, "compactions are always on");
    let mut alice = setting.connect(MASTER_SERVICE, Some("alice"), None).await;
    for method in ["Balance", "MoveRegion"] {
        let denied = setting.outcome(&mut alice, method, &Empty {}).await;
        assert_eq!(denied, exception::ACCESS_DENIED, "{method}");
    }
    let expected = [
        "root RunCatalogScan done",
        // The service interface makes this change, and writes it.
        "root set_switches done",
        "root RollWALWriter done",
        "root CompactionSwitch failed",
        "alice Balance denied",
        "alice MoveRegion denied",
    ];
    assert_eq!(log.lines().await, expected);
}
