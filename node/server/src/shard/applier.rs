//! Feeds committed batches to the machine, in order, once, and tells everybody who has to know.

use super::batcher::Waiting;
use super::handle::Answer;
use super::in_flight::InFlight;
use super::snapshots;
use super::stamp_clock::StampClock;
use super::waiters::{Waiter, WaiterKind, Waiters};
use crate::metrics::ShardMetrics;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Notify, watch};
use weir_env::planted::{Bug, planted};
use weir_env::time::Instant;
use weir_raft::{Committed, Fate, GroupStatus, Nonce, SnapshotSink, SnapshotSource, StateMachine};
use weir_stream::{Batch, Command, Effect, Garbage, Machine, Reply};

/// What the tasks of one shard share.
pub(super) struct Core {
    /// The machine and its parked readers change together: one lock.
    state: Mutex<State>,
    pub(super) in_flight: Mutex<InFlight>,
    /// Rung when a proposal ended, so that the next batch may leave.
    proposal_ended: Notify,
    /// Commands of proposals that ended since the batcher last asked.
    answered: AtomicUsize,
    applied: watch::Sender<u64>,
    /// Consensus status, known once the group runs.
    status: OnceLock<watch::Receiver<GroupStatus>>,
    pub(super) clock: Arc<StampClock>,
    pub(super) space_low: watch::Receiver<bool>,
    /// Large values on their way out; freed in slices by a task of their own.
    pub(super) garbage: tokio::sync::mpsc::UnboundedSender<Garbage>,
    /// Rung when a reader parks that may have to be ended before anybody else.
    pub(super) earlier_deadline: Notify,
    /// Keys on which parked group readers may now be served; handed to the task that proposes for them.
    pub(super) woken: Notify,
    /// The shard has slots (its first entry is applied).
    founded: AtomicBool,
    pub(super) metrics: Arc<ShardMetrics>,
}

/// Applied state and those who wait for it to change.
pub(super) struct State {
    pub(super) machine: Machine,
    pub(super) waiters: Waiters,
}

impl Core {
    pub(super) fn new(
        clock: Arc<StampClock>,
        space_low: watch::Receiver<bool>,
        garbage: tokio::sync::mpsc::UnboundedSender<Garbage>,
        waiters_max: usize,
        metrics: Arc<ShardMetrics>,
    ) -> Self {
        Core {
            state: Mutex::new(State { machine: Machine::new(), waiters: Waiters::new(waiters_max) }),
            in_flight: Mutex::default(),
            proposal_ended: Notify::new(),
            answered: AtomicUsize::new(0),
            applied: watch::channel(0).0,
            status: OnceLock::new(),
            clock,
            space_low,
            garbage,
            earlier_deadline: Notify::new(),
            woken: Notify::new(),
            founded: AtomicBool::new(false),
            metrics,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn attach(&self, status: watch::Receiver<GroupStatus>) {
        let attached = self.status.set(status);
        assert!(attached.is_ok(), "a shard has one group");
    }

    /// Leader, ready, a quorum answers, and there is a clock to stamp by: new writes may be proposed.
    pub(super) fn may_propose(&self) -> bool {
        self.clock.is_known()
            && self.status.get().is_some_and(|s| {
                let s = s.borrow();
                s.is_leader && (s.ready && s.quorum_alive || planted(Bug::NoReadIndex))
            })
    }

    /// May propose, and the shard has its slots.
    pub(super) fn serving(&self) -> bool {
        self.founded.load(Ordering::Acquire) && self.may_propose()
    }

    pub(super) fn space_low(&self) -> bool {
        *self.space_low.borrow()
    }

    pub(super) fn applied(&self) -> u64 {
        *self.applied.borrow()
    }

    pub(super) fn watch_applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now_ms().max(self.lock().machine.last_stamp_ms())
    }

    /// Returns when a proposal ended, or leadership was lost, since the last call.
    pub(super) async fn wait_proposal_ended(&self) {
        self.proposal_ended.notified().await;
    }

    /// How many commands were answered since the last call.
    pub(super) fn take_answered(&self) -> usize {
        self.answered.swap(0, Ordering::Relaxed)
    }

    pub(super) fn proposal_ended(&self) {
        self.proposal_ended.notify_one();
    }

    /// Parks a reader, under the lock that its state was read with.
    pub(super) fn park(&self, state: &mut State, waiter: Waiter) {
        let timed = waiter.park.deadline.is_some();
        state.waiters.park(waiter);
        if timed {
            self.earlier_deadline.notify_one();
        }
    }

    /// Serves parked plain readers at once; group readers are proposed for by the shard's own task.
    pub(super) fn wake(&self, keys: &BTreeSet<Bytes>) {
        let mut state = self.lock();
        let now_ms = self.clock.now_ms().max(state.machine.last_stamp_ms());
        let State { machine, waiters } = &mut *state;
        if waiters.wake(machine, now_ms, keys) {
            self.woken.notify_one();
        }
    }

    fn note_founded(&self, machine: &Machine) {
        self.founded.store(!machine.owned_ranges().is_empty(), Ordering::Release);
    }
}

/// The replicated thing as consensus sees it.
pub(super) struct Applier {
    pub(super) core: Arc<Core>,
}

impl StateMachine for Applier {
    fn apply(&mut self, committed: Vec<Committed>) {
        let Some(last) = committed.last().map(|c| c.position.index) else { return };
        let mut keys_to_wake = BTreeSet::new();
        for one in committed {
            if let Some(payload) = one.payload {
                self.apply_batch(one.position.index, payload, one.nonce, &mut keys_to_wake);
            }
        }
        self.core.applied.send_replace(last);
        if !keys_to_wake.is_empty() {
            self.core.wake(&keys_to_wake);
        }
        self.core.proposal_ended();
    }

    fn settle(&mut self, nonce: Nonce, fate: Fate) {
        #[cfg(debug_assertions)]
        if fate == Fate::NotDone {
            super::planted::answer_done(&self.core, nonce);
        }
        let answer: fn() -> Answer = match fate {
            Fate::NotDone => || Answer::Moved,
            Fate::Unknown => || Answer::Unknown,
        };
        let clients = self.core.in_flight.lock().end(nonce, answer);
        if fate == Fate::Unknown {
            self.core.metrics.unknown.add(clients as u64);
        }
        self.core.proposal_ended();
    }

    fn snapshot(&self) -> Box<dyn SnapshotSource> {
        self.core.metrics.snapshots.inc();
        snapshots::source(self.core.lock().machine.snapshot())
    }

    fn begin_restore(&mut self) -> Box<dyn SnapshotSink> {
        snapshots::sink()
    }

    fn finish_restore(
        &mut self,
        sink: Box<dyn SnapshotSink>,
        at: weir_store::LogPosition,
    ) -> Result<(), String> {
        let machine = snapshots::finish(sink)?;
        self.core.metrics.installs.inc();
        let mut state = self.core.lock();
        self.core.note_founded(&machine);
        self.core.clock.saw(machine.last_stamp_ms());
        let replaced = std::mem::replace(&mut state.machine, machine);
        // Everything may have changed: whoever waits here looks again.
        let keys = state.waiters.keys();
        drop(state);
        let _ = self.core.garbage.send(replaced.discard());
        self.core.applied.send_replace(at.index);
        self.core.wake(&keys);
        Ok(())
    }
}

impl Applier {
    fn apply_batch(&mut self, index: u64, payload: Bytes, nonce: Option<Nonce>, wake: &mut BTreeSet<Bytes>) {
        let proposal = nonce.and_then(|nonce| self.core.in_flight.lock().take(nonce));
        let (batch, waiting) = match proposal {
            Some(proposal) => {
                self.core.metrics.commit_time.time(proposal.started.elapsed());
                self.core.answered.fetch_add(proposal.waiting.len(), Ordering::Relaxed);
                (proposal.batch, proposal.waiting)
            }
            None => (Arc::new(decode(index, payload)), Vec::new()),
        };
        #[cfg(debug_assertions)]
        let proposed_here = !waiting.is_empty();
        let unordered = planted(Bug::UnorderedApply) && waiting.is_empty();
        let stamp = match planted(Bug::ClockInApply) {
            true => weir_stream::Stamp { now_ms: self.core.clock.now_ms() },
            false => batch.stamp,
        };
        self.core.clock.saw(batch.stamp.now_ms);
        let mut waiting = waiting.into_iter();
        let began = Instant::now();
        let mut state = self.core.lock();
        let count = batch.commands.len();
        for place in 0..count {
            let command = &batch.commands[if unordered { count - 1 - place } else { place }];
            let client = waiting.next();
            #[cfg(debug_assertions)]
            let spoiled = super::planted::spoiled(&mut state.machine, stamp, command, proposed_here);
            #[cfg(debug_assertions)]
            let command = &*spoiled;
            let listens = client.as_ref().is_some_and(Waiting::listens);
            let outcome = state.machine.apply(stamp, command, listens);
            for effect in outcome.effects {
                match effect {
                    Effect::Wake(key) => {
                        wake.insert(key);
                    }
                    Effect::WakeAll => wake.append(&mut state.waiters.keys()),
                    Effect::Garbage(garbage) => {
                        // The task is gone only while the process ends.
                        let _ = self.core.garbage.send(garbage);
                    }
                    Effect::SlotMoved(slot) => state.waiters.end_slot(slot),
                }
            }
            if matches!(command, Command::SetOwnedSlots { .. }) {
                self.core.note_founded(&state.machine);
            }
            if let Some((request, _)) = command.group_read()
                && request.woken
            {
                // More may be left than the wake-up counted, or than this reader took.
                wake.extend(request.keys.iter().map(|(key, _)| key.clone()));
            }
            if let Some(client) = client {
                self.answer_or_park(&mut state, client, command, outcome.reply, index);
            }
        }
        drop(state);
        self.core.metrics.stall_time.time(began.elapsed());
    }

    /// An XREADGROUP that found nothing waits if it asked to; everything else is answered.
    fn answer_or_park(
        &self,
        state: &mut State,
        mut client: Waiting,
        command: &Command,
        reply: Reply,
        index: u64,
    ) {
        let park = match (&reply, client.park, command.group_read()) {
            (Reply::NilArray, Some(park), Some(_)) => park,
            _ => return client.answer(Answer::Reply { reply, index }),
        };
        if !self.core.may_propose() {
            return client.answer(Answer::Moved);
        }
        let Some(sender) = client.sender.take() else { return };
        let kind = WaiterKind::Group(command.clone());
        self.core.park(state, Waiter { ticket: client.ticket, park, sender, kind });
    }
}

/// A batch that this build cannot read must stop the replica: skipping it would make the replicas differ.
fn decode(index: u64, payload: Bytes) -> Batch {
    match Batch::decode(&payload) {
        Ok(batch) => batch,
        Err(error) => panic!("log entry {index} cannot be read by this version of weir: {error}"),
    }
}
