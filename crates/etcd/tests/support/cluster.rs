//! Starts an etcd of three members, with empty data.
//!
//! They are processes on free ports of the loopback address.

use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Three processes on a busy machine.
const READY_WAIT: Duration = Duration::from_secs(60);

/// Killed when dropped.
pub struct Cluster {
    members: Vec<Member>,
    _folder: TempDir,
}

struct Member {
    child: Option<Child>,
    program: PathBuf,
    client: String,
    arguments: Vec<String>,
    log: PathBuf,
}

/// An address of this machine with a free port, which no test has had. The system may give a port again as soon as it is closed, and
/// members of other tests may not listen yet.
pub fn free_address() -> String {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        if GIVEN.lock().insert(address.port()) {
            return address.to_string();
        }
    }
}

impl Cluster {
    /// Starts one, if the machine has an etcd for tests.
    pub fn start() -> Option<Cluster> {
        let program = PathBuf::from(std::env::var_os("STELE_TEST_ETCD")?);
        let parent = std::env::var_os("STELE_TEST_ETCD_FOLDER").expect("a folder for the data of etcd");
        let folder = TempDir::new_in(parent).unwrap();
        let clients: Vec<String> = (0..3).map(|_| free_address()).collect();
        let peers: Vec<String> = (0..3).map(|_| free_address()).collect();
        let name = |i: usize| format!("m{i}");
        let together: Vec<String> = peers
            .iter()
            .enumerate()
            .map(|(i, peer)| format!("{}=http://{peer}", name(i)))
            .collect();
        let member = |i: usize| {
            let data = folder.path().join(name(i)).display().to_string();
            let (client, peer) = (format!("http://{}", clients[i]), format!("http://{}", peers[i]));
            let arguments = [
                ("--name", name(i)),
                ("--data-dir", data),
                ("--listen-client-urls", client.clone()),
                ("--advertise-client-urls", client),
                ("--listen-peer-urls", peer.clone()),
                ("--initial-advertise-peer-urls", peer),
                ("--initial-cluster", together.join(",")),
                ("--initial-cluster-state", "new".to_owned()),
            ];
            Member {
                child: None,
                program: program.clone(),
                client: clients[i].clone(),
                arguments: arguments.into_iter().flat_map(|(k, v)| [k.to_owned(), v]).collect(),
                log: folder.path().join(format!("{}.log", name(i))),
            }
        };
        let mut cluster = Cluster {
            members: (0..3).map(member).collect(),
            _folder: folder,
        };
        (0..3).for_each(|i| cluster.members[i].start());
        cluster.wait_ready();
        Some(cluster)
    }

    /// The addresses of all members, as an address of the coordinator has them.
    pub fn members(&self) -> String {
        let clients: Vec<&str> = self.members.iter().map(|member| member.client.as_str()).collect();
        clients.join(",")
    }

    /// The address of one member.
    pub fn member(&self, i: usize) -> &str {
        &self.members[i].client
    }

    /// Waits until all running members follow one leader.
    pub fn wait_ready(&self) {
        let deadline = Instant::now() + READY_WAIT;
        let running = || self.members.iter().filter(|member| member.child.is_some());
        while !running().all(|member| member.leader().is_some()) {
            assert!(Instant::now() < deadline, "etcd has no leader: {}", self.log_tail());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The place of the leader among the members.
    pub fn leader(&self) -> usize {
        let leader = |member: &Member| member.leader().is_some_and(|(own, leader)| own == leader);
        let deadline = Instant::now() + READY_WAIT;
        loop {
            let running = |member: &Member| member.child.is_some();
            if let Some(i) = self.members.iter().position(|m| running(m) && leader(m)) {
                return i;
            }
            assert!(Instant::now() < deadline, "no member leads");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self, i: usize) {
        self.members[i].kill();
    }

    /// Starts a member again over its data.
    pub fn restart(&mut self, i: usize) {
        self.members[i].start();
    }

    /// Lets a member do nothing, with its connections open.
    pub fn pause(&self, i: usize) {
        self.members[i].signal("-STOP");
    }

    /// Ends the pause.
    pub fn resume(&self, i: usize) {
        self.members[i].signal("-CONT");
    }

    /// A call through the JSON interface of member 0 or, if that does not run, of another one.
    pub fn call(&self, path: &str, body: &Value) -> Value {
        let running = self.members.iter().find(|member| member.child.is_some());
        post(&running.unwrap().client, path, body).expect("a response of etcd")
    }

    /// The number of requests that the members agreed on.
    pub fn raft_index(&self) -> u64 {
        number(&self.call("/v3/maintenance/status", &json!({}))["raftIndex"])
    }

    /// Forgets the history before the newest revision.
    pub fn compact(&self) {
        let status = self.call("/v3/maintenance/status", &json!({}));
        let revision = number(&status["header"]["revision"]);
        let done = self.call(
            "/v3/kv/compaction",
            &json!({ "revision": revision.to_string(), "physical": true }),
        );
        assert!(done["header"].is_object(), "{done}");
    }

    /// Raises or clears the alarm that etcd raises when it has no space.
    pub fn no_space(&self, is_full: bool) {
        let status = self.call("/v3/maintenance/status", &json!({}));
        let member = status["header"]["member_id"].clone();
        let action = if is_full { "ACTIVATE" } else { "DEACTIVATE" };
        let done = self.call(
            "/v3/maintenance/alarm",
            &json!({ "action": action, "memberID": member, "alarm": "NOSPACE" }),
        );
        assert!(done["alarms"].is_array(), "{done}");
    }

    /// Ends a lease, as an operator can.
    pub fn revoke_lease(&self, lease: u64) {
        let done = self.call("/v3/lease/revoke", &json!({ "ID": lease.to_string() }));
        assert!(done["header"].is_object(), "{done}");
    }

    fn log_tail(&self) -> String {
        let logs = self.members.iter().map(|member| {
            let text = fs::read_to_string(&member.log).unwrap_or_default();
            text.lines().rev().take(5).collect::<Vec<_>>().join("\n")
        });
        logs.collect::<Vec<_>>().join("\n")
    }
}

/// A number of a response, which JSON has as text.
pub fn number(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or_default();
    text.parse().unwrap_or_default()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(Member::kill);
    }
}

impl Member {
    fn start(&mut self) {
        assert!(self.child.is_none(), "a member runs once");
        let log = File::options().append(true).create(true).open(&self.log).unwrap();
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("starting etcd"));
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn signal(&self, signal: &str) {
        let process = self.child.as_ref().expect("a running member").id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status().unwrap();
        assert!(sent.success(), "kill {signal} {process}");
    }

    /// Its own identifier and that of the leader it follows.
    fn leader(&self) -> Option<(u64, u64)> {
        let status = post(&self.client, "/v3/maintenance/status", &json!({}))?;
        let (own, leader) = (number(&status["header"]["member_id"]), number(&status["leader"]));
        (leader != 0).then_some((own, leader))
    }
}

/// A request of the JSON interface.
fn post(address: &str, path: &str, body: &Value) -> Option<Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    serde_json::from_str(body).ok()
}
