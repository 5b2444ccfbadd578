//! A world of nodes on simulated edges, stepped one millisecond at a time.
//!
//! The world owns what outlives a process: the disks, the clocks' skew, who is up. A scenario
//! steps it, and between steps kills nodes, cuts their power and starts them again.

use std::{
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
    disk::{SimDisk, medium::lock},
    net::{Grid, Power, SimNet},
    spawn::{SimRng, SimSpawn},
    trace::Trace,
};

/// Simulated time per step; also the resolution of message delays.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// One machine: what stays when its process dies.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) disk: SimDisk,
    /// Added to its wall clock, in milliseconds.
    skew_ms: Arc<AtomicI64>,
    power: Power,
    /// An ordered mid-operation stop cuts the power (or else only kills the process).
    halt_cuts_power: bool,
    /// Why its software ended by itself.
    ended: Arc<Mutex<Option<String>>>,
    starts: u32,
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
    held: bool,
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
            held: false,
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
        let env = Env {
            clock: Arc::new(SimClock { skew_ms: skew_ms.clone(), trace: self.trace.clone() }),
            net: Arc::new(SimNet { grid: self.grid.clone(), disk: disk.clone(), trace: self.trace.clone() }),
            disk: Arc::new(disk.clone()),
            rng: Arc::new(rng.clone()),
            spawn: Arc::new(SimSpawn { rng, disk_delay_ms_max: self.rng.random_range(0..=3) }),
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
            halt_cuts_power: false,
            ended,
            starts: 1,
        });
        index
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
        let name = self.nodes[index].name.clone();
        self.trace.line(&name, "power off");
        for other in self.others(index) {
            self.sim.partition(name.as_str(), other.as_str());
        }
        self.sim.crash(name.as_str());
        let node = &mut self.nodes[index];
        node.disk.power_lost();
        node.power = Power::Off;
        self.grid.set(&name, Power::Off);
    }

    /// Stops the node in the middle of what its disk is doing, after `changes` more changes.
    pub(crate) fn halt(&mut self, index: usize, changes: u64, cut_power: bool) {
        let node = &mut self.nodes[index];
        let how = if cut_power { "power off" } else { "killed" };
        self.trace.line(&node.name, format_args!("to be {how} after {changes} disk changes"));
        node.halt_cuts_power = cut_power;
        node.disk.halt_after(changes);
    }

    /// Starts the node's software again on the same disk.
    pub(crate) fn start(&mut self, index: usize) {
        let name = self.nodes[index].name.clone();
        if self.nodes[index].power == Power::Off {
            for other in self.others(index) {
                self.sim.repair(name.as_str(), other.as_str());
            }
        }
        let node = &mut self.nodes[index];
        node.starts += 1;
        self.trace.line(&name, format_args!("start {}", node.starts));
        node.power = Power::On;
        self.grid.set(&name, Power::On);
        self.sim.bounce(name.as_str());
    }

    /// Holds back every message to and from the node, as a network would that loses and resends.
    pub(crate) fn hold_node(&mut self, index: usize) {
        let name = self.nodes[index].name.clone();
        self.trace.line(&name, "cut off");
        for other in self.others(index) {
            self.sim.hold(name.as_str(), other.as_str());
        }
        self.held = true;
    }

    /// Delivers what was held back; nobody is cut off any more.
    pub(crate) fn unhold_all(&mut self) {
        if !std::mem::take(&mut self.held) {
            return;
        }
        self.trace.line("world", "nobody is cut off");
        for index in 0..self.nodes.len() {
            for other in self.others(index) {
                self.sim.release(self.nodes[index].name.as_str(), other.as_str());
            }
        }
    }

    /// Sets the skew of the node's wall clock.
    pub(crate) fn set_skew(&mut self, index: usize, skew_ms: i64) {
        let node = &self.nodes[index];
        self.trace.line(&node.name, format_args!("wall clock off by {skew_ms} ms"));
        node.skew_ms.store(skew_ms, Ordering::Relaxed);
    }

    fn others(&self, index: usize) -> Vec<String> {
        let nodes = self.nodes.iter().enumerate();
        let nodes = nodes.filter(|(other, _)| *other != index).map(|(_, node)| node.name.clone());
        nodes.chain(self.clients.iter().cloned()).collect()
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
        world.halt(node, 5, true);
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
