//! Reads: prove leadership once for all that wait, let apply catch up, ask the machine.

use super::applier::{Core, State};
use super::backlog::AnswerSender;
use super::batcher::Submission;
use super::handle::{Answer, Park, ReadMode};
use super::waiters::{Waiter, WaiterKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use weir_env::Spawn;
use weir_env::planted::{Bug, planted};
use weir_env::time::Instant;
use weir_raft::Group;
use weir_stream::{Command, Key, Query, Reply};

/// A read on its way.
pub(super) struct ReadRequest {
    pub(super) query: Query,
    pub(super) mode: ReadMode,
    pub(super) park: Option<Park>,
    pub(super) ticket: u64,
    pub(super) sender: AnswerSender,
}

/// Most reads of one round.
const ROUND_MAX: usize = 4096;
/// Reads are answered for this long before others get a turn.
const SLICE: Duration = Duration::from_millis(1);
/// How often a read may meet a due key before it is answered busy. Each round deletes what was met.
const DUE_ROUNDS_MAX: usize = 8;

pub(super) struct Reader {
    pub(super) core: Arc<Core>,
    pub(super) group: Group,
    pub(super) requests: mpsc::UnboundedReceiver<ReadRequest>,
    pub(super) writes: mpsc::WeakUnboundedSender<Submission>,
    pub(super) spawn: Arc<dyn Spawn>,
    /// Follower reads answer only when a leader was heard this recently.
    pub(super) staleness_max: Duration,
}

impl Reader {
    /// Runs until every handle is gone.
    pub(super) async fn run(mut self) {
        let mut round = Vec::new();
        while self.requests.recv_many(&mut round, ROUND_MAX).await > 0 {
            let (led, followed): (Vec<_>, Vec<_>) = round.drain(..).partition(|r| r.mode == ReadMode::Leader);
            for request in followed {
                let Some(request) = hand_back(request) else { continue };
                self.answer_as_follower(request);
            }
            if !led.is_empty() {
                self.answer_as_leader(led).await;
            }
        }
    }

    async fn answer_as_leader(&self, requests: Vec<ReadRequest>) {
        if !self.read_point().await {
            for request in requests {
                request.sender.send(Answer::Moved);
            }
            return;
        }
        let mut due = Vec::new();
        let mut began = Instant::now();
        for request in requests {
            // Apply, and other tasks, get their turn between long answers.
            if began.elapsed() >= SLICE {
                tokio::task::yield_now().await;
                began = Instant::now();
            }
            let Some(request) = hand_back(request) else { continue };
            let mut state = self.core.lock();
            let now_ms = self.core.clock.now_ms().max(state.machine.last_stamp_ms());
            #[cfg(debug_assertions)]
            if super::planted::is_hidden(&self.core, &state.machine, &request.query) {
                finish(&self.core, &mut state, request, weir_stream::Reply::NilBulk);
                continue;
            }
            match state.machine.query(now_ms, &request.query) {
                weir_stream::Answer::Reply(reply) => finish(&self.core, &mut state, request, reply),
                weir_stream::Answer::Due(keys) => due.push((request, keys)),
            }
        }
        for (request, keys) in due {
            // Of its own, since its wait for a commit must not hold up other reads.
            let expiry = Expiry { core: self.core.clone(), writes: self.writes.clone() };
            self.spawn.spawn("shard-due-read", Box::pin(expiry.then_answer(request, keys)));
        }
    }

    /// True once the state holds everything that was answered before this call began.
    async fn read_point(&self) -> bool {
        if !self.core.serving() {
            return false;
        }
        if planted(Bug::NoReadIndex) {
            return true;
        }
        let Ok(index) = self.group.read_index().await else { return false };
        let mut applied = self.core.watch_applied();
        let mut status = self.group.status();
        let lost = async {
            // A new leader's own first entry may be its read point, and may never commit.
            while self.core.may_propose() && status.changed().await.is_ok() {}
        };
        tokio::select! {
            biased;
            reached = applied.wait_for(|applied| *applied >= index) => reached.is_ok(),
            () = lost => false,
        }
    }

    /// A committed prefix of bounded age: a leader was heard lately and what it said was committed is applied.
    fn answer_as_follower(&self, request: ReadRequest) {
        let fresh = self.group.leader_contact().is_some_and(|heard| {
            heard.at.elapsed() <= self.staleness_max && heard.commit <= self.core.applied()
        });
        if !fresh || !on_follower(&request.query) {
            request.sender.send(Answer::Moved);
            return;
        }
        let mut state = self.core.lock();
        let now_ms = state.machine.last_stamp_ms();
        // A follower hides nothing by a clock: it shows what the log says.
        let reply = state.machine.query_as_logged(now_ms, &request.query);
        finish(&self.core, &mut state, request, reply);
    }
}

/// A read that met keys whose deadline has passed.
struct Expiry {
    core: Arc<Core>,
    writes: mpsc::WeakUnboundedSender<Submission>,
}

impl Expiry {
    /// Their deletion is logged first, then the read looks again.
    async fn then_answer(self, request: ReadRequest, mut keys: Vec<Key>) {
        for _ in 0..DUE_ROUNDS_MAX {
            let Some(Answer::Reply { .. }) = self.propose(Command::ExpireDue { keys }).await else {
                request.sender.send(Answer::Moved);
                return;
            };
            let mut state = self.core.lock();
            // The stamp of the deletion is the earliest time at which this may be answered; no later one is taken.
            let now_ms = state.machine.last_stamp_ms();
            match state.machine.query(now_ms, &request.query) {
                weir_stream::Answer::Reply(reply) => return finish(&self.core, &mut state, request, reply),
                weir_stream::Answer::Due(more) => keys = more,
            }
        }
        request.sender.send(Answer::Busy);
    }

    async fn propose(&self, command: Command) -> Option<Answer> {
        let (sender, receiver) = oneshot::channel();
        self.writes.upgrade()?.send(Submission::internal(command, sender)).ok()?;
        receiver.await.ok()
    }
}

/// Pending lists and versions belong to the leader; the rest may be read anywhere.
fn on_follower(query: &Query) -> bool {
    !matches!(
        query,
        Query::Xpending { .. }
            | Query::XinfoConsumers { .. }
            | Query::XinfoGroups { .. }
            | Query::Versions { .. }
    )
}

/// Gives a read back whose connection has enough answers waiting. One that may park has none before it.
fn hand_back(request: ReadRequest) -> Option<ReadRequest> {
    if request.park.is_some() || !request.sender.defers() {
        return Some(request);
    }
    request.sender.send(Answer::Later(Box::new(request.query)));
    None
}

/// Answers, or parks an XREAD that found nothing and asked to wait.
fn finish(core: &Core, state: &mut State, request: ReadRequest, reply: Reply) {
    let (park, keys) = match (&reply, request.park, request.query.stream_read()) {
        (Reply::NilArray, Some(park), Some(keys)) => (park, keys),
        _ => {
            request.sender.send(Answer::Reply { reply, index: 0 });
            return;
        }
    };
    let follower = request.mode == ReadMode::Follower;
    if !follower && !core.may_propose() {
        request.sender.send(Answer::Moved);
        return;
    }
    let keys = state.machine.resolve_read(keys);
    let kind = WaiterKind::Plain { query: request.query.with_read_ids(keys), follower };
    core.park(state, Waiter { ticket: request.ticket, park, sender: request.sender, kind });
}
