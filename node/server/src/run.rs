//! One node from its data directory to its listeners, and back. `main.rs` starts nodes here, and the simulator.
//!
//! Up: claim the directory, open the ports and the log, found or find the cluster (`bootstrap.rs`), start the meta
//! group, learn the map, start the replicas, let clients in. Down: hand leadership over, let clients go, stop the
//! groups, flush and close the log.

use crate::config::{ADMIN_PORT_OFFSET, Config, Durability, PEER_PORT_OFFSET};
use crate::error::{Error, data_dir_error};
use crate::identity::{DataDir, Founding, Identity, Phase, draw_hex};
use crate::meta::{
    ClusterMap, ClusterSettings, MetaCommand, MetaMachine, NodeEntry, ShardEntry, decode_map, encode_map,
    initial_shards,
};
use crate::node::{Node, Shards};
use crate::route::Held;
use crate::shard::stamp_clock::StampClock;
use crate::shard::{self, ShardHandle, ShardOptions};
use crate::topology::{Leadership, Topology};
use crate::{admin, announce, balance, bootstrap, listener};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use weir_env::time::{Instant, sleep, timeout};
use weir_env::{BoxFuture, Env, Listener, TaskHandle};
use weir_raft::{
    CallFrom, Group, GroupOptions, GroupStatus, NodeId, Nonce, PeerHandler, PeerIdentity, Peers, RaftTimings,
    Registry, serve_peers,
};
use weir_store::{GroupId, SnapshotStore, Wal, WalOptions};

/// Raft group of the cluster map.
const META: GroupId = GroupId(0);
/// Nodes beyond this many follow the meta group without a vote.
const META_VOTERS_MAX: usize = 5;
/// The meta log is tiny; this bounds it all the same.
const META_SNAPSHOT_LOG_BYTES: u64 = 1 << 20;
/// A port that is taken is tried again this long: the process before us may be on its way out.
const PORT_PATIENCE: Duration = Duration::from_secs(5);
const PORT_RETRY: Duration = Duration::from_millis(100);
/// Handing leadership over may take this long of a stop.
const HANDOVER_MAX: Duration = Duration::from_millis(900);
/// All that comes after it may take this long.
const CLOSE_MAX: Duration = Duration::from_millis(700);
/// A leader that does not serve yet is looked at this often.
const NOT_YET_SERVING: Duration = Duration::from_millis(10);

/// A node that serves. Dropping it does not stop it; [`RunningNode::shutdown`] does.
pub struct RunningNode {
    node: Arc<Node>,
    peers_served: Registry,
    stop: Arc<Stop>,
    _dir: DataDir,
}

/// What ends a node: being told to, or a failure that it cannot go on with.
struct Stop {
    closing: watch::Sender<bool>,
    ended: watch::Sender<Option<Result<(), String>>>,
    tasks: Mutex<Vec<TaskHandle>>,
}

impl Stop {
    fn new() -> Arc<Self> {
        let (closing, ended) = (watch::channel(false).0, watch::channel(None).0);
        Arc::new(Stop { closing, ended, tasks: Mutex::default() })
    }

    fn run(&self, env: &Env, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let boxed: BoxFuture<'static, ()> = Box::pin(task);
        self.tasks.lock().push(env.spawn.spawn(name, boxed));
    }

    /// Ends when the node is told to stop.
    fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut closing = self.closing.subscribe();
        async move {
            // A dropped sender is a node that is gone.
            let _ = closing.wait_for(|closing| *closing).await;
        }
    }

    fn fail(&self, why: String) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                tracing::error!("{why}");
                *ended = Some(Err(why));
            }
            first
        });
    }
}

/// Starts a node and returns once its replicas run and clients are let in. That is before the cluster serves: see
/// [`RunningNode::ready`]. A new cluster's nodes wait here for each other.
///
/// # Errors
/// One line that says what, where and what to do. Nothing is left running.
pub async fn start_node(env: Env, config: Config) -> Result<RunningNode, Error> {
    config.check_start()?;
    let stop = Stop::new();
    let started = start(env, config, &stop).await;
    if started.is_err() {
        stop.closing.send_replace(true);
        for task in stop.tasks.lock().drain(..) {
            task.abort();
        }
    }
    started
}

async fn start(env: Env, config: Config, stop: &Arc<Stop>) -> Result<RunningNode, Error> {
    let dir = DataDir::claim(&env, &config.dir)?;
    let identity = dir.identity(&config)?;
    let client_listener = bind(&env, &config, 0, "client").await?;
    let peer_listener = bind(&env, &config, PEER_PORT_OFFSET, "peer").await?;
    let admin_listener = bind(&env, &config, ADMIN_PORT_OFFSET, "admin").await?;

    let config = Arc::new(config);
    let site = admin::Site::default();
    stop.run(&env, "admin", admin::serve(env.clone(), admin_listener, site.clone(), stop.closing()));

    let wal = open_wal(&env, &config, &dir, identity.phase).await?;
    watch_wal(&env, &wal, stop);

    let peers = Peers::new(env.clone(), 0, peer_identity(&identity));
    let registry = Registry::new();
    let introduction = bootstrap::Introduction::new(identity, &config);
    let desk = Arc::new(Desk::new(&env, &introduction));
    let serve = serve_peers(
        env.clone(),
        peer_listener,
        peers.clone(),
        registry.clone(),
        desk.clone(),
        stop.closing(),
    );
    stop.run(&env, "peer listener", serve);

    let identity = bootstrap::found(&dir, &introduction, &peers).await?;
    let Some(founding) = identity.founding.clone() else { unreachable!("a member knows its founding") };
    let me = identity.number();
    introduce(&peers, &identity, &founding);
    let topology = Topology::new(me);
    let _ = desk.topology.set(topology.clone());

    let starter =
        Starter { env: env.clone(), config: config.clone(), wal: wal.clone(), peers: peers.clone(), me };
    let (map_sender, mut map) = watch::channel(starter.cached_map(&dir, &identity));
    let meta = starter.meta_group(&dir, MetaMachine::new(map_sender)).await?;
    registry.insert(meta.clone());
    let _ = desk.meta.set(meta.clone());
    let voters: Vec<NodeId> = (1..=founding.nodes.len() as NodeId).take(META_VOTERS_MAX).collect();
    starter.initialize(stop, &meta, &voters, &founding);
    stop.run(&env, "meta", meta_duties(env.clone(), meta.clone(), map.clone(), founding.clone()));
    watch_group(&env, stop, meta.clone(), "the meta group");

    let first_map = match map.wait_for(|map| map.epoch > 0).await {
        Ok(map) => map.clone(),
        Err(_) => {
            return Err(Error::Refused(
                "the meta group stopped before it had a map: see the log above".into(),
            ));
        }
    };
    check_map(&first_map, &identity)?;
    topology.set_map(first_map.clone());
    stop.run(&env, "map", keep_map(env.clone(), map, topology.clone(), peers.clone(), config.dir.clone()));

    let stamp_clock = Arc::new(StampClock::new(env.clock.clone(), config.clock_skew_ms_max));
    let shards = Shards::default();
    for entry in first_map.shards.iter().filter(|s| s.replicas.contains(&me)) {
        let handle = starter.shard(&dir, entry, &first_map.settings, stamp_clock.clone()).await?;
        registry.insert(handle.group().clone());
        starter.initialize(stop, handle.group(), &entry.replicas, &founding);
        shards.insert(handle);
    }

    let node = Arc::new(Node {
        run_id: draw_hex(&*env.rng),
        started: env.clock.mono(),
        held: Held::new(config.held_commands_max, config.held_bytes_max),
        clients: crate::clients::Clients::default(),
        metrics: Arc::default(),
        ready: false.into(),
        env: env.clone(),
        config,
        identity,
        topology,
        shards,
        peers,
        wal,
        meta,
        stamp_clock,
    });
    for handle in node.shards.all() {
        watch_group(&env, stop, handle.group().clone(), "a shard");
        stop.run(&env, "leadership", watch_leadership(node.clone(), handle));
    }
    stop.run(&env, "announce", announce::run(node.clone()));
    stop.run(&env, "balance", balance::run(node.clone()));
    stop.run(&env, "ready", watch_ready(node.clone()));
    stop.run(&env, "address", tell_address(node.clone()));
    site.open(&node);
    let (closing, clients_of) = (stop.closing(), node.clone());
    stop.run(&env, "listener", async move {
        tokio::select! {
            () = closing => {}
            () = listener::serve(clients_of, client_listener) => {}
        }
    });
    Ok(RunningNode { node, peers_served: registry, stop: stop.clone(), _dir: dir })
}

impl RunningNode {
    /// The node, for those who look into it.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Returns once every slot is served, as far as this node has heard.
    pub async fn ready(&self) {
        let mut changed = self.node.topology.changed();
        while !self.node.has_been_ready() && changed.changed().await.is_ok() {}
    }

    /// Returns when the node has stopped: `Ok` after [`RunningNode::shutdown`].
    ///
    /// # Errors
    /// Why it could not go on: a failed or damaged log. The process must exit non-zero.
    pub async fn stopped(&self) -> Result<(), String> {
        let mut ended = self.stop.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(Ok(())),
            Err(_) => Ok(()),
        }
    }

    /// Hands leadership over, lets clients go, flushes and closes. Takes at most 1.6 s.
    pub async fn shutdown(&self) {
        if timeout(HANDOVER_MAX, self.hand_over()).await.is_err() {
            tracing::warn!("not all leadership could be handed over in time");
        }
        self.close().await;
    }

    /// [`RunningNode::shutdown`] without handing leadership over: for when the whole cluster stops.
    pub async fn close(&self) {
        self.stop.closing.send_replace(true);
        let close = async {
            // Replies on their way go out before the connections close and the groups end.
            sleep(Duration::from_millis(20)).await;
            self.node.clients.kill_all();
            for group in self.peers_served.all() {
                group.shutdown().await;
            }
            if let Err(e) = self.node.wal.close().await {
                tracing::warn!(error = %e, "the log was not closed in order");
            }
        };
        if timeout(CLOSE_MAX, close).await.is_err() {
            tracing::warn!("closing took too long; what was answered is safe");
        }
        for task in self.stop.tasks.lock().drain(..) {
            task.abort();
        }
        self.stop.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert(Ok(()));
            first
        });
    }

    async fn hand_over(&self) {
        let view = self.node.topology.view();
        let moves = self.peers_served.all().into_iter().map(|group| {
            let mut others = group.matched();
            others.retain(|(node, _)| view.reachable(*node));
            async move {
                if !group.status().borrow().is_leader {
                    return;
                }
                if let Some((to, _)) = others.into_iter().max_by_key(|(_, matched)| *matched)
                    && let Err(e) = group.transfer_leader(to).await
                {
                    tracing::info!(group = group.id().0, to, error = %e, "leadership was not handed over");
                }
            }
        });
        futures_util::future::join_all(moves).await;
    }
}

async fn bind(env: &Env, config: &Config, offset: u16, what: &str) -> Result<Box<dyn Listener>, Error> {
    let ip: IpAddr = config.bind.parse().map_err(|_| {
        Error::Listen(format!(
            "--bind {} is not an address to listen on, such as 127.0.0.1 or 0.0.0.0",
            config.bind
        ))
    })?;
    let addr = SocketAddr::new(ip, config.port + offset);
    let give_up = Instant::now() + PORT_PATIENCE;
    loop {
        match env.net.bind(addr).await {
            Ok(listener) => return Ok(listener),
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < give_up => {
                sleep(PORT_RETRY).await
            }
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
                return Err(Error::Listen(format!(
                    "{what} port {addr} is taken by another process: stop that one, or choose another --port \
                     (peers use --port + 10000, admin --port + 20000)"
                )));
            }
            Err(e) => {
                return Err(Error::Listen(format!(
                    "cannot listen on {what} port {addr}: {e}; look at --bind and --port"
                )));
            }
        }
    }
}

async fn open_wal(env: &Env, config: &Config, dir: &DataDir, phase: Phase) -> Result<Wal, Error> {
    let options = WalOptions {
        segment_bytes: config.wal_segment_bytes,
        cache_bytes: config.wal_cache_bytes,
        reserve_bytes: config.wal_reserve_bytes,
        durability: match config.durability {
            Durability::Always => weir_store::Durability::Always,
            Durability::EverySec => weir_store::Durability::EverySec,
            Durability::Os => weir_store::Durability::Os,
        },
        // It was there before this node became a member.
        must_exist: phase == Phase::Member,
        ..WalOptions::default()
    };
    Ok(Wal::open(env, &dir.path().join("wal"), options).await?)
}

/// A log that failed ends the node: nothing it says afterwards could be kept.
fn watch_wal(env: &Env, wal: &Wal, stop: &Arc<Stop>) {
    let (mut failed, told) = (wal.failed(), stop.clone());
    stop.run(env, "log failures", async move {
        if let Ok(error) = failed.wait_for(Option::is_some).await
            && let Some(error) = &*error
        {
            told.fail(format!("the log failed, this node stops: {error}"));
        }
    });
}

/// A group that stopped by itself has lost its storage or its senses; the node says so and stops (P11).
fn watch_group(env: &Env, stop: &Arc<Stop>, group: Group, what: &'static str) {
    let told = stop.clone();
    stop.run(env, "group failures", async move {
        let mut status = group.status();
        let stopped = status.wait_for(|s| s.stopped.is_some()).await.ok().and_then(|s| s.stopped.clone());
        if let Some(why) = stopped
            && !*told.closing.borrow()
        {
            told.fail(format!("{what} (Raft group {}) stopped, this node stops: {why}", group.id().0));
        }
    });
}

fn peer_identity(identity: &Identity) -> PeerIdentity {
    let member = identity.phase == Phase::Member;
    PeerIdentity {
        cluster_id: if member { identity.cluster_id().to_owned() } else { String::new() },
        node_hex: identity.id.clone(),
    }
}

/// From here on peers know each other by number, and refuse whoever does not fit.
fn introduce(peers: &Peers, identity: &Identity, founding: &Founding) {
    peers.set_me(identity.number(), peer_identity(identity));
    for (founder, number) in founding.nodes.iter().zip(1..) {
        if number != identity.number() {
            peers.set_addr(number, founder.member.peer_addr());
            peers.set_node_hex(number, founder.id.clone());
        }
    }
}

fn check_map(map: &ClusterMap, identity: &Identity) -> Result<(), Error> {
    let known = map.node(identity.number()).is_some_and(|n| n.id == identity.id);
    if known && map.cluster_id == identity.cluster_id() {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "the cluster map does not know {} as {}: this data directory belongs to another cluster",
        identity.name, identity.id
    )))
}

/// What the groups of this node have in common.
struct Starter {
    env: Env,
    config: Arc<Config>,
    wal: Wal,
    peers: Peers,
    me: NodeId,
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
    fn cached_map(&self, dir: &DataDir, identity: &Identity) -> Arc<ClusterMap> {
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

    async fn meta_group(&self, dir: &DataDir, machine: MetaMachine) -> Result<Group, Error> {
        Ok(Group::start(GroupOptions {
            id: META,
            me: self.me,
            timings: self.timings(),
            log: self.wal.group(META),
            snapshots: self.snapshots(dir, META).await?,
            peers: self.peers.clone(),
            env: self.env.clone(),
            machine: Box::new(machine),
            snapshot_log_bytes: META_SNAPSHOT_LOG_BYTES,
        })
        .await?)
    }

    async fn shard(
        &self,
        dir: &DataDir,
        entry: &ShardEntry,
        settings: &ClusterSettings,
        clock: Arc<StampClock>,
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
            slots: entry.slots.clone(),
            settings: weir_stream::Settings {
                stream_node_max_entries: settings.stream_node_max_entries,
                stream_node_max_bytes: settings.stream_node_max_bytes,
            },
            limits: shard::handle::Limits {
                commands_in_flight_max: config.queue_commands_max,
                bytes_in_flight_max: config.queue_bytes_max,
                waiters_max: config.blocked_clients_max,
            },
            write_timeout: Duration::from_millis(config.write_timeout_ms),
            follower_read_staleness_max: Duration::from_millis(config.follower_read_staleness_ms_max),
        })
        .await?)
    }

    /// Gives a new group its members. The first replica does so at once and so leads first; the others only if
    /// nothing has been heard for a while. Where it was done before it does nothing.
    fn initialize(&self, stop: &Stop, group: &Group, replicas: &[NodeId], founding: &Founding) {
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

/// What the leader of the meta group does: the first map, and the nodes that follow without a vote.
async fn meta_duties(env: Env, meta: Group, map: watch::Receiver<Arc<ClusterMap>>, founding: Founding) {
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

fn first_map(env: &Env, founding: &Founding) -> ClusterMap {
    let numbers: Vec<NodeId> = (1..=founding.nodes.len() as NodeId).collect();
    let hexes = (0..founding.shards).map(|_| draw_hex(&*env.rng)).collect();
    let node = |(founder, number): (&crate::identity::Founder, NodeId)| NodeEntry {
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
    }
}

fn map_path(dir: &Path) -> std::path::PathBuf {
    dir.join("map")
}

/// Follows the map: routing, peer addresses, and the copy on disk.
async fn keep_map(
    env: Env,
    mut map: watch::Receiver<Arc<ClusterMap>>,
    topology: Topology,
    peers: Peers,
    dir: std::path::PathBuf,
) {
    let path = map_path(&dir);
    loop {
        let now = map.borrow_and_update().clone();
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

/// Tells the topology who leads a shard and whether this node, if it does, serves.
async fn watch_leadership(node: Arc<Node>, shard: ShardHandle) {
    let mut status = shard.group().status();
    let metrics = node.metrics.shard(shard.id());
    let (mut term, mut led, mut served) = (0, false, false);
    loop {
        let (now, leader, leads, last) = {
            let now = status.borrow_and_update();
            (now.term, now.leader, now.is_leader, now.last_index)
        };
        metrics.progress.note(node.env.clock.mono(), last);
        if now != term {
            term = now;
            metrics.elections.inc();
        }
        let serves = leads && shard.serving() && shard.machine(|m| !m.owned_ranges().is_empty());
        if (leads, serves) != (led, served) {
            let state = match (leads, serves) {
                (true, true) => "this node leads and serves",
                (true, false) => "this node leads, and does not serve yet or has lost its majority",
                _ => "this node no longer leads",
            };
            tracing::info!(node = node.identity.name, shard = shard.id().0, term, "{state}");
            (led, served) = (leads, serves);
        }
        let heard = Leadership { term, leader, serving: leads.then_some(serves) };
        node.topology.observe(shard.id(), heard, node.number());
        let changed = if leads && !serves {
            timeout(NOT_YET_SERVING, status.changed()).await.unwrap_or(Ok(()))
        } else {
            status.changed().await
        };
        if changed.is_err() {
            return;
        }
    }
}

async fn watch_ready(node: Arc<Node>) {
    let mut changed = node.topology.changed();
    loop {
        changed.borrow_and_update();
        if node.topology.view().all_served() {
            node.ready.store(true, Ordering::Relaxed);
            node.topology.touch();
            return;
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}

/// Has the map changed when this node was started with another `--advertise` than it was founded with.
async fn tell_address(node: Arc<Node>) {
    loop {
        let map = node.topology.map();
        let Some(me) = map.node(node.number()).filter(|me| me.host != node.config.advertise) else { return };
        let command = MetaCommand::MoveNode {
            number: me.number,
            host: node.config.advertise.clone(),
            peer_host: me.peer_host.clone(),
            port: me.port,
        };
        let payload = Bytes::from(command.encode());
        let leader = node.meta.status().borrow().leader;
        // Tried again until the map says so, whatever became of this try.
        if leader == Some(node.number()) {
            let _ = node.meta.propose(Nonce(node.env.rng.u64()), payload).await;
        } else if let Some(leader) = leader {
            let _ = node.peers.call(leader, KIND_CHANGE_MAP, payload, ADDRESS_RETRY).await;
        }
        let mut changed = node.topology.changed();
        let _ = timeout(ADDRESS_RETRY, changed.changed()).await;
    }
}

/// Kind of the peer call that asks the meta leader to propose a change. Permanent.
const KIND_CHANGE_MAP: u16 = 3;
const ADDRESS_RETRY: Duration = Duration::from_secs(1);

/// Answers what peers ask besides consensus.
struct Desk {
    env: Env,
    introduction: bootstrap::Introduction,
    topology: OnceLock<Topology>,
    meta: OnceLock<Group>,
}

impl Desk {
    fn new(env: &Env, introduction: &bootstrap::Introduction) -> Self {
        let (topology, meta) = (OnceLock::new(), OnceLock::new());
        Desk { env: env.clone(), introduction: introduction.clone(), topology, meta }
    }

    async fn change_map(&self, payload: Bytes) -> Result<Bytes, String> {
        MetaCommand::decode(&payload)?;
        let meta = self.meta.get().ok_or("the meta group has not started yet")?;
        let proposed = meta.propose(Nonce(self.env.rng.u64()), payload).await;
        proposed.map(|()| Bytes::new()).map_err(|e| e.to_string())
    }
}

#[async_trait::async_trait]
impl PeerHandler for Desk {
    async fn call(&self, from: CallFrom, kind: u16, payload: Bytes) -> Result<Bytes, String> {
        match (kind, self.topology.get()) {
            (bootstrap::KIND_HELLO, _) => Ok(self.introduction.answer()),
            (announce::KIND_ANNOUNCE, Some(topology)) if from.verified => {
                announce::answer(&self.env, topology, from.node, &payload)
            }
            (KIND_CHANGE_MAP, _) if from.verified => self.change_map(payload).await,
            (announce::KIND_ANNOUNCE | KIND_CHANGE_MAP, _) => {
                Err("not a member of this cluster yet".to_owned())
            }
            (other, _) => Err(format!("unknown call {other}: a newer version of weir?")),
        }
    }
}
