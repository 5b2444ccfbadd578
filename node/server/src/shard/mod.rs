//! One shard: a Raft group, the slots it owns, and everything between a parsed command and its reply.
//!
//! ```text
//!  down: handle -> batcher -> weir_raft (log store, WAL, peers)
//!  up:   weir_raft -> applier -> weir_stream::Machine -> in_flight (answers) | waiters
//!  side: reader (read index, apply watermark) -> Machine::query
//! ```
//!
//! * [`handle`]: what the rest of the server holds.
//! * [`batcher`]: gathers commands, stamps them, hands them to consensus.
//! * [`in_flight`]: who waits for which proposal.
//! * [`applier`]: feeds committed batches to the machine, once, in order.
//! * [`reader`]: linearizable reads and follower reads.
//! * [`waiters`]: parked XREAD and XREADGROUP.
//! * [`backlog`]: bounds the finished answers of a connection.
//! * [`duties`]: what runs beside commands: ends of waits, founding, expiry, freeing of large values.
//! * [`stamp_clock`]: the leader's slewed clock.

pub mod applier;
pub mod backlog;
pub mod batcher;
pub mod duties;
pub mod handle;
pub mod in_flight;
#[cfg(debug_assertions)]
mod planted;
pub mod reader;
pub mod snapshots;
pub mod stamp_clock;
pub mod start;
pub mod waiters;

pub(crate) use handle::command_grows;
pub use handle::{Answer, Park, Pending, ReadMode, ShardHandle, Unanswered, Unblock};
pub use start::{ShardOptions, start};

/// Number of a shard, `0..`. Its Raft group is `ShardId + 1`; group 0 is the meta group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ShardId(pub u32);

impl ShardId {
    /// The Raft group that replicates this shard.
    pub fn group(self) -> weir_store::GroupId {
        weir_store::GroupId(self.0 + 1)
    }
}
