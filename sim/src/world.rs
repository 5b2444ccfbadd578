//! A world of nodes on simulated edges, stepped one millisecond at a time.
//!
//! The world owns what outlives a process: the disks, the clocks' skew, who is up. A scenario
//! steps it, and between steps kills nodes, cuts their power and starts them again.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use weir_env::Env;

use crate::{
    clock::{EPOCH_MS, SimClock},
    disk::{Changes, Point, SimDisk, medium::lock},
    faults::Loss,
    net::{Grid, SimNet},
    spawn::{Controls, SimRng, SimSpawn},
    trace::Trace,
};

pub(crate) use crate::net::{LinkTime, Power};

/// Simulated time per step; also the resolution of message delays.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// One machine: what stays when its process dies.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) disk: SimDisk,
    /// Added to its wall clock, in milliseconds.
    skew_ms: Arc<AtomicI64>,
    power: Power,
    pub(crate) controls: Controls,
    /// The disk delay when nothing is wrong, in milliseconds.
    disk_delay_ms_max: u64,
    /// An ordered mid-operation stop cuts the power (or else only kills the process).
    halt_cuts_power: bool,
    /// Why its software ended by itself.
    ended: Arc<Mutex<Option<String>>>,
    starts: u32,
}

impl Node {
    /// How often its software was started.
    pub(crate) fn starts(&self) -> u32 {
        self.starts
    }
}

/// All machines and the network between them.
pub(crate) struct World {
    sim: turmoil::Sim<'static>,
    pub(crate) trace: Trace,
    pub(crate) grid: Grid,
    pub(crate) nodes: Vec<Node>,
    /// For the scenario's own draws.
    pub(crate) rng: StdRng,
    clients: Vec<String>,
    seed: u64,
    traffic_marked: Duration,
    latency_ms_max: u64,
    /// Cuts by number: directed links and what happens to messages there.
    cuts: BTreeMap<u64, (BTreeSet<(String, String)>, Loss)>,
    next_cut: u64,
    /// What each link was last set to.
    links: BTreeMap<(String, String), Link>,
    /// Where ordered stops happened, since asked last: node, with power or not, point.
    pub(crate) stops: Vec<(usize, bool, Point)>,
    /// Links with times of their own, and what each was last set to.
    link_times: Vec<(LinkTime, u64)>,
}

/// How two hosts are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Whole,
    /// Messages wait, in both directions.
    Held,
    /// Messages are lost: from the first to the second, from the second to the first.
    Lossy(bool, bool),
}

impl World {
    /// An empty world in which everything follows from `seed`.
    pub(crate) fn new(seed: u64, trace: Trace) -> Self {
        weir_raft::seed_rng(seed);
        let mut rng = StdRng::seed_from_u64(seed);
        let latency_ms_max = *pick(&mut rng, &[1, 2, 4, 10]);
        let sim = turmoil::Builder::new()
            .rng_seed(seed)
            .epoch(std::time::UNIX_EPOCH + Duration::from_millis(EPOCH_MS))
            .tick_duration(TICK)
            .simulation_duration(Duration::from_secs(24 * 3600))
            .min_message_latency(Duration::ZERO)
            .max_message_latency(Duration::from_millis(latency_ms_max))
            .tcp_capacity(65_536)
            .ephemeral_ports(40_000..=65_535)
            .enable_random_order()
            .build();
        trace.line("world", format_args!("seed {seed}, messages take up to {latency_ms_max} ms"));
        Self {
            sim,
            trace,
            grid: Grid::default(),
            nodes: Vec::new(),
            rng,
            clients: Vec::new(),
            seed,
            traffic_marked: Duration::ZERO,
            latency_ms_max,
            cuts: BTreeMap::new(),
            next_cut: 0,
            links: BTreeMap::new(),
            stops: Vec::new(),
            link_times: Vec::new(),
        }
    }

    /// Adds a machine and starts its software; `boot` is called again at every restart.
    pub(crate) fn add_node<F>(&mut self, name: &str, boot: impl Fn(Env) -> F + 'static) -> usize
    where
        F: Future<Output = Result<(), String>> + 'static,
    {
        let index = self.nodes.len();
        let disk = SimDisk::new(self.derived_seed());
        let skew_ms = Arc::new(AtomicI64::new(0));
        let rng = SimRng::new(self.derived_seed());
        let disk_delay_ms_max = self.rng.random_range(0..=3);
        let controls = Controls::default();
        controls.set_disk_delay(disk_delay_ms_max);
        let env = Env {
            clock: Arc::new(SimClock { skew_ms: skew_ms.clone(), trace: self.trace.clone() }),
            net: Arc::new(SimNet { grid: self.grid.clone(), disk: disk.clone(), trace: self.trace.clone() }),
            disk: Arc::new(disk.clone()),
            rng: Arc::new(rng.clone()),
            spawn: Arc::new(SimSpawn { rng, controls: controls.clone() }),
        };
        let ended = Arc::new(Mutex::new(None));
        let end_slot = ended.clone();
        self.sim.host(name, move || {
            let software = boot(env.clone());
            let end_slot = end_slot.clone();
            async move {
                let end = match software.await {
                    Ok(()) => "ended".to_owned(),
                    Err(error) => error,
                };
                *lock(&end_slot) = Some(end);
                Ok(())
            }
        });
        self.nodes.push(Node {
            name: name.to_owned(),
            disk,
            skew_ms,
            power: Power::On,
            controls,
            disk_delay_ms_max,
            halt_cuts_power: false,
            ended,
            starts: 1,
        });
        index
    }

    /// The edges of a process that looks into a disk.
    pub(crate) fn bare_env(&mut self, disk: SimDisk) -> Env {
        let rng = SimRng::new(self.derived_seed());
        let controls = Controls::default();
        Env {
            clock: Arc::new(SimClock { skew_ms: Arc::default(), trace: self.trace.clone() }),
            net: Arc::new(SimNet { grid: self.grid.clone(), disk: disk.clone(), trace: self.trace.clone() }),
            disk: Arc::new(disk),
            rng: Arc::new(rng.clone()),
            spawn: Arc::new(SimSpawn { rng, controls }),
        }
    }

    /// Adds a host that runs `future`, whose end counts for [`Self::step`].
    pub(crate) fn add_client(&mut self, name: &str, future: impl Future<Output = turmoil::Result> + 'static) {
        self.clients.push(name.to_owned());
        self.sim.client(name, future);
    }

    /// A seed for some part of the world.
    pub(crate) fn derived_seed(&mut self) -> u64 {
        self.rng.random::<u64>() ^ self.seed
    }

    /// Moves time on by one tick. Answers the ends of software that ended by itself, by node.
    pub(crate) fn step(&mut self) -> Result<Vec<(usize, String)>, String> {
        self.draw_link_times();
        self.sim.step().map_err(|error| error.to_string())?;
        let now = self.sim.elapsed();
        self.trace.set_now(now);
        if now >= self.traffic_marked + Duration::from_secs(1) {
            self.traffic_marked = now;
            self.trace.mark_traffic();
        }
        let mut ends = Vec::new();
        for index in 0..self.nodes.len() {
            if self.nodes[index].disk.halted() {
                self.nodes[index].ended.lock().map(|mut end| end.take()).ok();
                if let Some(point) = self.nodes[index].disk.take_halt_point() {
                    let power = self.nodes[index].halt_cuts_power;
                    let name = &self.nodes[index].name;
                    self.trace.line(name, format_args!("stops at {} {}", point.0, point.1));
                    self.stops.push((index, power, point));
                }
                if self.nodes[index].halt_cuts_power {
                    self.power_off(index);
                } else {
                    self.kill(index);
                }
                continue;
            }
            let end = lock(&self.nodes[index].ended).take();
            if let Some(end) = end {
                let node = &mut self.nodes[index];
                self.trace.line(&node.name, format_args!("software ended: {end}"));
                // A process that has ended leaves no task behind.
                self.sim.crash(node.name.as_str());
                node.disk.process_died();
                node.power = Power::Killed;
                self.grid.set(&node.name, Power::Killed);
                ends.push((index, end));
            }
        }
        Ok(ends)
    }

    /// Simulated time so far.
    pub(crate) fn now(&self) -> Duration {
        self.sim.elapsed()
    }

    /// Whether the node's process runs.
    pub(crate) fn is_up(&self, index: usize) -> bool {
        self.nodes[index].power == Power::On
    }

    /// How the node is doing.
    pub(crate) fn power(&self, index: usize) -> Power {
        self.nodes[index].power
    }

    /// Kills the node's process at once. Its disk keeps every byte.
    pub(crate) fn kill(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        self.trace.line(&node.name, "killed");
        self.sim.crash(node.name.as_str());
        node.disk.process_died();
        node.power = Power::Killed;
        self.grid.set(&node.name, Power::Killed);
    }

    /// Cuts the node's power: unsynced bytes are lost, nobody is told.
    pub(crate) fn power_off(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let name = node.name.clone();
        node.power = Power::Off;
        self.grid.set(&name, Power::Off);
        self.trace.line(&name, "power off");
        self.set_links();
        self.sim.crash(name.as_str());
        self.nodes[index].disk.power_lost();
    }

    /// Stops the node in the middle of what its disk is doing, after `changes` more of `which`.
    pub(crate) fn halt(&mut self, index: usize, which: Changes, changes: u64, cut_power: bool) {
        let node = &mut self.nodes[index];
        let how = if cut_power { "power off" } else { "killed" };
        let rare = if which == Changes::Rare { "rare " } else { "" };
        self.trace.line(&node.name, format_args!("to be {how} after {changes} {rare}disk changes"));
        node.halt_cuts_power = cut_power;
        node.disk.halt_after(which, changes);
    }

    /// Starts the node's software again on the same disk.
    pub(crate) fn start(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let name = node.name.clone();
        node.starts += 1;
        self.trace.line(&name, format_args!("start {}", node.starts));
        node.power = Power::On;
        node.controls.thaw();
        self.grid.set(&name, Power::On);
        self.set_links();
        self.sim.bounce(name.as_str());
    }

    /// Cuts directed links. Answers a number for [`Self::mend`].
    pub(crate) fn cut(&mut self, links: BTreeSet<(String, String)>, how: Loss) -> u64 {
        self.next_cut += 1;
        let shown: Vec<String> = links.iter().map(|(from, to)| format!("{from}>{to}")).collect();
        self.trace.line("world", format_args!("cut {} ({how:?}): {}", self.next_cut, shown.join(" ")));
        self.cuts.insert(self.next_cut, (links, how));
        self.set_links();
        self.next_cut
    }

    /// Ends a cut.
    pub(crate) fn mend(&mut self, cut: u64) {
        if self.cuts.remove(&cut).is_some() {
            self.trace.line("world", format_args!("cut {cut} is over"));
            self.set_links();
        }
    }

    /// Ends all cuts.
    pub(crate) fn mend_all(&mut self) {
        for cut in self.cuts.keys().copied().collect::<Vec<_>>() {
            self.mend(cut);
        }
    }

    /// Links in both directions between `index` and every other node, or every client host, or both.
    pub(crate) fn links_of(&self, index: usize, nodes: bool, clients: bool) -> BTreeSet<(String, String)> {
        let name = &self.nodes[index].name;
        let others =
            self.nodes.iter().filter(|_| nodes).map(|node| &node.name).filter(|other| *other != name);
        let clients = self.clients.iter().filter(|_| clients);
        others
            .chain(clients)
            .flat_map(|other| [(name.clone(), other.clone()), (other.clone(), name.clone())])
            .collect()
    }

    fn hosts(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).chain(self.clients.iter().cloned()).collect()
    }

    fn wanted(&self, a: &str, b: &str) -> Link {
        let off = |host: &str| self.nodes.iter().any(|node| node.name == host && node.power == Power::Off);
        if off(a) || off(b) {
            return Link::Lossy(true, true);
        }
        let cut = |from: &str, to: &str, wanted: Loss| {
            let link = (from.to_owned(), to.to_owned());
            self.cuts.values().any(|(links, how)| *how == wanted && links.contains(&link))
        };
        match (cut(a, b, Loss::Lost), cut(b, a, Loss::Lost)) {
            (false, false) if cut(a, b, Loss::Held) || cut(b, a, Loss::Held) => Link::Held,
            (false, false) => Link::Whole,
            (there, back) => Link::Lossy(there, back),
        }
    }

    /// Makes the network what power and cuts say.
    fn set_links(&mut self) {
        let hosts = self.hosts();
        for (at, a) in hosts.iter().enumerate() {
            for b in &hosts[at + 1..] {
                let wanted = self.wanted(a, b);
                let link = (a.clone(), b.clone());
                let before = self.links.insert(link, wanted).unwrap_or(Link::Whole);
                if before == wanted {
                    continue;
                }
                let (a, b) = (a.as_str(), b.as_str());
                match before {
                    Link::Whole => {}
                    Link::Held => self.sim.release(a, b),
                    Link::Lossy(..) => self.sim.repair(a, b),
                }
                match wanted {
                    Link::Whole => {}
                    Link::Held => self.sim.hold(a, b),
                    Link::Lossy(true, true) => self.sim.partition(a, b),
                    Link::Lossy(there, back) => {
                        if there {
                            self.sim.partition_oneway(a, b);
                        }
                        if back {
                            self.sim.partition_oneway(b, a);
                        }
                    }
                }
            }
        }
    }

    /// Lets messages take up to this long; `None`: as at the start.
    pub(crate) fn set_latency(&mut self, ms_max: Option<u64>) {
        let ms_max = ms_max.unwrap_or(self.latency_ms_max);
        self.trace.line("world", format_args!("messages take up to {ms_max} ms"));
        self.sim.set_max_message_latency(Duration::from_millis(ms_max));
    }

    /// Gives links times of their own.
    pub(crate) fn set_link_times(&mut self, times: Vec<LinkTime>) {
        self.link_times = times.into_iter().map(|time| (time, u64::MAX)).collect();
    }

    /// A message can only take whole ticks: each link takes turns between the two nearest numbers.
    fn draw_link_times(&mut self) {
        for (link, last) in &mut self.link_times {
            let ticks = link.draw(&mut self.rng);
            if std::mem::replace(last, ticks) != ticks {
                let time = TICK * u32::try_from(ticks).unwrap_or(u32::MAX);
                self.sim.set_link_latency(link.a.as_str(), link.b.as_str(), time);
            }
        }
    }

    /// The longest that a message takes when nothing is wrong.
    pub(crate) fn latency_max(&self) -> Duration {
        Duration::from_millis(self.latency_ms_max)
    }

    /// Makes a node's disk slow; `None`: as at the start.
    pub(crate) fn set_disk_delay(&mut self, index: usize, ms_max: Option<u64>) {
        let node = &self.nodes[index];
        let ms_max = ms_max.unwrap_or(node.disk_delay_ms_max);
        self.trace.line(&node.name, format_args!("its disk takes up to {ms_max} ms a step"));
        node.controls.set_disk_delay(ms_max);
    }

    /// Stops a node's tasks and holds its messages back. Answers the cut that does the latter.
    pub(crate) fn pause(&mut self, index: usize) -> u64 {
        self.trace.line(&self.nodes[index].name, "stands still");
        self.nodes[index].controls.freeze();
        self.cut(self.links_of(index, true, true), Loss::Held)
    }

    /// Ends a pause.
    pub(crate) fn resume(&mut self, index: usize, cut: u64) {
        self.trace.line(&self.nodes[index].name, "goes on");
        self.nodes[index].controls.thaw();
        self.mend(cut);
    }

    /// Sets the skew of the node's wall clock.
    pub(crate) fn set_skew(&mut self, index: usize, skew_ms: i64) {
        let node = &self.nodes[index];
        self.trace.line(&node.name, format_args!("wall clock off by {skew_ms} ms"));
        node.skew_ms.store(skew_ms, Ordering::Relaxed);
    }
}

/// One of `choices`.
pub(crate) fn pick<'a, T>(rng: &mut StdRng, choices: &'a [T]) -> &'a T {
    &choices[rng.random_range(0..choices.len())]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use weir_env::OpenMode;

    use super::*;
    use crate::net::dial;

    /// A node that answers every byte with the number of times its file was started.
    async fn counting_echo(env: Env) -> Result<(), String> {
        let path = Path::new("/starts");
        let mut starts = env.disk.read(path).unwrap_or_default();
        starts.push(b'x');
        env.disk.write_atomic(path, &starts).map_err(|e| e.to_string())?;
        let addr = "0.0.0.0:7001".parse().map_err(|_| "address")?;
        let listener = env.net.bind(addr).await.map_err(|e| e.to_string())?;
        loop {
            let (mut stream, _) = listener.accept().await.map_err(|e| e.to_string())?;
            let count = starts.len() as u8;
            env.spawn.spawn(
                "echo",
                Box::pin(async move {
                    while stream.read_u8().await.is_ok() {
                        let _ = stream.write_u8(count).await;
                    }
                }),
            );
        }
    }

    fn ask(world: &mut World, name: &str) -> Arc<Mutex<Option<u8>>> {
        let answer = Arc::new(Mutex::new(None));
        let (slot, grid) = (answer.clone(), world.grid.clone());
        world.add_client(name, async move {
            let mut stream = loop {
                // The node may not listen yet.
                if let Ok(stream) = dial(&grid, "n1:7001").await {
                    break stream;
                }
            };
            stream.write_u8(1).await?;
            *lock(&slot) = stream.read_u8().await.ok();
            Ok(())
        });
        answer
    }

    #[test]
    fn a_node_is_killed_loses_power_and_comes_back_on_its_disk() {
        let mut world = World::new(7, Trace::default());
        let node = world.add_node("n1", counting_echo);
        let first = ask(&mut world, "c1");
        for _ in 0..100 {
            world.step().unwrap();
        }
        assert_eq!(*lock(&first), Some(1));
        world.kill(node);
        world.step().unwrap();
        world.start(node);
        world.power_off(node);
        assert!(!world.is_up(node));
        world.step().unwrap();
        world.start(node);
        let second = ask(&mut world, "c2");
        for _ in 0..100 {
            world.step().unwrap();
        }
        assert!(lock(&second).is_some_and(|count| count >= 2));
    }

    #[test]
    fn a_stop_in_the_middle_of_a_write_silences_the_node_at_once() {
        let mut world = World::new(8, Trace::default());
        let node = world.add_node("n1", |env| async move {
            let path = Path::new("/f");
            let mut file = env.disk.open(path, OpenMode::CreateNew).map_err(|e| e.to_string())?;
            loop {
                let _ = file.write_at(b"abc", 0);
                weir_env::time::sleep(Duration::from_millis(1)).await;
            }
        });
        world.halt(node, Changes::All, 5, true);
        for _ in 0..20 {
            world.step().unwrap();
        }
        assert!(!world.is_up(node));
    }

    #[test]
    fn one_seed_one_timeline() {
        let timeline = || {
            let mut world = World::new(3, Trace::default());
            world.add_node("n1", counting_echo);
            ask(&mut world, "c1");
            for _ in 0..2000 {
                world.step().unwrap();
            }
            world.trace.lines()
        };
        assert_eq!(timeline(), timeline());
    }
}
