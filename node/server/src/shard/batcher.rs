//! Gathers commands into batches, stamps them, and hands them to consensus.
//!
//! Whatever arrived while earlier batches were in flight goes out as one log entry. No timer makes a lone
//! client wait: with nothing in flight a command leaves at once.

use super::applier::Core;
use super::handle::{Answer, Charge, Limits, Park};
use super::in_flight::Proposal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use weir_env::time::Instant;
use weir_raft::{Group, Nonce};
use weir_stream::{Batch, Command, Op, Stamp};

/// A write on its way to a batch.
pub(super) struct Submission {
    pub(super) command: Command,
    pub(super) park: Option<Park>,
    /// Names the waiter if the command parks; also its place in the queue of waiters.
    pub(super) ticket: u64,
    /// `None`: the server itself proposed and waits for nothing.
    pub(super) sender: Option<oneshot::Sender<Answer>>,
    /// Its share of the bounds; `None` for what the server itself proposes.
    pub(super) charge: Option<Charge>,
}

impl Submission {
    /// A proposal of the server's own, bound to nothing.
    pub(super) fn internal(command: Command, sender: oneshot::Sender<Answer>) -> Self {
        Submission { command, park: None, ticket: 0, sender: Some(sender), charge: None }
    }
}

/// A client waiting for one command of a proposal.
pub(super) struct Waiting {
    pub(super) park: Option<Park>,
    pub(super) ticket: u64,
    pub(super) sender: Option<oneshot::Sender<Answer>>,
    _charge: Option<Charge>,
}

impl Waiting {
    /// Answers, unless nobody listens any more.
    pub(super) fn answer(self, answer: Answer) {
        if let Some(sender) = self.sender {
            let _ = sender.send(answer);
        }
    }
    /// Whether a reply is worth building.
    pub(super) fn listens(&self) -> bool {
        self.sender.as_ref().is_some_and(|s| !s.is_closed())
    }
}

pub(super) struct Batcher {
    pub(super) core: Arc<Core>,
    pub(super) group: Group,
    pub(super) submissions: mpsc::UnboundedReceiver<Submission>,
    pub(super) next_nonce: u64,
    pub(super) limits: Limits,
    pub(super) write_timeout: Duration,
}

impl Batcher {
    /// Runs until every handle is gone.
    pub(super) async fn run(mut self) {
        let mut gathered = Vec::new();
        while self.gather(&mut gathered).await {
            self.propose(std::mem::take(&mut gathered)).await;
        }
    }

    /// Waits for a command and for room, then takes all that is there up to the bounds of a batch.
    async fn gather(&mut self, gathered: &mut Vec<Submission>) -> bool {
        let Some(first) = self.submissions.recv().await else { return false };
        let mut bytes = weight(&first.command);
        gathered.push(first);
        self.core.room_in_flight(self.limits.batches_in_flight_max).await;
        while gathered.len() < self.limits.batch_commands_max && bytes < self.limits.batch_bytes_max {
            match self.submissions.try_recv() {
                Ok(next) => {
                    bytes += weight(&next.command);
                    gathered.push(next);
                }
                Err(_) => break,
            }
        }
        true
    }

    async fn propose(&mut self, gathered: Vec<Submission>) {
        let mut commands = Vec::with_capacity(gathered.len());
        let mut waiting = Vec::with_capacity(gathered.len());
        let serving = self.core.may_propose();
        for Submission { command, park, ticket, sender, charge } in gathered {
            let one = Waiting { park, ticket, sender, _charge: charge };
            if !serving {
                one.answer(Answer::Moved);
            } else if !one.listens() && matches!(command, Command::Xreadgroup(_)) {
                // Its client closed the connection: delivering to it would strand entries in the PEL.
            } else {
                commands.push(command);
                waiting.push(one);
            }
        }
        if commands.is_empty() {
            return;
        }
        let nonce = Nonce(self.next_nonce);
        self.next_nonce += 1;
        let batch = Arc::new(Batch { stamp: Stamp { now_ms: self.core.clock.now_ms() }, commands });
        let payload = batch.encode();
        let metrics = &self.core.metrics;
        metrics.batch_commands.record(batch.commands.len() as u64);
        metrics.batch_bytes.record(payload.len() as u64);
        let started = Instant::now();
        let deadline = started + self.write_timeout;
        // Known before it can be applied.
        self.core.in_flight.lock().insert(nonce, Proposal { batch, waiting, started, deadline });
        if self.group.propose(nonce, payload.into()).await.is_err() {
            self.core.in_flight.lock().end(nonce, || Answer::Moved);
        }
    }
}

/// What a command counts against the bounds, in bytes: its own size, roughly.
pub(super) fn weight(command: &Command) -> usize {
    const FIXED: usize = 64;
    FIXED
        + match command {
            Command::Xadd(add) => add.fields.iter().map(|f| f.len() + 8).sum(),
            Command::Set(set) => set.value.len(),
            Command::Xdel { ids, .. } => ids.len() * 16,
            Command::Xack { ids, .. } => ids.iter().map(|id| id.len() + 8).sum(),
            Command::Xclaim(claim) => claim.ids.len() * 16,
            Command::Exec(ops) => ops
                .iter()
                .map(|op| match op {
                    Op::Command(command) => weight(command),
                    Op::Query(_) | Op::Answer(_) => FIXED,
                })
                .sum(),
            _ => 0,
        }
}
