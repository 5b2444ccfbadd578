//! The replicated state machine: streams, consumer groups and the keyspace around them.
//!
//! The promise of this crate: **same log, same state, on every node.** [`Machine::apply`] is a pure
//! function of the state, a [`Stamp`] that the leader fixed before proposing, and a [`Command`].
//! The crate is `no_std` plus `alloc`, so a clock, a socket, a thread or a random source has no name
//! here, and nothing iterates over an unordered map.
//!
//! Time is always passed in: `stamp.now_ms` for writes, `now_ms` for queries.
#![no_std]

extern crate alloc;

mod block;
mod codec;
mod command;
mod cow_map;
mod entry_id;
mod garbage;
mod group;
mod keys;
mod keyspace;
mod machine;
mod outcome;
mod ownership;
mod pending;
mod read;
mod refusal;
mod reply;
mod slot;
mod snapshot;
mod stamp;
mod stream;
mod trim;
mod unit;
mod varint;
mod write;

pub use codec::DecodeError;
pub use command::*;
pub use entry_id::{EntryId, IdParseError};
pub use garbage::Garbage;
pub use keys::Keys;
pub use machine::{Answer, GroupReady, GroupStats, Machine, Stats, StreamStats};
pub use outcome::{Effect, Outcome};
pub use reply::{Entries, EntryRef, FieldIter, Refusal, Reply};
pub use slot::{SLOT_COUNT, Slot, SlotRange, key_slot};
pub use snapshot::{Restore, RestoreError, Snapshot};
pub use stamp::Stamp;
