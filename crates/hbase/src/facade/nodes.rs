//! The nodes of the façade: those that HBase clients read.

use crate::context::Identity;
use bytes::Bytes;
use std::collections::BTreeMap;
use stele_wire::messages::ServerName;
use stele_wire::zookeeper::Stat;
use stele_wire::zookeeper::nodes::{
    ClusterId, ClusterUp, Master, MetaRegionServer, RegionServerInfo, STATE_OPEN, encode,
};

/// HBase's node, below which all others are. Clients have it as `zookeeper.znode.parent`.
const BASE: &str = "/hbase";

/// Version of the protocol, as HBase numbers it in its nodes.
const RPC_VERSION: u32 = 0;

/// A node.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub data: Bytes,
    /// Names of the nodes directly below it.
    pub children: Vec<String>,
    pub stat: Stat,
}

/// All nodes by path.
#[derive(Debug)]
pub(super) struct Nodes(BTreeMap<String, Node>);

impl Nodes {
    /// The nodes of a cluster of one server. The nodes of servers vanish with `session` in a real cluster.
    pub fn of(identity: &Identity, session: i64) -> Self {
        let server = ServerName {
            host_name: identity.host.clone(),
            port: Some(u32::from(identity.port)),
            start_code: Some(identity.start_code),
        };
        let name = format!("{},{},{}", identity.host, identity.port, identity.start_code);
        let master = Master {
            master: server.clone(),
            rpc_version: Some(RPC_VERSION),
            info_port: Some(0),
        };
        let meta = MetaRegionServer {
            server,
            rpc_version: Some(RPC_VERSION),
            state: Some(STATE_OPEN),
        };
        let cluster_id = ClusterId {
            cluster_id: identity.cluster_id.clone(),
        };
        let up = ClusterUp {
            start_date: identity.start_code.to_string(),
        };
        let info = RegionServerInfo { info_port: Some(0) };
        let mut nodes = Nodes(BTreeMap::from([("/".to_owned(), Node::default())]));
        let made_ms = i64::try_from(identity.start_code).unwrap_or(0);
        nodes.add(BASE, Bytes::new(), made_ms, 0);
        let own = |name: &str| format!("{BASE}/{name}");
        // A table without a node below `table` is enabled; clients of HBase 2 read states in `hbase:meta`.
        for name in ["backup-masters", "draining", "rs", "table"] {
            nodes.add(&own(name), Bytes::new(), made_ms, 0);
        }
        nodes.add(&own("hbaseid"), encode(&cluster_id), made_ms, 0);
        nodes.add(&own("running"), encode(&up), made_ms, 0);
        nodes.add(&own("meta-region-server"), encode(&meta), made_ms, 0);
        nodes.add(&own("master"), encode(&master), made_ms, session);
        nodes.add(&own(&format!("rs/{name}")), encode(&info), made_ms, session);
        nodes
    }

    fn add(&mut self, path: &str, data: Bytes, made_ms: i64, owner: i64) {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let above = if above.is_empty() { "/" } else { above };
        if let Some(above) = self.0.get_mut(above) {
            above.children.push(name.to_owned());
            above.stat.children += 1;
        }
        let stat = Stat {
            made_ms,
            owner,
            data_bytes: i32::try_from(data.len()).unwrap_or(i32::MAX),
            children: 0,
        };
        let node = Node {
            data,
            children: Vec::new(),
            stat,
        };
        self.0.insert(path.to_owned(), node);
    }

    /// The node of a path.
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.0.get(path)
    }

    /// How many nodes are below one.
    pub fn below(&self, path: &str) -> i32 {
        let prefix = if path == "/" {
            path.to_owned()
        } else {
            format!("{path}/")
        };
        let below = self
            .0
            .keys()
            .filter(|key| key.len() > prefix.len() && key.starts_with(&prefix));
        i32::try_from(below.count()).unwrap_or(i32::MAX)
    }
}
