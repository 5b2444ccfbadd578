//! One shard: a Raft group, the slots it owns, and everything between a parsed command and its reply.

/// Number of a shard, `0..`. Its Raft group is `ShardId + 1`; group 0 is the meta group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ShardId(pub u32);
