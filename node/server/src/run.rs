//! One node from its data directory to its listeners, and back. `main.rs` starts nodes here, and the simulator.
//!
//! Up: claim the directory, open the ports and the log, found or find the cluster (`bootstrap.rs`), start the meta
//! group, learn the map, start the replicas, let clients in. Down: hand leadership over, let clients go, stop the
//! groups, flush and close the log.

pub(crate) mod desk;
mod map;
mod starter;
mod watch;

use crate::acl::directory::Directory;
use crate::acl::log::AclLog;
use crate::config::{ADMIN_PORT_OFFSET, Config, Durability, PEER_PORT_OFFSET};
use crate::error::{Error, data_dir_error};
use crate::identity::{DataDir, Founding, Identity, Phase, draw_hex};
use crate::meta::{ClusterMap, MetaMachine};
use crate::metrics::Metrics;
use crate::node::{Node, Shards};
use crate::observe::{Observe, rates};
use crate::pubsub::hub::Hub;
use crate::route::Held;
use crate::settings::Settings;
use crate::shard::stamp_clock::StampClock;
use crate::tls::Tls;
use crate::topology::Topology;
use crate::{admin, announce, balance, bootstrap, listener};
use parking_lot::Mutex;
use starter::Starter;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::{Sender, channel};
use weir_env::time::{Instant, sleep, timeout};
use weir_env::{BoxFuture, Env, Listener, TaskHandle};
use weir_raft::{NodeId, PeerIdentity, Peers, Registry, serve_peers};
use weir_store::{Owner, Wal, WalOptions};

/// A port that is taken is tried again this long: the process before us may be on its way out.
const PORT_PATIENCE: Duration = Duration::from_secs(5);
const PORT_RETRY: Duration = Duration::from_millis(100);
/// Handing leadership over may take this long of a stop.
const HANDOVER_MAX: Duration = Duration::from_millis(900);
/// All that comes after it may take this long.
const CLOSE_MAX: Duration = Duration::from_millis(700);
/// A node that serves. Dropping it does not stop it; [`RunningNode::shutdown`] does.
pub struct RunningNode {
    node: Arc<Node>,
    peers_served: Registry,
    stop: Arc<Stop>,
    _dir: DataDir,
}

/// What ends a node: being told to, or a failure that it cannot go on with.
struct Stop {
    closing: Sender<bool>,
    ended: Sender<Option<Result<(), String>>>,
    tasks: Mutex<Vec<TaskHandle>>,
}

impl Stop {
    fn new() -> Arc<Self> {
        let (closing, ended) = (channel(false).0, channel(None).0);
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
    config.check_port()?;
    let tls = Tls::open(&env, &config)?;
    // Peers are listened to and dialed in a world of their own, where connections may be secured.
    let peer_env = tls.as_ref().map_or_else(|| env.clone(), |tls| tls.peer_env());
    let client_listeners = listener::bind_all(&env, &config).await?;
    let peer_listener = bind(&peer_env, &config, config.port + PEER_PORT_OFFSET, "peer").await?;
    let admin_listener = bind(&env, &config, config.port + ADMIN_PORT_OFFSET, "admin").await?;

    let config = Arc::new(config);
    let site = admin::Site::default();
    stop.run(&env, "admin", admin::serve(env.clone(), admin_listener, site.clone(), stop.closing()));

    let wal = open_wal(&env, &config, &dir, &identity).await?;
    watch::wal(&env, &wal, stop);

    let peers = Peers::new(peer_env, 0, peer_identity(&identity));
    let registry = Registry::new();
    let introduction = bootstrap::Introduction::new(identity, &config);
    let desk = Arc::new(desk::Desk::new(&env, &introduction));
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
    let (map_sender, mut map) = channel(starter.cached_map(&dir, &identity));
    let voters: Vec<NodeId> = (1..=founding.nodes.len() as NodeId).take(map::META_VOTERS_MAX).collect();
    let founders = voters.iter().copied().collect();
    let meta = starter.meta_group(&dir, MetaMachine::new(map_sender), founders).await?;
    registry.insert(meta.clone());
    let _ = desk.meta.set(meta.clone());
    starter.initialize(stop, &meta, &voters, &founding);
    stop.run(&env, "meta", map::meta_duties(env.clone(), meta.clone(), map.clone(), founding.clone()));
    watch::group(&env, stop, meta.clone(), "the meta group");

    let first_map = match map.wait_for(|map| map.epoch > 0).await {
        Ok(map) => map.clone(),
        Err(_) => {
            return Err(Error::Refused(
                "the meta group stopped before it had a map: see the log above".into(),
            ));
        }
    };
    check_map(&first_map, &identity)?;
    let users = Arc::new(Directory::new(config.requirepass.get()));
    users.set(&first_map.users);
    topology.set_map(first_map.clone());
    let keep =
        map::keep_map(env.clone(), map, topology.clone(), users.clone(), peers.clone(), config.dir.clone());
    stop.run(&env, "map", keep);

    let others = first_map.nodes.len().saturating_sub(1);
    let stamp_clock = Arc::new(StampClock::new(env.clock.clone(), config.clock_skew_ms_max, others));
    let _ = desk.clock.set(stamp_clock.clone());
    let shards = Shards::default();
    let metrics = Arc::new(Metrics::default());
    for entry in first_map.shards.iter().filter(|s| s.replicas.contains(&me)) {
        let handle = starter
            .shard(&dir, entry, &first_map.settings, stamp_clock.clone(), metrics.shard(entry.id))
            .await?;
        registry.insert(handle.group().clone());
        starter.initialize(stop, handle.group(), &entry.replicas, &founding);
        shards.insert(handle);
    }

    let node = Arc::new(Node {
        run_id: draw_hex(&*env.rng),
        started: env.clock.mono(),
        held: Held::new(config.held_commands_max, config.held_bytes_max),
        clients: crate::clients::Clients::default(),
        pubsub: Arc::new(Hub::new(env.rng.u64())),
        metrics,
        ready: false.into(),
        env: env.clone(),
        config: config.clone(),
        identity,
        topology,
        shards,
        peers,
        wal,
        meta,
        stamp_clock,
        settings: Settings::new(&config),
        pause: crate::pause::Pause::default(),
        observe: Observe::default(),
        asked_to_stop: channel(false).0,
        acl: users,
        acl_log: AclLog::new(config.acllog_max_len),
        tls: tls.clone(),
    });
    let _ = desk.node.set(node.clone());
    for handle in node.shards.all() {
        watch::group(&env, stop, handle.group().clone(), "a shard");
        stop.run(&env, "leadership", watch::leadership(node.clone(), handle));
    }
    stop.run(&env, "announce", announce::run(node.clone()));
    stop.run(&env, "balance", balance::run(node.clone()));
    stop.run(&env, "rates", rates::run(node.clone()));
    stop.run(&env, "ready", watch::ready(node.clone()));
    stop.run(&env, "users", watch::users(node.clone()));
    stop.run(&env, "space", watch::space(node.clone()));
    stop.run(&env, "address", desk::tell_address(node.clone()));
    site.open(&node);
    if let Some(tls) = tls {
        stop.run(&env, "certificates", tls.watch());
    }
    for (kind, listener) in client_listeners {
        let (closing, clients_of) = (stop.closing(), node.clone());
        stop.run(&env, "listener", async move {
            tokio::select! {
                () = closing => {}
                () = listener::serve(clients_of, listener, kind) => {}
            }
        });
    }
    Ok(RunningNode { node, peers_served: registry, stop: stop.clone(), _dir: dir })
}

impl RunningNode {
    /// The node, for those who look into it.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Returns when a client called SHUTDOWN. Whoever runs the node then stops it.
    pub async fn asked_to_stop(&self) {
        let mut asked = self.node.asked_to_stop.subscribe();
        // The node holds the sender.
        let _ = asked.wait_for(|asked| *asked).await;
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

pub(crate) async fn bind(
    env: &Env,
    config: &Config,
    port: u16,
    what: &str,
) -> Result<Box<dyn Listener>, Error> {
    let ip: IpAddr = config.bind.parse().map_err(|_| {
        Error::Listen(format!(
            "--bind {} is not an address to listen on, such as 127.0.0.1 or 0.0.0.0",
            config.bind
        ))
    })?;
    let addr = SocketAddr::new(ip, port);
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

async fn open_wal(env: &Env, config: &Config, dir: &DataDir, identity: &Identity) -> Result<Wal, Error> {
    let path = dir.path().join("wal");
    let total =
        env.disk.total_bytes(dir.path()).map_err(|e| data_dir_error(dir.path(), "cannot be measured", &e))?;
    let options = WalOptions {
        segment_bytes: config.wal_segment_bytes,
        cache_bytes: config.wal_cache_bytes,
        reserve_bytes: config.wal_reserve_bytes.min(total / 10),
        durability: match config.durability {
            Durability::Always => weir_store::Durability::Always,
            Durability::EverySec => weir_store::Durability::EverySec,
            Durability::Os => weir_store::Durability::Os,
        },
        // It was there before this node became a member.
        must_exist: identity.phase == Phase::Member,
        owner: Owner {
            name: identity.name.clone(),
            node: identity.id.clone(),
            cluster: peer_identity(identity).cluster_id,
        },
        ..WalOptions::default()
    };
    let wal = Wal::open(env, &path, options).await?;
    let found = wal.recovery();
    if !found.clean {
        let torn = found
            .torn
            .map_or_else(|| "nowhere".to_owned(), |(file, at)| format!("{} at {at}", file.display()));
        tracing::info!(entries = found.entries, torn, "the log was not closed in order and is recovered");
    }
    Ok(wal)
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
