//! Opens one shard: its machine, its Raft group, and the tasks between them.

use super::applier::{Applier, Core};
use super::batcher::Batcher;
use super::handle::{Inner, Limits, Load, ShardHandle};
use super::reader::Reader;
use super::stamp_clock::StampClock;
use super::{ShardId, duties};
use crate::metrics::ShardMetrics;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use weir_env::Env;
use weir_raft::{Group, GroupOptions, NodeId, Peers, RaftTimings};
use weir_stream::{Settings, SlotRange};

/// What a shard needs to start.
pub struct ShardOptions {
    /// Its number.
    pub id: ShardId,
    /// This node's Raft number.
    pub me: NodeId,
    /// The world.
    pub env: Env,
    /// Heartbeats and elections.
    pub timings: RaftTimings,
    /// Its part of the node's log.
    pub log: weir_store::GroupLog,
    /// Where its snapshots live.
    pub snapshots: weir_store::SnapshotStore,
    /// Connections to the other nodes.
    pub peers: Peers,
    /// A snapshot is taken after this many bytes of log.
    pub snapshot_log_bytes: u64,
    /// Clock of stamps, one a node.
    pub clock: Arc<StampClock>,
    /// True while only the disk's reserve is left.
    pub space_low: watch::Receiver<bool>,
    /// The nodes that the shard was founded on.
    pub replicas: BTreeSet<NodeId>,
    /// The slots of a shard that is founded now; an existing shard's own log is the authority.
    pub slots: Vec<SlotRange>,
    /// Settings of a shard that is founded now.
    pub settings: Settings,
    /// Bounds.
    pub limits: Limits,
    /// Where its numbers go.
    pub metrics: Arc<ShardMetrics>,
    /// A write whose end nobody can tell is answered `UNKNOWN` after this long.
    pub write_timeout: Duration,
    /// Oldest state a follower read may show.
    pub follower_read_staleness_max: Duration,
}

/// Starts the replica of this node. Its tasks end when the last handle is dropped or the group shuts down.
///
/// # Errors
/// What the Raft group says: a damaged snapshot or log, a failed disk.
pub async fn start(options: ShardOptions) -> Result<ShardHandle, weir_raft::Error> {
    let (garbage, garbage_queue) = mpsc::unbounded_channel();
    let core = Arc::new(Core::new(
        options.clock,
        options.space_low,
        garbage,
        options.limits.waiters_max,
        options.metrics,
    ));
    let group = Group::start(GroupOptions {
        id: options.id.group(),
        me: options.me,
        timings: options.timings,
        log: options.log,
        snapshots: options.snapshots,
        peers: options.peers,
        env: options.env.clone(),
        machine: Box::new(Applier { core: core.clone() }),
        founders: options.replicas,
        snapshot_log_bytes: options.snapshot_log_bytes,
    })
    .await?;
    core.attach(group.status());
    let (writes, submissions) = mpsc::unbounded_channel();
    let (reads, requests) = mpsc::unbounded_channel();
    let spawn = &options.env.spawn;
    let batcher = Batcher {
        core: core.clone(),
        group: group.clone(),
        submissions,
        // Nonces of an earlier life of this process must not match: the upper half is drawn.
        next_nonce: options.env.rng.u64() << 32,
        limits: options.limits,
        write_timeout: options.write_timeout,
    };
    spawn.spawn("shard-batcher", Box::pin(batcher.run()));
    let reader = Reader {
        core: core.clone(),
        group: group.clone(),
        requests,
        writes: writes.downgrade(),
        spawn: spawn.clone(),
        staleness_max: options.follower_read_staleness_max,
    };
    spawn.spawn("shard-reader", Box::pin(reader.run()));
    spawn.spawn("shard-time", Box::pin(duties::keep_time(core.clone(), writes.downgrade())));
    spawn.spawn("shard-expiry", Box::pin(duties::expire_keys(core.clone(), writes.downgrade())));
    spawn.spawn("shard-woken", Box::pin(duties::serve_woken(core.clone(), writes.downgrade())));
    spawn.spawn("shard-garbage", Box::pin(duties::free_garbage(garbage_queue)));
    let following = duties::follow_leadership(
        core.clone(),
        group.status(),
        writes.downgrade(),
        options.slots,
        options.settings,
    );
    spawn.spawn("shard-leadership", Box::pin(following));
    Ok(ShardHandle(Arc::new(Inner {
        id: options.id,
        core,
        group,
        writes,
        reads,
        load: Arc::new(Load::default()),
        limits: options.limits,
        tickets: AtomicU64::new(1),
    })))
}
