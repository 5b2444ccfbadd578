//! What the Raft groups of a node have in common when they start.

use super::Stop;
use super::map::map_path;
use crate::config::Config;
use crate::error::Error;
use crate::identity::{DataDir, Founding, Identity};
use crate::meta::{ClusterMap, ClusterSettings, MetaMachine, ShardEntry, decode_map};
use crate::metrics::ShardMetrics;
use crate::shard::stamp_clock::StampClock;
use crate::shard::{self, ShardHandle, ShardOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use weir_env::Env;
use weir_env::time::timeout;
use weir_raft::{Group, GroupOptions, GroupStatus, NodeId, Peers, RaftTimings};
use weir_store::{GroupId, SnapshotStore, Wal};

/// Raft group of the cluster map.
const META: GroupId = GroupId(0);
/// The meta log is tiny; this bounds it all the same.
const META_SNAPSHOT_LOG_BYTES: u64 = 1 << 20;

/// What the groups of this node have in common.
pub(super) struct Starter {
    pub(super) env: Env,
    pub(super) config: Arc<Config>,
    pub(super) wal: Wal,
    pub(super) peers: Peers,
    pub(super) me: NodeId,
}

impl Starter {
    fn timings(&self) -> RaftTimings {
        RaftTimings {
            heartbeat_ms: self.config.heartbeat_ms,
            election_min_ms: self.config.election_timeout_ms_min,
            election_max_ms: self.config.election_timeout_ms_max,
        }
    }

    async fn snapshots(&self, dir: &DataDir, group: GroupId) -> Result<SnapshotStore, Error> {
        let path = dir.path().join("groups").join(group.0.to_string());
        Ok(SnapshotStore::open(&self.env, &path).await?)
    }

    /// The map as this node last saw it, so that a restart needs no quorum to know its shards.
    pub(super) fn cached_map(&self, dir: &DataDir, identity: &Identity) -> Arc<ClusterMap> {
        let path = map_path(dir.path());
        if !self.env.disk.exists(&path) {
            return Arc::default();
        }
        let read = self.env.disk.read(&path).map_err(|e| e.to_string()).and_then(|bytes| decode_map(&bytes));
        match read {
            Ok(map) if map.cluster_id == identity.cluster_id() => Arc::new(map),
            Ok(_) => Arc::default(),
            Err(e) => {
                tracing::warn!(error = %e, "the copy of the map is unreadable; asking the cluster");
                Arc::default()
            }
        }
    }

    pub(super) async fn meta_group(
        &self,
        dir: &DataDir,
        machine: MetaMachine,
        founders: BTreeSet<NodeId>,
    ) -> Result<Group, Error> {
        Ok(Group::start(GroupOptions {
            id: META,
            me: self.me,
            timings: self.timings(),
            log: self.wal.group(META),
            snapshots: self.snapshots(dir, META).await?,
            peers: self.peers.clone(),
            env: self.env.clone(),
            machine: Box::new(machine),
            founders,
            snapshot_log_bytes: META_SNAPSHOT_LOG_BYTES,
        })
        .await?)
    }

    pub(super) async fn shard(
        &self,
        dir: &DataDir,
        entry: &ShardEntry,
        settings: &ClusterSettings,
        clock: Arc<StampClock>,
        metrics: Arc<ShardMetrics>,
    ) -> Result<ShardHandle, Error> {
        let config = &self.config;
        Ok(shard::start(ShardOptions {
            id: entry.id,
            me: self.me,
            env: self.env.clone(),
            timings: self.timings(),
            log: self.wal.group(entry.id.group()),
            snapshots: self.snapshots(dir, entry.id.group()).await?,
            peers: self.peers.clone(),
            snapshot_log_bytes: config.snapshot_log_bytes,
            clock,
            space_low: self.wal.space_low(),
            replicas: entry.replicas.iter().copied().collect(),
            slots: entry.slots.clone(),
            settings: weir_stream::Settings {
                stream_node_max_entries: settings.stream_node_max_entries,
                stream_node_max_bytes: settings.stream_node_max_bytes,
            },
            limits: shard::handle::Limits {
                commands_in_flight_max: config.queue_commands_max,
                bytes_in_flight_max: config.queue_bytes_max,
                waiters_max: config.blocked_clients_max,
                batch_commands_max: config.batch_commands_max,
                batch_bytes_max: config.batch_bytes_max,
                batches_in_flight_max: config.batches_in_flight_max,
            },
            metrics,
            write_timeout: Duration::from_millis(config.write_timeout_ms),
            follower_read_staleness_max: Duration::from_millis(config.follower_read_staleness_ms_max),
        })
        .await?)
    }

    /// Gives a new group its members. The first replica does so at once and so leads first; the others only if
    /// nothing has been heard for a while. Where it was done before it does nothing.
    pub(super) fn initialize(&self, stop: &Stop, group: &Group, replicas: &[NodeId], founding: &Founding) {
        let addr = |number: &NodeId| founding.nodes.get(*number as usize - 1).map(|n| n.member.peer_addr());
        let members: BTreeMap<NodeId, String> =
            replicas.iter().filter_map(|number| Some((*number, addr(number)?))).collect();
        if !members.contains_key(&self.me) {
            return;
        }
        let rank = replicas.iter().position(|n| *n == self.me).unwrap_or(0) as u32;
        let wait = 4 * rank * Duration::from_millis(self.config.election_timeout_ms_max);
        let group = group.clone();
        stop.run(&self.env, "first members", async move {
            let mut status = group.status();
            let known = |s: &GroupStatus| s.term > 0 || !s.voters.is_empty() || s.stopped.is_some();
            if rank > 0 && timeout(wait, status.wait_for(known)).await.is_ok() {
                return;
            }
            if let Err(e) = group.initialize(members).await {
                tracing::warn!(group = group.id().0, error = %e, "a new group did not take its members");
            }
        });
    }
}
