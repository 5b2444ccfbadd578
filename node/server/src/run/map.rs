//! The cluster map on this node: its first version, its copy on disk, and this node's address in it.

use crate::acl::directory::Directory;
use crate::error::data_dir_error;
use crate::identity::{Founder, Founding, draw_hex};
use crate::meta::{ClusterMap, ClusterSettings, MetaCommand, NodeEntry, encode_map, initial_shards};
use crate::topology::Topology;
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;
use weir_env::Env;
use weir_raft::{Group, NodeId, Nonce, Peers};

/// Nodes beyond this many follow the meta group without a vote.
pub(super) const META_VOTERS_MAX: usize = 5;

/// What the leader of the meta group does: the first map, and the nodes that follow without a vote.
pub(super) async fn meta_duties(
    env: Env,
    meta: Group,
    map: watch::Receiver<Arc<ClusterMap>>,
    founding: Founding,
) {
    let mut status = meta.status();
    let mut proposed_in_term = 0;
    loop {
        let now = status.borrow_and_update().clone();
        if now.is_leader && now.ready {
            if map.borrow().epoch == 0 && proposed_in_term != now.term {
                proposed_in_term = now.term;
                let command = MetaCommand::Bootstrap(first_map(&env, &founding));
                // Refused means that another node leads now and will propose its own.
                let _ = meta.propose(Nonce(env.rng.u64()), Bytes::from(command.encode())).await;
            }
            for (founder, number) in founding.nodes.iter().zip(1..).skip(META_VOTERS_MAX) {
                if !now.voters.contains(&number) && !now.learners.contains(&number) {
                    // Tried again with the next change of the group.
                    let _ = meta.add_learner(number, founder.member.peer_addr()).await;
                }
            }
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

pub(super) fn first_map(env: &Env, founding: &Founding) -> ClusterMap {
    let numbers: Vec<NodeId> = (1..=founding.nodes.len() as NodeId).collect();
    let hexes = (0..founding.shards).map(|_| draw_hex(&*env.rng)).collect();
    let node = |(founder, number): (&Founder, NodeId)| NodeEntry {
        number,
        name: founder.member.name.clone(),
        id: founder.id.clone(),
        host: founder.advertise.clone(),
        peer_host: founder.member.host.clone(),
        port: founder.member.port,
    };
    ClusterMap {
        epoch: 1,
        cluster_id: founding.cluster_id.clone(),
        nodes: founding.nodes.iter().zip(1..).map(node).collect(),
        shards: initial_shards(&numbers, founding.replicas, hexes),
        settings: ClusterSettings {
            durability: founding.durability,
            stream_node_max_entries: founding.stream_node_max_entries,
            stream_node_max_bytes: founding.stream_node_max_bytes,
        },
        ..ClusterMap::default()
    }
}

pub(super) fn map_path(dir: &Path) -> PathBuf {
    dir.join("map")
}

/// Follows the map: routing, peer addresses, and the copy on disk.
pub(super) async fn keep_map(
    env: Env,
    mut map: watch::Receiver<Arc<ClusterMap>>,
    topology: Topology,
    users: Arc<Directory>,
    peers: Peers,
    dir: PathBuf,
) {
    let path = map_path(&dir);
    loop {
        let now = map.borrow_and_update().clone();
        // Whoever waits for the map finds its users.
        users.set(&now.users);
        if topology.map().epoch < now.epoch {
            topology.set_map(now.clone());
        }
        for node in now.nodes.iter().filter(|n| n.number != peers.me()) {
            peers.set_addr(node.number, node.peer_addr());
        }
        let (disk, copy) = (env.disk.clone(), path.clone());
        env.spawn.blocking(
            "map copy",
            Box::new(move || {
                if let Err(e) = disk.write_atomic(&copy, &encode_map(&now)) {
                    // Only a copy: the meta group has the map.
                    tracing::warn!("{}", data_dir_error(&copy, "cannot be written", &e));
                }
            }),
        );
        if map.changed().await.is_err() {
            return;
        }
    }
}
