//! One running node: everything that a request may need. Made once by `run.rs`, shared as `Arc<Node>`.

use crate::acl::directory::Directory;
use crate::acl::log::AclLog;
use crate::clients::Clients;
use crate::config::Config;
use crate::identity::Identity;
use crate::metrics::Metrics;
use crate::observe::Observe;
use crate::pubsub::hub::Hub;
use crate::route::Held;
use crate::settings::Settings;
use crate::shard::stamp_clock::StampClock;
use crate::shard::{ShardHandle, ShardId};
use crate::tls::Tls;
use crate::topology::Topology;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_env::Env;
use weir_raft::{Group, NodeId, Peers};
use weir_store::Wal;

/// See the module.
pub struct Node {
    /// The world.
    pub env: Env,
    /// Settings of this node.
    pub config: Arc<Config>,
    /// Who this node is.
    pub identity: Identity,
    /// What it believes about the cluster.
    pub topology: Topology,
    /// The replicas that it holds.
    pub shards: Shards,
    /// Its client connections.
    pub clients: Clients,
    /// Who listens to what on it.
    pub pubsub: Arc<Hub>,
    /// Its numbers.
    pub metrics: Arc<Metrics>,
    /// Connections to the other nodes.
    pub peers: Peers,
    /// Its log.
    pub wal: Wal,
    /// The group that holds the cluster map.
    pub meta: Group,
    /// Who may do what.
    pub acl: Arc<Directory>,
    /// Settings that CONFIG SET changes.
    pub settings: Settings,
    /// CLIENT PAUSE.
    pub pause: crate::pause::Pause,
    /// What operators look at.
    pub observe: Observe,
    /// SHUTDOWN was called: whoever runs the node stops it.
    pub(crate) asked_to_stop: tokio::sync::watch::Sender<bool>,
    /// What was refused lately.
    pub acl_log: AclLog,
    /// What it shows on secured connections.
    pub tls: Option<Arc<Tls>>,
    /// The clock of stamps.
    pub stamp_clock: Arc<StampClock>,
    /// Commands that wait for a leader.
    pub held: Held,
    /// 40 hex digits, new with each start (INFO run_id).
    pub run_id: String,
    pub(crate) started: Duration,
    pub(crate) ready: AtomicBool,
}

impl Node {
    /// Its number in Raft.
    pub fn number(&self) -> NodeId {
        self.identity.number()
    }

    /// Whether clients of other machines are turned away: it has no password that could keep anybody out.
    pub fn is_protected(&self) -> bool {
        self.settings.protected_mode.on() && self.acl.default_user().user.nopass
    }

    /// Time since it started.
    pub fn uptime(&self) -> Duration {
        self.env.clock.mono().saturating_sub(self.started)
    }

    /// When it was started, in Unix seconds.
    pub fn started_s(&self) -> u64 {
        (self.env.clock.wall_ms() / 1000).saturating_sub(self.uptime().as_secs())
    }

    /// Whether every slot has been served since it started. Once true it stays true.
    pub fn has_been_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

/// The replicas of this node. Cheap to read: a new map is made with each change.
#[derive(Default)]
pub struct Shards(RwLock<Arc<BTreeMap<ShardId, ShardHandle>>>);

impl Shards {
    /// The replica of this shard, if this node holds one.
    pub fn get(&self, id: ShardId) -> Option<ShardHandle> {
        self.0.read().get(&id).cloned()
    }

    /// All of them, by number.
    pub fn all(&self) -> Vec<ShardHandle> {
        self.0.read().values().cloned().collect()
    }

    /// Those that this node leads and serves at this moment: what node-wide commands cover.
    pub fn led(&self) -> Vec<ShardHandle> {
        self.0.read().values().filter(|shard| shard.serving()).cloned().collect()
    }

    /// Adds one.
    pub fn insert(&self, shard: ShardHandle) {
        let mut slot = self.0.write();
        let mut next = BTreeMap::clone(&slot);
        next.insert(shard.id(), shard);
        *slot = Arc::new(next);
    }
}
