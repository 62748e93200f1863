//! `stele shell`, without a terminal: statements of standard input and of the command line.

use crate::support::server::Server;
use std::io::Write;
use std::process::{Output, Stdio};
use tempfile::TempDir;

fn start() -> (TempDir, Server) {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--memory", "64MiB", "--hbase", "off"]);
    (dir, server)
}

/// Runs a shell that reads a script.
fn shell(server: &Server, arguments: &[&str], script: impl AsRef<[u8]>) -> Output {
    let mut command = server.client_command(&[&["shell"], arguments].concat());
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A shell that has ended at an error reads no more.
    let _ = child.stdin.take().unwrap().write_all(script.as_ref());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const SCRIPT: &str = "# A table and a row.
create shop/orders --family f --max-versions 2

put shop/orders 'row 1' f:a=1 f:b=\"two words\" --timestamp 1000
put shop/orders row\\x002 f:a=2 --timestamp 1000
count shop/orders
output json
scan shop/orders
delete shop/orders 'row 1' f:a
get shop/orders 'row 1'
delete shop/orders row\\x002
count shop/orders
describe shop/orders
tables shop
explain shop/orders --row 'row 1'
output text
drop shop/orders
tables
";

#[test]
fn a_script_does_everything_in_its_order() {
    let (_dir, server) = start();
    let output = shell(&server, &[], SCRIPT);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["created shop/orders", "2"]);
    assert!(
        lines[2].starts_with("{\"row\":\"row\\u00002\"") || lines[2].starts_with("{\"row\":\"row 1\""),
        "{said}"
    );
    assert!(lines[4].contains("two words") && !lines[4].contains("\"a\""), "{said}");
    assert_eq!(lines[5], "{\"rows\":1}");
    assert!(
        lines[6].contains("\"durability\"") && lines[6].contains("versions > 2"),
        "{said}"
    );
    assert!(lines[8].contains("\"cells_seen\""), "{said}");
    assert_eq!(lines[9..], ["dropped shop/orders"]);
}

#[test]
fn the_first_error_ends_a_script() {
    let (_dir, server) = start();
    let script = "create a/t --family f\nget a/t none\ncount a/t\n";
    let output = shell(&server, &[], script);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with("error: line 2: a/t has no row none"), "{said}");
    assert_eq!(text(&output.stdout), "created a/t\n");
    let output = shell(&server, &["--keep-going"], script);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).ends_with("\n0\n"), "{output:?}");
    for (line, named) in [
        ("frobnicate", "unrecognized subcommand"),
        ("get a/t", "required arguments"),
        ("get 'a/t", "not closed"),
        ("scan nothing", "instance/table"),
        ("describe a/none", "no table a/none"),
    ] {
        let output = shell(&server, &["--execute", line], "");
        assert!(
            !output.status.success() && text(&output.stderr).contains(named),
            "{line}: {output:?}"
        );
        assert_eq!(text(&output.stderr).lines().count(), 1, "{output:?}");
    }
}

#[test]
fn other_bytes_than_text_are_refused() {
    let (_dir, server) = start();
    let script = b"create a/t --family f\nput a/t r f:q=caf\xe9\n";
    let output = shell(&server, &[], script);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with("error: line 2: it is not UTF-8"), "{said}");
    assert_eq!(server.says(&["count", "a/t"]), "0\n");
}

#[test]
fn statements_of_the_command_line_come_instead_of_the_input() {
    let (_dir, server) = start();
    let arguments = [
        "-e",
        "create a/t --family f",
        "-e",
        "exit",
        "-e",
        "drop a/t",
        "--output",
        "json",
    ];
    let output = shell(&server, &arguments, "drop a/t\n");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "{\"done\":\"created a/t\"}\n");
    let help = shell(&server, &["-e", "help", "-e", "help scan"], "");
    assert!(text(&help.stdout).contains("--prefix"), "{help:?}");
    let nobody = server.client(&["shell", "--address", "127.0.0.1:1", "-e", "tables"]);
    assert!(text(&nobody.stderr).contains("cannot connect"), "{nobody:?}");
}
