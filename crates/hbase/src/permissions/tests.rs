//! The list has every call that is served, and obeys the rights of callers.

mod audit;
mod running;

use super::*;
use crate::front_end::HBaseFrontEnd;
use crate::test_service::{Client, Model, clocked, failure, message};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use stele_access::testing::MemoryRules;
use stele_access::tokens::{self, Tokens};
use stele_access::{Access, AccessOptions};
use stele_client::AccessAdmin;
use stele_env::tokio_env::TokioRuntime;
use stele_memory::Pool;
use stele_types::{AccessRule, Member, Resource};
use stele_wire::messages::{
    ADMIN_SERVICE, CLIENT_META_SERVICE, CLIENT_SERVICE, Column, ConnectionHeader, Empty, Get, GetRequest,
    MASTER_SERVICE, MultiRequest, MutateRequest, MutationProto, MutationType, NameBytesPair, RegionAction, Scan,
    ScanRequest, ScanResponse, UserInformation,
};
use tokio::io::AsyncReadExt;

/// The names of methods in the arms of a match over byte strings.
fn arms(source: &str) -> impl Iterator<Item = &str> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    code.split("b\"").skip(1).filter_map(|rest| {
        let (name, after) = rest.split_once('"')?;
        let after = after.trim_start();
        let is_arm = after.starts_with("=>") || after.starts_with('|');
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphabetic());
        (is_arm && is_name).then_some(name)
    })
}

fn listed(calls: Calls) -> BTreeSet<&'static str> {
    let names: BTreeSet<&str> = calls.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), calls.len(), "a call is listed once");
    names
}

#[test]
fn every_call_that_is_served_has_its_right() {
    let registry: BTreeSet<&str> = arms(include_str!("../registry.rs")).collect();
    assert_eq!(listed(REGISTRY), registry);
    let admin: BTreeSet<&str> = arms(include_str!("../admin.rs")).collect();
    assert_eq!(listed(ADMIN), admin);
    let master = arms(include_str!("../master.rs")).chain(arms(include_str!("../master/positions.rs")));
    assert_eq!(listed(MASTER), master.collect());
    // Calls of clients: the methods that have an account of their own, and those that are found by name.
    let services = include_str!("../services.rs");
    let by_name = services
        .split("name == b\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    let by_method = services.split("(Service::Client, Method::").skip(1);
    let by_method = by_method.filter_map(|rest| rest.split(')').next());
    assert_eq!(listed(CLIENT), by_name.chain(by_method).collect());
}

struct Setting {
    model: Arc<Model>,
    rules: Arc<MemoryRules>,
    front_end: HBaseFrontEnd,
}

fn secured(trusts_users: bool) -> Setting {
    let model = Model::new(&[""]);
    model.put("r", "q", "v");
    let rules = Arc::new(MemoryRules::default());
    let options = AccessOptions {
        superusers: HashSet::from(["root".to_owned()]),
        trusts_users,
        ..AccessOptions::default()
    };
    let access = Access::new(rules.clone(), options, None, TokioRuntime::current());
    let front_end = model.front_end(&Pool::default()).with_access(access);
    Setting {
        model,
        rules,
        front_end,
    }
}

impl Setting {
    async fn connect(&self, service: &str, certificate: Option<&str>, user: Option<&str>) -> Client {
        let header = ConnectionHeader {
            service_name: Some(service.to_owned()),
            user_info: user.map(|user| UserInformation {
                effective_user: user.to_owned(),
                real_user: None,
            }),
            ..ConnectionHeader::default()
        };
        let front_end = self.front_end.for_connection(certificate.map(str::to_owned));
        Client::open(&front_end, 64 << 10, &header).await.0
    }

    async fn give(&self, rights: Rights) {
        let rule = AccessRule::whole(Member::User("alice".into()), rights);
        self.rules
            .set_rules(&Resource::Cluster, vec![rule], None)
            .await
            .unwrap();
    }

    /// The class of the exception of a call; empty if it succeeded.
    async fn outcome(&self, client: &mut Client, method: &'static str, message: &impl prost::Message) -> String {
        let response = client.call(method, message).await;
        response
            .header
            .exception
            .map_or_else(String::new, |e| e.exception_class_name.unwrap())
    }
}

const SERVICES: [(Service, &str); 4] = [
    (Service::Client, CLIENT_SERVICE),
    (Service::Registry, CLIENT_META_SERVICE),
    (Service::Master, MASTER_SERVICE),
    (Service::Admin, ADMIN_SERVICE),
];

#[tokio::test]
async fn nobody_gets_an_answer() {
    let setting = secured(false);
    for (_, service) in SERVICES {
        for user in [None, Some("root"), Some("alice")] {
            let mut client = setting.connect(service, None, user).await;
            let refused = client.call("Get", &get(&setting.model)).await;
            assert_eq!(refused.header.call_id, Some(1));
            assert_eq!(failure(&refused), exception::ACCESS_DENIED, "{service} {user:?}");
        }
    }
}

/// A refused caller has a connection for some calls, without memory of large requests.
#[tokio::test(start_paused = true)]
async fn the_connection_of_a_refused_caller_has_an_end() {
    let setting = secured(false);
    let mut client = setting.connect(CLIENT_SERVICE, None, None).await;
    let large = GetRequest {
        get: Get {
            row: vec![7; 1 << 20].into(),
            ..Get::default()
        },
        ..get(&setting.model)
    };
    for call in 1..=100 {
        let refused = match call % 50 {
            0 => client.call("Get", &large).await,
            _ => client.call("Get", &get(&setting.model)).await,
        };
        assert_eq!(refused.header.call_id, Some(call));
        assert_eq!(failure(&refused), exception::ACCESS_DENIED);
        assert_eq!(setting.front_end.shared.requests.used(), 0);
    }
    assert_eq!(client.socket.read(&mut [0; 8]).await.unwrap(), 0, "that was enough");
    let mut idle = setting.connect(CLIENT_SERVICE, None, None).await;
    assert_eq!(idle.socket.read(&mut [0; 8]).await.unwrap(), 0, "closed after a while");
    let mut slow = setting.connect(CLIENT_SERVICE, None, None).await;
    let pause = std::time::Duration::from_secs(9);
    for call in 1..=6 {
        setting.front_end.shared.env.sleep(pause).await;
        let refused = slow.call("Get", &get(&setting.model)).await;
        assert_eq!(refused.header.call_id, Some(call));
    }
    let since = tokio::time::Instant::now();
    assert_eq!(slow.socket.read(&mut [0; 8]).await.unwrap(), 0, "closed after a minute");
    assert!(since.elapsed() < pause, "{:?} after the last call", since.elapsed());
    assert_eq!(setting.model.schemas.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test]
async fn stated_users_are_callers_only_if_they_are_trusted_and_never_superusers() {
    let setting = secured(true);
    let get = get(&setting.model);
    let mut alice = setting.connect(CLIENT_SERVICE, None, Some("alice")).await;
    assert_eq!(setting.outcome(&mut alice, "Get", &get).await, exception::ACCESS_DENIED);
    setting.give(Rights::READ).await;
    let _: stele_wire::messages::GetResponse = message(&alice.call("Get", &get).await);
    let mut root = setting.connect(CLIENT_SERVICE, None, Some("root")).await;
    assert_eq!(setting.outcome(&mut root, "Get", &get).await, exception::ACCESS_DENIED);
    let mut nameless = setting.connect(CLIENT_SERVICE, None, None).await;
    assert_eq!(
        setting.outcome(&mut nameless, "Get", &get).await,
        exception::ACCESS_DENIED
    );
}

/// A cursor names the row that a scan has reached, also if it has no cell that the caller may see.
#[tokio::test(start_paused = true)]
async fn cursors_name_no_row_that_is_hidden() {
    let setting = secured(false);
    for row in 0..20 {
        setting.model.put(&format!("s{row:02}"), "q", "v");
    }
    setting.model.batch_rows.store(1, std::sync::atomic::Ordering::Relaxed);
    let table = Resource::Table(stele_types::TableName::new("default", "t"));
    let rule = |name: &str, families: &[&str]| AccessRule {
        families: families.iter().map(ToString::to_string).collect(),
        ..AccessRule::whole(Member::User(name.into()), Rights::READ)
    };
    let rules = vec![rule("alice", &["table"]), rule("bob", &[])];
    setting.rules.set_rules(&table, rules, None).await.unwrap();
    let scan = ScanRequest {
        region: Some(setting.model.region("r")),
        scan: Some(Scan {
            column: vec![Column {
                family: "table".into(),
                qualifier: Vec::new(),
            }],
            need_cursor_result: Some(true),
            ..Scan::default()
        }),
        number_of_rows: Some(10),
        client_handles_heartbeats: Some(true),
        track_scan_metrics: Some(true),
        ..ScanRequest::default()
    };
    let get = get(&setting.model);
    for (name, is_told) in [("alice", false), ("bob", true)] {
        let mut client = setting.connect(CLIENT_SERVICE, Some(name), None).await;
        assert_eq!(setting.outcome(&mut client, "Get", &get).await, "");
        // Each pause of the scan takes some seconds.
        #[allow(clippy::disallowed_methods, reason = "a task of the test's runtime")]
        let clock = tokio::spawn(async {
            loop {
                tokio::time::advance(std::time::Duration::from_secs(5)).await;
            }
        });
        let found: ScanResponse = message(&client.call("Scan", &scan).await);
        clock.abort();
        assert_eq!(found.heartbeat_message, Some(true), "{name}");
        assert_eq!(found.cursor.is_some(), is_told, "{name}: {:?}", found.cursor);
        let scanned = found.scan_metrics.unwrap().metrics[0].value;
        assert_eq!(scanned > Some(0), is_told, "{name}: {scanned:?}");
    }
}

fn get(model: &Model) -> GetRequest {
    GetRequest {
        region: model.region("r"),
        get: Get {
            row: "r".into(),
            ..Get::default()
        },
    }
}

#[tokio::test]
async fn calls_of_clients_need_their_rights() {
    let put = MutationProto {
        row: Some("r".into()),
        mutate_type: Some(MutationType::Delete as i32),
        ..MutationProto::default()
    };
    for (rights, reads, writes) in [
        (Rights::NONE, false, false),
        (Rights::READ, true, false),
        (Rights::WRITE, false, true),
        (Rights::ADMIN, false, false),
    ] {
        let setting = secured(false);
        if !rights.is_none() {
            setting.give(rights).await;
        }
        let region = || setting.model.region("r");
        let mut alice = setting.connect(CLIENT_SERVICE, Some("alice"), Some("root")).await;
        let is_denied = |class: String| class == exception::ACCESS_DENIED;
        let get = get(&setting.model);
        assert_eq!(
            is_denied(setting.outcome(&mut alice, "Get", &get).await),
            !reads,
            "{rights}"
        );
        let scan = ScanRequest {
            region: Some(region()),
            scan: Some(Scan::default()),
            number_of_rows: Some(10),
            ..ScanRequest::default()
        };
        assert_eq!(
            is_denied(setting.outcome(&mut alice, "Scan", &scan).await),
            !reads,
            "{rights}"
        );
        let mutate = MutateRequest {
            region: region(),
            mutation: put.clone(),
            ..MutateRequest::default()
        };
        assert_eq!(
            is_denied(setting.outcome(&mut alice, "Mutate", &mutate).await),
            !writes,
            "{rights}"
        );
        let multi = MultiRequest {
            region_action: vec![RegionAction {
                region: region(),
                ..RegionAction::default()
            }],
            ..MultiRequest::default()
        };
        let _ = setting.outcome(&mut alice, "Multi", &multi).await;
    }
}

#[tokio::test]
async fn calls_about_the_cluster_are_for_administrators() {
    for rights in [Rights::READ.and(Rights::WRITE), Rights::ALL] {
        let setting = secured(false);
        setting.give(rights).await;
        for (service, name) in SERVICES {
            for (method, needs) in calls(service) {
                if matches!(needs, Needs::Admin | Needs::AdminChecked) {
                    let mut alice = setting.connect(name, Some("alice"), None).await;
                    let class = setting.outcome(&mut alice, method, &Empty {}).await;
                    let is_denied = class == exception::ACCESS_DENIED;
                    assert_eq!(is_denied, !rights.has(Rights::ADMIN), "{method} with {rights}");
                }
            }
        }
    }
}

#[tokio::test]
async fn calls_that_are_not_listed_are_refused() {
    let setting = secured(false);
    setting.give(Rights::ALL).await;
    let mut alice = setting.connect(MASTER_SERVICE, Some("alice"), None).await;
    let class = setting.outcome(&mut alice, "NoSuchCall", &Empty {}).await;
    assert_eq!(class, exception::DO_NOT_RETRY);
}

/// Of the bearer of a token.
async fn connect(setting: &Setting, authorization: String) -> Client {
    let header = ConnectionHeader {
        service_name: Some(CLIENT_SERVICE.to_owned()),
        attribute: vec![NameBytesPair {
            name: "Authorization".to_owned(),
            value: Some(authorization.into()),
        }],
        ..ConnectionHeader::default()
    };
    Client::open(&setting.front_end, 64 << 10, &header).await.0
}

/// Alice, who may read and has a token.
async fn with_token(model: Arc<Model>) -> (Setting, Arc<Access>, tokens::NewToken) {
    let rules = Arc::new(MemoryRules::default());
    let alice = tokens::make("alice", &[7; tokens::RANDOM_BYTES], None).unwrap();
    let options = AccessOptions {
        tokens: Tokens::parse(&alice.line).unwrap(),
        ..AccessOptions::default()
    };
    let access = Access::new(rules.clone(), options, None, clocked());
    let front_end = model.front_end(&Pool::default()).with_access(Arc::clone(&access));
    let setting = Setting {
        model,
        rules,
        front_end,
    };
    setting.give(Rights::READ).await;
    (setting, access, alice)
}

/// The clock of the test is tokio's.
#[tokio::test(start_paused = true)]
async fn a_token_counts_while_the_connection_lasts() {
    let model = Model::new(&[""]);
    model.put("r", "q", "v");
    let (setting, access, alice) = with_token(model).await;
    let get = get(&setting.model);
    let mut client = connect(&setting, format!("Bearer {}", alice.token)).await;
    assert_eq!(setting.outcome(&mut client, "Get", &get).await, "");
    for other in ["Bearer stele_x_y", "Basic YTpi", "Bearer a.b.c", ""] {
        let refused = connect(&setting, other.to_owned()).await.call("Get", &get).await;
        assert_eq!(failure(&refused), exception::ACCESS_DENIED, "{other}");
    }
    access.set_tokens(Tokens::default());
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    assert_eq!(
        setting.outcome(&mut client, "Get", &get).await,
        exception::ACCESS_DENIED
    );
}
