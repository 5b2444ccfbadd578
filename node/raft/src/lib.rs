//! Consensus adapter: opaque batches in, committed batches out, the same on every replica.
//!
//! [`Group::start`] runs one Raft group of this node on its part of the shared log. The server proposes
//! bytes and implements [`StateMachine`], which hears every committed entry once and in order and the
//! [`Fate`] of every proposal that apply will not tell about. [`Peers`] and [`serve_peers`] are the two
//! sides of the connection between nodes, shared by all groups.
//!
//! The library behind it (openraft) is not visible from outside. What an entry means, when to batch, and
//! who may read what is left to the server.

mod contact;
mod error;
mod group;
mod log_store;
mod lost_tail;
mod machine;
mod network;
mod peer_server;
mod peers;
mod propose;
mod read_index;
mod reversion;
mod runtime;
mod snapshot_file;
mod snapshot_transfer;
mod status;
mod types;
mod watermark;
mod wire;

#[cfg(test)]
mod tests;

pub use contact::LeaderContact;
pub use error::Error;
pub use group::{Group, GroupMetrics, GroupOptions, RaftTimings};
pub use machine::{Committed, SnapshotSink, SnapshotSource, StateMachine};
pub use peer_server::{CallFrom, PeerHandler, Registry, serve_peers};
pub use peers::{PeerIdentity, Peers};
pub use propose::{Fate, Nonce, PROPOSAL_BYTES_MAX, ProposeError};
pub use read_index::ReadError;
pub use runtime::seed_rng;
pub use status::GroupStatus;
pub use types::NodeId;
pub use watermark::Watermark;
