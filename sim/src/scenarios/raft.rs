//! Three machines with one Raft group each over a toy state: no server, so much faster. Every leader
//! proposes numbered payloads; nodes are killed, lose power, stop in the middle of their disk work
//! and are cut off from each other. What a proposer was told must hold: done stays done, not done
//! never shows up, nothing shows up twice, and all replicas apply the same log.
//!
//! The story `power` is the same in the modes that do not sync each batch. There that is promised only as long as
//! one machine at a time loses power: the next cut waits until the last victim is restored. At the end all lose power;
//! then the longest log that is left must go on.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use rand::Rng;
use tokio::sync::watch;
use weir_env::{Env, time};
use weir_raft::{
    CallFrom, Committed, Fate, Group, GroupOptions, GroupStatus, Nonce, PeerHandler, PeerIdentity, Peers,
    RaftTimings, Registry, SnapshotSink, SnapshotSource, StateMachine, serve_peers,
};
use weir_store::{Durability, GroupId, LogPosition, SnapshotStore, Wal, WalOptions};

use super::{Options, Verdict};
use crate::{
    disk::{Changes, medium::lock},
    faults::Loss,
    invariants::one_leader_per_term::Leaders,
    planted::Bug,
    trace::{Digest, Trace},
    world::World,
};

const NODES: u64 = 3;
const PEER_PORT: u16 = 17_001;
const GROUP: GroupId = GroupId(1);

pub(super) fn run(seed: u64, bug: Option<Bug>, options: Options, weak: bool) -> Verdict {
    let trace = Trace::new(options.echo);
    let mut world = World::new(seed, trace.clone());
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let mut groups = Vec::new();
    let durability = match weak {
        true => *crate::world::pick(&mut world.rng, &[Durability::EverySec, Durability::Os]),
        false => Durability::Always,
    };
    let snapshot_log_bytes = *crate::world::pick(&mut world.rng, &[2_000, 20_000, 1 << 30]);
    for me in 1..=NODES {
        let window: Window = Arc::default();
        groups.push(window.clone());
        let (ledger, trace) = (ledger.clone(), trace.clone());
        world.add_node(&name(me), move |env| {
            let place = Place { me, durability, snapshot_log_bytes, window: window.clone() };
            node(env, place, ledger.clone(), trace.clone())
        });
    }
    for node in &world.nodes {
        match bug {
            Some(Bug::Fsync) => node.disk.switch_sync_off(),
            Some(Bug::Boot) => node.disk.hide_boots(),
            _ => {}
        }
    }
    let faults = if options.brief { 2 } else { world.rng.random_range(3..10) };
    let mut story = Story { world, ledger, groups, faults, weak, leaders: Leaders::default() };
    let mut violations = Vec::new();
    if let Err(why) = story.tell() {
        violations.push(why);
    }
    trace.mark_traffic();
    let ledger = lock(&story.ledger);
    violations.extend(ledger.violations.iter().take(10).cloned());
    Verdict {
        violations: super::sentences(crate::invariants::RAFT_GROUP, story.world.now(), violations),
        lines: trace.lines(),
        digest: trace.digest(),
        simulated: story.world.now(),
        real: Duration::ZERO,
        summary: format!(
            "{} done, {} not done, {} unknown, {} indexes, {} restores",
            ledger.done.len(),
            ledger.not_done.len(),
            ledger.unknown,
            ledger.log.len(),
            ledger.restores
        ),
        coverage: Default::default(),
        healed: None,
    }
}

fn name(me: u64) -> String {
    format!("n{me}")
}

struct Story {
    world: World,
    ledger: Arc<Mutex<Ledger>>,
    groups: Vec<Window>,
    faults: usize,
    /// A power loss takes what was confirmed.
    weak: bool,
    leaders: Leaders,
}

impl Story {
    fn tell(&mut self) -> Result<(), String> {
        self.run_for(2_000)?;
        for _ in 0..self.faults {
            self.fault()?;
        }
        self.world.trace.line("world", "no more faults");
        self.world.mend_all();
        for node in 0..self.world.nodes.len() {
            self.world.nodes[node].disk.call_off_halt();
            if !self.world.is_up(node) {
                self.world.start(node);
            }
        }
        self.heal()?;
        if self.weak { self.lose_all() } else { Ok(()) }
    }

    /// All lose power at once, each another end of its log. What is left goes on by itself; nothing is promised of
    /// what was done before.
    fn lose_all(&mut self) -> Result<(), String> {
        lock(&self.ledger).stop = false;
        let more_ms = self.world.rng.random_range(100..1500);
        self.run_for(more_ms)?;
        for node in 0..self.world.nodes.len() {
            self.world.power_off(node);
        }
        self.run_for(50)?;
        {
            let mut ledger = lock(&self.ledger);
            // Numbers are never given twice.
            *ledger = Ledger { proposed: ledger.proposed, ..Ledger::default() };
        }
        for node in 0..self.world.nodes.len() {
            self.world.start(node);
            let pause = self.world.rng.random_range(0..2000);
            self.run_for(pause)?;
        }
        let end = self.world.now() + Duration::from_secs(20);
        while self.leader().is_none() {
            if self.world.now() > end {
                return Err(format!("nobody leads after all lost power: {}", self.places()));
            }
            self.run_for(20)?;
        }
        self.heal()
    }

    fn heal(&mut self) -> Result<(), String> {
        // Proposers go on for a while, then stop; the replicas must become equal and complete.
        self.run_for(2_000)?;
        lock(&self.ledger).stop = true;
        let end = self.world.now() + Duration::from_secs(20);
        while !self.is_level() {
            if self.world.now() > end {
                return Err(format!("did not heal: {}", self.places()));
            }
            self.run_for(20)?;
        }
        let ledger = lock(&self.ledger);
        for (id, position) in &ledger.done {
            if ledger.log.get(&position.index).is_none_or(|(_, there)| there != &Some(*id)) {
                return Err(format!("{id} was done at {position:?} and is gone"));
            }
        }
        let states: BTreeSet<_> = ledger.replicas.values().map(|r| (r.applied, r.digest)).collect();
        if states.len() != 1 {
            return Err(format!("replicas differ: {states:?}"));
        }
        if !ledger.done_after_heal() {
            return Err("nothing was done after the faults".to_owned());
        }
        Ok(())
    }

    fn fault(&mut self) -> Result<(), String> {
        let node = self.world.rng.random_range(0..self.world.nodes.len());
        let node = match self.leader() {
            Some(leader) if self.world.rng.random_bool(0.7) => leader,
            _ => node,
        };
        let down_ms = self.world.rng.random_range(20..2500);
        if self.weak {
            self.weak_fault(node)?;
            return self.after_fault(down_ms);
        }
        match self.world.rng.random_range(0..10u32) {
            0 | 1 => self.world.kill(node),
            2 => self.world.power_off(node),
            3..=5 => {
                let (which, changes) = Changes::draw(&mut self.world.rng, 20);
                let power = self.world.rng.random_bool(0.5);
                self.world.halt(node, which, changes, power);
            }
            6 | 7 => {
                for node in 0..self.world.nodes.len() {
                    self.world.power_off(node);
                }
            }
            _ => self.cut_off(node),
        }
        self.after_fault(down_ms)
    }

    /// One machine may lose power if none misses anything from an earlier time; the leader or another may die with
    /// it, or be cut off before.
    fn weak_fault(&mut self, node: usize) -> Result<(), String> {
        let whole =
            self.groups.iter().all(|window| lock(window).as_ref().is_some_and(|(_, lost)| !*lost.borrow()));
        let nodes = self.world.nodes.len();
        let other = (node + self.world.rng.random_range(1..nodes)) % nodes;
        let power = whole && self.world.rng.random_bool(0.8);
        if self.world.rng.random_bool(0.4) {
            self.cut_off(other);
            let alone_ms = self.world.rng.random_range(1..500);
            self.run_for(alone_ms)?;
        }
        let third = (0..nodes).find(|third| *third != node && *third != other);
        match self.world.rng.random_range(0..4u32) {
            0 => {
                let (which, changes) = Changes::draw(&mut self.world.rng, 20);
                self.world.halt(node, which, changes, power);
            }
            _ if power => self.world.power_off(node),
            _ => self.world.kill(node),
        }
        if let Some(third) = third
            && self.world.rng.random_bool(0.6)
        {
            self.world.kill(third);
        }
        Ok(())
    }

    /// Holds back every message to and from the node, as a network would that loses and resends.
    fn cut_off(&mut self, node: usize) {
        let links = self.world.links_of(node, true, true);
        self.world.cut(links, Loss::Held);
    }

    fn after_fault(&mut self, down_ms: u64) -> Result<(), String> {
        self.run_for(down_ms)?;
        self.world.mend_all();
        for node in 0..self.world.nodes.len() {
            self.world.nodes[node].disk.call_off_halt();
            if !self.world.is_up(node) {
                self.world.start(node);
                let pause = self.world.rng.random_range(0..if self.weak { 4000 } else { 300 });
                self.run_for(pause)?;
            }
        }
        let pause = self.world.rng.random_range(50..2500);
        self.run_for(pause)
    }

    fn run_for(&mut self, millis: u64) -> Result<(), String> {
        for _ in 0..millis {
            if let Some((node, end)) = self.world.step()?.into_iter().next() {
                return Err(format!("{} ended by itself: {end}", self.world.nodes[node].name));
            }
            self.watch()?;
            if let Some(violation) = lock(&self.ledger).violations.first() {
                return Err(format!("(the first of) {violation}"));
            }
        }
        Ok(())
    }

    fn watch(&mut self) -> Result<(), String> {
        for (node, window) in self.groups.iter().enumerate() {
            let Some(group) = lock(window).clone().filter(|_| self.world.is_up(node)) else {
                continue;
            };
            let (status, _) = &group;
            let status = status.borrow();
            if status.is_leader && self.leaders.saw(GROUP.0, status.term, node as u64 + 1)? {
                let name = &self.world.nodes[node].name;
                self.world.trace.line(name, format_args!("leads term {}", status.term));
            }
        }
        Ok(())
    }

    fn leader(&self) -> Option<usize> {
        (0..self.groups.len()).find(|node| {
            self.world.is_up(*node)
                && lock(&self.groups[*node]).as_ref().is_some_and(|(status, _)| status.borrow().is_leader)
        })
    }

    fn is_level(&self) -> bool {
        let statuses: Vec<_> = self
            .groups
            .iter()
            .filter_map(|window| {
                let window = lock(window);
                let status = window.as_ref()?.0.borrow();
                Some((status.last_index, status.committed, status.applied))
            })
            .collect();
        statuses.len() == self.groups.len() && statuses.iter().all(|s| *s == statuses[0] && s.0 == s.2)
    }

    fn places(&self) -> String {
        let mut text = String::new();
        for (node, window) in self.groups.iter().enumerate() {
            let window = lock(window);
            let Some(status) = window.as_ref().map(|(status, _)| status.borrow().clone()) else {
                continue;
            };
            text.push_str(&format!("n{}: {status:?}; ", node + 1));
        }
        text
    }
}

/// What the whole world knows about the log.
#[derive(Default)]
struct Ledger {
    /// By index: the term and the payload's number that some replica applied.
    log: BTreeMap<u64, (u64, Option<u64>)>,
    /// Where each payload was applied.
    places: BTreeMap<u64, u64>,
    done: BTreeMap<u64, LogPosition>,
    not_done: BTreeSet<u64>,
    unknown: usize,
    proposed: u64,
    replicas: BTreeMap<u64, Replica>,
    restores: usize,
    stop: bool,
    violations: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Replica {
    applied: u64,
    digest: u64,
}

impl Ledger {
    fn applied(&mut self, me: u64, entry: &Committed, id: Option<u64>) {
        let LogPosition { term, index } = entry.position;
        let first = *self.log.entry(index).or_insert((term, id));
        if first != (term, id) {
            self.violations
                .push(format!("n{me} applied {id:?} of term {term} at {index}, another replica {first:?}"));
        }
        let Some(id) = id else { return };
        let place = *self.places.entry(id).or_insert(index);
        if place != index {
            self.violations.push(format!("{id} is at {place} and at {index}"));
        }
        if self.not_done.contains(&id) {
            self.violations.push(format!("{id} was not done and is at {index}"));
        }
    }

    fn settled(&mut self, id: u64, fate: Fate) {
        match fate {
            Fate::Unknown => self.unknown += 1,
            Fate::NotDone => {
                self.not_done.insert(id);
                if let Some(place) = self.places.get(&id) {
                    self.violations.push(format!("{id} is at {place} and was not done"));
                }
            }
        }
        if self.done.contains_key(&id) {
            self.violations.push(format!("{id} was done, then told {fate:?}"));
        }
    }

    fn done_after_heal(&self) -> bool {
        !self.done.is_empty()
    }
}

/// The status of the group that runs on a machine now, and whether it lost its log's tail.
type Window = Arc<Mutex<Option<(watch::Receiver<GroupStatus>, watch::Receiver<bool>)>>>;

struct Place {
    me: u64,
    durability: Durability,
    snapshot_log_bytes: u64,
    window: Window,
}

/// The software of one machine.
async fn node(env: Env, place: Place, ledger: Arc<Mutex<Ledger>>, trace: Trace) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let me = place.me;
    *lock(&place.window) = None;
    // The directories that the node's data directory stands for; what is below is the stores'.
    env.disk.create_dir_all(Path::new("/data")).map_err(|e| text(&e))?;
    env.disk.sync_dir(Path::new("/")).map_err(|e| text(&e))?;
    let options =
        WalOptions { segment_bytes: 32 << 10, durability: place.durability, ..WalOptions::default() };
    let wal = Wal::open(&env, Path::new("/data/wal"), options).await.map_err(|e| text(&e))?;
    let snapshots = SnapshotStore::open(&env, Path::new("/data/snapshots")).await.map_err(|e| text(&e))?;
    let identity = PeerIdentity { cluster_id: "toy".to_owned(), node_hex: format!("{me:040x}") };
    let peers = Peers::new(env.clone(), me, identity);
    let members: BTreeMap<u64, String> =
        (1..=NODES).map(|node| (node, format!("{}:{PEER_PORT}", name(node)))).collect();
    for (node, addr) in members.iter().filter(|(node, _)| **node != me) {
        peers.set_addr(*node, addr.clone());
    }
    let registry = Registry::new();
    let addr = ([0, 0, 0, 0], PEER_PORT).into();
    let listener = env.net.bind(addr).await.map_err(|e| text(&e))?;
    let serving = serve_peers(
        env.clone(),
        listener,
        peers.clone(),
        registry.clone(),
        Arc::new(NoCalls),
        std::future::pending(),
    );
    env.spawn.spawn("peers", Box::pin(serving));
    let machine = Toy { me, ledger: ledger.clone(), state: ToyState::default(), last: None };
    let group = Group::start(GroupOptions {
        id: GROUP,
        me,
        timings: RaftTimings::default(),
        log: wal.group(GROUP),
        snapshots,
        peers,
        env: env.clone(),
        machine: Box::new(machine),
        founders: members.keys().copied().collect(),
        snapshot_log_bytes: place.snapshot_log_bytes,
    })
    .await
    .map_err(|e| text(&e))?;
    registry.insert(group.clone());
    group.initialize(members).await.map_err(|e| text(&e))?;
    *lock(&place.window) = Some((group.status(), group.tail_lost()));
    trace.line(&name(me), "started");
    loop {
        if let Some(error) = wal.failed().borrow().clone() {
            return Err(format!("the log failed: {error}"));
        }
        let leads = group.status().borrow().is_leader;
        if leads && !lock(&ledger).stop {
            propose(&env, &group, &ledger).await;
        }
        time::sleep(Duration::from_millis(env.rng.u64() % 20)).await;
    }
}

async fn propose(env: &Env, group: &Group, ledger: &Mutex<Ledger>) {
    for _ in 0..1 + env.rng.u64() % 4 {
        let id = {
            let mut ledger = lock(ledger);
            ledger.proposed += 1;
            ledger.proposed
        };
        let mut payload = id.to_le_bytes().to_vec();
        payload.resize(8 + (env.rng.u64() % 200) as usize, id as u8);
        if group.propose(Nonce(id), Bytes::from(payload)).await.is_err() {
            lock(ledger).settled(id, Fate::NotDone);
        }
    }
}

struct NoCalls;

#[async_trait::async_trait]
impl PeerHandler for NoCalls {
    async fn call(&self, _from: CallFrom, _kind: u16, _payload: Bytes) -> Result<Bytes, String> {
        Err("no calls here".to_owned())
    }
}

/// Keeps every payload's number, in order, with a digest over all that was applied.
struct Toy {
    me: u64,
    ledger: Arc<Mutex<Ledger>>,
    state: ToyState,
    /// The last position this process was told.
    last: Option<u64>,
}

#[derive(Default)]
struct ToyState {
    ids: Vec<u64>,
    digest: Digest,
}

impl ToyState {
    fn push(&mut self, id: u64) {
        self.ids.push(id);
        self.digest.add(&id.to_le_bytes());
    }
}

impl Toy {
    fn publish(&self, applied: u64) {
        let digest = self.state.digest.0;
        lock(&self.ledger).replicas.insert(self.me, Replica { applied, digest });
    }
}

impl StateMachine for Toy {
    fn apply(&mut self, batch: Vec<Committed>) {
        for entry in batch {
            let index = entry.position.index;
            if self.last.is_some_and(|last| last + 1 != index) {
                lock(&self.ledger)
                    .violations
                    .push(format!("n{} applied {index} after {:?}", self.me, self.last));
            }
            self.last = Some(index);
            let id = entry
                .payload
                .as_ref()
                .and_then(|payload| Some(u64::from_le_bytes(payload.get(..8)?.try_into().ok()?)));
            let mut ledger = lock(&self.ledger);
            ledger.applied(self.me, &entry, id);
            if let Some(Nonce(nonce)) = entry.nonce {
                if id != Some(nonce) {
                    ledger.violations.push(format!("nonce {nonce} came with payload {id:?}"));
                }
                ledger.done.insert(nonce, entry.position);
            }
            if let Some(id) = id {
                self.state.push(id);
            }
        }
        if let Some(last) = self.last {
            self.publish(last);
        }
    }

    fn settle(&mut self, nonce: Nonce, fate: Fate) {
        lock(&self.ledger).settled(nonce.0, fate);
    }

    fn snapshot(&self) -> Box<dyn SnapshotSource> {
        Box::new(ToySource { ids: self.state.ids.clone(), at: 0 })
    }

    fn begin_restore(&mut self) -> Box<dyn SnapshotSink> {
        Box::new(ToySink::default())
    }

    fn finish_restore(&mut self, sink: Box<dyn SnapshotSink>, at: LogPosition) -> Result<(), String> {
        let sink: Box<dyn Any> = sink;
        let sink = sink.downcast::<ToySink>().map_err(|_| "a foreign sink")?;
        self.state = ToyState::default();
        for id in sink.bytes.chunks_exact(8) {
            self.state.push(u64::from_le_bytes(id.try_into().map_err(|_| "a cut id")?));
        }
        self.last = Some(at.index);
        lock(&self.ledger).restores += 1;
        self.publish(at.index);
        Ok(())
    }
}

struct ToySource {
    ids: Vec<u64>,
    at: usize,
}

impl SnapshotSource for ToySource {
    fn next_chunk(&mut self, out: &mut Vec<u8>) -> bool {
        let end = (self.at + 100).min(self.ids.len());
        for id in &self.ids[self.at..end] {
            out.extend_from_slice(&id.to_le_bytes());
        }
        self.at = end;
        end < self.ids.len()
    }
}

#[derive(Default)]
struct ToySink {
    bytes: Vec<u8>,
}

impl SnapshotSink for ToySink {
    fn chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}
