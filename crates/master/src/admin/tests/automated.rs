//! Automated backups.

use super::*;
use stele_client::TableAdmin;
use stele_types::AutomatedBackups;

const HOUR: i64 = 3_600_000_000;
const DAILY: AutomatedBackups = AutomatedBackups {
    retention_micros: 72 * HOUR,
    frequency_micros: 24 * HOUR,
};

fn name() -> TableName {
    TableName::new("n", "my-table")
}

async fn with_table(automated: Option<AutomatedBackups>) -> (Arc<Unsure>, Arc<Catalog>, Arc<Noting>, Arc<Master>) {
    let all = unsure(false).await;
    let new = NewTable {
        automated_backups: automated,
        ..new_table(&name())
    };
    all.3.create_table(new).await.unwrap();
    all
}

async fn set(master: &Master, automated: Option<AutomatedBackups>) -> ServiceResult<()> {
    let update = TableUpdate {
        automated_backups: Some(automated),
        ..TableUpdate::default()
    };
    master.update_table(&name(), update).await.map(drop)
}

#[tokio::test]
async fn a_table_is_backed_up_each_day() {
    let (coord, _, tablets, master) = with_table(Some(DAILY)).await;
    let now = master.env.wall_micros();
    assert_eq!(master.back_up_due_at(now).await, 1);
    let taken = master.list_snapshots(Some("n")).await.unwrap();
    let (first, rest) = taken.split_first().unwrap();
    assert!(rest.is_empty() && first.name.name.starts_with("auto.my-table."));
    assert_eq!(first.name.name.len(), "auto.my-table.c7x3.20230220-145537".len());
    let life = first.expires_micros.unwrap() - first.created_micros;
    assert!((life - DAILY.retention_micros).abs() < HOUR / 60, "{life}");
    assert_eq!(master.back_up_due_at(now + 23 * HOUR).await, 0);
    // Another process finds the backup by its name.
    let catalog = Arc::new(Catalog::load(coord.clone()).await.unwrap());
    let next = Master::new(master.env.clone(), catalog, tablets.clone());
    assert_eq!(next.back_up_due_at(now + 23 * HOUR).await, 0);
    assert_eq!(next.back_up_due_at(now + 24 * HOUR + HOUR / 60).await, 1);
    assert_eq!(next.list_snapshots(Some("n")).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_policy_can_be_changed_and_ended() {
    let (_, _, _, master) = with_table(None).await;
    let now = master.env.wall_micros();
    assert_eq!(master.back_up_due_at(now).await, 0);
    set(&master, Some(DAILY)).await.unwrap();
    assert_eq!(master.back_up_due_at(now).await, 1);
    let hourly = AutomatedBackups {
        frequency_micros: HOUR,
        ..DAILY
    };
    set(&master, Some(hourly)).await.unwrap();
    assert_eq!(master.back_up_due_at(now + 2 * HOUR).await, 1, "more often from now on");
    set(&master, None).await.unwrap();
    assert_eq!(master.back_up_due_at(now + 200 * HOUR).await, 0);
    let never = AutomatedBackups {
        frequency_micros: 0,
        ..DAILY
    };
    assert_eq!(
        set(&master, Some(never)).await.unwrap_err().kind,
        ErrorKind::InvalidArgument
    );
    // The settings are in the catalog.
    set(&master, Some(hourly)).await.unwrap();
    assert_eq!(master.entry(&name()).unwrap().schema.automated_backups, Some(hourly));
}

#[tokio::test]
async fn a_failed_backup_is_tried_again_after_a_pause() {
    let (_, _, tablets, master) = with_table(Some(DAILY)).await;
    let now = master.env.wall_micros();
    tablets.takes_no_snapshots.store(true, Ordering::Relaxed);
    assert_eq!(master.back_up_due_at(now).await, 1, "an attempt");
    assert!(master.list_snapshots(Some("n")).await.unwrap().is_empty());
    tablets.takes_no_snapshots.store(false, Ordering::Relaxed);
    assert_eq!(master.back_up_due_at(now + HOUR / 60).await, 0);
    assert_eq!(master.back_up_due_at(now + HOUR).await, 1);
    assert_eq!(master.list_snapshots(Some("n")).await.unwrap().len(), 1);
}

/// As in Bigtable: backups of a restored or undeleted table must be asked for.
#[tokio::test]
async fn clones_and_undeleted_tables_have_no_policy() {
    let (_, _, _, master) = with_table(Some(DAILY)).await;
    let now = master.env.wall_micros();
    master.back_up_due_at(now).await;
    let taken = master.list_snapshots(Some("n")).await.unwrap();
    let clone = TableName::new("n", "clone");
    let cloned = master.clone_snapshot(&taken[0].name, &clone, None).await.unwrap();
    assert_eq!(cloned.automated_backups, None);
    master.keep_deleted_for(Duration::from_secs(3_600));
    master.delete_table(&name()).await.unwrap();
    let undeleted = master.undelete_table(&name()).await.unwrap();
    assert_eq!(undeleted.automated_backups, None);
}
