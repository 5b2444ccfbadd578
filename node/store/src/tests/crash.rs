//! A workload is cut at every operation on the disk, with and without loss of what was not synced; what is there after
//! opening must be what the calls say, up to some call, and at least up to the last one that was answered.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::fault_disk::{Dice, Fault, FaultDisk};
use crate::suite::{append, entries};
use crate::{Durability, Error, GroupId, LogEntry, LogPosition, Wal, WalOptions, WalStats};

pub(super) const DIR: &str = "/data/wal";

pub(super) fn options(durability: Durability) -> WalOptions {
    WalOptions {
        segment_bytes: 4096,
        durability,
        cache_bytes: 1024,
        batch_bytes_max: 1500,
        spare_segments: 2,
        reserve_bytes: 0,
        prefill: false,
        ..WalOptions::default()
    }
}

/// What a group should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GroupModel {
    pub(super) purged: Option<LogPosition>,
    pub(super) last: Option<LogPosition>,
    pub(super) vote: Option<Bytes>,
    pub(super) entries: Vec<LogEntry>,
}

pub(super) type Model = BTreeMap<GroupId, GroupModel>;

#[derive(Debug, Clone)]
enum Call {
    Append(GroupId, Vec<LogEntry>),
    Vote(GroupId, u64),
    Truncate(GroupId, Option<u64>),
    Purge(GroupId, LogPosition),
}

impl Call {
    fn apply(&self, model: &mut Model) {
        match self {
            Self::Append(group, entries) => {
                let group = model.entry(*group).or_default();
                group.entries.extend(entries.iter().cloned());
                group.last = Some(entries.last().unwrap().position);
            }
            Self::Vote(group, vote) => {
                model.entry(*group).or_default().vote = Some(vote_bytes(*vote));
            }
            Self::Truncate(group, kept) => {
                let group = model.entry(*group).or_default();
                group.entries.retain(|entry| kept.is_some_and(|kept| entry.position.index <= kept));
                group.last = group.entries.last().map_or(group.purged, |entry| Some(entry.position));
            }
            Self::Purge(group, upto) => {
                let group = model.entry(*group).or_default();
                group.entries.retain(|entry| entry.position.index > upto.index);
                group.purged = Some(*upto);
                group.last = group.entries.last().map_or(group.purged, |entry| Some(entry.position));
            }
        }
    }
}

fn vote_bytes(vote: u64) -> Bytes {
    Bytes::copy_from_slice(&vote.to_le_bytes())
}

/// Calls drawn from a seed: three groups, one of them idle after its start.
fn draw_calls(seed: u64, count: usize) -> Vec<Call> {
    let mut dice = Dice::new(seed);
    let mut model = Model::new();
    let mut calls =
        vec![Call::Vote(GroupId(0), 1), Call::Append(GroupId(0), entries(GroupId(0), 1, 0, 3, 40))];
    for call in &calls {
        call.apply(&mut model);
    }
    let mut vote = 1;
    while calls.len() < count {
        let id = GroupId(1 + dice.below(2) as u32);
        let group = model.entry(id).or_default();
        let next = group.last.map_or(0, |last| last.index + 1);
        let first = group.purged.map_or(0, |purged| purged.index + 1);
        let call = match dice.below(10) {
            0 => {
                vote += 1;
                Call::Vote(id, vote)
            }
            1 if next > first => {
                let kept = first + dice.below(next - first);
                Call::Truncate(id, kept.checked_sub(1))
            }
            2 | 3 if next > first + 4 => {
                let upto = group.entries[dice.below(next - first) as usize].position;
                Call::Purge(id, upto)
            }
            4 if dice.below(8) == 0 => Call::Purge(id, LogPosition::new(vote, next + 10)),
            _ => {
                let count = 1 + dice.below(6);
                let len = 20 + dice.below(180) as usize;
                Call::Append(id, entries(id, vote, next, next + count - 1, len))
            }
        };
        call.apply(&mut model);
        calls.push(call);
    }
    calls
}

fn issue(wal: &Wal, call: &Call) -> oneshot::Receiver<Result<(), Error>> {
    let (tx, rx) = oneshot::channel();
    let answer = |future: std::pin::Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>| {
        tokio::spawn(async move { drop(tx.send(future.await)) });
    };
    match call {
        Call::Append(group, entries) => return append(&wal.group(*group), entries.clone()),
        Call::Vote(group, vote) => answer(Box::pin(wal.group(*group).save_vote(vote_bytes(*vote)))),
        Call::Truncate(group, kept) => answer(Box::pin(wal.group(*group).truncate_after(*kept))),
        Call::Purge(group, upto) => answer(Box::pin(wal.group(*group).purge(*upto))),
    }
    rx
}

/// The state of `wal` in the model's terms.
pub(super) async fn observe(wal: &Wal, groups: impl Iterator<Item = GroupId>) -> Model {
    let mut model = Model::new();
    for id in groups {
        let log = wal.group(id);
        let state = log.state();
        let entries = log.read(0..u64::MAX, usize::MAX).await.expect("readable");
        model.insert(id, GroupModel { purged: state.purged, last: state.last, vote: state.vote, entries });
    }
    model
}

struct Run {
    /// The model after every number of calls.
    history: Vec<Model>,
    issued: usize,
    /// All calls before this one were answered.
    acked: usize,
    /// The last call among those that was a vote.
    acked_vote: usize,
    stats: WalStats,
}

/// Makes the calls, some at a time, until all are answered or one fails.
async fn run(disk: &FaultDisk, calls: &[Call], durability: Durability) -> Run {
    let groups = [GroupId(0), GroupId(1), GroupId(2)];
    let empty: Model = groups.iter().map(|id| (*id, GroupModel::default())).collect();
    let mut run =
        Run { history: vec![empty], issued: 0, acked: 0, acked_vote: 0, stats: WalStats::default() };
    let Ok(wal) = Wal::open(&disk.env(), Path::new(DIR), options(durability)).await else {
        assert!(disk.crashed(), "only a crash keeps it from opening");
        return run;
    };
    let mut dice = Dice::new(calls.len() as u64);
    'calls: while run.issued < calls.len() {
        let together = (1 + dice.below(5) as usize).min(calls.len() - run.issued);
        let mut answers = Vec::new();
        for call in &calls[run.issued..run.issued + together] {
            let mut next = run.history.last().unwrap().clone();
            call.apply(&mut next);
            run.history.push(next);
            answers.push(issue(&wal, call));
        }
        run.issued += together;
        for answer in answers {
            match answer.await {
                Ok(Ok(())) => {
                    run.acked += 1;
                    if matches!(calls[run.acked - 1], Call::Vote(..)) {
                        run.acked_vote = run.acked;
                    }
                }
                _ => break 'calls,
            }
        }
        if dice.below(4) == 0 {
            // Long enough for a marker.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    if run.acked == calls.len() {
        wal.group(GroupId(1)).save_committed(Bytes::from_static(b"hint"));
        run.stats = wal.stats();
        let _ = wal.close().await;
    }
    run
}

/// Opens what the crash left, perhaps with further crashes in the middle of opening, and compares.
async fn check(
    disk: &FaultDisk,
    run: &Run,
    at_least: usize,
    dice: &mut Dice,
    durability: Durability,
    what: &str,
) {
    for _ in 0..2 {
        if dice.below(2) == 0 {
            disk.fail(1 + dice.below(12), Fault::Crash);
            if let Ok(wal) = Wal::open(&disk.env(), Path::new(DIR), options(durability)).await {
                drop(wal);
                tokio::task::yield_now().await;
            }
            if dice.below(2) == 0 {
                disk.lose_power(dice);
            } else {
                disk.restart_process();
            }
        }
    }
    disk.restart_process();
    let wal = match Wal::open(&disk.env(), Path::new(DIR), options(durability)).await {
        Ok(wal) => wal,
        Err(error) => panic!("{what}: does not open: {error}"),
    };
    let found = observe(&wal, run.history[0].keys().copied()).await;
    let matching = (at_least..=run.issued).any(|calls| run.history[calls] == found);
    assert!(
        matching,
        "{what}: {} calls were answered of {} made, and none of the states from {at_least} on is what was found:\n\
         {found:#?}\nexpected at least\n{:#?}",
        run.acked, run.issued, run.history[at_least]
    );
    // The log is of use: what is there can be continued, and is there again.
    let log = wal.group(GroupId(1));
    let next = log.state().last.map_or(0, |last| last.index + 1);
    append(&log, entries(GroupId(1), 99, next, next + 30, 100)).await.unwrap().unwrap();
    let before = observe(&wal, run.history[0].keys().copied()).await;
    wal.close().await.unwrap();
    let wal = Wal::open(&disk.env(), Path::new(DIR), options(durability)).await.unwrap();
    assert_eq!(observe(&wal, run.history[0].keys().copied()).await, before, "{what}: reopened");
    wal.close().await.unwrap();
}

/// Cuts a workload at every operation. Returns how many there are, and what the uncut workload did.
async fn crash_everywhere(seed: u64, count: usize, durability: Durability) -> (u64, WalStats) {
    let calls = draw_calls(seed, count);
    for at in 1.. {
        let disk = FaultDisk::default();
        disk.fail(at, Fault::Crash);
        let run = run(&disk, &calls, durability).await;
        if !disk.crashed() {
            assert_eq!(run.acked, calls.len());
            return (at - 1, run.stats);
        }
        tokio::task::yield_now().await;
        let mut dice = Dice::new(seed * 1000 + at);
        let power = disk.copy();
        power.lose_power(&mut dice);
        let survives = match durability {
            Durability::Always => run.acked,
            Durability::EverySec | Durability::Os => run.acked_vote,
        };
        let what = |fault: &str| format!("seed {seed}, {fault} at operation {at}, {durability:?}");
        check(&power, &run, survives, &mut dice, durability, &what("power loss")).await;
        if durability == Durability::Always {
            // Twice more, as the luck of what survives differs.
            for _ in 0..2 {
                let power = disk.copy();
                power.lose_power(&mut dice);
                check(&power, &run, survives, &mut dice, durability, &what("power loss")).await;
            }
        }
        disk.restart_process();
        check_process_crash(&disk, &run, durability, &what("kill")).await;
    }
    unreachable!("the workload ends")
}

/// After the death of the process alone everything answered is there, in every mode.
async fn check_process_crash(disk: &FaultDisk, run: &Run, durability: Durability, what: &str) {
    let wal = match Wal::open(&disk.env(), Path::new(DIR), options(durability)).await {
        Ok(wal) => wal,
        Err(error) => panic!("{what}: does not open: {error}"),
    };
    let found = observe(&wal, run.history[0].keys().copied()).await;
    let matching = (run.acked..=run.issued).any(|calls| run.history[calls] == found);
    assert!(matching, "{what}: {} answered of {}: {found:#?}", run.acked, run.issued);
    // What opening returns with is on disk, whatever came before.
    drop(wal);
    tokio::task::yield_now().await;
    disk.lose_power(&mut Dice::new(7));
    let wal = Wal::open(&disk.env(), Path::new(DIR), options(durability)).await.unwrap();
    assert_eq!(
        observe(&wal, run.history[0].keys().copied()).await,
        found,
        "{what}: power loss after opening"
    );
}

/// How many segments were dropped.
fn dropped(stats: &WalStats) -> u64 {
    stats.bytes / 4096 - stats.segments.min(stats.bytes / 4096)
}

#[tokio::test(start_paused = true)]
async fn nothing_answered_is_lost_wherever_the_disk_stops() {
    let (mut crashes, mut moved, mut drops) = (0, 0, 0);
    for (seed, calls) in [(1, 60), (2, 60), (3, 60), (4, 60), (5, 150)] {
        let (points, stats) = crash_everywhere(seed, calls, Durability::Always).await;
        crashes += points;
        moved += stats.entries_moved;
        drops += dropped(&stats);
    }
    assert!(crashes > 500 && moved > 0 && drops > 3, "{crashes} crashes, {moved} moved, {drops} dropped");
}

#[tokio::test(start_paused = true)]
async fn without_syncs_votes_survive_power_loss_and_the_rest_a_kill() {
    let (mut moved, mut drops) = (0, 0);
    for (seed, durability) in [(1, Durability::EverySec), (6, Durability::Os), (7, Durability::Os)] {
        let (_, stats) = crash_everywhere(seed, 150, durability).await;
        moved += stats.entries_moved;
        drops += dropped(&stats);
    }
    assert!(moved > 0 && drops > 3, "{moved} moved, {drops} dropped");
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_or_sync_ends_the_log_and_is_not_tried_again() {
    let calls = draw_calls(3, 40);
    let total = {
        let disk = FaultDisk::default();
        run(&disk, &calls, Durability::Always).await;
        disk.ops()
    };
    for at in 1..total {
        let disk = FaultDisk::default();
        disk.fail(at, Fault::Error);
        let Ok(wal) = Wal::open(&disk.env(), Path::new(DIR), options(Durability::Always)).await else {
            // It met the error while opening: the next process may have more luck.
            let wal = Wal::open(&disk.env(), Path::new(DIR), options(Durability::Always)).await.unwrap();
            wal.close().await.unwrap();
            continue;
        };
        let mut failed = wal.failed();
        let mut refused = false;
        for call in &calls {
            let answer = issue(&wal, call).await.expect("answered");
            assert!(!(refused && answer.is_ok()), "operation {at}: no call succeeds after one that failed");
            refused |= answer.is_err();
        }
        if !refused && failed.borrow_and_update().is_none() {
            // It hits what comes after the calls.
            continue;
        }
        assert!(failed.borrow_and_update().is_some(), "operation {at}: the failure is told");
        let ops = disk.ops();
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        assert!(matches!(wal.sync().await, Err(Error::Io { .. })));
        assert_eq!(disk.ops(), ops, "operation {at}: the disk is left alone");
    }
}

#[tokio::test(start_paused = true)]
async fn everysec_syncs_once_a_second_and_then_not_again() {
    let disk = FaultDisk::default();
    let wal = Wal::open(&disk.env(), Path::new(DIR), options(Durability::EverySec)).await.unwrap();
    let log = wal.group(GroupId(1));
    // Spare files are made, and synced, first.
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    let syncs = disk.syncs();
    append(&log, entries(GroupId(1), 1, 0, 5, 50)).await.unwrap().unwrap();
    assert_eq!((disk.syncs(), log.synced()), (syncs, None), "answered before it is synced");
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_eq!((disk.syncs(), log.synced()), (syncs + 1, Some(LogPosition::new(1, 5))));
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    assert_eq!(disk.syncs(), syncs + 1, "an idle log leaves the disk alone");
    log.save_vote(vote_bytes(1)).await.unwrap();
    assert_eq!(disk.syncs(), syncs + 2, "a vote is synced before it is told");
    wal.close().await.unwrap();
}
