//! What the rest of the server holds of a shard.

use super::ShardId;
use super::applier::Core;
use super::backlog::{AnswerSender, Backlog};
use super::batcher::Submission;
use super::reader::ReadRequest;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};
use weir_env::planted::{Bug, planted};
use weir_env::time::Instant;
use weir_stream::{Command, Machine, Query, Reply};

/// How a command ended.
#[derive(Debug)]
pub enum Answer {
    /// Done. For a write: committed, applied, final.
    Reply {
        /// The reply.
        reply: Reply,
        /// Log index of a write, 0 for a read.
        index: u64,
    },
    /// Not done, and not going to be: this node does not lead (or cannot prove it). Route again.
    Moved,
    /// Not done: too much is in flight here.
    Busy,
    /// A read that was not done, since too many bytes of answers wait before it: here it is again.
    Later(Box<Query>),
    /// Nobody can say: the write may or may not have been applied.
    Unknown,
    /// Not done: the disk is full but for its reserve.
    OutOfSpace,
    /// Not done, and not to be tried again: it is larger than a log entry can be.
    TooLarge,
}

/// What a command does when there is nothing to answer yet (XREAD, XREADGROUP with BLOCK).
#[derive(Debug, Clone, Copy)]
pub struct Park {
    /// When to give up with a nil array; `None` = never (BLOCK 0).
    pub deadline: Option<Instant>,
    /// Client that waits, for CLIENT UNBLOCK.
    pub client: u64,
}

/// Which state a read may be answered from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// Linearizable, from the leader.
    Leader,
    /// A committed prefix of bounded age, from any replica (READONLY connections).
    Follower,
}

/// How CLIENT UNBLOCK ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unblock {
    /// As if the time had run out.
    Timeout,
    /// With `-UNBLOCKED`.
    Error,
}

/// An answer on its way. Dropping it means that the client went away: a parked reader is removed and gets
/// no delivery; a write that was submitted goes on.
#[derive(Debug)]
pub struct Pending {
    receiver: oneshot::Receiver<Answer>,
    parked: Option<(Arc<Inner>, u64)>,
    backlog: Option<Arc<Backlog>>,
}

impl Future for Pending {
    type Output = Answer;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        match Pin::new(&mut self.receiver).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(answer) => {
                self.parked = None;
                if let (Some(backlog), Ok(Answer::Reply { reply, .. })) = (&self.backlog, &answer) {
                    backlog.take(reply);
                }
                // A dropped sender means that the shard stopped with the command in hand.
                Poll::Ready(answer.unwrap_or(Answer::Unknown))
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some((shard, ticket)) = self.parked.take()
            && !planted(Bug::ServeTheGone)
        {
            self.receiver.close();
            shard.core.lock().waiters.forget(ticket);
        }
    }
}

/// A shard, cheap to clone.
#[derive(Clone, Debug)]
pub struct ShardHandle(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) id: ShardId,
    pub(super) core: Arc<Core>,
    pub(super) group: weir_raft::Group,
    pub(super) writes: mpsc::UnboundedSender<Submission>,
    pub(super) reads: mpsc::UnboundedSender<ReadRequest>,
    pub(super) load: Arc<Load>,
    pub(super) limits: Limits,
    pub(super) tickets: AtomicU64,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shard({})", self.id.0)
    }
}

/// Bounds of one shard.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most commands submitted and not answered (`queue-commands-max`).
    pub commands_in_flight_max: usize,
    /// Most bytes of them (`queue-bytes-max`).
    pub bytes_in_flight_max: usize,
    /// Most parked readers (`blocked-clients-max`).
    pub waiters_max: usize,
    /// Most commands of one batch (`batch-commands-max`).
    pub batch_commands_max: usize,
    /// A batch is closed when it holds this many bytes (`batch-bytes-max`).
    pub batch_bytes_max: usize,
    /// Batches proposed and not yet applied (`batches-in-flight-max`). More than one keeps the disk busy while
    /// the network works.
    pub batches_in_flight_max: usize,
}

/// How much of a shard's work is under way, see [`Limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unanswered {
    /// Commands.
    pub commands: usize,
    /// Bytes of them.
    pub bytes: usize,
    /// Log entries proposed and not yet applied.
    pub batches: usize,
}

/// What is submitted and not answered.
#[derive(Debug, Default)]
pub(super) struct Load {
    commands: AtomicUsize,
    bytes: AtomicUsize,
}

/// One command's share of the load, given back when it is dropped.
pub(super) struct Charge {
    load: Arc<Load>,
    bytes: usize,
}

impl Load {
    fn charge(self: &Arc<Self>, bytes: usize, limits: &Limits) -> Option<Charge> {
        let commands = self.commands.fetch_add(1, Ordering::Relaxed);
        let held = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let charge = Charge { load: self.clone(), bytes };
        let room = commands < limits.commands_in_flight_max && held < limits.bytes_in_flight_max;
        (room || planted(Bug::QueueWithoutBound)).then_some(charge)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.load.commands.fetch_sub(1, Ordering::Relaxed);
        self.load.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl ShardHandle {
    /// Its number.
    pub fn id(&self) -> ShardId {
        self.0.id
    }

    /// Submits a write. Returns at once; the order of calls is the order in the log.
    ///
    /// `backlog` counts the answer while it waits to be sent.
    /// With `park`, an XREADGROUP that finds nothing waits until entries come, its group goes, or the deadline.
    pub fn write(&self, command: Command, park: Option<Park>, backlog: Option<Arc<Backlog>>) -> Pending {
        let (sender, receiver) = oneshot::channel();
        let sender = AnswerSender::new(sender, backlog.clone());
        let ticket = self.0.tickets.fetch_add(1, Ordering::Relaxed);
        let parked = park.is_some().then(|| (self.0.clone(), ticket));
        let bytes = super::batcher::weight(&command);
        if !self.serving() {
            sender.send(Answer::Moved);
        } else if command_grows(&command) && self.0.core.space_low() {
            sender.send(Answer::OutOfSpace);
        } else if let Some(charge) = self.0.load.charge(bytes, &self.0.limits) {
            let submission = Submission { command, park, ticket, sender: Some(sender), charge: Some(charge) };
            // A stopped shard drops the submission, and with it the sender.
            let _ = self.0.writes.send(submission);
        } else {
            self.0.core.metrics.busy.inc();
            sender.send(Answer::Busy);
        }
        Pending { receiver, parked, backlog }
    }

    /// Submits a read. With `park`, an XREAD that finds nothing waits as [`ShardHandle::write`] does.
    pub fn read(
        &self,
        query: Query,
        mode: ReadMode,
        park: Option<Park>,
        backlog: Option<Arc<Backlog>>,
    ) -> Pending {
        let (sender, receiver) = oneshot::channel();
        let sender = AnswerSender::new(sender, backlog.clone());
        let ticket = self.0.tickets.fetch_add(1, Ordering::Relaxed);
        let parked = park.is_some().then(|| (self.0.clone(), ticket));
        // A stopped shard drops the request, and with it the sender.
        let _ = self.0.reads.send(ReadRequest { query, mode, park, ticket, sender });
        Pending { receiver, parked, backlog }
    }

    /// Ends the wait of `client`; false when none of its readers is parked here.
    pub fn unblock(&self, client: u64, how: Unblock) -> bool {
        self.0.core.lock().waiters.unblock(client, how)
    }

    /// Whether this node leads the shard, has applied its own first entry, and a quorum still answers it.
    pub fn serving(&self) -> bool {
        self.0.core.serving()
    }

    /// The Raft group below.
    pub fn group(&self) -> &weir_raft::Group {
        &self.0.group
    }

    /// A short look at the applied state. Holds up apply, so no long walks.
    pub fn machine<R>(&self, look: impl FnOnce(&Machine) -> R) -> R {
        look(&self.0.core.lock().machine)
    }

    /// Index up to which this replica has applied.
    pub fn applied(&self) -> u64 {
        self.0.core.applied()
    }

    /// Number of parked readers.
    pub fn parked(&self) -> usize {
        self.0.core.lock().waiters.len()
    }

    /// What was submitted here and is not answered yet.
    pub fn unanswered(&self) -> Unanswered {
        Unanswered {
            commands: self.0.load.commands.load(Ordering::Relaxed),
            bytes: self.0.load.bytes.load(Ordering::Relaxed),
            batches: self.0.core.in_flight.lock().len(),
        }
    }

    /// Milliseconds for replies that show ages: never behind the last stamp.
    pub fn now_ms(&self) -> u64 {
        self.0.core.now_ms()
    }

    /// How many *other* voters hold `index` on disk (in memory in modes other than `always`). Ends when that is
    /// at least `wanted`, when `end` does, or when this node no longer leads; with the last proven number.
    pub async fn wait_replicas(&self, index: u64, wanted: usize, end: impl Future<Output = ()>) -> usize {
        let group = &self.0.group;
        let mut progress = group.matched_changed();
        let mut status = group.status();
        let mut end = std::pin::pin!(end);
        let mut proven = 0;
        loop {
            progress.borrow_and_update();
            status.borrow_and_update();
            let leads = self.leads();
            if leads {
                let sent = planted(Bug::WaitCountsUnsynced);
                let others = group.matched();
                let holding = others.iter().filter(|(_, matched)| *matched >= index || sent).count();
                proven = proven.max(holding + usize::from(planted(Bug::WaitCountsSelf)));
            }
            if proven >= wanted || !leads {
                return proven;
            }
            let alive = tokio::select! {
                biased;
                r = progress.changed() => r.is_ok(),
                r = status.changed() => r.is_ok(),
                () = &mut end => false,
            };
            if !alive {
                return proven;
            }
        }
    }

    /// Whether this node leads the shard as clients see it: a leader that no quorum answers counts as deposed.
    pub fn leads(&self) -> bool {
        let status = self.0.group.status();
        let status = status.borrow();
        status.is_leader && status.quorum_alive
    }
}

/// Whether a command adds data (refused on a full disk); acks, deletes, trims and reads of a group go on.
pub(crate) fn command_grows(command: &Command) -> bool {
    use weir_stream::{GroupChange, Op, StringEdit};
    match command {
        Command::Xadd(_) | Command::Set(_) | Command::Xidmprecord { .. } => true,
        Command::Copy { .. } | Command::SetMany { .. } | Command::Restore { .. } => true,
        Command::EditString { edit, .. } => {
            !matches!(edit, StringEdit::GetDelete | StringEdit::GetExpire(_) | StringEdit::Increment(_))
        }
        Command::WithRefs { command, .. } => command_grows(command),
        Command::Xnack(nack) => nack.force,
        Command::Xgroup { change, .. } => {
            matches!(change, GroupChange::Create { .. } | GroupChange::CreateConsumer { .. })
        }
        Command::Exec(ops) | Command::ExecWatched { ops, .. } => {
            ops.iter().any(|op| matches!(op, Op::Command(c) if command_grows(c)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_full_disk_refuses_what_adds_data_and_nothing_else() {
        let key = Bytes::from_static(b"k");
        let value = Bytes::new();
        let restore = Command::Restore { key: key.clone(), value, ends: None, replace: false };
        assert!(command_grows(&restore));
        assert!(!command_grows(&Command::Flush));
    }
}
