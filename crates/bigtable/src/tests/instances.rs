use super::*;
use crate::instance_data::InstanceData;
use prost::Message as _;
use std::pin::pin;
use std::time::Duration;

fn instance_request(id: &str, clusters: &[&str]) -> admin::CreateInstanceRequest {
    let cluster = admin::Cluster {
        serve_nodes: 3,
        ..Default::default()
    };
    admin::CreateInstanceRequest {
        parent: "projects/p".into(),
        instance_id: id.into(),
        instance: Some(admin::Instance {
            display_name: "shown".into(),
            ..Default::default()
        }),
        clusters: clusters.iter().map(|id| ((*id).to_owned(), cluster.clone())).collect(),
    }
}

#[tokio::test]
async fn instances_live_and_die() {
    let harness = Harness::new();
    let mut client = harness.instances();
    let name = |id: &str| format!("projects/p/instances/{id}");
    let operation = client
        .create_instance(instance_request("made", &["c1"]))
        .await
        .unwrap()
        .into_inner();
    let made: admin::Instance = unpack(&operation, "Instance", "CreateInstanceMetadata");
    assert_eq!((made.name, made.state), (name("made"), 1));
    assert_eq!(
        code(client.create_instance(instance_request("made", &["c1"])).await),
        Code::AlreadyExists
    );
    assert_eq!(
        code(client.create_instance(instance_request("a b", &["c1"])).await),
        Code::InvalidArgument
    );
    harness.tables().create_table(table_request("t")).await.unwrap();
    let list = admin::ListInstancesRequest {
        parent: "projects/p".into(),
        ..Default::default()
    };
    let listed = client.list_instances(list).await.unwrap().into_inner().instances;
    let names: Vec<_> = listed
        .iter()
        .map(|i| (i.name.clone(), i.display_name.as_str()))
        .collect();
    assert_eq!(names, [(name("i"), "i"), (name("made"), "shown")]);

    let renamed = admin::Instance {
        name: name("made"),
        display_name: "new".into(),
        ..Default::default()
    };
    let partial = |paths| admin::PartialUpdateInstanceRequest {
        instance: Some(renamed.clone()),
        update_mask: mask(paths),
    };
    let operation = client
        .partial_update_instance(partial(&["display_name"]))
        .await
        .unwrap()
        .into_inner();
    let updated: admin::Instance = unpack(&operation, "Instance", "UpdateInstanceMetadata");
    assert_eq!(updated.display_name, "new");
    assert_eq!(
        code(client.partial_update_instance(partial(&["state"])).await),
        Code::InvalidArgument
    );
    assert_eq!(
        code(client.partial_update_instance(partial(&[])).await),
        Code::InvalidArgument
    );
    assert_eq!(
        client
            .update_instance(renamed.clone())
            .await
            .unwrap()
            .into_inner()
            .display_name,
        "new"
    );

    let delete = |name: String| admin::DeleteInstanceRequest { name };
    client.delete_instance(delete(name("made"))).await.unwrap();
    let error = client.delete_instance(delete(name("made"))).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::NotFound, "instance \"projects/p/instances/made\" not found")
    );
    assert_eq!(
        code(
            client
                .get_instance(admin::GetInstanceRequest { name: name("made") })
                .await
        ),
        Code::NotFound
    );
    assert_eq!(
        code(client.delete_instance(delete("x".into())).await),
        Code::InvalidArgument
    );
    for malformed in ["Made", "made*", "1made", "made-", "a b"] {
        let error = client.delete_instance(delete(name(malformed))).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{malformed}");
        assert!(error.message().ends_with(&format!("but found '{}'", name(malformed))));
    }
}

#[tokio::test]
async fn clusters_are_records() {
    let harness = Harness::new();
    let mut client = harness.instances();
    client.create_instance(instance_request("i", &["c1"])).await.unwrap();
    let name = |id: &str| format!("{INSTANCE}/clusters/{id}");
    let create = |id: &str| admin::CreateClusterRequest {
        parent: INSTANCE.into(),
        cluster_id: id.into(),
        cluster: Some(admin::Cluster::default()),
    };
    let operation = client.create_cluster(create("c2")).await.unwrap().into_inner();
    let made: admin::Cluster = unpack(&operation, "Cluster", "CreateClusterMetadata");
    assert_eq!((made.name, made.serve_nodes, made.state), (name("c2"), 1, 1));
    assert_eq!(code(client.create_cluster(create("c2")).await), Code::AlreadyExists);
    let update = admin::Cluster {
        name: name("c2"),
        serve_nodes: 5,
        ..Default::default()
    };
    let operation = client.update_cluster(update.clone()).await.unwrap().into_inner();
    assert_eq!(
        unpack::<admin::Cluster>(&operation, "Cluster", "UpdateClusterMetadata").serve_nodes,
        5
    );
    let partial = admin::PartialUpdateClusterRequest {
        cluster: Some(update),
        update_mask: mask(&["serve_nodes"]),
    };
    let operation = client.partial_update_cluster(partial).await.unwrap().into_inner();
    unpack::<admin::Cluster>(&operation, "Cluster", "PartialUpdateClusterMetadata");
    let list = |parent: &str| admin::ListClustersRequest {
        parent: parent.into(),
        ..Default::default()
    };
    for parent in [INSTANCE, "projects/p/instances/-"] {
        assert_eq!(
            client
                .list_clusters(list(parent))
                .await
                .unwrap()
                .into_inner()
                .clusters
                .len(),
            2
        );
    }
    let get = admin::GetClusterRequest { name: name("c1") };
    assert_eq!(client.get_cluster(get).await.unwrap().into_inner().serve_nodes, 3);
    let delete = |id: &str| admin::DeleteClusterRequest { name: name(id) };
    assert_eq!(code(client.delete_cluster(delete("c1")).await), Code::Ok);
    assert_eq!(code(client.delete_cluster(delete("c1")).await), Code::NotFound);
    assert_eq!(
        code(client.delete_cluster(delete("c2")).await),
        Code::FailedPrecondition
    );
}

#[tokio::test]
async fn app_profiles_are_records() {
    use admin::app_profile::{RoutingPolicy, SingleClusterRouting};
    let harness = Harness::with_table().await;
    let mut client = harness.instances();
    let name = |id: &str| format!("{INSTANCE}/appProfiles/{id}");
    let get = |id: &str| admin::GetAppProfileRequest { name: name(id) };
    assert_eq!(code(client.get_app_profile(get("default")).await), Code::Ok);
    let profile = |routing_policy| admin::CreateAppProfileRequest {
        parent: INSTANCE.into(),
        app_profile_id: "batch".into(),
        app_profile: Some(admin::AppProfile {
            routing_policy,
            ..Default::default()
        }),
        ignore_warnings: false,
    };
    let routing = || Some(RoutingPolicy::SingleClusterRouting(SingleClusterRouting::default()));
    assert_eq!(
        code(client.create_app_profile(profile(None)).await),
        Code::InvalidArgument
    );
    let made = client
        .create_app_profile(profile(routing()))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        code(client.create_app_profile(profile(routing())).await),
        Code::AlreadyExists
    );
    use admin::app_profile::{Isolation, Priority, StandardIsolation};
    let high = StandardIsolation {
        priority: Priority::High as i32,
    };
    assert_eq!(made.isolation, Some(Isolation::StandardIsolation(high)));
    let update = admin::UpdateAppProfileRequest {
        app_profile: Some(admin::AppProfile {
            name: name("batch"),
            description: "d".into(),
            ..Default::default()
        }),
        update_mask: mask(&["description"]),
        ignore_warnings: false,
    };
    let operation = client.update_app_profile(update).await.unwrap().into_inner();
    let updated: admin::AppProfile = unpack(&operation, "AppProfile", "UpdateAppProfileMetadata");
    assert_eq!((updated.description.as_str(), updated.routing_policy), ("d", routing()));
    for parent in [INSTANCE, "projects/p/instances/-"] {
        let list = admin::ListAppProfilesRequest {
            parent: parent.into(),
            ..Default::default()
        };
        let listed = client.list_app_profiles(list).await.unwrap().into_inner();
        let names: Vec<_> = listed.app_profiles.into_iter().map(|profile| profile.name).collect();
        assert_eq!(names.len(), 2);
        assert!(names.contains(&name("batch")), "{names:?}");
    }
    let delete = |id: &str| admin::DeleteAppProfileRequest {
        name: name(id),
        ignore_warnings: true,
    };
    assert_eq!(code(client.delete_app_profile(delete("batch")).await), Code::Ok);
    assert_eq!(code(client.delete_app_profile(delete("batch")).await), Code::NotFound);
    assert_eq!(
        code(client.delete_app_profile(delete("default")).await),
        Code::FailedPrecondition
    );
}

/// An instance that came with a table is created explicitly while it is changed. A client whose change succeeds finds
/// it.
#[tokio::test]
async fn an_instance_is_not_made_within_a_change_of_it() {
    let harness = Harness::with_table().await;
    let env = TokioRuntime::current();
    let pause = Duration::from_millis(50);
    let held = harness.fake.updates.lock().await;
    let (mut changing, mut making) = (harness.instances(), harness.instances());
    let renamed = admin::Instance {
        name: INSTANCE.into(),
        display_name: "new".into(),
        ..Default::default()
    };
    let mut change = pin!(changing.update_instance(renamed));
    assert!(env.timeout(pause, &mut change).await.is_err());
    let mut make = pin!(making.create_instance(instance_request("i", &["c1"])));
    assert!(
        env.timeout(pause, &mut make).await.is_err(),
        "the record has changed since it was read"
    );
    drop(held);
    assert_eq!(code(change.await), Code::Ok);
    assert_eq!(code(make.await), Code::AlreadyExists);
    let get = admin::GetInstanceRequest { name: INSTANCE.into() };
    let found = harness.instances().get_instance(get).await.unwrap().into_inner();
    assert_eq!(found.display_name, "new");
}

/// The change is carried out by the layers below, and no other change reads the old record meanwhile.
#[tokio::test]
async fn a_change_of_an_instance_keeps_its_turn_when_its_caller_goes_away() {
    let harness = Harness::with_table().await;
    let env = TokioRuntime::current();
    let pause = Duration::from_millis(50);
    let held = harness.fake.updates.lock().await;
    let mut client = harness.instances();
    let create = |id: &str| admin::CreateClusterRequest {
        parent: INSTANCE.into(),
        cluster_id: id.into(),
        cluster: Some(admin::Cluster::default()),
    };
    assert!(env.timeout(pause, client.create_cluster(create("c1"))).await.is_err());
    {
        let mut next = pin!(client.create_cluster(create("c2")));
        assert!(env.timeout(pause, &mut next).await.is_err());
        drop(held);
        assert_eq!(code(next.await), Code::Ok);
    }
    let list = admin::ListClustersRequest {
        parent: INSTANCE.into(),
        ..Default::default()
    };
    let listed = client.list_clusters(list).await.unwrap().into_inner().clusters;
    let names: Vec<_> = listed.into_iter().map(|cluster| cluster.name).collect();
    let expected = ["c1", "c2", "stele"].map(|id| format!("{INSTANCE}/clusters/{id}"));
    assert_eq!(names, expected);
}

/// Each server orders its own changes only.
#[tokio::test]
async fn a_change_is_made_again_on_a_record_that_another_server_has_changed() {
    let harness = Harness::with_table().await;
    let env = TokioRuntime::current();
    let held = harness.fake.updates.lock().await;
    let mut client = harness.instances();
    let create = admin::CreateClusterRequest {
        parent: INSTANCE.into(),
        cluster_id: "c1".into(),
        cluster: Some(admin::Cluster::default()),
    };
    let mut change = pin!(client.create_cluster(create));
    assert!(env.timeout(Duration::from_millis(50), &mut change).await.is_err());
    let elsewhere = InstanceData {
        instance: Some(admin::Instance {
            display_name: "of another server".into(),
            ..Default::default()
        }),
        ..InstanceData::default()
    };
    harness.fake.set_namespace("i", elsewhere.encode_to_vec());
    drop(held);
    assert_eq!(code(change.await), Code::Ok);
    let get = admin::GetInstanceRequest { name: INSTANCE.into() };
    let found = harness.instances().get_instance(get).await.unwrap().into_inner();
    assert_eq!(found.display_name, "of another server");
    let list = admin::ListClustersRequest {
        parent: INSTANCE.into(),
        ..Default::default()
    };
    let listed = harness.instances().list_clusters(list).await.unwrap().into_inner();
    assert_eq!(listed.clusters.len(), 2);
}

/// They travel in a header, whose size clients limit.
#[tokio::test]
async fn refusals_quote_long_names_in_part() {
    let harness = Harness::new();
    let mut client = harness.instances();
    let long = "x".repeat(300_000);
    let name = format!("projects/p/instances/{long}");
    let cluster = format!("{INSTANCE}/clusters/{long}");
    let profile = format!("{INSTANCE}/appProfiles/{long}");
    let mut twice = instance_request("i", &[]);
    twice.parent = format!("projects/{long}");
    let operation = crate::pb::longrunning::GetOperationRequest {
        name: "o".repeat(10_000),
    };
    client.create_instance(instance_request("i", &[])).await.unwrap();
    let refused = [
        client.get_instance(admin::GetInstanceRequest { name }).await.map(drop),
        client
            .get_cluster(admin::GetClusterRequest { name: cluster })
            .await
            .map(drop),
        client
            .get_app_profile(admin::GetAppProfileRequest { name: profile })
            .await
            .map(drop),
        client.create_instance(twice).await.map(drop),
        harness.operations().get_operation(operation).await.map(drop),
    ];
    for status in refused.map(Result::unwrap_err) {
        assert!(
            matches!(status.code(), Code::NotFound | Code::AlreadyExists),
            "{status}"
        );
        assert!(status.message().len() < 4_000, "{} bytes", status.message().len());
    }
}

/// Its record has the identity of the cluster, for clients of HBase.
#[tokio::test]
async fn the_namespace_of_hbase_is_no_instance_that_can_be_filled_or_deleted() {
    let harness = Harness::new();
    let parent = "projects/p/instances/hbase";
    let (mut instances, mut tables) = (harness.instances(), harness.tables());
    let made = instances.create_instance(instance_request("hbase", &["c1"])).await;
    assert_eq!(code(made), Code::InvalidArgument);
    let create = admin::CreateTableRequest {
        parent: parent.into(),
        ..table_request("t")
    };
    assert_eq!(code(tables.create_table(create).await), Code::NotFound);
    let undelete = admin::UndeleteTableRequest {
        name: format!("{parent}/tables/t"),
    };
    assert_eq!(code(tables.undelete_table(undelete).await), Code::NotFound);
    let restore = admin::RestoreTableRequest {
        parent: parent.into(),
        table_id: "t".into(),
        source: None,
    };
    assert_eq!(code(tables.restore_table(restore).await), Code::NotFound);
    harness.fake.set_namespace("hbase", Vec::new());
    let delete = admin::DeleteInstanceRequest { name: parent.into() };
    assert_eq!(code(instances.delete_instance(delete).await), Code::NotFound);
    let left = stele_client::TableAdmin::namespace(&*harness.fake, "hbase").await;
    assert!(left.unwrap().is_some());
}
