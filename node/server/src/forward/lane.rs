//! What one client of the plain port has under way. Commands leave in the order in which they came: those that wait in
//! the queue while others are on their way go together, one call for each shard.

use super::{AGAIN_PAUSE, Tried, Work, attempt};
use crate::node::Node;
use crate::route::{NO_LEADER, NOT_SERVED, Redirect, TOO_MANY_HELD};
use crate::shard::{Answer, ShardId};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{mpsc, oneshot};
use weir_env::time::{Instant, sleep, timeout_at};
use weir_stream::{Refusal, Reply, Slot};

/// Most commands of one call.
const TOGETHER_MAX: usize = 256;
/// Reads of one call, and of one client under way: a small request can have a large answer.
pub(crate) const READS_TOGETHER_MAX: usize = 16;
/// Bytes of arguments after which a call is large enough.
const TOGETHER_BYTES: usize = 1 << 20;

/// As Redis ends a wait when the server is no master any more.
const UNBLOCKED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

/// Bytes of arguments in a lane after which its client's next command is not taken.
const ROOM_BYTES: usize = 4 << 20;

/// One command.
pub(crate) struct Item {
    work: Work,
    slot: Slot,
    bytes: usize,
    share: Share,
    done: oneshot::Sender<Ended>,
}

/// Its end.
pub(crate) struct Ended {
    pub(crate) shard: ShardId,
    pub(crate) answer: Answer,
}

impl Item {
    fn end(self, shard: ShardId, answer: Answer) {
        // First, or the client would look for room too early.
        drop(self.share);
        let _ = self.done.send(Ended { shard, answer });
    }

    fn refuse(self, why: &str) {
        let reply = Reply::Error(Refusal::Text(why.to_owned()));
        self.end(ShardId(0), Answer::Reply { reply, index: 0 });
    }
}

/// Part of a lane's room, until it is dropped.
struct Share(Arc<AtomicUsize>, usize);

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// A handle; the lane ends with it.
pub(crate) struct Lane {
    queue: mpsc::UnboundedSender<Item>,
    /// Bytes of arguments not answered.
    held: Arc<AtomicUsize>,
}

impl Lane {
    /// Starts a lane of its own.
    pub(crate) fn open(node: &Arc<Node>) -> Lane {
        let (sender, queue) = mpsc::unbounded_channel();
        node.env.spawn.spawn("plain client", Box::pin(run(node.clone(), queue)));
        Lane { queue: sender, held: Arc::default() }
    }

    /// Puts a command of `bytes` behind those before. Bounded by `pipeline-commands-max` and [`Lane::has_room`].
    pub(crate) fn send(&self, work: Work, slot: Slot, bytes: usize) -> oneshot::Receiver<Ended> {
        let (done, ended) = oneshot::channel();
        self.held.fetch_add(bytes, Ordering::Relaxed);
        let share = Share(self.held.clone(), bytes);
        // A lane that is gone drops the item, and with it the sender of its answer.
        let _ = self.queue.send(Item { work, slot, bytes, share, done });
        ended
    }

    /// Whether another command may be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.held.load(Ordering::Relaxed) < ROOM_BYTES
    }
}

async fn run(node: Arc<Node>, mut queue: mpsc::UnboundedReceiver<Item>) {
    while let Some(first) = queue.recv().await {
        let mut bytes = first.bytes;
        let mut together = vec![first];
        let most = if together[0].work.is_read() { READS_TOGETHER_MAX } else { TOGETHER_MAX };
        while together.len() < most && bytes < TOGETHER_BYTES {
            let Ok(next) = queue.try_recv() else { break };
            bytes += next.bytes;
            together.push(next);
        }
        settle(&node, together).await;
    }
}

/// Sees all through. What was certainly not done goes again, in the same order.
async fn settle(node: &Arc<Node>, mut left: Vec<Item>) {
    let mut until = Instant::now() + node.config.hold_max();
    let mut place = None;
    loop {
        // Whoever does not listen any more has gone: a waiting reader is taken back by dropping its call.
        left.retain(|item| !item.done.is_closed());
        if left.is_empty() {
            return;
        }
        let mut changed = node.topology.changed();
        let mut by_shard: BTreeMap<ShardId, Vec<Item>> = BTreeMap::new();
        let view = node.topology.view();
        for item in std::mem::take(&mut left) {
            match view.shard_of(item.slot) {
                Some(shard) => by_shard.entry(shard.id).or_default().push(item),
                None => item.refuse(&NOT_SERVED.to_string()),
            }
        }
        let began = Instant::now();
        let shards = by_shard.into_iter().map(|(shard, items)| at_shard(node, shard, items));
        let rounds = join_all(shards).await;
        if rounds.iter().any(|round| round.answered) {
            until = Instant::now() + node.config.hold_max();
        } else if rounds.iter().any(|round| round.begun) {
            // A reader may have waited for long before its leader was lost.
            until += began.elapsed();
        }
        left = rounds.into_iter().flat_map(|round| round.left).collect();
        if left.is_empty() {
            return;
        }
        if place.is_none() {
            place = node.held.enter(left.iter().map(|item| item.bytes).sum());
        }
        if place.is_none() || Instant::now() >= until {
            let why = if place.is_none() { TOO_MANY_HELD } else { NO_LEADER };
            node.metrics.cluster_down.inc();
            for item in left.drain(..) {
                item.refuse(&why.to_string());
            }
            return;
        }
        sleep(AGAIN_PAUSE).await;
        let now = node.topology.view();
        let led = left.iter().all(|item| {
            now.shard_of(item.slot).is_some_and(|shard| {
                node.shards.get(shard.id).is_some_and(|shard| shard.serving())
                    || now.live_leader(shard.id).is_some()
            })
        });
        if !led {
            // Nil would say that there was nothing to read, and nobody has looked.
            for item in left.extract_if(.., |item| over(&item.work)) {
                item.refuse(&NO_LEADER.to_string());
            }
            let _ = timeout_at(until, changed.changed()).await;
        }
    }
}

/// What a round left to do.
struct Round {
    left: Vec<Item>,
    answered: bool,
    /// Something was under way at a leader that was lost.
    begun: bool,
}

async fn at_shard(node: &Arc<Node>, shard: ShardId, mut items: Vec<Item>) -> Round {
    let work = items.iter().map(|item| item.work.clone()).collect();
    let attempt = attempt(node, shard, work);
    // A waiting reader runs alone; if its client goes, so does the call.
    let tried = match &mut items[..] {
        [alone] if alone.work.ends().is_some() => {
            tokio::select! {
                biased;
                tried = attempt => tried,
                () = alone.done.closed() => return Round { left: Vec::new(), answered: true, begun: true },
            }
        }
        _ => attempt.await,
    };
    let ends = tried.into_iter().map(End::of).collect::<Vec<_>>();
    let writes = items.first().is_some_and(|item| !item.work.is_read());
    let begun = ends.iter().any(|end| matches!(end, End::Moved));
    let known: Vec<bool> = ends.iter().map(|end| matches!(end, End::Known(_))).collect();
    let mut round = Round { left: Vec::new(), answered: false, begun };
    for ((item, end), next) in items.into_iter().zip(ends).zip(in_order(writes, &known)) {
        match (next, end) {
            (Next::Tell, End::Known(answer)) => {
                round.answered = true;
                item.end(shard, answer);
            }
            (Next::Overtaken, _) => item.refuse(&Redirect::TryAgain.to_string()),
            (_, End::Moved) if item.work.begins_at_the_end() => item.refuse(UNBLOCKED),
            _ => round.left.push(item),
        }
    }
    round
}

/// How an attempt ended.
enum End {
    Known(Answer),
    Moved,
    NotBegun,
}

impl End {
    fn of(tried: Tried) -> End {
        match tried {
            Tried::Moved
            | Tried::Answered(Answer::Reply { reply: Reply::Error(Refusal::NotOwned(_)), .. }) => End::Moved,
            Tried::NotReached => End::NotBegun,
            Tried::Answered(answer) => End::Known(answer),
        }
    }
}

/// What becomes of one command of a call.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Its answer is told.
    Tell,
    /// It goes again.
    Again,
    /// It was not done, and a later write of the same client was or may have been: sent again it would swap the two.
    Overtaken,
}

/// What becomes of the commands of one call to one shard; `known`: which of them have an answer.
fn in_order(writes: bool, known: &[bool]) -> Vec<Next> {
    let last_known = known.iter().rposition(|known| *known);
    let mut gap = false;
    let each = known.iter().enumerate().map(|(at, known)| match known {
        // Reads behind one that goes again go again too: they would show an older state than it.
        true if gap && !writes => Next::Again,
        true => Next::Tell,
        false if writes && last_known.is_some_and(|last| at < last) => Next::Overtaken,
        false => {
            gap = true;
            Next::Again
        }
    });
    each.collect()
}

/// Whether the end of its wait has passed.
fn over(work: &Work) -> bool {
    matches!(work.ends(), Some(Some(until)) if Instant::now() >= until)
}

#[cfg(test)]
mod tests {
    use super::Next::{Again, Overtaken, Tell};
    use super::*;

    #[test]
    fn writes_of_one_client_never_swap() {
        assert_eq!(in_order(true, &[true, false, false]), [Tell, Again, Again]);
        assert_eq!(in_order(true, &[false, true, false]), [Overtaken, Tell, Again]);
        assert_eq!(in_order(true, &[false, false]), [Again, Again]);
    }

    #[test]
    fn reads_of_one_client_never_go_back_in_time() {
        assert_eq!(in_order(false, &[true, false, true]), [Tell, Again, Again]);
        assert_eq!(in_order(false, &[false, true]), [Again, Again]);
        assert_eq!(in_order(false, &[true, true]), [Tell, Tell]);
    }
}
