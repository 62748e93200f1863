//! Calls that their client gives up while they are carried out.

use super::*;

/// Polls a call until it waits, and drops it, as a reset stream does.
async fn give_up<T>(call: impl Future<Output = T>) {
    let env = TokioRuntime::current();
    let waited = env.timeout(std::time::Duration::ZERO, call).await;
    assert!(waited.is_err(), "it waits for ever");
}

#[tokio::test]
async fn calls_that_are_given_up_are_in_the_audit_log() {
    let setting = Setting::with(true, TokioRuntime::current()).await;
    setting.fake.never_answer();
    let root = setting.guard("root");
    give_up(root.delete_table(&table())).await;
    give_up(root.mutate_rows(write(vec![put("r", 1)]))).await;
    let changed = async {
        let note = root.note_change("console_put", &table());
        std::future::pending::<()>().await;
        note.write(None);
    };
    give_up(changed).await;
    root.note_change("console_put", &table()).leave_out();
    let log = setting.log().await;
    let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<serde_json::Value> = lines.collect();
    let operations: Vec<_> = lines.iter().map(|line| line["operation"].as_str().unwrap()).collect();
    assert_eq!(operations, ["delete_table", "mutate_rows", "console_put"]);
    for line in &lines {
        assert_eq!((&line["who"], &line["outcome"]), (&"root".into(), &"failed".into()));
        assert_eq!(line["why"], "it was given up, and may have been carried out");
    }
}
