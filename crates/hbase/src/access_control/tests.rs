//! Rights through the calls of the master and of the service of regions.

use super::*;
use crate::HBaseFrontEnd;
use crate::acl_table::{SCHEMA, place_in};
use crate::names::ACL_TABLE;
use crate::test_service::{Client, Model, failure, message};
use bytes::Bytes;
use std::collections::HashSet;
use std::sync::Arc;
use stele_access::testing::MemoryRules;
use stele_access::{Access, AccessOptions, Rules};
use stele_client::AccessAdmin;
use stele_env::tokio_env::TokioRuntime;
use stele_memory::Pool;
use stele_types::TableName;
use stele_wire::frame::Response;
use stele_wire::messages::PermissionAction::{Admin, Create, Exec, Read, Write};
use stele_wire::messages::{
    self, CLIENT_SERVICE, CellMessage, ConnectionHeader, CoprocessorServiceCall, CoprocessorServiceResponse,
    GetRequest, GlobalPermission, MASTER_SERVICE, NamespacePermission, PermissionAction, RegionSpecifier, Scan,
    ScanRequest, ScanResponse, SecurityCapabilitiesResponse, TablePermission,
};
use stele_wire::{meta, region};

struct Setting {
    rules: Arc<MemoryRules>,
    front_end: HBaseFrontEnd,
}

impl Setting {
    fn new() -> Self {
        let model = Model::new(&[""]);
        let rules = Arc::new(MemoryRules::default());
        let options = AccessOptions {
            superusers: HashSet::from(["root".to_owned()]),
            ..AccessOptions::default()
        };
        let access = Access::new(rules.clone(), options, None, TokioRuntime::current());
        let front_end = model.front_end(&Pool::default());
        let front_end = front_end.with_rules(Rules::open(rules.clone())).with_access(access);
        Setting { rules, front_end }
    }

    async fn connect(&self, service: &str, name: &str) -> Client {
        let header = ConnectionHeader {
            service_name: Some(service.to_owned()),
            ..ConnectionHeader::default()
        };
        let front_end = self.front_end.for_connection(Some(name.to_owned()));
        Client::open(&front_end, 64 << 10, &header).await.0
    }

    async fn call(&self, name: &str, method: &'static str, request: &impl prost::Message) -> Response {
        self.connect(MASTER_SERVICE, name).await.call(method, request).await
    }

    async fn grant(&self, name: &str, user: &str, permission: Permission, merges: bool) -> Response {
        let request = GrantRequest {
            user_permission: of(user, permission),
            merge_existing_permissions: Some(merges),
        };
        self.call(name, "Grant", &request).await
    }

    async fn revoke(&self, name: &str, user: &str, permission: Permission) -> Response {
        let user_permission = of(user, permission);
        self.call(name, "Revoke", &RevokeRequest { user_permission }).await
    }

    /// The rules of a resource as text.
    fn shown(&self, resource: &Resource) -> String {
        let all = self.rules.rules();
        let rules = all.get(resource).map(|found| found.rules.to_vec()).unwrap_or_default();
        let each = rules.iter().map(|rule| {
            let families = rule.families.join(",");
            format!("{} {} [{families}]", rule.member, rule.rights)
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

fn of(user: &str, permission: Permission) -> UserPermission {
    UserPermission {
        user: user.to_owned().into(),
        permission,
    }
}

fn numbers(letters: &[PermissionAction]) -> Vec<i32> {
    letters.iter().map(|letter| *letter as i32).collect()
}

fn global(letters: &[PermissionAction]) -> Permission {
    Permission {
        r#type: PermissionType::Global as i32,
        global_permission: Some(GlobalPermission {
            action: numbers(letters),
        }),
        ..Permission::default()
    }
}

fn of_namespace(name: &'static str, letters: &[PermissionAction]) -> Permission {
    Permission {
        r#type: PermissionType::Namespace as i32,
        namespace_permission: Some(NamespacePermission {
            namespace_name: Some(name.into()),
            action: numbers(letters),
        }),
        ..Permission::default()
    }
}

fn of_table(family: Option<&'static str>, qualifier: Option<&'static str>, letters: &[PermissionAction]) -> Permission {
    Permission {
        r#type: PermissionType::Table as i32,
        table_permission: Some(TablePermission {
            table_name: Some(messages::TableName {
                namespace: "default".into(),
                qualifier: "t".into(),
            }),
            family: family.map(Into::into),
            qualifier: qualifier.map(Into::into),
            action: numbers(letters),
        }),
        ..Permission::default()
    }
}

fn table_resource() -> Resource {
    Resource::Table(TableName::new("default", "t"))
}

fn succeeded(response: &Response) {
    let _: Empty = message(response);
}

fn text(response: &Response) -> String {
    let exception = response.header.exception.clone().expect("it failed");
    exception.stack_trace.unwrap_or_default()
}

#[tokio::test]
async fn granted_rights_are_rules_until_they_are_revoked() {
    let setting = Setting::new();
    let whole = of_table(None, None, &[Read, Exec]);
    succeeded(&setting.grant("root", "alice", whole, true).await);
    let more = of_table(None, None, &[Write]);
    succeeded(&setting.grant("root", "alice", more.clone(), true).await);
    succeeded(
        &setting
            .grant("root", "@staff", of_table(Some("info"), None, &[Read]), true)
            .await,
    );
    assert_eq!(
        setting.shown(&table_resource()),
        "user:alice read+write []; group:staff read [info]"
    );
    succeeded(&setting.grant("root", "alice", more, false).await);
    succeeded(
        &setting
            .revoke("root", "@staff", of_table(Some("info"), None, &[]))
            .await,
    );
    assert_eq!(setting.shown(&table_resource()), "user:alice write []");
    succeeded(
        &setting
            .grant("root", "bob", global(&[Read, Write, Exec, Create, Admin]), true)
            .await,
    );
    succeeded(&setting.grant("root", "bob", of_namespace("n", &[Read]), true).await);
    assert_eq!(setting.shown(&Resource::Cluster), "user:bob read+write+admin []");
    assert_eq!(setting.shown(&Resource::Namespace("n".into())), "user:bob read []");
    succeeded(&setting.revoke("root", "bob", global(&[Write])).await);
    assert_eq!(setting.shown(&Resource::Cluster), "user:bob read+admin []");
}

#[tokio::test]
async fn rights_that_rules_do_not_have_are_refused() {
    let setting = Setting::new();
    for (permission, why) in [
        (of_table(Some("info"), Some("q"), &[Read]), "Rights on a column"),
        (of_table(Some("info"), None, &[Admin]), "on a family"),
        (of_table(None, None, &[Read, Create]), "CREATE without ADMIN"),
        (of_table(None, None, &[Exec]), "EXEC alone"),
        (of_table(None, None, &[]), "No actions associated"),
        (of_namespace("", &[Read]), "names no namespace"),
        (Permission::default(), "No actions associated"),
    ] {
        let refused = setting.grant("root", "alice", permission, true).await;
        assert_eq!(failure(&refused), exception::DO_NOT_RETRY);
        assert!(text(&refused).contains(why), "{}", text(&refused));
    }
    let column = of_table(Some("info"), Some("q"), &[]);
    assert!(text(&setting.revoke("root", "alice", column).await).contains("Rights on a column"));
    let nobody = setting.grant("root", "@", of_table(None, None, &[Read]), true).await;
    assert!(text(&nobody).contains("no name of a user"));
    assert!(setting.rules.rules().is_empty());
}

#[tokio::test]
async fn only_administrators_of_a_part_change_and_list_its_rights() {
    let setting = Setting::new();
    let read = || of_table(None, None, &[Read]);
    assert_eq!(
        failure(&setting.grant("alice", "alice", read(), true).await),
        exception::ACCESS_DENIED
    );
    assert_eq!(
        failure(&setting.revoke("alice", "root", read()).await),
        exception::ACCESS_DENIED
    );
    succeeded(
        &setting
            .grant("root", "alice", of_table(None, None, &[Admin]), true)
            .await,
    );
    succeeded(&setting.grant("alice", "bob", read(), true).await);
    let beyond = setting
        .grant("alice", "bob", of_namespace("default", &[Read]), true)
        .await;
    assert_eq!(failure(&beyond), exception::ACCESS_DENIED);
    let request = GetUserPermissionsRequest {
        r#type: Some(PermissionType::Table as i32),
        table_name: read().table_permission.and_then(|part| part.table_name),
        ..GetUserPermissionsRequest::default()
    };
    let denied = setting.call("bob", "GetUserPermissions", &request).await;
    assert_eq!(failure(&denied), exception::ACCESS_DENIED);
    let listed: GetUserPermissionsResponse = message(&setting.call("alice", "GetUserPermissions", &request).await);
    let expected = [of("alice", of_table(None, None, &[Create, Admin])), of("bob", read())];
    assert_eq!(listed.user_permission, expected);
    let of_bob = GetUserPermissionsRequest {
        user_name: Some("bob".into()),
        ..request.clone()
    };
    let listed: GetUserPermissionsResponse = message(&setting.call("alice", "GetUserPermissions", &of_bob).await);
    assert_eq!(listed.user_permission, expected[1..]);
    let of_family = GetUserPermissionsRequest {
        column_family: Some("info".into()),
        ..request
    };
    let listed: GetUserPermissionsResponse = message(&setting.call("alice", "GetUserPermissions", &of_family).await);
    assert!(listed.user_permission.is_empty());
    let all = GetUserPermissionsRequest::default();
    assert_eq!(
        failure(&setting.call("alice", "GetUserPermissions", &all).await),
        exception::ACCESS_DENIED
    );
    let listed: GetUserPermissionsResponse = message(&setting.call("root", "GetUserPermissions", &all).await);
    assert_eq!(listed.user_permission[0].user, "root");
}

#[tokio::test]
async fn questions_for_rights_are_answered_about_oneself_and_to_administrators() {
    let setting = Setting::new();
    succeeded(
        &setting
            .grant("root", "alice", of_table(Some("info"), None, &[Read]), true)
            .await,
    );
    let ask = |user: Option<&'static str>| HasUserPermissionsRequest {
        user_name: user.map(Into::into),
        permission: vec![
            of_table(Some("info"), None, &[Read, Exec]),
            of_table(Some("info"), Some("q"), &[Read]),
            of_table(Some("info"), None, &[Read, Write]),
            of_table(None, None, &[Read]),
            global(&[Admin]),
        ],
    };
    let answers = async |name: &str, user| {
        let response = setting.call(name, "HasUserPermissions", &ask(user)).await;
        message::<HasUserPermissionsResponse>(&response).has_user_permission
    };
    let expected = [true, true, false, false, false];
    assert_eq!(answers("alice", None).await, expected);
    assert_eq!(answers("alice", Some("alice")).await, expected);
    assert_eq!(answers("root", Some("alice")).await, expected);
    assert_eq!(answers("root", None).await, [true; 5]);
    assert_eq!(answers("root", Some("bob")).await, [false; 5]);
    let of_other = setting.call("alice", "HasUserPermissions", &ask(Some("bob"))).await;
    assert_eq!(failure(&of_other), exception::ACCESS_DENIED);
    let many = HasUserPermissionsRequest {
        permission: vec![global(&[Read]); QUESTIONS_MAX + 1],
        ..HasUserPermissionsRequest::default()
    };
    let refused = setting.call("root", "HasUserPermissions", &many).await;
    assert_eq!(failure(&refused), exception::DO_NOT_RETRY);
}

/// Calls a method of the service at the region of `hbase:acl`.
async fn call_service(client: &mut Client, method: &str, request: &impl prost::Message) -> Response {
    let request = CoprocessorServiceRequest {
        region: acl_region(),
        call: CoprocessorServiceCall {
            row: Bytes::new(),
            service_name: SERVICE.to_owned(),
            method_name: method.to_owned(),
            request: request.encode_to_vec().into(),
        },
    };
    client.call("ExecService", &request).await
}

fn acl_region() -> RegionSpecifier {
    let place = place_in(&SCHEMA).expect("its schema");
    RegionSpecifier::named(region::name(&crate::regions::info(&SCHEMA.name, &place)))
}

#[tokio::test]
async fn older_clients_find_the_service_at_its_table() {
    let setting = Setting::new();
    let mut root = setting.connect(CLIENT_SERVICE, "root").await;
    let table = ACL_TABLE.as_bytes();
    let lookup = ScanRequest {
        region: Some(RegionSpecifier::named(region::META_REGION.into())),
        scan: Some(Scan {
            start_row: Some(meta::lookup_start(table, b"")),
            stop_row: Some(meta::table_start(table)),
            reversed: Some(true),
            ..Scan::default()
        }),
        number_of_rows: Some(1),
        ..ScanRequest::default()
    };
    let response = root.call("Scan", &lookup).await;
    let found: ScanResponse = message(&response);
    let cell: CellMessage = messages::decode("Cell", found.results[0].cell[0].clone()).unwrap();
    assert_eq!(cell.row, Some(acl_region().value));
    let request = GrantRequest {
        user_permission: of("alice", of_table(None, None, &[Read])),
        merge_existing_permissions: None,
    };
    let response: CoprocessorServiceResponse = message(&call_service(&mut root, "Grant", &request).await);
    assert!(response.value.name.ends_with("AccessControlProtos$GrantResponse"));
    assert_eq!(setting.shown(&table_resource()), "user:alice read []");
    let mut alice = setting.connect(CLIENT_SERVICE, "alice").await;
    let check = |letter| CheckPermissionsRequest {
        permission: vec![of_table(None, None, &[letter])],
    };
    let _: CoprocessorServiceResponse = message(&call_service(&mut alice, "CheckPermissions", &check(Read)).await);
    let denied = call_service(&mut alice, "CheckPermissions", &check(Write)).await;
    assert_eq!(failure(&denied), exception::ACCESS_DENIED);
    let denied = call_service(&mut alice, "Grant", &request).await;
    assert_eq!(failure(&denied), exception::ACCESS_DENIED);
    let unknown = call_service(&mut alice, "Steal", &request).await;
    assert_eq!(failure(&unknown), exception::UNKNOWN_PROTOCOL);
    let get = GetRequest {
        region: acl_region(),
        get: messages::Get {
            row: "alice".into(),
            ..messages::Get::default()
        },
    };
    assert_eq!(failure(&root.call("Get", &get).await), exception::DO_NOT_RETRY);
}

#[tokio::test]
async fn the_shell_sees_that_rights_count() {
    let setting = Setting::new();
    let response = setting.call("alice", "getSecurityCapabilities", &Empty {}).await;
    let found: SecurityCapabilitiesResponse = message(&response);
    assert_eq!(found.capabilities, [0, 2]);
}
