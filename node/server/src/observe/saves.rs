//! When a snapshot was last on disk here, for LASTSAVE, and snapshots that were asked for.

use crate::node::Node;
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weir_env::time::timeout;

/// SAVE waits no longer.
const SAVE_MAX: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub struct Saves {
    last_s: AtomicU64,
    running: AtomicBool,
}

impl Saves {
    /// One was finished now (Unix ms).
    pub fn note(&self, now_ms: u64) {
        self.last_s.fetch_max(now_ms / 1000, Relaxed);
    }

    /// Unix seconds of the last; 0 before the first.
    pub fn last_s(&self) -> u64 {
        self.last_s.load(Relaxed)
    }

    /// Whether one that was asked for is being made.
    pub fn running(&self) -> bool {
        self.running.load(Relaxed)
    }
}

/// Asks each replica of this node for a snapshot and waits for them; false when they took too long.
pub async fn save(node: &Arc<Node>) -> bool {
    let each = node.shards.all().into_iter().map(|shard| async move {
        let mut status = shard.group().status();
        let wanted = status.borrow().applied;
        if status.borrow().snapshot < wanted {
            shard.group().trigger_snapshot().await;
        }
        // An ended group saves nothing.
        let _ = status.wait_for(|s| s.snapshot >= wanted || s.stopped.is_some()).await;
    });
    node.observe.saves.running.store(true, Relaxed);
    let in_time = timeout(SAVE_MAX, join_all(each)).await.is_ok();
    node.observe.saves.running.store(false, Relaxed);
    if in_time {
        node.observe.saves.note(node.env.clock.wall_ms());
    }
    in_time
}
