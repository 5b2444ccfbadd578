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

mod command;
mod entry_id;
mod outcome;
mod reply;
mod slot;
mod stamp;

pub use command::*;
pub use entry_id::{EntryId, IdParseError};
pub use outcome::{Effect, Garbage, Outcome};
pub use reply::{Entries, EntryRef, FieldIter, Refusal, Reply};
pub use slot::{SLOT_COUNT, Slot, SlotRange, key_slot};
pub use stamp::Stamp;
