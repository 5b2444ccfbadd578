//! What the leader fixed before it proposed a batch.

use serde::{Deserialize, Serialize};

/// Leader-fixed inputs of one batch. Apply clamps `now_ms` so that a shard's time never runs back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Milliseconds since the Unix epoch by the leader's slewed clock.
    pub now_ms: u64,
}
