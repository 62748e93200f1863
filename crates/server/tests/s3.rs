//! `stele check`, `stele repair` and backups on a real S3 server.
//!
//! `cargo xtask s3` starts one and passes its address and the folder of its objects. Without that there is nothing to
//! check, and the tests pass.

mod backups;

use crate::support::server;

use rustix::process::Signal;
use server::{STELE, Server};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A prefix of the bucket, and the folder where its objects are.
struct Place {
    url: String,
    options: String,
    folder: PathBuf,
}

impl Place {
    fn new(name: &str) -> Option<Place> {
        let bucket = std::env::var("STELE_TEST_STORE").ok()?;
        let folder = std::env::var("STELE_TEST_STORE_FOLDER").ok()?;
        let options = std::env::var("STELE_TEST_STORE_OPTIONS").ok()?;
        let prefix = format!("process/{name}-{}", std::process::id());
        Some(Place {
            url: format!("{bucket}/{prefix}"),
            options,
            folder: Path::new(&folder).join(prefix),
        })
    }

    fn stele(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(STELE);
        let of_store = ["--data", &self.url, "--data-option", &self.options];
        command.args(arguments).args(of_store).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.stele(arguments).output().unwrap();
        let text = [&output.stdout[..], &output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    /// All objects below a folder of the prefix.
    fn objects(&self, below: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.join(below)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path)
                } else {
                    found.push(path)
                }
            }
        }
        found.sort();
        found
    }
}

fn start(place: &Place) -> Server {
    Server::run(&mut place.stele(&["start", "--memory", "64MiB"]))
}

/// It flushes before it ends.
fn stop(server: Server) {
    assert_eq!(server.stop(Signal::TERM), Some(0));
}

/// Flips a bit in the middle of an object.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    *bytes.get_mut(middle).unwrap() ^= 1;
    // In place, so that the server's notes on the file stay.
    fs::write(path, bytes).unwrap();
}

/// By its status a service manager knows that it must not start the server again.
#[test]
fn a_server_that_is_replaced_says_so() {
    let Some(place) = Place::new("replaced") else { return };
    let first = start(&place);
    let second = start(&place);
    assert_eq!(first.wait_for_end(), Some(4));
    second.says(&["create-table", "main/t", "--family", "f"]);
    stop(second);
}

#[test]
fn a_prefix_is_checked_and_repaired() {
    let Some(place) = Place::new("repair") else { return };
    let (code, text) = place.run(&["check"]);
    assert!(code == Some(1) && text.contains("holds no data of Stele"), "{text}");

    let server = start(&place);
    server.says(&["create-table", "main/t", "--family", "f"]);
    server.says(&["put", "main/t", "row", "f:q=1"]);
    // Looking leaves the server its prefix.
    assert_eq!(place.run(&["check"]).0, Some(0));
    server.says(&["put", "main/t", "another row", "f:q=2"]);
    stop(server);

    let (code, text) = place.run(&["check"]);
    assert!(code == Some(0) && text.contains("1 sstables with 2 cells"), "{text}");
    let files = place.objects("sst");
    flip(files.first().unwrap());
    let (code, text) = place.run(&["check"]);
    assert!(code == Some(1) && text.contains("damage: sst/"), "{text}");
    let before = place.objects("");
    let (code, text) = place.run(&["repair", "--dry-run"]);
    assert!(code == Some(0) && text.contains("a repair would"), "{text}");
    assert_eq!(
        place.objects(""),
        before,
        "nothing was made, not even an owner's record"
    );
    let (code, text) = place.run(&["repair", "--yes"]);
    assert!(code == Some(0) && text.contains("kept as damaged/sst/"), "{text}");
    assert_eq!(place.objects("damaged/sst").len(), 1);

    let server = start(&place);
    server.says(&["put", "main/t", "last row", "f:q=3"]);
    assert!(server.says(&["scan", "main/t"]).contains("last row"));
    stop(server);
    assert_eq!(place.run(&["check"]).0, Some(0));
}
