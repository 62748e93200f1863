//! `stele check` and `stele repair` on a real S3 server: `cargo xtask s3` starts one and says where it is, and in which folder
//! it keeps its objects. Without that there is nothing to check, and the tests pass.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "drives a real process over real sockets"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A prefix of the bucket, and the folder where its objects are.
struct Place {
    url: String,
    folder: PathBuf,
}

impl Place {
    fn new(name: &str) -> Option<Place> {
        let bucket = std::env::var("STELE_TEST_S3").ok()?;
        let folder = std::env::var("STELE_TEST_S3_FOLDER").ok()?;
        let prefix = format!("process/{name}-{}", std::process::id());
        Some(Place {
            url: format!("{bucket}/{prefix}"),
            folder: Path::new(&folder).join(prefix),
        })
    }

    fn stele(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stele"));
        command.args(arguments).args(["--data", &self.url]).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        said(&self.stele(arguments).output().unwrap())
    }

    /// All objects below a folder of the prefix.
    fn objects(&self, below: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.join(below)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => found.push(path),
                }
            }
        }
        found.sort();
        found
    }
}

fn said(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(place: &Place) -> Server {
        let mut child = place
            .stele(&[
                "start",
                "--bigtable",
                "127.0.0.1:0",
                "--http",
                "127.0.0.1:0",
                "--memory",
                "64MiB",
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .map(Result::unwrap)
            .find_map(|line| {
                line.trim_start()
                    .strip_prefix("Bigtable")
                    .map(|at| at.trim().to_owned())
            })
            .expect("the banner says where the API is served");
        Server { child, address }
    }

    fn client(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stele"));
        let output = command
            .args(arguments)
            .env("STELE_ADDRESS", &self.address)
            .output()
            .unwrap();
        let (code, text) = said(&output);
        assert_eq!(code, Some(0), "{text}");
        text
    }

    /// SIGTERM: it flushes.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

/// Flips a bit in the middle of an object.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    *bytes.get_mut(middle).unwrap() ^= 1;
    // In place, so that the server's notes on the file stay.
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_prefix_is_checked_and_repaired() {
    let Some(place) = Place::new("repair") else { return };
    let (code, text) = place.run(&["check"]);
    assert!(code == Some(1) && text.contains("holds no data of Stele"), "{text}");

    let server = Server::start(&place);
    server.client(&["create-table", "main/t", "--family", "f"]);
    server.client(&["put", "main/t", "row", "f:q=1"]);
    // Looking leaves the server its prefix.
    assert_eq!(place.run(&["check"]).0, Some(0));
    server.client(&["put", "main/t", "another row", "f:q=2"]);
    server.stop();

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

    let server = Server::start(&place);
    server.client(&["put", "main/t", "last row", "f:q=3"]);
    assert!(server.client(&["scan", "main/t"]).contains("last row"));
    server.stop();
    assert_eq!(place.run(&["check"]).0, Some(0));
}
