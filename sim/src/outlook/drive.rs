//! One run of the operator's cluster: real nodes in the simulated world, the client library under the file's load, and
//! what was measured.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    load::{self, Ledger, Phase, Stage},
    shape::{Checked, Kind, Planned, Target},
};
use crate::{
    cluster::Cluster,
    disk::{SimDisk, medium::lock},
    faults::Loss,
    plan::Plan,
    scenarios::Scenario,
    trace::Trace,
    workload::keys_of_every_shard,
    world::{LinkTime, Power, World},
};

/// A cluster without faults must serve within this.
const FORMING_MAX: Duration = Duration::from_secs(60);
/// How long each number of writers at once is watched.
const BOUND_LASTS: Duration = Duration::from_millis(1500);
/// After the load: time to work off what is there.
const REST_MAX: Duration = Duration::from_secs(30);
/// A gap is looked for until this long after the fault is over.
const GAP_WITHIN: Duration = Duration::from_secs(5);
/// Of the curve of answered adds.
const SLICE: Duration = Duration::from_millis(100);

/// What one run measured. Times are milliseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// For each fault, by its place in the file's order of time: the longest time without an answered write of each
    /// shard that a struck node led.
    pub(crate) gaps: Vec<(usize, f64)>,
    /// The longest such time of each shard that no struck node led.
    pub(crate) pauses: Vec<(usize, f64)>,
    /// How long each answered append took.
    pub(crate) appends: Vec<f32>,
    /// Appends of unknown end, appends that failed.
    pub(crate) unknown: u64,
    pub(crate) failed: u64,
    /// Deliveries to handlers, and of how many entries.
    pub(crate) deliveries: u64,
    pub(crate) entries: u64,
    /// Entries that were still not handled when the run ended.
    pub(crate) unhandled: u64,
    /// By time limit: how often WAIT counted 0, 1, 2 ... other copies.
    pub(crate) waits: BTreeMap<u64, Vec<u64>>,
    /// Writers at once: answered writes a second, their median and 99th percentile.
    pub(crate) bound: BTreeMap<usize, Bound>,
    /// Of the busiest disk under the file's load: syncs a second, and the part of the time that they take.
    pub(crate) syncs: f64,
    pub(crate) busy: f64,
    /// Answered appends in each tenth of a second.
    pub(crate) curve: Vec<u32>,
    /// When the faults struck, seconds after the load began.
    pub(crate) struck: Vec<(f64, String)>,
    /// Promises that were broken.
    pub(crate) violations: Vec<String>,
}

/// What so many writers at once reach.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub(crate) per_second: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Writes carried by one sync of the busiest disk.
    pub(crate) per_sync: f64,
}

/// Runs it once.
pub(crate) fn run(shape: &Checked, seed: u64) -> Measured {
    let mut run = Run::new(shape, seed);
    if let Err(violation) = run.tell() {
        run.measured.violations.push(violation);
    }
    run.measured
}

struct Run<'a> {
    shape: &'a Checked,
    cluster: Cluster,
    stage: Stage,
    measured: Measured,
}

impl<'a> Run<'a> {
    fn new(shape: &'a Checked, seed: u64) -> Self {
        let mut world = World::new(seed, Trace::new(false));
        // Nobody looks at a timeline.
        world.trace.keep_nothing();
        let disk = SimDisk::new(world.derived_seed());
        let mut plan = Plan::calm(Scenario::Smoke, seed, &mut Plan::rng(seed));
        plan.nodes = shape.nodes.len();
        plan.shards = shape.shards;
        plan.set("wal-segment-bytes", 8 << 20);
        plan.set("snapshot-log-bytes", 64 << 20);
        plan.settings.extend(shape.settings.iter().cloned());
        let envs: Vec<_> = shape.client_zones.iter().map(|_| world.bare_env(disk.clone())).collect();
        let names: Vec<&str> = shape.nodes.iter().map(|node| node.name.as_str()).collect();
        let mut cluster = Cluster::with_names(world, &plan, &names);
        let stage = Stage {
            phase: Rc::new(Cell::new(Phase::Forming)),
            ready: Rc::new(Cell::new(0)),
            at_once: Rc::new(Cell::new(0)),
            ledger: Arc::new(Mutex::new(Ledger::default())),
            nodes: (0..cluster.nodes()).map(|node| cluster.address(node)).collect(),
            grid: cluster.world.grid.clone(),
            shape: Rc::new(shape.clone()),
            probed: Rc::new(keys_of_every_shard("p", shape.shards, 1)),
            streams: Rc::new(streams(shape)),
            seed: cluster.world.derived_seed(),
        };
        for (number, (zone, env)) in shape.client_zones.iter().zip(envs).enumerate() {
            let parts = shape.client_zones.len();
            cluster.world.add_client(&host_of(zone), stage.clone().run(env, number, parts));
        }
        let hosts: Vec<(String, &str)> = shape
            .nodes
            .iter()
            .map(|node| (node.name.clone(), node.zone.as_str()))
            .chain(shape.client_zones.iter().map(|zone| (host_of(zone), zone.as_str())))
            .collect();
        let mut times = Vec::new();
        for (at, (a, zone_a)) in hosts.iter().enumerate() {
            for (b, zone_b) in &hosts[at + 1..] {
                let (rtt_ms, jitter_ms) = shape.between(zone_a, zone_b);
                times.push(LinkTime { a: a.clone(), b: b.clone(), ms: rtt_ms / 2.0, jitter_ms });
            }
        }
        cluster.world.set_link_times(times);
        for node in &cluster.world.nodes {
            node.controls.set_sync_times(shape.sync.clone());
        }
        Self { shape, cluster, stage, measured: Measured::default() }
    }

    fn tell(&mut self) -> Result<(), String> {
        let hosts = self.shape.client_zones.len();
        let ready = self.stage.ready.clone();
        self.until(FORMING_MAX, "the cluster did not form", || ready.get() >= hosts)?;
        for writers in self.shape.writers_at_once.clone() {
            self.bound(writers)?;
        }
        self.load()?;
        self.stage.phase.set(Phase::Rest);
        let (ledger, from) = (self.stage.ledger.clone(), self.cluster.world.now());
        let rest = |ledger: &Ledger| ledger.appended.difference(&ledger.handled).count();
        while self.cluster.world.now() < from + REST_MAX {
            for _ in 0..100 {
                self.step()?;
            }
            if self.shape.consumers == 0 || rest(&lock(&ledger)) == 0 {
                break;
            }
        }
        self.stage.phase.set(Phase::Over);
        let ledger = lock(&ledger);
        let measured = &mut self.measured;
        measured.appends = ledger.appends.iter().map(|(_, took)| took.as_secs_f32() * 1000.0).collect();
        (measured.unknown, measured.failed) = (ledger.unknown, ledger.failed);
        measured.deliveries = ledger.deliveries;
        measured.entries = ledger.handled.len() as u64;
        measured.unhandled = if self.shape.consumers == 0 { 0 } else { rest(&ledger) as u64 };
        measured.waits.clone_from(&ledger.waits);
        Ok(())
    }

    /// So many writers at once, each waiting for its answer.
    fn bound(&mut self, writers: usize) -> Result<(), String> {
        self.stage.at_once.set(writers);
        self.stage.phase.set(Phase::Bound);
        // Without the first moments, in which connections are made.
        self.pass(Duration::from_millis(300))?;
        lock(&self.stage.ledger).bound.clear();
        let syncs = self.syncs();
        self.pass(BOUND_LASTS)?;
        let busiest = self.busiest(&syncs);
        self.stage.phase.set(Phase::Pause);
        let mut took = std::mem::take(&mut lock(&self.stage.ledger).bound);
        took.sort_unstable();
        let ms = |part: f64| percentile(&took, part).as_secs_f64() * 1000.0;
        let bound = Bound {
            per_second: took.len() as f64 / BOUND_LASTS.as_secs_f64(),
            p50: ms(0.5),
            p99: ms(0.99),
            per_sync: took.len() as f64 / busiest.max(1) as f64,
        };
        self.measured.bound.insert(writers, bound);
        self.pass(Duration::from_millis(300))
    }

    fn syncs(&self) -> Vec<u64> {
        self.cluster.world.nodes.iter().map(|node| node.disk.stats().syncs).collect()
    }

    fn busiest(&self, before: &[u64]) -> u64 {
        self.syncs().iter().zip(before).map(|(now, before)| now - before).max().unwrap_or(0)
    }

    /// The load with its faults.
    fn load(&mut self) -> Result<(), String> {
        let started = self.cluster.world.now();
        self.stage.phase.set(Phase::Load);
        let syncs = self.syncs();
        let faults = self.shape.faults.clone();
        let mut next = 0;
        let mut undo: Vec<(Duration, Undo)> = Vec::new();
        // When each fault struck, and which shards the struck nodes led.
        let mut struck: Vec<(usize, Duration, BTreeSet<u32>)> = Vec::new();
        while self.cluster.world.now() < started + self.shape.lasts || !undo.is_empty() {
            let now = self.cluster.world.now();
            while let Some(fault) = faults.get(next).filter(|fault| started + fault.at <= now) {
                let (led, undone) = self.strike(fault);
                self.measured.struck.push(((now - started).as_secs_f64(), fault.name.clone()));
                struck.push((next, now, led));
                undo.extend(undone.into_iter().map(|undo| (now + fault.lasts, undo)));
                next += 1;
            }
            while let Some(at) = undo.iter().position(|(at, _)| *at <= now) {
                let (_, undone) = undo.swap_remove(at);
                self.take_back(undone);
            }
            self.step()?;
        }
        let lasted = self.cluster.world.now() - started;
        self.measured.syncs = self.busiest(&syncs) as f64 / lasted.as_secs_f64();
        self.measured.busy = self.measured.syncs * self.shape.sync.mean_ms() / 1000.0;
        let ledger = lock(&self.stage.ledger);
        for (place, (number, at, led)) in struck.iter().enumerate() {
            let (number, at) = (*number, *at);
            let next = struck.get(place + 1).map_or(Duration::MAX, |(_, next, _)| *next);
            // Nobody writes any more once the load is over.
            let end = (at + faults[number].lasts + GAP_WITHIN).min(next).min(started + lasted);
            for shard in 0..self.shape.shards {
                let gap = longest_gap(ledger.probes.get(&shard).map_or(&[], Vec::as_slice), at, end);
                let gap = (number, gap.as_secs_f64() * 1000.0);
                if led.contains(&shard) {
                    self.measured.gaps.push(gap);
                } else {
                    self.measured.pauses.push(gap);
                }
            }
        }
        self.measured.curve = curve(&ledger.appends, started, self.shape.lasts);
        Ok(())
    }

    /// Carries a fault out. Answers the shards that the struck nodes led, and how to end it.
    fn strike(&mut self, fault: &Planned) -> (BTreeSet<u32>, Vec<Undo>) {
        let nodes = match &fault.target {
            Target::Nodes(nodes) => nodes.clone(),
            Target::LeaderOf(shard) => self.cluster.leader_of(*shard).into_iter().collect(),
        };
        let led = (0..self.shape.shards)
            .filter(|shard| self.cluster.leader_of(*shard).is_some_and(|leader| nodes.contains(&leader)))
            .collect();
        let world = &mut self.cluster.world;
        let undo = match fault.kind {
            Kind::Kill | Kind::PowerOff => nodes
                .into_iter()
                .filter_map(|node| {
                    let up = world.is_up(node);
                    match fault.kind {
                        Kind::Kill if up => world.kill(node),
                        Kind::PowerOff if up => world.power_off(node),
                        _ => return None,
                    }
                    Some(Undo::Start(node))
                })
                .collect(),
            Kind::Pause => nodes.into_iter().map(|node| Undo::Resume(node, world.pause(node))).collect(),
            Kind::Isolate => {
                let inside: BTreeSet<String> =
                    nodes.iter().map(|node| world.nodes[*node].name.clone()).collect();
                let mut links = BTreeSet::new();
                for node in &nodes {
                    links.extend(world.links_of(*node, true, true));
                }
                links.retain(|(from, to)| inside.contains(from) != inside.contains(to));
                // Clients of a zone that is cut off as a whole still reach its nodes.
                if let Target::Nodes(_) = fault.target
                    && let Some(zone) = self.shape.zone_of_all(&nodes)
                {
                    let host = host_of(zone);
                    links.retain(|(from, to)| *from != host && *to != host);
                }
                vec![Undo::Mend(world.cut(links, Loss::Lost))]
            }
        };
        (led, undo)
    }

    fn take_back(&mut self, undo: Undo) {
        let world = &mut self.cluster.world;
        match undo {
            Undo::Start(node) if world.power(node) != Power::On => world.start(node),
            Undo::Start(_) => {}
            Undo::Resume(node, cut) => world.resume(node, cut),
            Undo::Mend(cut) => world.mend(cut),
        }
    }

    fn pass(&mut self, time: Duration) -> Result<(), String> {
        let end = self.cluster.world.now() + time;
        while self.cluster.world.now() < end {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        let ends = self.cluster.step().map_err(|violation| violation.to_string())?;
        match ends.first() {
            Some((node, said)) => Err(format!("{} ended: {said}", self.shape.nodes[*node].name)),
            None => Ok(()),
        }
    }

    fn until(&mut self, limit: Duration, otherwise: &str, reached: impl Fn() -> bool) -> Result<(), String> {
        let end = self.cluster.world.now() + limit;
        while !reached() {
            if self.cluster.world.now() > end {
                return Err(format!("{otherwise} in {limit:?}: {}", self.cluster.progress()));
            }
            self.step()?;
        }
        Ok(())
    }
}

/// How a fault ends.
enum Undo {
    Start(usize),
    Resume(usize, u64),
    Mend(u64),
}

impl Checked {
    /// Round trip and jitter between two zones, milliseconds.
    fn between(&self, a: &str, b: &str) -> (f64, f64) {
        let named = |zones: &[String; 2]| {
            a != b && zones.iter().any(|zone| zone == a) && zones.iter().any(|zone| zone == b)
        };
        self.between.iter().find(|(zones, _)| named(zones)).map_or(self.inside, |(_, times)| *times)
    }

    /// The zone that `nodes` are all of.
    fn zone_of_all(&self, nodes: &[usize]) -> Option<&str> {
        let zone = self.nodes.get(*nodes.first()?)?.zone.as_str();
        let inside = self.nodes.iter().enumerate().filter(|(_, node)| node.zone == zone);
        inside.map(|(index, _)| index).eq(nodes.iter().copied()).then_some(zone)
    }
}

/// The host that a zone's clients are on.
fn host_of(zone: &str) -> String {
    format!("clients-{zone}")
}

/// Streams spread over the shards as their number allows.
fn streams(shape: &Checked) -> Vec<String> {
    let shards = shape.shards as usize;
    let mut all = keys_of_every_shard("s", shape.shards, shape.streams.div_ceil(shards));
    // One of each shard after the other, so that the first few are on different shards.
    let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
    let mut placed: Vec<(usize, u32, String)> = all
        .drain(..)
        .map(|key| {
            let shard = load::shard_of(&key, shape.shards);
            let turn = seen.entry(shard).or_default();
            *turn += 1;
            (*turn, shard, key)
        })
        .collect();
    placed.sort();
    placed.into_iter().take(shape.streams).map(|(_, _, key)| key).collect()
}

/// The value that `part` of `sorted` are not above.
pub(crate) fn percentile<T: Copy + Default>(sorted: &[T], part: f64) -> T {
    let at = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(at.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// The longest time between two answers, or between the last one and `end`, that reaches into `from..end`.
fn longest_gap(answers: &[Duration], from: Duration, end: Duration) -> Duration {
    let mut times: Vec<Duration> = answers.iter().copied().filter(|at| *at < end).collect();
    times.sort_unstable();
    times.push(end);
    let pairs = times.windows(2).filter(|pair| pair[1] >= from);
    pairs.map(|pair| pair[1] - pair[0]).max().unwrap_or(end - from)
}

/// Answered appends by slice of time.
fn curve(appends: &[(Duration, Duration)], from: Duration, lasts: Duration) -> Vec<u32> {
    let slices = lasts.as_millis() / SLICE.as_millis();
    let mut curve = vec![0; usize::try_from(slices).unwrap_or(0)];
    for (at, _) in appends {
        let slice = at.saturating_sub(from).as_millis() / SLICE.as_millis();
        if let Some(count) = usize::try_from(slice).ok().and_then(|slice| curve.get_mut(slice)) {
            *count += 1;
        }
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(all: &[u64]) -> Vec<Duration> {
        all.iter().map(|&ms| Duration::from_millis(ms)).collect()
    }

    #[test]
    fn a_gap_is_the_longest_time_without_an_answer_that_reaches_into_the_window() {
        let gap = |answers: &[u64], from, end| {
            longest_gap(&ms(answers), Duration::from_millis(from), Duration::from_millis(end)).as_millis()
        };
        assert_eq!(gap(&[0, 10, 20, 420, 430, 1000], 25, 500), 400);
        // What is before does not count, what nobody answered until the end does.
        assert_eq!(gap(&[0, 900, 910, 920], 915, 1000), 80);
        assert_eq!(gap(&[], 5, 25), 20);
    }

    #[test]
    fn a_percentile_of_few_is_one_of_them() {
        assert_eq!(percentile(&[1, 2, 3, 4], 0.5), 2);
        assert_eq!(percentile(&[1, 2, 3, 4], 0.99), 4);
        assert_eq!(percentile::<u32>(&[], 0.5), 0);
    }
}
