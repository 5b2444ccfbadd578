//! What runs beside the path of a command: the ends of waits, the founding of a shard, expiry, and the
//! freeing of large values.

use super::applier::Core;
use super::batcher::Submission;
use super::handle::Answer;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use weir_env::time::{self, Instant};
use weir_raft::GroupStatus;
use weir_stream::{Command, Garbage, Settings, SlotRange};

/// How often deadlines are looked at when nothing earlier is due.
const TICK: Duration = Duration::from_millis(100);
/// Shortest sleep between two looks.
const TICK_MIN: Duration = Duration::from_millis(1);
/// Keys deleted by one expiry proposal.
const EXPIRE_BATCH: usize = 1000;
/// Units freed before the task yields.
const GARBAGE_SLICE: usize = 1024;

/// Ends waits whose time is up and proposals that nobody can tell about, and wakes readers for whom pending entries have
/// become old enough to claim. Waits for nothing but time: everybody who waits for a proposal relies on this task to
/// end the wait.
pub(super) async fn keep_time(core: Arc<Core>, writes: mpsc::WeakUnboundedSender<Submission>) {
    while writes.upgrade().is_some() {
        let now = Instant::now();
        let (next, claimable, next_claim_ms) = {
            let mut state = core.lock();
            state.waiters.expire(now);
            let now_ms = core.clock.now_ms().max(state.machine.last_stamp_ms());
            let (claimable, next_claim_ms) = state.waiters.claims_due(&state.machine, now_ms);
            (state.waiters.next_deadline(), claimable, next_claim_ms)
        };
        if !claimable.is_empty() {
            core.wake(&claimable);
        }
        let clients = core.in_flight.lock().expire(now);
        core.metrics.unknown.add(clients as u64);
        core.proposal_ended();
        let until_claim = next_claim_ms.map_or(TICK, Duration::from_millis);
        let until_end = next.map_or(TICK, |at| at.saturating_duration_since(now));
        let sleep = until_end.min(until_claim).clamp(TICK_MIN, TICK);
        // A reader that parks with an earlier deadline ends the sleep.
        let _ = time::timeout(sleep, core.earlier_deadline.notified()).await;
    }
}

/// Deletes due keys while this node leads, whether or not anybody asks for them.
pub(super) async fn expire_keys(core: Arc<Core>, writes: mpsc::WeakUnboundedSender<Submission>) {
    while writes.upgrade().is_some() {
        if core.serving() {
            let now_ms = core.clock.now_ms();
            let due = {
                let state = core.lock();
                let any = state.machine.next_due_ms().is_some_and(|due| due <= now_ms);
                if any { state.machine.due_keys(now_ms, EXPIRE_BATCH) } else { Vec::new() }
            };
            core.metrics.expired.add(due.len() as u64);
            if !due.is_empty() && submit(&writes, Command::ExpireDue { keys: due }).await.is_none() {
                return;
            }
        }
        time::sleep(TICK).await;
    }
}

/// Proposes again for parked group readers that were woken.
pub(super) async fn serve_woken(core: Arc<Core>, writes: mpsc::WeakUnboundedSender<Submission>) {
    loop {
        core.woken.notified().await;
        let ready = core.lock().waiters.take_ready();
        let Some(writes) = writes.upgrade() else { return };
        for submission in ready {
            if writes.send(submission).is_err() {
                return;
            }
        }
    }
}

/// Follows leadership: ends waits when it is lost, gives a new shard its slots and settings when it is won.
pub(super) async fn follow_leadership(
    core: Arc<Core>,
    mut status: watch::Receiver<GroupStatus>,
    writes: mpsc::WeakUnboundedSender<Submission>,
    slots: Vec<SlotRange>,
    settings: Settings,
) {
    let mut led = false;
    loop {
        status.borrow_and_update();
        let leads = core.may_propose();
        if led && !leads {
            core.lock().waiters.end_led();
            // Commands that wait for room in flight are refused now.
            core.proposal_ended();
        }
        led = leads;
        if leads && core.lock().machine.owned_ranges().is_empty() {
            let settle = Command::Configure(settings);
            let own = Command::SetOwnedSlots { ranges: slots.clone() };
            if submit(&writes, settle).await.is_none() || submit(&writes, own).await.is_none() {
                return;
            }
        }
        let changed = async {
            tokio::select! {
                changed = status.changed() => changed.is_ok(),
                () = core.clock.known(), if !core.clock.is_known() => true,
            }
        };
        if !changed.await {
            return;
        }
    }
}

/// Frees large values in slices, so that no command waits for it.
pub(super) async fn free_garbage(mut garbage: mpsc::UnboundedReceiver<Garbage>) {
    while let Some(mut value) = garbage.recv().await {
        while value.drop_slice(GARBAGE_SLICE) {
            tokio::task::yield_now().await;
        }
    }
}

/// Proposes on the server's own behalf and waits for the end; `None` when the shard has stopped.
async fn submit(writes: &mpsc::WeakUnboundedSender<Submission>, command: Command) -> Option<Answer> {
    let (sender, receiver) = oneshot::channel();
    writes.upgrade()?.send(Submission::internal(command, sender)).ok()?;
    receiver.await.ok()
}
