//! Spreads leadership: each shard goes back to its preferred leader (its first replica) once that node is up,
//! reachable and caught up. A node whose disk is down to its reserve hands over what it leads. One move at a time,
//! never right after an election, so that it cannot flap.

use crate::node::Node;
use crate::shard::ShardHandle;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use weir_env::time::{Instant, sleep};
use weir_raft::NodeId;

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A shard is left alone this long after its leader changed.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// The better place must have been near the end of the log for this many looks in a row.
const LOOKS_CAUGHT_UP: u32 = 3;
/// Log entries behind the end that still count as caught up; the transfer itself waits for the rest.
const LAG_MAX: u64 = 256;
/// After a move that did not work the shard is left alone this long.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Looks until the node stops.
pub async fn run(node: Arc<Node>) {
    let mut watched = BTreeMap::new();
    loop {
        sleep(LOOK_EVERY).await;
        for shard in node.shards.led() {
            let seen = watched.entry(shard.id()).or_insert_with(Seen::new);
            if let Some(preferred) = due(&node, &shard, seen) {
                tracing::info!(
                    shard = shard.id().0,
                    to = preferred,
                    "leadership goes back to the preferred leader"
                );
                if let Err(e) = shard.group().transfer_leader(preferred).await {
                    tracing::debug!(shard = shard.id().0, error = %e, "leadership stays");
                }
                seen.not_before = Instant::now() + PAUSE_AFTER_FAILURE;
                seen.looks = 0;
                break;
            }
        }
    }
}

struct Seen {
    term: u64,
    not_before: Instant,
    looks: u32,
}

impl Seen {
    fn new() -> Self {
        Seen { term: 0, not_before: Instant::now(), looks: 0 }
    }
}

/// The node that should lead instead of this one, once it is time.
fn due(node: &Node, shard: &ShardHandle, seen: &mut Seen) -> Option<NodeId> {
    let view = node.topology.view();
    let status = shard.group().status().borrow().clone();
    if status.term != seen.term {
        seen.term = status.term;
        seen.not_before = seen.not_before.max(Instant::now() + SETTLED_AFTER);
        seen.looks = 0;
    }
    let matched = shard.group().matched();
    let fit = |n: NodeId| {
        let caught_up = matched.iter().any(|(m, at)| *m == n && *at + LAG_MAX >= status.last_index);
        n != view.me && caught_up && view.reachable(n) && !view.space_low(n)
    };
    let preferred = view.map.shard(shard.id()).and_then(|s| s.replicas.first().copied());
    let better = match preferred.filter(|n| fit(*n)) {
        // Whoever has the most, when this node can take no more.
        None if view.space_low(view.me) => {
            matched.iter().filter(|(n, _)| fit(*n)).max_by_key(|(_, at)| *at).map(|(n, _)| *n)
        }
        found => found,
    };
    if better.is_none() {
        seen.looks = 0;
        return None;
    }
    seen.looks += 1;
    better.filter(|_| seen.looks >= LOOKS_CAUGHT_UP && Instant::now() >= seen.not_before)
}
