//! Handlers of the calls for app profiles.
//!
//! App profiles of an instance are records that are stored and returned. Data calls accept any profile id and route the
//! same.

use crate::accounting::Call;
use crate::context::Context;
use crate::instance_data::{DEFAULT_APP_PROFILE, InstanceData, check_size, default_isolation};
use crate::masks;
use crate::names::{InstanceName, check_resource_id, parse_child};
use crate::operation_log::Typed;
use crate::pb::admin;
use crate::pb::longrunning::Operation;
use crate::status::{self, invalid};
use tonic::Status;

const COLLECTION: &str = "appProfiles";

pub(crate) async fn create_app_profile(
    context: &Context,
    call: &Call,
    request: admin::CreateAppProfileRequest,
) -> Result<admin::AppProfile, Status> {
    let instance = InstanceName::parse(&request.parent)?;
    let id = request.app_profile_id;
    check_resource_id("app profile", &id)?;
    let mut profile = request.app_profile.unwrap_or_default();
    if profile.routing_policy.is_none() {
        return Err(invalid("app_profile must have a routing policy"));
    }
    profile.name.clone_from(&id);
    profile.etag.clear();
    profile.isolation.get_or_insert_with(default_isolation);
    context
        .change_instance(call, &instance, |data| {
            if data.app_profiles().iter().any(|profile| profile.name == id) {
                return Err(Status::already_exists(format!("app profile {id:?} already exists")));
            }
            data.app_profiles.push(profile.clone());
            data.app_profiles.sort_by(|a, b| a.name.cmp(&b.name));
            check_size(data)?;
            Ok(profile_proto(&instance, profile.clone()))
        })
        .await
}

pub(crate) async fn get_app_profile(
    context: &Context,
    call: &Call,
    request: admin::GetAppProfileRequest,
) -> Result<admin::AppProfile, Status> {
    let name = &request.name;
    let (instance, id) = parse_child(name, COLLECTION)?;
    let profiles = context.existing_instance(call, &instance).await?.app_profiles();
    let found = profiles.into_iter().find(|profile| profile.name == id);
    found
        .map(|profile| profile_proto(&instance, profile))
        .ok_or_else(|| not_found(name))
}

pub(crate) async fn list_app_profiles(
    context: &Context,
    call: &Call,
    request: admin::ListAppProfilesRequest,
) -> Result<admin::ListAppProfilesResponse, Status> {
    let name = InstanceName::parse(&request.parent)?;
    let instances = context.named_instances(call, &name).await?;
    let profiles = instances.iter().flat_map(|(name, data)| protos(name, data));
    Ok(admin::ListAppProfilesResponse {
        app_profiles: profiles.collect(),
        ..Default::default()
    })
}

pub(crate) async fn update_app_profile(
    context: &Context,
    call: &Call,
    request: admin::UpdateAppProfileRequest,
) -> Result<Operation, Status> {
    let update = request.app_profile.ok_or_else(|| invalid("app_profile must be set"))?;
    let paths = masks::some_paths(request.update_mask)?;
    let (instance, id) = parse_child(&update.name, COLLECTION)?;
    let updated = context
        .change_instance(call, &instance, |data| {
            let mut profiles = data.app_profiles();
            let profile = profiles
                .iter_mut()
                .find(|profile| profile.name == id)
                .ok_or_else(|| not_found(&update.name))?;
            for path in &paths {
                apply(profile, &update, path)?;
            }
            let shown = profile_proto(&instance, profile.clone());
            data.app_profiles = profiles;
            check_size(data)?;
            Ok(shown)
        })
        .await?;
    Ok(context.done(
        call,
        &update.name,
        Typed {
            name: "AppProfile",
            message: &updated,
        },
        Typed {
            name: "UpdateAppProfileMetadata",
            message: &admin::UpdateAppProfileMetadata {},
        },
    ))
}

pub(crate) async fn delete_app_profile(
    context: &Context,
    call: &Call,
    request: admin::DeleteAppProfileRequest,
) -> Result<(), Status> {
    let name = &request.name;
    let (instance, id) = parse_child(name, COLLECTION)?;
    if id == DEFAULT_APP_PROFILE {
        return Err(Status::failed_precondition("The default app profile cannot be deleted"));
    }
    context
        .change_instance(call, &instance, |data| {
            let before = data.app_profiles.len();
            data.app_profiles.retain(|profile| profile.name != id);
            if data.app_profiles.len() == before {
                Err(not_found(name))
            } else {
                Ok(())
            }
        })
        .await
}

/// Routing and isolation are oneofs: naming any member of one replaces it.
fn apply(profile: &mut admin::AppProfile, update: &admin::AppProfile, path: &str) -> Result<(), Status> {
    match path.split('.').next() {
        Some("description") => profile.description.clone_from(&update.description),
        Some("multi_cluster_routing_use_any" | "single_cluster_routing") => {
            profile.routing_policy.clone_from(&update.routing_policy);
        }
        Some("standard_isolation" | "data_boost_isolation_read_only" | "priority") => {
            profile.isolation.clone_from(&update.isolation);
        }
        _ => {
            return Err(invalid(format!("incorrect path in update_mask; got: {path}")));
        }
    }
    Ok(())
}

/// A profile as the API shows it. It has no etag, as in the managed service.
fn profile_proto(instance: &InstanceName, mut profile: admin::AppProfile) -> admin::AppProfile {
    profile.isolation.get_or_insert_with(default_isolation);
    profile.name = instance.app_profile(&profile.name);
    profile
}

fn protos(instance: &InstanceName, data: &InstanceData) -> impl Iterator<Item = admin::AppProfile> {
    let profiles = data.app_profiles().into_iter();
    profiles.map(|profile| profile_proto(instance, profile))
}

fn not_found(name: &str) -> Status {
    status::not_found(format!("app profile {name:?} not found"))
}
