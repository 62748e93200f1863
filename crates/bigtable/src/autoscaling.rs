//! The autoscaling of clusters: the rules of its fields, without effect on servers.

use crate::pb::admin;
use crate::status::invalid;
use admin::StorageType;
use admin::cluster::{ClusterAutoscalingConfig, Config};
use tonic::Status;

/// The published default for clusters on SSD, in GiB for each node.
const SSD_GIB_PER_NODE: i32 = 2560;
/// The published default for clusters on HDD, in GiB for each node.
const HDD_GIB_PER_NODE: i32 = 8192;

/// The autoscaling of a cluster, if it has any.
pub(crate) fn of(cluster: &admin::Cluster) -> Option<&ClusterAutoscalingConfig> {
    let Config::ClusterConfig(config) = cluster.config.as_ref()?;
    config.cluster_autoscaling_config.as_ref()
}

/// Puts the defaults in place of fields that are not set, and the number of nodes within the limits.
pub(crate) fn apply(cluster: &mut admin::Cluster) {
    let default = match cluster.default_storage_type() {
        StorageType::Hdd => HDD_GIB_PER_NODE,
        StorageType::Ssd | StorageType::Unspecified => SSD_GIB_PER_NODE,
    };
    if let Some(scaling) = of_mut(cluster)
        && let Some(targets) = &mut scaling.autoscaling_targets
        && targets.storage_utilization_gib_per_node == 0
    {
        targets.storage_utilization_gib_per_node = default;
    }
    cluster.serve_nodes = serve_nodes(cluster);
}

/// Takes over the part of `cluster_config` that a path of a field mask names.
pub(crate) fn update(cluster: &mut admin::Cluster, update: &admin::Cluster, path: &str) -> Result<(), Status> {
    let fields = match path.strip_prefix("cluster_config.cluster_autoscaling_config.") {
        Some(fields) => fields,
        None if matches!(path, "cluster_config" | "cluster_config.cluster_autoscaling_config") => {
            cluster.config.clone_from(&update.config);
            return Ok(());
        }
        None => return Err(invalid(format!("incorrect path in update_mask; got: {path}"))),
    };
    let given = of(update).copied().unwrap_or_default();
    let (given_limits, given_targets) = (
        given.autoscaling_limits.unwrap_or_default(),
        given.autoscaling_targets.unwrap_or_default(),
    );
    let Config::ClusterConfig(config) = cluster.config.get_or_insert(Config::ClusterConfig(Default::default()));
    let scaling = config.cluster_autoscaling_config.get_or_insert_default();
    let limits = || scaling.autoscaling_limits.unwrap_or_default();
    let targets = || scaling.autoscaling_targets.unwrap_or_default();
    match fields {
        "autoscaling_limits" => scaling.autoscaling_limits = given.autoscaling_limits,
        "autoscaling_targets" => scaling.autoscaling_targets = given.autoscaling_targets,
        "autoscaling_limits.min_serve_nodes" => {
            scaling.autoscaling_limits = Some(admin::AutoscalingLimits {
                min_serve_nodes: given_limits.min_serve_nodes,
                ..limits()
            });
        }
        "autoscaling_limits.max_serve_nodes" => {
            scaling.autoscaling_limits = Some(admin::AutoscalingLimits {
                max_serve_nodes: given_limits.max_serve_nodes,
                ..limits()
            });
        }
        "autoscaling_targets.cpu_utilization_percent" => {
            scaling.autoscaling_targets = Some(admin::AutoscalingTargets {
                cpu_utilization_percent: given_targets.cpu_utilization_percent,
                ..targets()
            });
        }
        "autoscaling_targets.storage_utilization_gib_per_node" => {
            scaling.autoscaling_targets = Some(admin::AutoscalingTargets {
                storage_utilization_gib_per_node: given_targets.storage_utilization_gib_per_node,
                ..targets()
            });
        }
        _ => return Err(invalid(format!("incorrect path in update_mask; got: {path}"))),
    }
    Ok(())
}

fn of_mut(cluster: &mut admin::Cluster) -> Option<&mut ClusterAutoscalingConfig> {
    let Config::ClusterConfig(config) = cluster.config.as_mut()?;
    config.cluster_autoscaling_config.as_mut()
}

/// The nodes of a cluster: within the limits of its autoscaling, or else the number that was asked for.
fn serve_nodes(cluster: &admin::Cluster) -> i32 {
    match of(cluster).and_then(|scaling| scaling.autoscaling_limits.as_ref()) {
        Some(limits) => {
            let least = limits.min_serve_nodes.max(1);
            cluster.serve_nodes.clamp(least, limits.max_serve_nodes.max(least))
        }
        None => cluster.serve_nodes.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(serve_nodes: i32, limits: (i32, i32), targets: (i32, i32)) -> admin::Cluster {
        let scaling = ClusterAutoscalingConfig {
            autoscaling_limits: Some(admin::AutoscalingLimits {
                min_serve_nodes: limits.0,
                max_serve_nodes: limits.1,
            }),
            autoscaling_targets: Some(admin::AutoscalingTargets {
                cpu_utilization_percent: targets.0,
                storage_utilization_gib_per_node: targets.1,
            }),
        };
        let config = admin::cluster::ClusterConfig {
            cluster_autoscaling_config: Some(scaling),
        };
        admin::Cluster {
            serve_nodes,
            config: Some(Config::ClusterConfig(config)),
            ..Default::default()
        }
    }

    #[test]
    fn autoscaling_bounds_the_nodes() {
        let nodes = |asked: i32, min: i32, max: i32| serve_nodes(&scaled(asked, (min, max), (0, 0)));
        assert_eq!(
            [
                nodes(0, 3, 4),
                nodes(9, 3, 4),
                nodes(4, 3, 5),
                nodes(2, 0, 0),
                nodes(-1, 7, -3)
            ],
            [3, 4, 4, 1, 7]
        );
        assert_eq!(serve_nodes(&admin::Cluster::default()), 1);
    }

    #[test]
    fn a_path_changes_the_field_that_it_names() {
        let update_of = scaled(0, (5, 6), (50, 3000));
        let after = |path: &str| {
            let mut cluster = scaled(2, (1, 4), (20, 2561));
            update(&mut cluster, &update_of, &format!("cluster_config{path}")).map(|()| cluster)
        };
        let autoscaling = ".cluster_autoscaling_config";
        let cases = [
            ("", (5, 6), (50, 3000)),
            (autoscaling, (5, 6), (50, 3000)),
            (".autoscaling_limits", (5, 6), (20, 2561)),
            (".autoscaling_targets", (1, 4), (50, 3000)),
            (".autoscaling_limits.min_serve_nodes", (5, 4), (20, 2561)),
            (".autoscaling_limits.max_serve_nodes", (1, 6), (20, 2561)),
            (".autoscaling_targets.cpu_utilization_percent", (1, 4), (50, 2561)),
            (
                ".autoscaling_targets.storage_utilization_gib_per_node",
                (1, 4),
                (20, 3000),
            ),
        ];
        for (path, limits, targets) in cases {
            let path = match path.starts_with(".autoscaling") {
                true => format!("{autoscaling}{path}"),
                false => path.to_owned(),
            };
            assert_eq!(after(&path).unwrap(), scaled(2, limits, targets), "{path}");
        }
        for path in [".x", ".cluster_autoscaling_config.x", "_x"] {
            assert!(after(path).is_err(), "{path}");
        }
        let mut manual = admin::Cluster::default();
        let field = "cluster_config.cluster_autoscaling_config.autoscaling_limits.max_serve_nodes";
        update(&mut manual, &update_of, field).unwrap();
        let limits = of(&manual).unwrap().autoscaling_limits.unwrap();
        assert_eq!((limits.min_serve_nodes, limits.max_serve_nodes), (0, 6));
    }

    #[test]
    fn no_target_for_storage_means_the_default() {
        let target = |storage: StorageType, asked: i32| {
            let mut cluster = scaled(0, (1, 2), (20, asked));
            cluster.default_storage_type = storage as i32;
            apply(&mut cluster);
            of(&cluster)
                .unwrap()
                .autoscaling_targets
                .unwrap()
                .storage_utilization_gib_per_node
        };
        assert_eq!(
            [
                target(StorageType::Ssd, 0),
                target(StorageType::Hdd, 0),
                target(StorageType::Hdd, 9200)
            ],
            [2560, 8192, 9200]
        );
    }
}
