//! Generates the server stubs of the calls that are served, over message types of the published crates, so that neither
//! protoc nor a copy of the proto files is needed. Calls that are not listed here are answered UNIMPLEMENTED by
//! `calls`, which gets the list of the served ones from here too. ReadRows, MutateRow and MutateRows are served without a stub,
//! by `hot`.

use std::fmt::Write as _;
use std::path::Path;
use tonic_build::manual::{Builder, Method, Service};

/// Method in snake case, request type, response type; `stream ` before the response type makes it a server stream.
type Rpc = (&'static str, &'static str, &'static str);

const BIGTABLE: &[Rpc] = &[
    (
        "sample_row_keys",
        "wire::SampleRowKeysRequest",
        "stream pb::v2::SampleRowKeysResponse",
    ),
    (
        "check_and_mutate_row",
        "wire::CheckAndMutateRowRequest",
        "pb::v2::CheckAndMutateRowResponse",
    ),
    (
        "ping_and_warm",
        "pb::v2::PingAndWarmRequest",
        "pb::v2::PingAndWarmResponse",
    ),
    (
        "read_modify_write_row",
        "pb::v2::ReadModifyWriteRowRequest",
        "pb::v2::ReadModifyWriteRowResponse",
    ),
];

const TABLE_ADMIN: &[Rpc] = &[
    ("create_table", "pb::admin::CreateTableRequest", "pb::admin::Table"),
    (
        "list_tables",
        "pb::admin::ListTablesRequest",
        "pb::admin::ListTablesResponse",
    ),
    ("get_table", "pb::admin::GetTableRequest", "pb::admin::Table"),
    (
        "update_table",
        "pb::admin::UpdateTableRequest",
        "pb::longrunning::Operation",
    ),
    ("delete_table", "pb::admin::DeleteTableRequest", "pb::Empty"),
    (
        "modify_column_families",
        "pb::admin::ModifyColumnFamiliesRequest",
        "pb::admin::Table",
    ),
    ("drop_row_range", "pb::admin::DropRowRangeRequest", "pb::Empty"),
    (
        "generate_consistency_token",
        "pb::admin::GenerateConsistencyTokenRequest",
        "pb::admin::GenerateConsistencyTokenResponse",
    ),
    (
        "check_consistency",
        "pb::admin::CheckConsistencyRequest",
        "pb::admin::CheckConsistencyResponse",
    ),
];

const INSTANCE_ADMIN: &[Rpc] = &[
    (
        "create_instance",
        "pb::admin::CreateInstanceRequest",
        "pb::longrunning::Operation",
    ),
    ("get_instance", "pb::admin::GetInstanceRequest", "pb::admin::Instance"),
    (
        "list_instances",
        "pb::admin::ListInstancesRequest",
        "pb::admin::ListInstancesResponse",
    ),
    ("update_instance", "pb::admin::Instance", "pb::admin::Instance"),
    (
        "partial_update_instance",
        "pb::admin::PartialUpdateInstanceRequest",
        "pb::longrunning::Operation",
    ),
    ("delete_instance", "pb::admin::DeleteInstanceRequest", "pb::Empty"),
    (
        "create_cluster",
        "pb::admin::CreateClusterRequest",
        "pb::longrunning::Operation",
    ),
    ("get_cluster", "pb::admin::GetClusterRequest", "pb::admin::Cluster"),
    (
        "list_clusters",
        "pb::admin::ListClustersRequest",
        "pb::admin::ListClustersResponse",
    ),
    ("update_cluster", "pb::admin::Cluster", "pb::longrunning::Operation"),
    (
        "partial_update_cluster",
        "pb::admin::PartialUpdateClusterRequest",
        "pb::longrunning::Operation",
    ),
    ("delete_cluster", "pb::admin::DeleteClusterRequest", "pb::Empty"),
    (
        "create_app_profile",
        "pb::admin::CreateAppProfileRequest",
        "pb::admin::AppProfile",
    ),
    (
        "get_app_profile",
        "pb::admin::GetAppProfileRequest",
        "pb::admin::AppProfile",
    ),
    (
        "list_app_profiles",
        "pb::admin::ListAppProfilesRequest",
        "pb::admin::ListAppProfilesResponse",
    ),
    (
        "update_app_profile",
        "pb::admin::UpdateAppProfileRequest",
        "pb::longrunning::Operation",
    ),
    ("delete_app_profile", "pb::admin::DeleteAppProfileRequest", "pb::Empty"),
];

const OPERATIONS: &[Rpc] = &[
    (
        "get_operation",
        "pb::longrunning::GetOperationRequest",
        "pb::longrunning::Operation",
    ),
    (
        "list_operations",
        "pb::longrunning::ListOperationsRequest",
        "pb::longrunning::ListOperationsResponse",
    ),
    (
        "cancel_operation",
        "pb::longrunning::CancelOperationRequest",
        "pb::Empty",
    ),
    (
        "delete_operation",
        "pb::longrunning::DeleteOperationRequest",
        "pb::Empty",
    ),
    (
        "wait_operation",
        "pb::longrunning::WaitOperationRequest",
        "pb::longrunning::Operation",
    ),
];

const LOCALITY_GROUPS: &[Rpc] = &[
    (
        "get_locality_groups",
        "pb::own::GetLocalityGroupsRequest",
        "pb::own::LocalityGroupsResponse",
    ),
    (
        "modify_locality_groups",
        "pb::own::ModifyLocalityGroupsRequest",
        "pb::own::LocalityGroupsResponse",
    ),
];

const TABLE_SETTINGS: &[Rpc] = &[
    (
        "get_table_settings",
        "pb::own::GetTableSettingsRequest",
        "pb::own::Settings",
    ),
    (
        "update_table_settings",
        "pb::own::UpdateTableSettingsRequest",
        "pb::own::Settings",
    ),
];

const SERVICES: &[(&str, &str, &[Rpc])] = &[
    ("google.bigtable.v2", "Bigtable", BIGTABLE),
    ("google.bigtable.admin.v2", "BigtableTableAdmin", TABLE_ADMIN),
    ("google.bigtable.admin.v2", "BigtableInstanceAdmin", INSTANCE_ADMIN),
    ("google.longrunning", "Operations", OPERATIONS),
    ("stele.admin.v1", "LocalityGroups", LOCALITY_GROUPS),
    ("stele.admin.v1", "TableSettings", TABLE_SETTINGS),
];

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let services: Vec<Service> = SERVICES
        .iter()
        .map(|(package, name, rpcs)| service(package, name, rpcs))
        .collect();
    Builder::new().build_client(false).compile(&services);

    let mut served =
        String::from("/// The paths of all calls that have a stub.\npub(crate) const SERVED: &[&str] = &[\n");
    for (package, service, rpcs) in SERVICES {
        for (method, _, _) in *rpcs {
            let _ = writeln!(served, "    \"/{package}.{service}/{}\",", pascal_case(method));
        }
    }
    served.push_str("];\n");
    let out_dir = std::env::var("OUT_DIR").map_err(std::io::Error::other)?;
    #[allow(clippy::disallowed_methods, reason = "a build script has no storage seam")]
    std::fs::write(Path::new(&out_dir).join("served.rs"), served)
}

fn service(package: &str, name: &str, rpcs: &[Rpc]) -> Service {
    let builder = Service::builder().name(name).package(package);
    rpcs.iter()
        .fold(builder, |builder, rpc| builder.method(method(rpc)))
        .build()
}

fn method((name, request, response): &Rpc) -> Method {
    let (message, streaming) = match response.strip_prefix("stream ") {
        Some(message) => (message, true),
        None => (*response, false),
    };
    let builder = Method::builder()
        .name(name)
        .route_name(pascal_case(name))
        .input_type(format!("crate::{request}"))
        .output_type(format!("crate::{message}"))
        .codec_path("crate::codec::CountingCodec");
    if streaming {
        builder.server_streaming().build()
    } else {
        builder.build()
    }
}

fn pascal_case(snake: &str) -> String {
    snake
        .split('_')
        .map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_ascii_uppercase() + rest
        })
        .collect()
}
