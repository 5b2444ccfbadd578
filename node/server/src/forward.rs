//! Work at shards that another node leads, done there on behalf of a client here: what the plain port stands on.
//!
//! * [`wire`]: requests and answers between nodes.
//! * [`lane`]: what one client has under way, in order.
//! * This file: one shard, wherever it is led.
//!
//! The node that leads does what it would do for a client of its own; the node in front routes, tries again what was
//! certainly not done, and tells the client UNKNOWN where nobody can tell. Rights were checked in front. A call that is
//! given up in front is given up at the leader too, so that a parked reader goes with its client.

pub(crate) mod lane;
mod wire;

use crate::info;
use crate::node::Node;
use crate::route::{NO_LEADER, Redirect};
use crate::shard::backlog::Backlog;
use crate::shard::{Answer, Park, Pending, ReadMode, ShardHandle, ShardId, Unblock, command_grows};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use weir_env::BoxFuture;
use weir_env::planted::{Bug, planted};
use weir_env::time::{Instant, sleep, sleep_until, timeout_at};
use weir_raft::NodeId;
use weir_stream::{Command, Query, ReadId, Refusal, Reply};
use wire::{Request, Told};

/// Kind of the peer call. Permanent.
pub(crate) const KIND_FORWARD: u16 = 5;

/// A forwarded call is given this much longer than the leader takes at most.
const MARGIN: Duration = Duration::from_secs(1);
/// Longest wait of one call: for ever, as timers understand it. A peer that is gone is noticed long before.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Pause before a leader that said it does not lead is asked again.
const AGAIN_PAUSE: Duration = Duration::from_millis(10);

/// Something to do at a shard.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// A write; with the end of its wait if it parks.
    Write(Command, Option<Wait>),
    /// A leader's read; likewise.
    Read(Query, Option<Wait>),
    /// WAIT: how many other voters hold the log up to this index.
    Replicas {
        /// Index.
        index: u64,
        /// As many are enough.
        wanted: usize,
        /// How long to wait for them; `None` is for ever.
        until: Option<Instant>,
    },
    /// CLIENT UNBLOCK: whether it ended somebody's wait.
    Unblock {
        /// Whose.
        waiter: u64,
        /// How.
        how: Unblock,
    },
}

/// How a reader waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    /// `None` is for ever.
    pub(crate) until: Option<Instant>,
    /// Its name among all readers of the cluster.
    pub(crate) waiter: u64,
}

/// The name of a client of this node among all readers of the cluster. The numbers of clients that wait at their own
/// node's shards are far below.
pub(crate) fn waiter(node: &Node, client: u64) -> u64 {
    1 << 63 | node.topology.view().me << 48 | client
}

impl Work {
    /// Until when it waits, if it does.
    fn ends(&self) -> Option<Option<Instant>> {
        match self {
            Work::Write(_, wait) | Work::Read(_, wait) => wait.map(|wait| wait.until),
            Work::Replicas { until, .. } => Some(*until),
            Work::Unblock { .. } => None,
        }
    }

    /// Whether it reads from wherever a stream ends when it begins: begun again later it would miss entries.
    fn begins_at_the_end(&self) -> bool {
        let last = |keys: &[(Bytes, ReadId)]| keys.iter().any(|(_, id)| *id == ReadId::Last);
        match self {
            Work::Read(Query::Xread { keys, .. } | Query::XreadWithin { keys, .. }, Some(_)) => last(keys),
            _ => false,
        }
    }

    /// Whether doing it twice is the same as once.
    fn is_read(&self) -> bool {
        !matches!(self, Work::Write(..))
    }
}

/// What became of a piece of work that was tried once.
#[derive(Debug)]
pub(crate) enum Tried {
    /// It was answered by whoever leads.
    Answered(Answer),
    /// It was not done: whoever was asked does not lead any more, or the answer to a read is lost or would be too much at
    /// once. A reader may have waited there.
    Moved,
    /// It was not begun: nobody was reached, or whoever was asked does not lead.
    NotReached,
}

/// Does `work` at one shard, in order, once. There are as many answers.
pub(crate) async fn attempt(node: &Arc<Node>, shard: ShardId, work: Vec<Work>) -> Vec<Tried> {
    if let Some(local) = node.shards.get(shard).filter(ShardHandle::serving) {
        return here(&local, work).await;
    }
    let view = node.topology.view();
    let Some(leader) =
        view.live_leader(shard).map(|leader| leader.number).filter(|leader| *leader != view.me)
    else {
        return work.iter().map(|_| Tried::NotReached).collect();
    };
    there(node, leader, shard, work).await
}

/// As [`attempt`] for one piece, until it is answered or `until` has passed without a leader.
///
/// # Errors
/// Why nobody did it. Nothing was done.
pub(crate) async fn insist(
    node: &Arc<Node>,
    shard: ShardId,
    work: Work,
    until: Instant,
) -> Result<Answer, Redirect> {
    loop {
        let mut changed = node.topology.changed();
        if let Some(Tried::Answered(answer)) = attempt(node, shard, vec![work.clone()]).await.pop() {
            return Ok(answer);
        }
        if Instant::now() >= until {
            node.metrics.cluster_down.inc();
            return Err(NO_LEADER);
        }
        sleep(AGAIN_PAUSE).await;
        let led = || {
            node.shards.get(shard).is_some_and(|shard| shard.serving())
                || node.topology.view().live_leader(shard).is_some()
        };
        while !led() && matches!(timeout_at(until, changed.changed()).await, Ok(Ok(()))) {}
    }
}

/// All is submitted before the first answer is waited for: the order of submission is the order in the log.
async fn here(shard: &ShardHandle, work: Vec<Work>) -> Vec<Tried> {
    if !shard.serving() {
        return work.iter().map(|_| Tried::NotReached).collect();
    }
    // Several reads may have large answers: those above a bound are left for the next call.
    let backlog = (work.len() > 1).then(|| Arc::new(Backlog::new(usize::MAX)));
    let started: Vec<Started<'_>> = work
        .into_iter()
        .map(|work| match work {
            Work::Write(command, wait) => Started::Pending(shard.write(command, wait.map(park), None)),
            Work::Read(query, wait) => {
                let read = shard.read(query, ReadMode::Leader, wait.map(park), backlog.clone());
                Started::Pending(read)
            }
            Work::Replicas { index, wanted, until } => {
                Started::Replicas(Box::pin(wait_replicas(shard, index, wanted, until)))
            }
            Work::Unblock { waiter, how } => Started::Ended(i64::from(shard.unblock(waiter, how))),
        })
        .collect();
    let mut all = Vec::with_capacity(started.len());
    for started in started {
        all.push(match started {
            Started::Pending(pending) => match pending.await {
                Answer::Moved | Answer::Later(_) => Tried::Moved,
                answer => Tried::Answered(answer),
            },
            Started::Replicas(count) => number(count.await),
            Started::Ended(count) => number(count),
        });
    }
    all
}

/// What was submitted.
enum Started<'a> {
    Pending(Pending),
    Replicas(BoxFuture<'a, i64>),
    Ended(i64),
}

fn number(n: i64) -> Tried {
    Tried::Answered(Answer::Reply { reply: Reply::Int(n), index: 0 })
}

async fn wait_replicas(shard: &ShardHandle, index: u64, wanted: usize, until: Option<Instant>) -> i64 {
    let over = async {
        match until {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    shard.wait_replicas(index, wanted, over).await as i64
}

fn park(wait: Wait) -> Park {
    Park { deadline: wait.until, client: wait.waiter }
}

async fn there(node: &Arc<Node>, leader: NodeId, shard: ShardId, work: Vec<Work>) -> Vec<Tried> {
    let now = Instant::now();
    let longest = work
        .iter()
        .filter_map(Work::ends)
        .map(|until| until.map_or(WAIT_MAX, |until| until.saturating_duration_since(now)))
        .max();
    let limit = longest.unwrap_or_default().min(WAIT_MAX)
        + Duration::from_millis(node.config.write_timeout_ms)
        + MARGIN;
    let payload = Request::of(shard, &work, now).encode();
    let nobody = |_: &Work| Tried::NotReached;
    // A read can be asked again; of a write nobody can tell.
    let lost = |work: &Work| match work {
        Work::Write(..) if planted(Bug::ForwardAgain) => Tried::Moved,
        Work::Write(..) => Tried::Answered(Answer::Unknown),
        _ => Tried::Moved,
    };
    match node.peers.call_work(leader, KIND_FORWARD, payload, limit).await {
        Ok(bytes) => match Told::decode(&bytes) {
            Ok(told) if told.len() == work.len() => told.into_iter().map(Tried::from).collect(),
            other => {
                tracing::warn!(leader, error = ?other.err(), "forwarded commands have an answer that means nothing");
                work.iter().map(|_| Tried::Answered(Answer::Unknown)).collect()
            }
        },
        // The call did not leave this node, was turned away at the door, or `serve` says below that it did nothing.
        Err(
            weir_raft::Error::NotConnected { .. }
            | weir_raft::Error::NoAddress(_)
            | weir_raft::Error::Refused { .. }
            | weir_raft::Error::Remote { .. },
        ) => work.iter().map(nobody).collect(),
        Err(error) => {
            tracing::info!(%error, leader, "forwarded commands have no answer");
            work.iter().map(lost).collect()
        }
    }
}

/// Does what another node forwards.
///
/// # Errors
/// The request is of another version or malformed. Nothing was done.
pub(crate) async fn serve(node: &Arc<Node>, payload: &[u8]) -> Result<Bytes, String> {
    let request = Request::decode(payload)?;
    let (shard, work) = request.into_work(Instant::now());
    // Whoever stood in front looked at its own memory alone.
    let full = info::out_of_memory(node);
    if full && work.iter().any(grows) {
        let refused = || {
            let reply = Reply::Error(Refusal::Text(info::OUT_OF_MEMORY.to_owned()));
            Tried::Answered(Answer::Reply { reply, index: 0 })
        };
        let mut all = Vec::with_capacity(work.len());
        for one in work {
            match grows(&one) {
                true => all.push(refused()),
                false => all.extend(at_home(node, shard, vec![one]).await),
            }
        }
        return Ok(Told::encode(all));
    }
    Ok(Told::encode(at_home(node, shard, work).await))
}

async fn at_home(node: &Node, shard: ShardId, work: Vec<Work>) -> Vec<Tried> {
    match node.shards.get(shard) {
        Some(shard) => here(&shard, work).await,
        None => work.iter().map(|_| Tried::NotReached).collect(),
    }
}

fn grows(work: &Work) -> bool {
    matches!(work, Work::Write(command, _) if command_grows(command))
}
