//! Places of a data root that several servers reach.
//!
//! The servers share tablets, sstables and value files. Each has a log root of its own, which is a root with an owner
//! like a data root: [`Storage::confirm_owner`](crate::Storage::confirm_owner) and its fence concern this server alone.
//! Another process that becomes the owner of a log root thereby ends the writes of its server.

use stele_types::ServerId;

/// Directory of the log roots.
pub const DIRECTORY: &str = "servers/";

/// The root of a server's log, relative to the data root: `servers/<server, 8 hex digits>`.
pub fn log_root(server: ServerId) -> String {
    format!("{DIRECTORY}{:08x}", server.0)
}

/// The server of a path at or below a log root. Accepts only names that [`log_root`] makes.
pub fn server_of(path: &str) -> Option<ServerId> {
    let digits = path.strip_prefix(DIRECTORY)?.split('/').next()?;
    let server = ServerId(u32::from_str_radix(digits, 16).ok()?);
    path.starts_with(&log_root(server)).then_some(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_root_names_its_server() {
        let root = log_root(ServerId(0x1f));
        assert_eq!(root, "servers/0000001f");
        assert_eq!(server_of(&format!("{root}/log/0000/1.log")), Some(ServerId(0x1f)));
        for other in ["log/0000/1.log", "servers/1f/log", "servers/0000001F/log", "servers/"] {
            assert_eq!(server_of(other), None, "{other}");
        }
    }
}
