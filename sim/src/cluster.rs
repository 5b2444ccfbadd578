//! Whole Weir nodes on the machines of a world: starts the real server there and looks into it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use tokio::sync::mpsc;
use weir_raft::NodeId;
use weir_server::{
    config::{Config, Sources},
    node::Node,
    shard::{ShardHandle, ShardId},
};
use weir_tests::check::Violation;

use crate::{
    book::micros,
    disk::medium::lock,
    invariants::{
        bounds_are_kept,
        equal_state_at_equal_index::{self, States},
        nothing_panics,
        one_leader_per_term::{self, Leaders},
        one_owner_per_slot,
        replicas_converge::{self, Progress},
        shards_serve_soon::{self, Service},
        watermarks_keep_order::{self, Marks, Watermarks},
    },
    plan::Plan,
    world::World,
};

/// Size of a log file: small, so that runs come to new ones often.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;
/// Where the clients find every node; each is a host of its own.
pub(crate) const PORT: u16 = 7001;
/// And the one for clients that know no cluster, where there are such.
pub(crate) const PLAIN_PORT: u16 = 6379;
/// How often it is looked who leads: more often than anybody can win an election and lose it again.
const WATCH_EVERY: Duration = Duration::from_millis(4);
/// How often points of progress and bounds are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often the states of a shard's replicas are compared while things go on. States that differ go on differing, and
/// a hash of all there is costs more than all else: seldom is enough.
const COMPARE_EVERY: Duration = Duration::from_millis(500);

/// Which shard's leadership is to be handed to which node.
type Orders = mpsc::UnboundedSender<(u32, NodeId)>;

/// The node that runs on a machine now. Weak, since a crash must drop all that a process held.
#[derive(Clone, Default)]
struct Window {
    node: Arc<Mutex<Weak<Node>>>,
    /// Shards whose leadership its process is to hand to another node.
    orders: Arc<Mutex<Option<Orders>>>,
}

/// A cluster under observation.
pub(crate) struct Cluster {
    pub(crate) world: World,
    windows: Vec<Window>,
    election_timeout_max: Duration,
    leaders: Leaders,
    states: States,
    watermarks: Watermarks,
    /// Whether what is applied has to be on the disks of a majority.
    syncs_always: bool,
    /// After the faults: how soon every shard serves.
    service: Option<Service>,
    /// Who was last seen leading each group.
    leading: BTreeMap<u32, (u64, u64)>,
    /// What each replica had applied when its state was last hashed.
    hashed: BTreeMap<(usize, u32), u64>,
    /// When two replicas of each shard were last compared.
    compared_at: BTreeMap<u32, Duration>,
    watched_at: Duration,
    looked_at: Duration,
}

impl Cluster {
    /// Starts nodes with empty disks, n1, n2 and so on.
    pub(crate) fn new(world: World, plan: &Plan) -> Self {
        let names: Vec<String> = (1..=plan.nodes).map(|number| format!("n{number}")).collect();
        Self::with_names(world, plan, &names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The same with names of one's own.
    pub(crate) fn with_names(mut world: World, plan: &Plan, names: &[&str]) -> Self {
        let list: Vec<String> = names.iter().map(|name| format!("{name}={name}:{PORT}")).collect();
        let mut windows = Vec::new();
        let mut election_timeout_max = Config::default().election_timeout_ms_max;
        for name in names {
            let config = settings(name, &list.join(","), plan);
            election_timeout_max = config.election_timeout_ms_max;
            let window = Window::default();
            windows.push(window.clone());
            world.add_node(name, move |env| {
                let (config, window) = (config.clone(), window.clone());
                async move {
                    let running =
                        weir_server::run::start_node(env, config).await.map_err(|error| error.to_string())?;
                    *lock(&window.node) = Arc::downgrade(running.node());
                    let (orders, obeyed) = mpsc::unbounded_channel();
                    *lock(&window.orders) = Some(orders);
                    tokio::select! {
                        end = running.stopped() => end,
                        never = obey(Arc::downgrade(running.node()), obeyed) => never,
                    }
                }
            });
        }
        Self {
            world,
            windows,
            election_timeout_max: Duration::from_millis(election_timeout_max),
            leaders: Leaders::default(),
            states: States::default(),
            watermarks: Watermarks::default(),
            syncs_always: plan.settings.iter().all(|(name, _)| name != "durability"),
            service: None,
            leading: BTreeMap::new(),
            hashed: BTreeMap::new(),
            compared_at: BTreeMap::new(),
            watched_at: Duration::ZERO,
            looked_at: Duration::ZERO,
        }
    }

    /// `host:port` of a node, for clients.
    pub(crate) fn address(&self, node: usize) -> String {
        format!("{}:{PORT}", self.world.nodes[node].name)
    }

    pub(crate) fn nodes(&self) -> usize {
        self.windows.len()
    }

    /// The longest election timeout of its groups.
    pub(crate) fn election_timeout_max(&self) -> Duration {
        self.election_timeout_max
    }

    /// Moves time on and watches. Answers the nodes that ended by themselves and what they said.
    pub(crate) fn step(&mut self) -> Result<Vec<(usize, String)>, Violation> {
        let ends = self.world.step().map_err(|text| self.violation(nothing_panics::NAME, text))?;
        if self.world.now() >= self.watched_at + WATCH_EVERY {
            self.watched_at = self.world.now();
            self.watch_leaders().map_err(|text| self.violation(one_leader_per_term::NAME, text))?;
            self.watch_service().map_err(|text| self.violation(shards_serve_soon::NAME, text))?;
        }
        if self.world.now() >= self.looked_at + LOOK_EVERY {
            self.looked_at = self.world.now();
            self.watch_marks().map_err(|text| self.violation(watermarks_keep_order::NAME, text))?;
            self.watch_bounds().map_err(|text| self.violation(bounds_are_kept::NAME, text))?;
            self.compare_those_at_one_index()
                .map_err(|text| self.violation(equal_state_at_equal_index::NAME, text))?;
        }
        Ok(ends)
    }

    pub(crate) fn violation(&self, invariant: &'static str, text: String) -> Violation {
        Violation { invariant, at: micros(self.world.now()), text }
    }

    /// The machine whose replica leads `shard`, in the highest term if several think so.
    pub(crate) fn leader_of(&self, shard: u32) -> Option<usize> {
        let leads = (0..self.windows.len()).filter_map(|index| {
            let replica = self.node(index)?.shards.get(ShardId(shard))?;
            let status = replica.group().status();
            let status = status.borrow();
            status.is_leader.then_some((status.term, index))
        });
        leads.max().map(|(_, index)| index)
    }

    /// A machine whose replica does not lead `shard`.
    pub(crate) fn follower_of(&self, shard: u32) -> Option<usize> {
        let leader = self.leader_of(shard)?;
        (1..self.windows.len())
            .map(|step| (leader + step) % self.windows.len())
            .find(|index| self.node(*index).is_some_and(|node| node.shards.get(ShardId(shard)).is_some()))
    }

    /// Orders the leader of `shard` to hand it to the node after it.
    pub(crate) fn transfer(&self, shard: u32) -> bool {
        let Some(leader) = self.leader_of(shard) else { return false };
        let Some(to) = self.follower_of(shard).and_then(|index| self.node(index)).map(|node| node.number())
        else {
            return false;
        };
        let orders = lock(&self.windows[leader].orders);
        orders.as_ref().is_some_and(|orders| orders.send((shard, to)).is_ok())
    }

    pub(crate) fn node(&self, index: usize) -> Option<Arc<Node>> {
        if self.world.is_up(index) { lock(&self.windows[index].node).upgrade() } else { None }
    }

    fn watch_leaders(&mut self) -> Result<(), String> {
        for index in 0..self.windows.len() {
            let Some(node) = self.node(index) else { continue };
            for replica in node.shards.all() {
                let (group, status) = (replica.id().0, replica.group().status());
                let status = status.borrow();
                if !status.is_leader {
                    continue;
                }
                let (term, me) = (status.term, node.number());
                if self.leading.get(&group) == Some(&(term, me)) {
                    continue;
                }
                let first = self.leaders.saw(group, term, me)?;
                if first {
                    self.leading.insert(group, (term, me));
                    let name = &self.world.nodes[index].name;
                    self.world.trace.line(name, format_args!("leads shard {group} in term {term}"));
                }
            }
        }
        Ok(())
    }

    /// Looks at the points of progress of every replica, and at the disks below them.
    fn watch_marks(&mut self) -> Result<(), String> {
        let mut furthest: BTreeMap<u32, (u64, Vec<Option<u64>>)> = BTreeMap::new();
        for index in 0..self.windows.len() {
            let life = self.world.nodes[index].starts();
            let Some(node) = self.node(index) else { continue };
            for replica in node.shards.all() {
                let (shard, applied) = (replica.id().0, replica.applied());
                let group = replica.group();
                let marks = {
                    let status = group.status();
                    let status = status.borrow();
                    Marks { term: status.term, snapshot: status.snapshot, applied }
                };
                self.watermarks.saw(index, life, shard, marks)?;
                let voters = self.windows.len().min(3);
                let (most, durable) = furthest.entry(shard).or_insert_with(|| (0, vec![None; voters]));
                *most = applied.max(*most);
                if let Some(slot) = durable.iter_mut().find(|slot| slot.is_none()) {
                    *slot = Some(group.durable_index());
                }
            }
        }
        if self.syncs_always {
            for (shard, (applied, durable)) in furthest {
                watermarks_keep_order::check_majority(shard, applied, &durable)?;
            }
        }
        Ok(())
    }

    /// Looks at what can grow on every node.
    fn watch_bounds(&self) -> Result<(), String> {
        for index in 0..self.windows.len() {
            let Some(node) = self.node(index) else { continue };
            let config = &node.config;
            let connections = usize::try_from(node.metrics.connections_open.get()).unwrap_or(usize::MAX);
            let shards = node.shards.all();
            let parked = shards.iter().map(|replica| replica.parked()).sum();
            let mut levels = vec![
                ("maxclients", connections, config.maxclients),
                ("held-commands-max", node.held.commands(), config.held_commands_max),
                ("blocked-clients-max", parked, config.blocked_clients_max),
            ];
            for replica in shards {
                let open = replica.unanswered();
                levels.push(("queue-commands-max", open.commands, config.queue_commands_max));
                levels.push(("batches-in-flight-max", open.batches, config.batches_in_flight_max));
            }
            bounds_are_kept::check(&self.world.nodes[index].name, &levels)?;
        }
        Ok(())
    }

    /// From now on nothing goes wrong: watches how soon every shard serves.
    pub(crate) fn expect_service(&mut self, shards: u32) {
        self.service = Some(Service::new(shards));
    }

    fn watch_service(&mut self) -> Result<(), String> {
        let Some(mut service) = self.service.take() else { return Ok(()) };
        if service.over() {
            return Ok(());
        }
        let now = self.world.now();
        let within = self.election_timeout_max * shards_serve_soon::ELECTIONS_MAX;
        let mut shards: BTreeMap<u32, (usize, bool)> = BTreeMap::new();
        for index in 0..self.windows.len() {
            let Some(node) = self.node(index) else { continue };
            for replica in node.shards.all() {
                let (running, serves) = shards.entry(replica.id().0).or_default();
                *running += 1;
                *serves |= replica.serving();
            }
        }
        let voters = self.windows.len().min(3);
        for (shard, (running, serves)) in shards {
            service.saw(shard, now, 2 * running > voters, serves, within)?;
        }
        self.service = Some(service);
        Ok(())
    }

    /// Compares the state of every replica that moved with what was seen at the same index before.
    pub(crate) fn compare_states(&mut self) -> Result<(), String> {
        for index in 0..self.windows.len() {
            let Some(node) = self.node(index) else { continue };
            for replica in node.shards.all() {
                self.hash(index, &replica)?;
            }
        }
        Ok(())
    }

    /// Compares replicas of each shard as soon as some are at one index, if that was long ago.
    fn compare_those_at_one_index(&mut self) -> Result<(), String> {
        let now = self.world.now();
        let mut places: BTreeMap<(u32, u64), Vec<(usize, ShardHandle)>> = BTreeMap::new();
        for index in 0..self.windows.len() {
            let Some(node) = self.node(index) else { continue };
            for replica in node.shards.all() {
                let shard = replica.id().0;
                if self.compared_at.get(&shard).is_none_or(|at| now >= *at + COMPARE_EVERY) {
                    places.entry((shard, replica.applied())).or_default().push((index, replica));
                }
            }
        }
        for ((shard, _), replicas) in places.into_iter().filter(|(_, replicas)| replicas.len() > 1) {
            self.compared_at.insert(shard, now);
            for (index, replica) in replicas {
                self.hash(index, &replica)?;
            }
        }
        Ok(())
    }

    fn hash(&mut self, index: usize, replica: &ShardHandle) -> Result<(), String> {
        let (shard, applied) = (replica.id().0, replica.applied());
        if self.hashed.insert((index, shard), applied) == Some(applied) {
            return Ok(());
        }
        // The index is published after the state has changed, on one thread: they belong together.
        let hash = replica.machine(|machine| machine.state_hash());
        self.states.saw(shard, applied, hash, &self.world.nodes[index].name)
    }

    /// Slots that the leaders' states own.
    pub(crate) fn check_owners(&self) -> Result<(), Violation> {
        let mut owned = BTreeMap::new();
        let mut shard = 0;
        while let Some(leader) = self.leader_of(shard) {
            let Some(replica) = self.node(leader).and_then(|node| node.shards.get(ShardId(shard))) else {
                break;
            };
            let ranges = replica.machine(|machine| machine.owned_ranges());
            owned.insert(shard, ranges.iter().map(|range| (range.first.0, range.last.0)).collect());
            shard += 1;
        }
        one_owner_per_slot::check(&owned).map_err(|text| self.violation(one_owner_per_slot::NAME, text))
    }

    fn replicas(&self) -> BTreeMap<u32, Vec<(usize, Progress)>> {
        let mut all: BTreeMap<u32, Vec<(usize, Progress)>> = BTreeMap::new();
        for index in 0..self.windows.len() {
            let Some(node) = self.node(index) else { continue };
            for replica in node.shards.all() {
                let last = replica.group().status().borrow().last_index;
                let progress = Progress { last, applied: replica.applied() };
                all.entry(replica.id().0).or_default().push((index, progress));
            }
        }
        all
    }

    /// Whether every shard has all its replicas but those of nodes that stay out, all with the same applied index and
    /// nothing more in their logs.
    pub(crate) fn replicas_are_level(&self) -> bool {
        let out = (0..self.windows.len()).filter(|index| self.node(*index).is_none()).count();
        replicas_converge::are_level(&self.replicas(), out, self.windows.len())
    }

    /// Snapshots that the running processes have installed.
    pub(crate) fn snapshots_installed(&self) -> u64 {
        let nodes = (0..self.windows.len()).filter_map(|index| self.node(index));
        nodes
            .map(|node| {
                node.shards
                    .all()
                    .iter()
                    .map(|shard| node.metrics.shard(shard.id()).installs.get())
                    .sum::<u64>()
            })
            .sum()
    }

    /// Where every replica is, for a message.
    pub(crate) fn progress(&self) -> String {
        let mut text = String::new();
        for (shard, replicas) in self.replicas() {
            let places: Vec<String> = replicas
                .iter()
                .map(|(index, progress)| {
                    format!(
                        "{} applied {} of {}",
                        self.world.nodes[*index].name, progress.applied, progress.last
                    )
                })
                .collect();
            text.push_str(&format!("shard {shard}: {}; ", places.join(", ")));
        }
        if text.is_empty() { "no replica runs".to_owned() } else { text }
    }
}

/// Carries out orders from outside the process.
async fn obey(node: Weak<Node>, mut orders: mpsc::UnboundedReceiver<(u32, NodeId)>) -> Result<(), String> {
    while let Some((shard, to)) = orders.recv().await {
        let replica = node.upgrade().and_then(|node| node.shards.get(ShardId(shard)));
        if let Some(replica) = replica {
            // It may have lost the leadership by now.
            let _ = replica.group().transfer_leader(to).await;
        }
    }
    std::future::pending().await
}

/// Settings of a simulated node: the defaults, but for small files.
fn settings(name: &str, cluster: &str, plan: &Plan) -> Config {
    let port = PORT.to_string();
    let shards = plan.shards.to_string();
    let segment_bytes = SEGMENT_BYTES.to_string();
    let usual = [
        ("name", name),
        ("dir", "/data"),
        ("port", &port),
        ("cluster", cluster),
        ("bind", "0.0.0.0"),
        ("protected-mode", "no"),
        ("shards", &shards),
        ("wal-segment-bytes", &segment_bytes),
        ("snapshot-log-bytes", "32768"),
    ];
    let mut flags: BTreeMap<String, String> =
        usual.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    if plan.crowd.plain {
        flags.insert("plain-port".to_owned(), PLAIN_PORT.to_string());
    }
    flags.extend(plan.settings.iter().cloned());
    match Config::load(&Sources { flags: flags.into_iter().collect(), ..Sources::default() }) {
        Ok(config) => config,
        Err(error) => panic!("settings of the simulated nodes: {error}"),
    }
}
