//! One machine with nothing but a log: several groups append, cut, purge and vote at once while the
//! process is killed, loses power, or is stopped in the middle of its disk work; syncs fail and bits
//! flip. What was answered must be there afterwards, and whatever is there must be the effect of the
//! calls in their order, up to some point. Much faster than whole nodes, so it goes deep.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use rand::{Rng, SeedableRng, rngs::StdRng};
use weir_env::{Env, time};
use weir_store::{Error, GroupId, GroupLog, LogEntry, LogPosition, Wal, WalOptions};

use super::{Options, Verdict};
use crate::{
    Bug,
    disk::{Changes, medium::lock},
    trace::Trace,
    world::World,
};

const GROUPS: u32 = 4;
const DIR: &str = "/data/wal";

pub(super) fn run(seed: u64, bug: Option<Bug>, options: Options) -> Verdict {
    let trace = Trace::new(options.echo);
    let mut world = World::new(seed, trace.clone());
    let model = Arc::new(Mutex::new(Model::default()));
    let driver_seed = world.derived_seed();
    let segment_bytes = 1 << world.rng.random_range(14..18);
    let boot = {
        let (model, trace) = (model.clone(), trace.clone());
        move |env: Env| drive(env, model.clone(), trace.clone(), driver_seed, segment_bytes)
    };
    let node = world.add_node("n1", boot);
    if bug == Some(Bug::Fsync) {
        world.nodes[node].disk.switch_sync_off();
    }
    let lives = world.rng.random_range(4..12);
    for _ in 0..lives {
        if !live_and_die(&mut world, node, &model) {
            break;
        }
        lock(&model).life += 1;
        world.start(node);
    }
    for _ in 0..300 {
        if !step(&mut world, &model) || !lock(&model).violations.is_empty() {
            break;
        }
    }
    trace.mark_traffic();
    let model = lock(&model);
    let stats = world.nodes[node].disk.stats();
    Verdict {
        violations: super::sentences(crate::invariants::LOG, world.now(), model.violations.clone()),
        lines: trace.lines(),
        digest: trace.digest(),
        simulated: world.now(),
        real: Duration::ZERO,
        summary: format!(
            "{} lives, {} calls answered, {} disk writes, {} syncs{}",
            model.life + 1,
            model.answered,
            stats.writes,
            stats.syncs,
            if model.refused { ", refused the damage" } else { "" }
        ),
        coverage: Default::default(),
        healed: None,
    }
}

/// One life of the process and how it ends. `false` when the story is over.
fn live_and_die(world: &mut World, node: usize, model: &Arc<Mutex<Model>>) -> bool {
    let millis = world.rng.random_range(5..400);
    for _ in 0..millis {
        if !step(world, model) {
            return false;
        }
    }
    if !world.is_up(node) {
        return !lock(model).refused;
    }
    let how = world.rng.random_range(0..21u32) / 2;
    match how {
        10 => return damage(world, node, model),
        0 | 1 => world.kill(node),
        2 | 3 => world.power_off(node),
        4..=7 => {
            let (which, changes) = Changes::draw(&mut world.rng, 40);
            world.halt(node, which, changes, how >= 6);
        }
        8 => {
            world.trace.line("n1", "a sync is to fail");
            let syncs = world.rng.random_range(0..10);
            world.nodes[node].disk.fail_sync_after(syncs);
            lock(model).may_fail = true;
        }
        _ => {
            world.trace.line("n1", "to be closed in order");
            lock(model).close = true;
        }
    }
    for _ in 0..2000 {
        if !world.is_up(node) {
            break;
        }
        if !step(world, model) {
            return false;
        }
    }
    if world.is_up(node) {
        world.kill(node);
    }
    !lock(model).refused
}

/// Kills the process and flips a bit. The log was left alone for a moment before: whatever it
/// answered is then known to be on disk, so damage to it cannot pass for a torn tail.
fn damage(world: &mut World, node: usize, model: &Arc<Mutex<Model>>) -> bool {
    lock(model).quiet = true;
    for _ in 0..40 {
        if !step(world, model) {
            return false;
        }
    }
    world.kill(node);
    let flipped = world.nodes[node].disk.flip_a_bit(|path| path.starts_with(DIR));
    if let Some((path, byte)) = flipped {
        world.trace.line("n1", format_args!("a bit flips in {} at {byte}", path.display()));
    }
    let mut model = lock(model);
    model.quiet = false;
    model.may_refuse = true;
    true
}

/// Moves time on; software that ends must have had a reason.
fn step(world: &mut World, model: &Arc<Mutex<Model>>) -> bool {
    match world.step() {
        Err(error) => {
            lock(model).violations.push(error);
            return false;
        }
        Ok(ends) => {
            let mut model = lock(model);
            for (_, end) in ends {
                let closed = std::mem::take(&mut model.close);
                let failed = std::mem::take(&mut model.may_fail);
                if !closed && !failed && !model.refused {
                    model.violations.push(format!("ended by itself: {end}"));
                }
            }
        }
    }
    lock(model).violations.is_empty()
}

/// What the log was asked to do, and what it must therefore hold.
#[derive(Default)]
struct Model {
    groups: BTreeMap<u32, GroupModel>,
    life: u64,
    answered: u64,
    /// A sync was made to fail: the log may stop.
    may_fail: bool,
    /// A bit was flipped: the log may refuse to open.
    may_refuse: bool,
    refused: bool,
    /// The driver shall do nothing.
    quiet: bool,
    /// The driver shall close the log and end.
    close: bool,
    violations: Vec<String>,
}

/// One group: what is certain, and the calls whose end is not known yet.
#[derive(Default)]
struct GroupModel {
    certain: Content,
    open_calls: VecDeque<(u64, Call)>,
    next_call: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Content {
    purged: Option<LogPosition>,
    entries: BTreeMap<u64, LogEntry>,
    vote: Option<Bytes>,
}

#[derive(Debug, Clone)]
enum Call {
    Append(Vec<LogEntry>),
    Vote(Bytes),
    Truncate(Option<u64>),
    Purge(LogPosition),
}

impl Content {
    fn last(&self) -> Option<LogPosition> {
        self.entries.values().next_back().map(|entry| entry.position).or(self.purged)
    }

    fn apply(&mut self, call: &Call) {
        match call {
            Call::Append(entries) => {
                for entry in entries {
                    self.entries.insert(entry.position.index, entry.clone());
                }
            }
            Call::Vote(vote) => self.vote = Some(vote.clone()),
            Call::Truncate(last_kept) => {
                let first_cut = last_kept.map_or(0, |index| index + 1);
                self.entries.split_off(&first_cut);
            }
            Call::Purge(upto) => {
                self.entries = self.entries.split_off(&(upto.index + 1));
                self.purged = Some(*upto);
            }
        }
    }
}

impl GroupModel {
    /// The content if every call made so far takes effect.
    fn expected(&self) -> Content {
        let mut content = self.certain.clone();
        for (_, call) in &self.open_calls {
            content.apply(call);
        }
        content
    }

    fn call(&mut self, call: Call) -> u64 {
        self.next_call += 1;
        self.open_calls.push_back((self.next_call, call));
        self.next_call
    }

    /// A call was answered: with it, all before it are certain.
    fn answered(&mut self, number: u64) {
        while let Some((_, call)) = self.open_calls.pop_front_if(|(open, _)| *open <= number) {
            self.certain.apply(&call);
        }
    }

    /// What was found must be the effect of all certain calls and some further ones, in order; an
    /// append may be there in part. What was found is certain from then on.
    fn found(&mut self, found: Content) -> Result<(), String> {
        let mut candidate = self.certain.clone();
        let mut fits = candidate == found;
        for (_, call) in &self.open_calls {
            if fits {
                break;
            }
            if let Call::Append(entries) = call {
                for entry in entries {
                    candidate.apply(&Call::Append(vec![entry.clone()]));
                    fits = fits || candidate == found;
                }
            } else {
                candidate.apply(call);
                fits = candidate == found;
            }
        }
        if !fits {
            return Err(format!(
                "found {}, certain was {}, {} calls were open: {}",
                describe(&found),
                describe(&self.certain),
                self.open_calls.len(),
                self.open_calls.iter().map(|(_, call)| brief(call)).collect::<Vec<_>>().join(", "),
            ));
        }
        self.certain = found;
        self.open_calls.clear();
        Ok(())
    }
}

fn describe(content: &Content) -> String {
    format!(
        "purged {:?}, {} entries {:?}..={:?}, vote {:?}",
        content.purged,
        content.entries.len(),
        content.entries.values().next().map(|entry| entry.position),
        content.entries.values().next_back().map(|entry| entry.position),
        content.vote
    )
}

fn brief(call: &Call) -> String {
    match call {
        Call::Append(entries) => format!(
            "append {:?}..={:?}",
            entries.first().map(|entry| entry.position),
            entries.last().map(|entry| entry.position)
        ),
        other => format!("{other:?}"),
    }
}

/// One life of the process: opens the log, compares it with the model, then works on it.
async fn drive(
    env: Env,
    model: Arc<Mutex<Model>>,
    trace: Trace,
    seed: u64,
    segment_bytes: u64,
) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(seed ^ lock(&model).life.wrapping_mul(0x9e37_79b9));
    // The node's data directory; what is below is the log's.
    env.disk.create_dir_all(Path::new("/data")).map_err(|error| error.to_string())?;
    env.disk.sync_dir(Path::new("/")).map_err(|error| error.to_string())?;
    let options = WalOptions {
        segment_bytes,
        cache_bytes: 1 << rng.random_range(8..16),
        batch_bytes_max: 1 << rng.random_range(10..14),
        ..WalOptions::default()
    };
    let wal = match Wal::open(&env, Path::new(DIR), options).await {
        Ok(wal) => wal,
        Err(error @ Error::Corrupt { .. }) if lock(&model).may_refuse => {
            trace.line("n1", format_args!("refused: {error}"));
            lock(&model).refused = true;
            return Ok(());
        }
        Err(error) => return Err(format!("open: {error}")),
    };
    for group in 0..GROUPS {
        let found = contents(&wal.group(GroupId(group))).await?;
        trace.line("n1", format_args!("group {group}: {}", describe(&found)));
        let mut model = lock(&model);
        if let Err(why) = model.groups.entry(group).or_default().found(found) {
            model.violations.push(format!("group {group}: {why}"));
            model.close = true;
            return Ok(());
        }
    }
    loop {
        let group = rng.random_range(0..GROUPS);
        if lock(&model).quiet {
            time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        work(&wal.group(GroupId(group)), group, &model, &mut rng).await?;
        if lock(&model).close {
            wal.close().await.map_err(|error| format!("close: {error}"))?;
            return Ok(());
        }
        if let Some(error) = wal.failed().borrow().clone() {
            return Err(format!("the log failed: {error}"));
        }
        if rng.random_bool(0.3) {
            time::sleep(Duration::from_millis(rng.random_range(1..5))).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

/// One random call to one group.
async fn work(log: &GroupLog, group: u32, model: &Arc<Mutex<Model>>, rng: &mut StdRng) -> Result<(), String> {
    let expected = match lock(model).groups.get(&group) {
        Some(group) => group.expected(),
        None => return Ok(()),
    };
    let last = expected.last();
    match rng.random_range(0..100u32) {
        0..70 => {
            let mut position = last.unwrap_or(LogPosition { term: 1, index: 0 });
            position.term += u64::from(rng.random_range(0..30u32) == 0);
            let entries: Vec<LogEntry> = (0..rng.random_range(1..8))
                .map(|_| {
                    position.index += 1;
                    let length = *crate::world::pick(rng, &[0, 5, 40, 300, 3000]);
                    let byte = (position.index ^ position.term) as u8;
                    LogEntry { position, data: Bytes::from(vec![byte; length]) }
                })
                .collect();
            let number = note(model, group, Call::Append(entries.clone()));
            let model = model.clone();
            log.append(
                entries,
                Box::new(move |end| {
                    if end.is_ok() {
                        answered(&model, group, number);
                    }
                }),
            );
        }
        70..78 => {
            let vote = Bytes::from(rng.random::<u64>().to_le_bytes().to_vec());
            let number = note(model, group, Call::Vote(vote.clone()));
            if log.save_vote(vote).await.is_ok() {
                answered(model, group, number);
            }
        }
        78..84 => {
            let Some(last) = last.filter(|_| !expected.entries.is_empty()) else { return Ok(()) };
            let floor = expected.purged.map_or(0, |purged| purged.index);
            let keep = last.index.saturating_sub(rng.random_range(1..6)).max(floor);
            let keep = (keep > 0).then_some(keep);
            let number = note(model, group, Call::Truncate(keep));
            if log.truncate_after(keep).await.is_ok() {
                answered(model, group, number);
            }
        }
        84..90 => {
            // Only what is certain may be purged, as only what is committed is.
            let certain = lock(model).groups.get(&group).map(|g| g.certain.clone());
            let certain = certain.unwrap_or_default();
            let candidates: Vec<LogPosition> = certain
                .entries
                .values()
                .map(|entry| entry.position)
                .filter(|at| expected.entries.get(&at.index).is_some_and(|e| e.position == *at))
                .collect();
            if candidates.is_empty() {
                return Ok(());
            }
            let upto = candidates[rng.random_range(0..candidates.len())];
            let number = note(model, group, Call::Purge(upto));
            if log.purge(upto).await.is_ok() {
                answered(model, group, number);
            }
        }
        _ => {
            let found = contents(log).await?;
            if found.entries != expected.entries {
                lock(model).violations.push(format!(
                    "group {group}: reads {}, should read {}",
                    describe(&found),
                    describe(&expected)
                ));
            }
        }
    }
    Ok(())
}

fn note(model: &Mutex<Model>, group: u32, call: Call) -> u64 {
    lock(model).groups.entry(group).or_default().call(call)
}

fn answered(model: &Mutex<Model>, group: u32, number: u64) {
    let mut model = lock(model);
    model.answered += 1;
    model.groups.entry(group).or_default().answered(number);
}

/// Everything a group holds.
async fn contents(log: &GroupLog) -> Result<Content, String> {
    let state = log.state();
    let mut content = Content { purged: state.purged, vote: state.vote, entries: BTreeMap::new() };
    let mut next = state.purged.map_or(1, |purged| purged.index + 1);
    let end = state.last.map_or(0, |last| last.index) + 1;
    while next < end {
        let entries = log.read(next..end, 4096).await.map_err(|error| error.to_string())?;
        let Some(last) = entries.last() else {
            return Err(format!("no entry at {next} of ..{end}"));
        };
        next = last.position.index + 1;
        content.entries.extend(entries.into_iter().map(|entry| (entry.position.index, entry)));
    }
    if content.last() != state.last {
        return Err(format!("last is {:?}, entries end at {:?}", state.last, content.last()));
    }
    Ok(content)
}
