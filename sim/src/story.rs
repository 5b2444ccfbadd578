//! One run of the whole server: the cluster forms, clients work while the plan's faults strike, then the faults are off
//! and everything that was promised is looked for.

use std::{
    cell::Cell,
    collections::BTreeMap,
    path::Path,
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

use weir_store::{GroupId, Wal, WalOptions};
use weir_tests::{
    check::{self, Violation},
    history::History,
};

use crate::{
    book::{Book, micros},
    cluster::{Cluster, SEGMENT_BYTES},
    disk::medium::lock,
    invariants::{
        ends_in_time, equal_state_at_equal_index, heals_in_time, linearizable,
        log_matching::{self, Logs},
        replicas_converge, surface,
    },
    plan::Plan,
    planted::Bug,
    scenarios::{Options, Verdict},
    strikes::Strikes,
    trace::{Digest, Trace},
    workload::{GROUPS, Phase, Stage, keys_of_every_shard},
    world::World,
};

/// A fresh cluster must serve every key within this.
const FORMING_MAX: Duration = Duration::from_secs(30);
/// Then everything must be read back and acknowledged within this; a client may first have to give up an answer.
const READING_MAX: Duration = Duration::from_secs(25);
/// After that, replicas must reach equal indexes within this.
const CONVERGING_MAX: Duration = Duration::from_secs(15);
/// Simulated time that the look into the logs may take.
const AUDIT_MAX: Duration = Duration::from_secs(20);

/// Runs a plan on the calling thread.
pub(crate) fn run(plan: &Plan, options: Options) -> Verdict {
    let trace = Trace::new(options.echo);
    let mut story = Story::new(World::new(plan.seed, trace.clone()), plan);
    let told = story.tell();
    let (violations, undecided) = story.judge(told.err());
    let (done, refused, unknown) = story.counts;
    trace.mark_traffic();
    Verdict {
        violations,
        lines: trace.lines(),
        digest: trace.digest(),
        simulated: story.cluster.world.now(),
        real: Duration::ZERO,
        summary: format!(
            "{done} calls answered, {refused} refused, {unknown} unknown, {undecided} undecided, healed in {} ms",
            story.healed_in.unwrap_or_default().as_millis()
        ),
        coverage: story.strikes.coverage.clone(),
        healed: story.healed_in,
    }
}

struct Story {
    plan: Plan,
    cluster: Cluster,
    stage: Stage,
    strikes: Strikes,
    healed_in: Option<Duration>,
    counts: (usize, usize, usize),
}

impl Story {
    fn new(world: World, plan: &Plan) -> Self {
        let mut cluster = Cluster::new(world, plan);
        let keys = keys_of_every_shard("s", plan.shards, plan.keys_per_shard);
        let trace = cluster.world.trace.clone();
        // There and back, each up to a tick longer than the network takes.
        let there_and_back = micros(cluster.world.latency_max() * 2) + 4_000;
        // Behind a plain port there is one way more.
        let there_and_back = if plan.crowd.plain { 2 * there_and_back } else { there_and_back };
        let history = History {
            keys: keys.clone(),
            groups: GROUPS.iter().map(|&group| group.to_owned()).collect(),
            nodes: plan.nodes,
            // A blocked XREADGROUP goes through the log first.
            late_max: there_and_back + 150_000,
            wait_late_max: there_and_back,
            expected_errors: plan.scenario.expected_errors(),
            ..History::default()
        };
        let stage = Stage {
            phase: Rc::new(Cell::new(Phase::Forming)),
            book: Book::new(trace.clone(), history),
            trace,
            grid: cluster.world.grid.clone(),
            nodes: (0..plan.nodes)
                .map(|node| (cluster.address(node), cluster.world.nodes[node].disk.clone()))
                .collect(),
            keys,
            scratch: keys_of_every_shard("x", plan.shards.min(2), 1),
            surface: match plan.crowd.surface {
                0 => Vec::new(),
                _ => keys_of_every_shard("u", plan.shards.min(2), 1),
            },
            timed: (0..plan.crowd.timed).map(|number| format!("e{number}")).collect(),
            crowd: plan.crowd,
            calls_max: plan.calls_max,
            repeat_plainly: plan.bug == Some(Bug::RetryWithoutDedup),
            cuts: Rc::new(Cell::new(0)),
            seed: cluster.world.derived_seed(),
        };
        cluster.world.add_client("c", stage.clone().run());
        // The plan begins with the work.
        let strikes = Strikes::new(Vec::new(), Duration::ZERO, stage.cuts.clone(), stage.book.clone());
        Self { plan: plan.clone(), cluster, stage, strikes, healed_in: None, counts: (0, 0, 0) }
    }

    fn tell(&mut self) -> Result<(), Violation> {
        let phase = self.stage.phase.clone();
        self.until(FORMING_MAX, "the cluster did not form", || phase.get() == Phase::Ready)?;
        // Only now, or there would be no cluster to lose anything.
        match self.plan.bug {
            Some(Bug::Fsync) => {
                for node in &self.cluster.world.nodes {
                    node.disk.switch_sync_off();
                }
            }
            Some(bug) => bug.plant(),
            None => {}
        }
        phase.set(Phase::Work);
        self.faults()?;
        phase.set(Phase::Heal);
        self.strikes.end(&mut self.cluster);
        self.cluster.world.trace.line("world", "no more faults");
        let from = self.cluster.world.now();
        self.cluster.expect_service(self.plan.shards);
        let healing_max = self.cluster.election_timeout_max() * heals_in_time::ELECTIONS_MAX;
        self.until(healing_max, "the cluster did not heal", || phase.get() >= Phase::Healed)?;
        self.healed_in = Some(self.cluster.world.now() - from);
        let otherwise = "what is there could not be read back and acknowledged";
        self.until(READING_MAX, otherwise, || phase.get() == Phase::Finished)?;
        self.converge()?;
        self.audit()
    }

    fn step(&mut self) -> Result<(), Violation> {
        for (node, said) in self.cluster.step()? {
            if let Some(violation) = self.strikes.ended(node, &said, &mut self.cluster) {
                return Err(violation);
            }
        }
        self.strikes.act(&mut self.cluster);
        Ok(())
    }

    /// Lets the plan happen.
    fn faults(&mut self) -> Result<(), Violation> {
        let started = self.cluster.world.now();
        self.strikes =
            Strikes::new(self.plan.faults.clone(), started, self.stage.cuts.clone(), self.stage.book.clone());
        let end = started + Duration::from_millis(self.plan.work_ms);
        let mut owners_checked = started;
        while self.cluster.world.now() < end || !self.strikes.over() {
            self.step()?;
            if self.cluster.world.now() >= owners_checked + Duration::from_secs(1) {
                owners_checked = self.cluster.world.now();
                self.cluster.check_owners()?;
            }
        }
        Ok(())
    }

    fn converge(&mut self) -> Result<(), Violation> {
        let end = self.cluster.world.now() + CONVERGING_MAX;
        loop {
            self.cluster
                .compare_states()
                .map_err(|text| self.cluster.violation(equal_state_at_equal_index::NAME, text))?;
            if self.cluster.replicas_are_level() {
                let installed = self.cluster.snapshots_installed();
                let told = format!(
                    "replicas are level and equal, {installed} snapshots installed since they started"
                );
                self.cluster.world.trace.line("world", told);
                return Ok(());
            }
            if self.cluster.world.now() > end {
                let text = format!("replicas did not become level: {}", self.cluster.progress());
                return Err(self.cluster.violation(replicas_converge::NAME, text));
            }
            for _ in 0..20 {
                self.step()?;
            }
        }
    }

    /// Reads every node's log from a copy of its disk, with the real recovery, and compares.
    fn audit(&mut self) -> Result<(), Violation> {
        let logs: Arc<Mutex<Vec<(String, Logs)>>> = Arc::default();
        let mut left = Vec::new();
        for index in 0..self.cluster.nodes() {
            if !self.cluster.world.is_up(index) {
                continue;
            }
            let name = self.cluster.world.nodes[index].name.clone();
            let disk = self.cluster.world.nodes[index].disk.copy();
            let env = self.cluster.world.bare_env(disk.clone());
            let (logs, groups) = (logs.clone(), self.plan.shards);
            left.push(name.clone());
            self.cluster.world.add_client(&format!("audit-{name}"), async move {
                let read = read_log(&env, groups).await?;
                lock(&logs).push((name, read));
                Ok(())
            });
        }
        let end = self.cluster.world.now() + AUDIT_MAX;
        while lock(&logs).len() < left.len() {
            if self.cluster.world.now() > end {
                let text = "the nodes' logs could not be read at the end".to_owned();
                return Err(self.cluster.violation(log_matching::NAME, text));
            }
            self.step()?;
        }
        let mut logs = lock(&logs).clone();
        logs.sort();
        let entries: usize = logs.iter().flat_map(|(_, groups)| groups.values()).map(BTreeMap::len).sum();
        self.cluster.world.trace.line("world", format_args!("{entries} log entries compared"));
        match log_matching::check(&logs).into_iter().next() {
            Some(text) => Err(self.cluster.violation(log_matching::NAME, text)),
            None => Ok(()),
        }
    }

    fn until(
        &mut self,
        limit: Duration,
        otherwise: &str,
        reached: impl Fn() -> bool,
    ) -> Result<(), Violation> {
        let from = self.cluster.world.now();
        while !reached() {
            if let Err(late) = heals_in_time::check(otherwise, from, self.cluster.world.now(), limit) {
                let text = format!("{late}: {}", self.cluster.progress());
                return Err(self.cluster.violation(heals_in_time::NAME, text));
            }
            self.step()?;
        }
        Ok(())
    }

    fn judge(&mut self, failure: Option<Violation>) -> (Vec<Violation>, usize) {
        self.counts = self.stage.book.answered();
        let (history, scratch, mut found) = self.stage.book.close();
        found.extend(failure);
        // A run that ended early has no final state to judge by.
        if history.last.len() == history.keys.len() {
            found.extend(check::check(&history));
        }
        let (more, undecided) = linearizable::check(&scratch, &self.stage.scratch);
        found.extend(more);
        let (calls, timed) = self.stage.book.surface();
        let (more, undecided_too) = surface::check(&calls, &self.stage.surface);
        let undecided = undecided + undecided_too;
        found.extend(more);
        found.extend(ends_in_time::check(&timed, &self.stage.timed));
        found.sort_by_key(|violation| violation.at);
        (found, undecided)
    }
}

/// Everything that a node's log holds.
async fn read_log(env: &weir_env::Env, shards: u32) -> Result<Logs, Box<dyn std::error::Error>> {
    let options = WalOptions { segment_bytes: SEGMENT_BYTES, ..WalOptions::default() };
    let wal = Wal::open(env, Path::new("/data/wal"), options).await?;
    let mut logs = Logs::default();
    for group in 0..=shards {
        let log = wal.group(GroupId(group));
        let state = log.state();
        let first = state.purged.map_or(0, |purged| purged.index + 1);
        let end = state.last.map_or(0, |last| last.index + 1);
        let mut entries = BTreeMap::new();
        let mut next = first;
        while next < end {
            let some = log.read(next..end, 1 << 20).await?;
            if some.is_empty() {
                break;
            }
            for entry in some {
                let mut digest = Digest::default();
                digest.add(&entry.data);
                entries.insert(entry.position.index, (entry.position.term, digest.0));
                next = entry.position.index + 1;
            }
        }
        logs.insert(group, entries);
    }
    Ok(logs)
}
