//! Three nodes, a few clients on keys of every shard. A leader dies and comes back, then all three
//! machines lose power; with the faults over, the cluster must heal, serve, and hold every answered
//! write exactly once, and equal replicas must be equal.

use std::{cell::Cell, rc::Rc, time::Duration};

use rand::Rng;

use super::{Options, Verdict};
use crate::{
    Bug,
    cluster::Cluster,
    faults::{self, Crash, Fault},
    history::History,
    invariants,
    trace::Trace,
    workload::{Phase, Workload, keys_of_every_shard},
    world::World,
};

const NODES: usize = 3;
const SHARDS: u32 = 3;
/// A fresh cluster must serve every key within this.
const FORMING_MAX: Duration = Duration::from_secs(30);
/// With all faults over, every key must be served within this many election timeouts (P9).
const HEALING_ELECTIONS_MAX: u32 = 10;
/// Then everything must be read back within this; a client may first have to give up an answer.
const READING_MAX: Duration = Duration::from_secs(20);
/// After that, replicas must reach equal indexes within this.
const CONVERGING_MAX: Duration = Duration::from_secs(15);

pub(super) fn run(seed: u64, options: Options) -> Verdict {
    let trace = Trace::new(options.echo);
    let mut story = Story::new(World::new(seed, trace.clone()), options);
    let violations = match story.tell() {
        Ok(()) => story.judge(),
        Err(why) => {
            let mut found = vec![why];
            found.extend(story.judge());
            found
        }
    };
    let (done, refused, unknown) = story.workload.history.frozen().counts();
    trace.mark_traffic();
    Verdict {
        violations,
        lines: trace.lines(),
        digest: trace.digest(),
        simulated: story.cluster.world.now(),
        real: Duration::ZERO,
        summary: format!(
            "{done} writes answered, {refused} refused, {unknown} unknown, healed in {} ms",
            story.healed_in.as_millis()
        ),
    }
}

struct Story {
    cluster: Cluster,
    workload: Workload,
    bug: Option<Bug>,
    healed_in: Duration,
}

impl Story {
    fn new(mut world: World, options: Options) -> Self {
        let clients = world.rng.random_range(2..=5);
        let per_shard = world.rng.random_range(1..=3);
        let mut cluster = Cluster::new(world, NODES, SHARDS);
        let workload = Workload {
            phase: Rc::new(Cell::new(Phase::Forming)),
            history: History::default(),
            trace: cluster.world.trace.clone(),
            grid: cluster.world.grid.clone(),
            nodes: cluster.client_addresses(),
            keys: keys_of_every_shard(SHARDS, per_shard),
            clients,
            seed: cluster.world.derived_seed(),
        };
        cluster.world.add_client("c", workload.clone().run());
        Self { cluster, workload, bug: options.bug, healed_in: Duration::ZERO }
    }

    fn tell(&mut self) -> Result<(), String> {
        let phase = self.workload.phase.clone();
        self.until(FORMING_MAX, "the cluster did not form", || phase.get() == Phase::Ready)?;
        // Only now, or a power loss would take the identities too and nothing could be lost.
        if self.bug == Some(Bug::Fsync) {
            for node in &self.cluster.world.nodes {
                node.disk.switch_sync_off();
            }
        }
        phase.set(Phase::Work);
        self.faults()?;
        phase.set(Phase::Heal);
        self.cluster.world.trace.line("world", "no more faults");
        let from = self.cluster.world.now();
        let healing_max = self.cluster.election_timeout_max() * HEALING_ELECTIONS_MAX;
        self.until(healing_max, "the cluster did not heal", || phase.get() >= Phase::Healed)?;
        self.healed_in = self.cluster.world.now() - from;
        let otherwise = "what is there could not be read back";
        self.until(READING_MAX, otherwise, || phase.get() == Phase::Finished)?;
        self.converge()
    }

    /// Lets the schedule happen, then waits until every node is up again.
    fn faults(&mut self) -> Result<(), String> {
        let started = self.cluster.world.now();
        let schedule = faults::smoke_schedule(&mut self.cluster.world.rng, NODES, SHARDS);
        for (at, fault) in &schedule {
            self.cluster.world.trace.line("world", format_args!("planned at +{at:?}: {fault:?}"));
        }
        let mut restarts: Vec<Option<Duration>> = vec![None; NODES];
        let mut schedule = schedule.into_iter().peekable();
        loop {
            let now = self.cluster.world.now();
            if let Some((_, fault)) = schedule.next_if(|(at, _)| started + *at <= now) {
                self.strike(&fault, &mut restarts);
            }
            for (node, restart) in restarts.iter_mut().enumerate() {
                if restart.is_some_and(|at| at <= now) {
                    *restart = None;
                    if self.cluster.world.is_up(node) {
                        // Ordered to stop at a disk change that it did not come to.
                        self.cluster.world.nodes[node].disk.call_off_halt();
                    } else {
                        self.cluster.world.start(node);
                    }
                }
            }
            if schedule.peek().is_none() && restarts.iter().all(Option::is_none) {
                break;
            }
            self.cluster.step()?;
        }
        let tail = Duration::from_millis(self.cluster.world.rng.random_range(0..2000));
        let end = self.cluster.world.now() + tail;
        while self.cluster.world.now() < end {
            self.cluster.step()?;
        }
        Ok(())
    }

    fn strike(&mut self, fault: &Fault, restarts: &mut [Option<Duration>]) {
        let world = &mut self.cluster.world;
        let now = world.now();
        match fault {
            Fault::CrashLeader { shard, how, down_ms } => {
                let Some(node) = self.cluster.leader_of(*shard) else {
                    self.cluster.world.trace.line("world", "no leader to crash");
                    return;
                };
                let world = &mut self.cluster.world;
                match how {
                    Crash::Kill => world.kill(node),
                    Crash::Power => world.power_off(node),
                    Crash::KillAtChange(changes) => world.halt(node, *changes, false),
                    Crash::PowerAtChange(changes) => world.halt(node, *changes, true),
                }
                restarts[node] = Some(now + Duration::from_millis(*down_ms));
            }
            Fault::ClockJump { node, skew_ms } => world.set_skew(*node, *skew_ms),
            Fault::PowerLossOfAll { down_ms } => {
                for (node, down_ms) in down_ms.iter().enumerate() {
                    world.power_off(node);
                    restarts[node] = Some(now + Duration::from_millis(*down_ms));
                }
            }
        }
    }

    fn converge(&mut self) -> Result<(), String> {
        let end = self.cluster.world.now() + CONVERGING_MAX;
        loop {
            self.cluster.compare_states()?;
            if self.cluster.replicas_are_level() {
                self.cluster.world.trace.line("world", "replicas are level and equal");
                return Ok(());
            }
            if self.cluster.world.now() > end {
                return Err(format!("replicas did not become level: {}", self.cluster.progress()));
            }
            for _ in 0..20 {
                self.cluster.step()?;
            }
        }
    }

    fn until(&mut self, limit: Duration, otherwise: &str, reached: impl Fn() -> bool) -> Result<(), String> {
        let end = self.cluster.world.now() + limit;
        while !reached() {
            if self.cluster.world.now() > end {
                return Err(format!("{otherwise} in {limit:?}: {}", self.cluster.progress()));
            }
            self.cluster.step()?;
        }
        Ok(())
    }

    fn judge(&self) -> Vec<String> {
        invariants::of_history(&self.workload.history.frozen())
    }
}
