//! Calls for backups at destinations, and for tables that are kept.

use super::*;

pub(super) fn calls() -> Calls {
    use Needs::{Administers, Known};
    let destination = Some(own::BackupDestination {
        address: "/backups".into(),
        options: vec![],
    });
    let begin = own::BeginBackupWorkRequest {
        destination: destination.clone(),
        backup: "b".into(),
        task: 3,
        ..Default::default()
    };
    vec![
        ("Backups/BeginWork", Administers, begin.encode_to_vec()),
        (
            "Backups/GetWork",
            Administers,
            own::GetBackupWorkRequest { number: 1 }.encode_to_vec(),
        ),
        (
            "Backups/CancelWork",
            Administers,
            own::CancelBackupWorkRequest { number: 1 }.encode_to_vec(),
        ),
        (
            "Backups/ListBackups",
            Administers,
            own::ListDestinationRequest {
                destination,
                archive: None,
            }
            .encode_to_vec(),
        ),
        (
            "Snapshots/ListKeptTables",
            Known,
            own::ListKeptTablesRequest {
                parent: INSTANCE.into(),
            }
            .encode_to_vec(),
        ),
    ]
}
