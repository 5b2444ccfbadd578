//! Gathers commands into batches, stamps them, and hands them to consensus.
//!
//! Whatever arrived while earlier batches were in flight goes out as one log entry. No timer makes a lone
//! client wait: with nothing in flight a command leaves at once, unless clients that were answered this moment are
//! likely to send their next: those get a few turns of the scheduler to do so.

use super::applier::Core;
use super::backlog::AnswerSender;
use super::handle::{Answer, Charge, Limits, Park};
use super::in_flight::Proposal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use weir_env::planted::{Bug, planted};
use weir_env::time::Instant;
use weir_raft::{Group, Nonce, ProposeError};
use weir_stream::{AddId, Batch, Command, Op, Stamp, StringEdit};

/// A write on its way to a batch.
pub(super) struct Submission {
    pub(super) command: Command,
    pub(super) park: Option<Park>,
    /// Names the waiter if the command parks; also its place in the queue of waiters.
    pub(super) ticket: u64,
    /// `None`: the server itself proposed and waits for nothing.
    pub(super) sender: Option<AnswerSender>,
    /// Its share of the bounds; `None` for what the server itself proposes.
    pub(super) charge: Option<Charge>,
}

impl Submission {
    /// A proposal of the server's own, bound to nothing.
    pub(super) fn internal(command: Command, sender: oneshot::Sender<Answer>) -> Self {
        Submission { command, park: None, ticket: 0, sender: Some(sender.into()), charge: None }
    }
}

/// A client waiting for one command of a proposal.
pub(super) struct Waiting {
    pub(super) park: Option<Park>,
    pub(super) ticket: u64,
    pub(super) sender: Option<AnswerSender>,
    _charge: Option<Charge>,
}

impl Waiting {
    /// Answers, unless nobody listens any more.
    pub(super) fn answer(self, answer: Answer) {
        if let Some(sender) = self.sender {
            sender.send(answer);
        }
    }
    /// Whether a reply is worth building.
    pub(super) fn listens(&self) -> bool {
        self.sender.as_ref().is_some_and(|s| !s.is_closed())
    }
}

/// So many commands are worth a log entry of their own while another is in flight.
const WORTH_AN_ENTRY_COMMANDS: usize = 64;
/// So many bytes are.
const WORTH_AN_ENTRY_BYTES: usize = 64 << 10;

/// So many turns in a row without a new command end the wait for clients that were just answered. A turn takes
/// microseconds when nothing else is to be done.
const IDLE_TURNS_MAX: usize = 4;

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

    /// Takes commands until they may leave as one batch. False when every handle is gone and nothing is left.
    async fn gather(&mut self, gathered: &mut Vec<Submission>) -> bool {
        let mut bytes = 0;
        // Commands in hand and clients just answered, when a proposal ended.
        let mut expected = self.core.take_answered();
        loop {
            self.take_waiting(gathered, &mut bytes);
            if !gathered.is_empty() && self.may_leave(gathered.len(), bytes) {
                self.await_answered(gathered, &mut bytes, expected).await;
                return true;
            }
            let room = self.has_room(gathered.len(), bytes);
            tokio::select! {
                biased;
                () = self.core.wait_proposal_ended() => expected = gathered.len() + self.core.take_answered(),
                next = self.submissions.recv(), if room => match next {
                    Some(next) => {
                        bytes += weight(&next.command);
                        gathered.push(next);
                    }
                    None => return !gathered.is_empty(),
                },
            }
        }
    }

    /// Takes what is there.
    fn take_waiting(&mut self, gathered: &mut Vec<Submission>, bytes: &mut usize) {
        while self.has_room(gathered.len(), *bytes) {
            let Ok(next) = self.submissions.try_recv() else { return };
            *bytes += weight(&next.command);
            gathered.push(next);
        }
    }

    /// Clients answer an answer: gives those whose commands ended with the last proposal the time to send more,
    /// as long as they do. Without this they fall into two cohorts that take turns with half a batch each.
    async fn await_answered(&mut self, gathered: &mut Vec<Submission>, bytes: &mut usize, expected: usize) {
        let mut idle_turns = 0;
        while gathered.len() < expected
            && idle_turns < IDLE_TURNS_MAX
            && self.has_room(gathered.len(), *bytes)
        {
            let before = gathered.len();
            // Comes back after the sockets were looked at and whatever was ready had its turn.
            tokio::task::yield_now().await;
            self.take_waiting(gathered, bytes);
            idle_turns = if gathered.len() == before { idle_turns + 1 } else { 0 };
        }
    }

    fn has_room(&self, commands: usize, bytes: usize) -> bool {
        commands < self.limits.batch_commands_max && bytes < self.limits.batch_bytes_max
    }

    /// A lone command leaves at once. With a batch in flight others gather, and leave early only when they make a
    /// batch worth its log entry; without leadership they leave to be refused.
    fn may_leave(&self, commands: usize, bytes: usize) -> bool {
        let in_flight = self.core.in_flight.lock().len();
        let worth_it = commands >= WORTH_AN_ENTRY_COMMANDS || bytes >= WORTH_AN_ENTRY_BYTES;
        in_flight == 0
            || (worth_it && in_flight < self.limits.batches_in_flight_max)
            || !self.core.may_propose()
    }

    async fn propose(&mut self, gathered: Vec<Submission>) {
        let mut commands = Vec::with_capacity(gathered.len());
        let mut waiting = Vec::with_capacity(gathered.len());
        let serving = self.core.may_propose();
        for Submission { command, park, ticket, sender, charge } in gathered {
            let one = Waiting { park, ticket, sender, _charge: charge };
            if !serving {
                one.answer(Answer::Moved);
            } else if !one.listens() && command.group_read().is_some() && !planted(Bug::ServeTheGone) {
                // Its client closed the connection: delivering to it would strand entries in the PEL. Whoever
                // stands behind it may have what it was woken for.
                if let Some((request, _)) = command.group_read()
                    && request.woken
                {
                    self.core.wake(&request.keys.iter().map(|(key, _)| key.clone()).collect());
                }
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
        let batch = Arc::new(Batch { stamp: Stamp { now_ms: self.core.clock.stamp_ms() }, commands });
        #[cfg(debug_assertions)]
        super::planted::answer_early(&self.core, &batch, &mut waiting);
        let payload = batch.encode();
        let metrics = &self.core.metrics;
        metrics.batch_commands.record(batch.commands.len() as u64);
        metrics.batch_bytes.record(payload.len() as u64);
        let started = Instant::now();
        let deadline = started + self.write_timeout;
        // Known before it can be applied.
        self.core.in_flight.lock().insert(nonce, Proposal { batch, waiting, started, deadline });
        if let Err(refused) = self.group.propose(nonce, payload.into()).await {
            let answer: fn() -> Answer = match refused {
                ProposeError::TooLarge { .. } => || Answer::TooLarge,
                ProposeError::NotLeader { .. } | ProposeError::Stopped => || Answer::Moved,
            };
            self.core.in_flight.lock().end(nonce, answer);
        }
    }
}

/// What a command counts against the bounds, in bytes: its own size, roughly.
pub(super) fn weight(command: &Command) -> usize {
    const FIXED: usize = 64;
    let own = match command {
        Command::Exec(ops) | Command::ExecWatched { ops, .. } => {
            return FIXED
                + command.keys().map(|key| key.len() + 16).sum::<usize>()
                + ops
                    .iter()
                    .map(|op| match op {
                        Op::Command(command) => weight(command),
                        Op::Query(_) | Op::Answer(_) => FIXED,
                    })
                    .sum::<usize>();
        }
        Command::Xadd(add) => {
            let once = match &add.id {
                AddId::Once(once) => once.producer.len() + once.iid.len(),
                _ => 0,
            };
            add.fields.iter().map(|f| f.len() + 8).sum::<usize>() + once
        }
        Command::Xidmprecord { add, .. } => add.producer.len() + add.iid.len(),
        Command::Set(set) => set.value.len(),
        Command::EditString {
            edit: StringEdit::Append(value) | StringEdit::SetRange { value, .. }, ..
        } => value.len(),
        Command::SetMany { pairs, .. } => pairs.iter().map(|(_, value)| value.len() + 8).sum(),
        Command::Xdel { ids, .. } => ids.len() * 16,
        Command::Xack { group, ids, .. } => group.len() + ids.iter().map(|id| id.len() + 8).sum::<usize>(),
        Command::Xclaim(claim) => claim.group.len() + claim.consumer.len() + claim.ids.len() * 16,
        Command::Xautoclaim { group, consumer, .. } => group.len() + consumer.len(),
        Command::WithRefs { command, .. } => return FIXED + weight(command),
        Command::Xdelex { ids, .. } => ids.len() * 16,
        Command::Xackdel { group, ids, .. } => group.len() + ids.iter().map(|id| id.len() + 8).sum::<usize>(),
        Command::Xnack(nack) => nack.group.len() + nack.ids.len() * 16,
        Command::XreadgroupWithin { read, .. } | Command::Xreadgroup(read) => {
            read.group.len() + read.consumer.len()
        }
        Command::Xgroup { group, .. } => group.len(),
        _ => 0,
    };
    FIXED + own + command.keys().map(|key| key.len() + 8).sum::<usize>()
}
