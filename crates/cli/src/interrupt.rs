//! The wish of the user to stop: SIGINT (Ctrl-C) or SIGTERM.

use tokio::signal::unix::{SignalKind, signal};

/// Completes at the first of the signals. If signals cannot be watched, never; the default action then ends the process,
/// which a checkpoint survives as well.
pub async fn interrupted() {
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = terminate => {}
        () = interrupt => {}
    }
}
