//! Finds the process that listens on a port, for targets without described processes.
//!
//! `/proc/net/tcp` names the inode of a listening socket, and the process that has it open is the one with a link to it
//! in `/proc/PID/fd`. Links of other users' processes cannot be read without their rights. Then no process is found.

use super::Watched;
use std::collections::BTreeSet;

/// Listening, in the kernel's numbering of states.
const LISTEN: &str = "0A";

/// The process that listens on a TCP port, named as its program, with the GC log from its command line. The oldest, if
/// several share the socket.
pub fn listener(port: u16) -> Option<Watched> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let mut inodes = BTreeSet::new();
    for table in tables {
        inodes.extend(listening_inodes(
            &std::fs::read_to_string(table).unwrap_or_default(),
            port,
        ));
    }
    if inodes.is_empty() {
        return None;
    }
    let links: BTreeSet<String> = inodes.into_iter().map(|inode| format!("socket:[{inode}]")).collect();
    let pid = processes().into_iter().find(|&pid| has_open(pid, &links))?;
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let directory = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    Some(Watched {
        name: String::from_utf8_lossy(name.trim_ascii_end()).into_owned(),
        pid,
        gc_log: gc_log(&command).map(|path| directory.join(path).to_string_lossy().into_owned()),
    })
}

/// Whether a process is a Java virtual machine.
pub fn is_jvm(process: &Watched) -> bool {
    let comm = || std::fs::read(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
    process.gc_log.is_some() || comm().trim_ascii_end() == b"java"
}

/// The file of the first `-Xlog:…gc…:file=PATH[:…]` or `-Xloggc:PATH` among a command's zero-terminated words.
fn gc_log(command: &[u8]) -> Option<String> {
    let words = command.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    let mut files = words.filter_map(|word| {
        if let Some(path) = word.strip_prefix("-Xloggc:") {
            return Some(path.to_owned());
        }
        let (what, output) = word.strip_prefix("-Xlog:")?.split_once(':')?;
        let output = output.strip_prefix("file=")?;
        let (path, _) = output.split_once(':').unwrap_or((output, ""));
        // A name that the JVM derives from its process id or start time is not followed.
        let is_plain = !path.is_empty() && !path.contains('%');
        (what.contains("gc") && is_plain).then(|| path.trim_matches('"').to_owned())
    });
    files.next()
}

/// Inodes of the sockets that listen on a port, in the text of `/proc/net/tcp` or `tcp6`.
fn listening_inodes(table: &str, port: u16) -> Vec<u64> {
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
        let is_wanted = u16::from_str_radix(local_port, 16).ok()? == port && *fields.get(3)? == LISTEN;
        // Zero stands for a socket that no process has open any more.
        let inode: u64 = fields.get(9)?.parse().ok()?;
        (is_wanted && inode != 0).then_some(inode)
    };
    table.lines().filter_map(inode).collect()
}

/// Ids of all processes, ascending.
fn processes() -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

fn has_open(pid: u32, links: &BTreeSet<String>) -> bool {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let mut targets = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.any(|target| target.to_str().is_some_and(|text| links.contains(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: \
        0100007F:1F96 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 777 1 0 100 0 0 10 0\n   1: \
        0100007F:1F96 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 888 1 0 20 4 30 10 -1\n   2: \
        00000000000000000000000001000000:1F97 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 999 1\n";

    #[test]
    fn only_listening_sockets_of_the_port_are_found() {
        assert_eq!(listening_inodes(TABLE, 0x1f96), [777]);
        assert_eq!(listening_inodes(TABLE, 0x1f97), [999]);
        assert!(listening_inodes(TABLE, 1).is_empty());
        for text in [
            "",
            "a b c d e",
            "0: x:y 0 0A 0 0 0 0 0 5",
            "0: 0:1F96 0:0 0A 0 0 0 0 0 0",
        ] {
            assert!(listening_inodes(text, 0x1f96).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_gc_log_is_found_in_the_command() {
        let of = |words: &[&str]| gc_log(words.join("\0").as_bytes());
        let full = "-Xlog:gc*,safepoint:file=/logs/gc.log:time,uptime:filecount=0";
        assert_eq!(of(&["java", "-Xmx1g", full, "Main"]).as_deref(), Some("/logs/gc.log"));
        assert_eq!(of(&["java", "-Xlog:gc:file=gc.log"]).as_deref(), Some("gc.log"));
        assert_eq!(of(&["java", "-Xloggc:old.log"]).as_deref(), Some("old.log"));
        for word in [
            "-Xlog:gc",
            "-Xlog:gc:stdout",
            "-Xlog:class:file=a.log",
            "-Xlog:gc:file=gc-%p.log",
            "-Xlog:gc:file=",
            "",
        ] {
            assert_eq!(of(&["java", word]), None, "{word}");
        }
    }

    #[test]
    fn this_process_is_found_by_its_port() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(listener(port).map(|watched| watched.pid), Some(std::process::id()));
        // Nobody can listen on port zero.
        assert_eq!(listener(0), None);
    }
}
