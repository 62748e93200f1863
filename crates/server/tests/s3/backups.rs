//! Backups in a bucket, of servers whose data are folders.

use super::{Place, flip};
use crate::backup::{Scratch, fill, killed, rows, start};
use crate::support::server::Server;
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The arguments of a command for backups in this place.
fn backup<'a>(place: &'a Place, verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let options = place.options.split(',').flat_map(|option| ["--option", option]);
    let at = ["backup", verb, &place.url];
    at.into_iter().chain(options).chain(more.iter().copied()).collect()
}

fn says(server: &Server, place: &Place, verb: &str, more: &[&str]) -> String {
    server.says(&backup(place, verb, more))
}

#[test]
fn backups_in_a_bucket_survive_kills_and_the_loss_of_the_data() {
    let (Some(place), scratch) = (Place::new("backups"), Scratch::new()) else {
        return;
    };
    let (data, other) = (scratch.path("data"), scratch.path("other"));
    let server = start(&data);
    fill(&server, &scratch, "main/t", 1);
    let expected = rows(&server, "main/t");
    let slow = backup(&place, "create", &["--backup", "b1", "--digest", "--rate", "1200KiB"]);
    let mut server = Some(server);
    for tenths in [3, 11] {
        killed(server.take().unwrap(), &slow, Duration::from_millis(tenths * 100));
        server = Some(start(&data));
    }
    let server = server.unwrap();
    if !says(&server, &place, "list", &[]).contains("main/t") {
        says(&server, &place, "create", &["--backup", "b1", "--digest"]);
    }
    let verified = says(&server, &place, "verify", &["--backup", "b1", "--digest"]);
    assert!(verified.contains("no damage"), "{verified}");
    let second = says(&server, &place, "create", &["--backup", "b2"]);
    assert!(second.contains("0 files copied"), "{second}");
    assert_eq!(server.stop(Signal::TERM), Some(0));
    fs::remove_dir_all(&data).unwrap();

    let server = start(&other);
    says(&server, &place, "restore", &["--backup", "b1"]);
    assert!(rows(&server, "main/t") == expected);
    says(&server, &place, "delete", &["--backup", "b1"]);
    let verified = says(&server, &place, "verify", &["--backup", "b2"]);
    assert!(verified.contains("no damage"), "{verified}");
    flip(place.objects("files").first().unwrap());
    let damaged = server.client(&backup(&place, "verify", &["--backup", "b2"]));
    assert_eq!(damaged.status.code(), Some(1), "{damaged:?}");
    says(&server, &place, "delete", &["--backup", "b2"]);
    assert!(place.objects("files").is_empty() && place.objects("backups").is_empty());
    assert_eq!(server.stop(Signal::TERM), Some(0));
}

fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// A copy of a data root gives the same numbers to other files.
#[test]
fn two_servers_make_one_backup_in_a_bucket() {
    let (Some(place), scratch) = (Place::new("twins"), Scratch::new()) else {
        return;
    };
    let (data, copy) = (scratch.path("data"), scratch.path("copy"));
    let server = start(&data);
    fill(&server, &scratch, "main/t", 1);
    // The identity of the root is made by its first backup.
    says(&server, &place, "create", &["--backup", "first"]);
    assert_eq!(server.stop(Signal::TERM), Some(0));
    copy_folder(&data, &copy);
    let twins = [start(&data), start(&copy)];
    for (n, twin) in twins.iter().enumerate() {
        let value = format!("f:q=of {n}");
        twin.says(&["put", "main/t", "row-00100", &value]);
    }
    let create = backup(&place, "create", &["--backup", "b", "--digest", "--rate", "2MiB"]);
    let clients = twins
        .each_ref()
        .map(|twin| twin.client_command(&create).spawn().unwrap());
    let made = clients.map(|mut client| client.wait().unwrap().success());
    assert!(made[0] != made[1], "one of them completes it: {made:?}");
    let winner = &twins[usize::from(made[1])];
    let expected = rows(winner, "main/t");
    let verified = says(winner, &place, "verify", &["--backup", "b", "--digest"]);
    assert!(verified.contains("no damage"), "{verified}");
    says(
        winner,
        &place,
        "restore",
        &["--backup", "b", "--table", "main/t", "--as", "main/u"],
    );
    assert!(rows(winner, "main/u") == expected);
    for name in ["b", "first"] {
        says(winner, &place, "delete", &["--backup", name]);
    }
    assert!(place.objects("files").is_empty() && place.objects("backups").is_empty());
}
