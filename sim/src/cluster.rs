//! Whole Weir nodes on the machines of a world: starts the real server there and looks into it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use weir_server::{
    config::{Config, Sources},
    node::Node,
};

use crate::{
    disk::medium::lock,
    invariants::{equal_state_at_equal_index::States, one_leader_per_term::Leaders},
    world::World,
};

/// Where the clients find every node; each is a host of its own.
const PORT: u16 = 7001;

/// The node that runs on a machine now. Weak, since a crash must drop all that a process held.
type Window = Arc<Mutex<Weak<Node>>>;

/// A cluster under observation.
pub(crate) struct Cluster {
    pub(crate) world: World,
    windows: Vec<Window>,
    election_timeout_max: Duration,
    leaders: Leaders,
    states: States,
    /// Who was last seen leading each group.
    leading: BTreeMap<u32, (u64, u64)>,
}

/// How far one replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    last: u64,
    applied: u64,
}

impl Cluster {
    /// Starts `nodes` nodes with empty disks.
    pub(crate) fn new(mut world: World, nodes: usize, shards: u32) -> Self {
        let names: Vec<String> = (1..=nodes).map(|number| format!("n{number}")).collect();
        let list: Vec<String> = names.iter().map(|name| format!("{name}={name}:{PORT}")).collect();
        let mut windows = Vec::new();
        let election_timeout_max = Config::default().election_timeout_ms_max;
        for name in &names {
            let config = settings(name, &list.join(","), shards);
            let window = Window::default();
            windows.push(window.clone());
            world.add_node(name, move |env| {
                let (config, window) = (config.clone(), window.clone());
                async move {
                    let running =
                        weir_server::run::start_node(env, config).await.map_err(|error| error.to_string())?;
                    *lock(&window) = Arc::downgrade(running.node());
                    running.stopped().await.map_err(|error| error.to_string())
                }
            });
        }
        Self {
            world,
            windows,
            election_timeout_max: Duration::from_millis(election_timeout_max),
            leaders: Leaders::default(),
            states: States::default(),
            leading: BTreeMap::new(),
        }
    }

    /// `host:port` of every node, for clients.
    pub(crate) fn client_addresses(&self) -> Vec<String> {
        self.world.nodes.iter().map(|node| format!("{}:{PORT}", node.name)).collect()
    }

    /// The longest election timeout of its groups.
    pub(crate) fn election_timeout_max(&self) -> Duration {
        self.election_timeout_max
    }

    /// Moves time on and watches. Fails when a node ended by itself or an invariant broke.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        if let Some((node, end)) = self.world.step()?.into_iter().next() {
            return Err(format!("{} ended by itself: {end}", self.world.nodes[node].name));
        }
        self.watch_leaders()
    }

    /// The machine whose replica leads `shard`.
    pub(crate) fn leader_of(&self, shard: u32) -> Option<usize> {
        (0..self.windows.len()).find(|index| {
            self.node(*index).is_some_and(|node| {
                node.shards
                    .all()
                    .iter()
                    .any(|replica| replica.id().0 == shard && replica.group().status().borrow().is_leader)
            })
        })
    }

    fn node(&self, index: usize) -> Option<Arc<Node>> {
        if self.world.is_up(index) { lock(&self.windows[index]).upgrade() } else { None }
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

    /// Compares the state of every replica with what was seen at the same index before.
    pub(crate) fn compare_states(&mut self) -> Result<(), String> {
        for index in 0..self.windows.len() {
            let Some(node) = self.node(index) else { continue };
            for replica in node.shards.all() {
                let applied = replica.applied();
                let hash = replica.machine(|machine| machine.state_hash());
                let name = &self.world.nodes[index].name;
                self.states.saw(replica.id().0, applied, hash, name)?;
            }
        }
        Ok(())
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

    /// Whether every shard has all its replicas, all with the same applied index and nothing more
    /// in their logs.
    pub(crate) fn replicas_are_level(&self) -> bool {
        let all = self.replicas();
        !all.is_empty()
            && all.values().all(|replicas| {
                let (_, first) = replicas[0];
                replicas.len() == self.windows.len().min(3)
                    && first.last == first.applied
                    && replicas.iter().all(|(_, progress)| *progress == first)
            })
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

/// Settings of a simulated node: the defaults, but for small files.
fn settings(name: &str, cluster: &str, shards: u32) -> Config {
    let flags = [
        ("name", name),
        ("dir", "/data"),
        ("port", &PORT.to_string()),
        ("cluster", cluster),
        ("bind", "0.0.0.0"),
        ("shards", &shards.to_string()),
        ("wal-segment-bytes", "1048576"),
        ("snapshot-log-bytes", "65536"),
    ];
    let flags = flags.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    match Config::load(&Sources { flags, ..Sources::default() }) {
        Ok(config) => config,
        Err(error) => panic!("settings of the simulated nodes: {error}"),
    }
}
