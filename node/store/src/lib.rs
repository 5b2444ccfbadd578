//! Durable bytes: the node's write-ahead log and its snapshots.
//!
//! - [`Wal`]: one log a node, shared by all its Raft groups. One writer takes whatever the groups queued while the
//!   last batch was being synced, writes it as one batch and syncs once. A group sees its part as a [`GroupLog`].
//! - [`SnapshotStore`]: a directory of checksummed snapshots of one group, written aside and renamed into place.
//!
//! What an answer stands for: `done` of [`GroupLog::append`] and the other calls' returns mean that the bytes survive
//! a crash as far as the [`Durability`] says. Votes survive a power loss in every mode.
//!
//! Damage is never repaired here. A log or snapshot that does not hold what it once promised ends in
//! [`Error::Corrupt`], and a write or sync that failed ends the whole log ([`Wal::failed`]): the process has to stop.
//!

mod error;
mod group;
mod log;
mod options;
mod owner;
mod position;
mod queue;
mod read;
mod reclaim;
mod record;
mod recover;
mod replay;
mod segment;
mod snapshot_file;
mod snapshot_store;
mod spares;
mod stats;
#[cfg(any(test, feature = "suite"))]
pub mod suite;
#[cfg(test)]
mod tests;
mod writer;

pub use error::Error;
pub use group::LogState;
pub use log::{GroupLog, Wal};
pub use options::{Durability, Owner, WalOptions};
pub use position::{GroupId, LogEntry, LogPosition};
pub use queue::Done;
pub use recover::Recovery;
pub use snapshot_store::{SnapshotInfo, SnapshotReader, SnapshotStore, SnapshotWriter};
pub use stats::{Histogram, WalStats};
