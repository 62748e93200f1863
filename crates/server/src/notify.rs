//! Tells the service manager the state of the process, by systemd's notification protocol.
//!
//! A unit of `Type=notify` counts as started when the server serves requests, and not when its process runs: units that
//! need it start then. The manager names its socket in `NOTIFY_SOCKET`. Without that variable nothing is sent.
//!
//! A message that cannot be sent is logged and otherwise ignored: it never stops the server.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that names the manager's socket.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// The connection to the service manager, if there is one.
pub struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// The manager that started this process.
    pub fn of_environment() -> Self {
        let Some(name) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else {
            return Notifier(None);
        };
        match connect(&name) {
            Ok(connected) => Notifier(Some(connected)),
            Err(error) => {
                tracing::warn!(%error, "the service manager cannot be notified at {}", name.display());
                Notifier(None)
            }
        }
    }

    /// The server reads its data and serves nobody yet.
    pub fn recovering(&self) {
        self.send("STATUS=recovering");
    }

    /// The server serves requests.
    pub fn ready(&self) {
        self.send("READY=1\nSTATUS=serving");
    }

    /// The server finishes the requests in flight and saves its memory.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping");
    }

    fn send(&self, message: &str) {
        let Some((socket, manager)) = &self.0 else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), manager) {
            tracing::warn!(%error, "the service manager was not notified");
        }
    }
}

/// A name that begins with `@` is one of Linux's abstract namespace; all others are paths.
fn connect(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let manager = match name.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that reads nothing must not hold the server up.
    socket.set_nonblocking(true)?;
    Ok((socket, manager))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let read = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..read]).into_owned()
    }

    #[test]
    fn the_manager_learns_the_state() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let abstract_name = format!("@stele-test-{}", std::process::id());
        let of_abstract = SocketAddr::from_abstract_name(&abstract_name.as_bytes()[1..]).unwrap();
        for (manager, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str()),
            (
                UnixDatagram::bind_addr(&of_abstract).unwrap(),
                OsStr::new(&abstract_name),
            ),
        ] {
            let notifier = Notifier(Some(connect(name).unwrap()));
            notifier.recovering();
            notifier.ready();
            notifier.stopping();
            assert_eq!(received(&manager), "STATUS=recovering");
            assert!(received(&manager).starts_with("READY=1\n"));
            assert!(received(&manager).starts_with("STOPPING=1\n"));
        }
        // The manager is gone.
        Notifier(Some(connect(path.as_os_str()).unwrap())).ready();
        Notifier(None).ready();
    }
}
