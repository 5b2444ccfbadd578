//! Commands without keys at the plain port, where the cluster is one server: over the shards of all nodes.

use super::control::{flush_end, no_leader};
use super::error;
use crate::forward::{Tried, Work, attempt, insist, waiter};
use crate::node::Node;
use crate::route::NO_LEADER;
use crate::session::Written;
use crate::shard::{Answer, ReadMode, ShardId, Unblock};
use futures_util::future::join_all;
use std::sync::Arc;
use weir_env::time::Instant;
use weir_stream::{Command, Query, Reply};

/// Answered to clients that know no cluster, as by a Redis that is none.
pub(super) const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";

/// The query at the shards led here, or at `whole`, wherever they are led. A shard that is not led here any more is
/// left out; at `whole` it is waited for.
///
/// # Errors
/// At `whole`: what to answer when a shard has no leader. A part would look like all.
pub(super) async fn read_shards(node: &Arc<Node>, query: &Query, whole: bool) -> Result<Vec<Reply>, Reply> {
    let mut replies = Vec::new();
    if !whole {
        let led = node.shards.led();
        let read = led.iter().map(|shard| shard.read(query.clone(), ReadMode::Leader, None, None));
        for answer in join_all(read).await {
            if let Answer::Reply { reply, .. } = answer {
                replies.push(reply);
            }
        }
        return Ok(replies);
    }
    let until = Instant::now() + node.config.hold_max();
    let map = node.topology.map();
    let read = map.shards.iter().map(|shard| insist(node, shard.id, Work::Read(query.clone(), None), until));
    for answer in join_all(read).await {
        match answer {
            Ok(Answer::Reply { reply, .. }) => replies.push(reply),
            _ => return Err(error(NO_LEADER.to_string())),
        }
    }
    Ok(replies)
}

/// DBSIZE: keys of the shards led here, or of all.
pub(super) async fn db_size(node: &Arc<Node>, whole: bool) -> Reply {
    let counts = match read_shards(node, &Query::KeyCount, whole).await {
        Ok(counts) => counts,
        Err(refused) => return refused,
    };
    let count = |reply: &Reply| if let Reply::Int(n) = reply { *n } else { 0 };
    Reply::Int(counts.iter().map(count).sum())
}

/// FLUSHALL: one log entry for each shard of the cluster.
pub(super) async fn flush(node: &Arc<Node>) -> (Reply, Written) {
    let until = Instant::now() + node.config.hold_max();
    let map = node.topology.map();
    let flushed =
        map.shards.iter().map(|shard| insist(node, shard.id, Work::Write(Command::Flush, None), until));
    let answers: Vec<Answer> =
        join_all(flushed).await.into_iter().map(|answer| answer.unwrap_or(Answer::Moved)).collect();
    let mut written = Written::default();
    for (shard, answer) in map.shards.iter().zip(&answers) {
        match answer {
            Answer::Reply { index, .. } => written.note(shard.id, *index),
            Answer::Unknown => written.note_unknown(shard.id),
            _ => {}
        }
    }
    let reply = match flush_end(&answers) {
        Ok(()) => Reply::Ok,
        Err(refusal) => error(refusal.map_or_else(|| no_leader(node), str::to_owned)),
    };
    (reply, written)
}

/// WAIT for writes that any node led: the minimum over their shards.
pub(super) async fn wait(
    node: &Arc<Node>,
    written: &Written,
    wanted: usize,
    until: Option<Instant>,
) -> Reply {
    let all: Vec<(ShardId, Option<u64>)> = match written.is_empty() {
        true => node.topology.map().shards.iter().map(|shard| (shard.id, Some(0))).collect(),
        false => written.iter().collect(),
    };
    let each = all.into_iter().map(|(shard, index)| async move {
        // Of a write whose fate is unknown nothing can be proven.
        let Some(index) = index else { return 0 };
        let work = Work::Replicas { index, wanted, until };
        match attempt(node, shard, vec![work]).await.pop() {
            Some(Tried::Answered(Answer::Reply { reply: Reply::Int(count), .. })) => count,
            _ => 0,
        }
    });
    Reply::Int(join_all(each).await.into_iter().min().unwrap_or(0))
}

/// CLIENT UNBLOCK of a client of the plain port: its reader waits where the shard is led.
pub(super) async fn unblock(node: &Arc<Node>, client: u64, how: Unblock) -> Reply {
    let slot = node.clients.forwarded(client);
    let shard = slot.and_then(|slot| node.topology.view().shard_of(slot).map(|shard| shard.id));
    let Some(shard) = shard else { return Reply::Int(0) };
    let work = Work::Unblock { waiter: waiter(node, client), how };
    match attempt(node, shard, vec![work]).await.pop() {
        Some(Tried::Answered(Answer::Reply { reply, .. })) => reply,
        _ => Reply::Int(0),
    }
}
