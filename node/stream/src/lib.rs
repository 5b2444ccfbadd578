//! The replicated state machine: streams, consumer groups and the keyspace around them.
//!
//! The promise of this crate: **same log, same state, on every node.** [`Machine::apply`] is a pure
//! function of the state, a [`Stamp`] that the leader fixed before proposing, and a [`Command`].
//! The crate is `no_std` plus `alloc`, so a clock, a socket, a thread or a random source has no name
//! here, and nothing iterates over an unordered map.
//!
//! Time is always passed in: `stamp.now_ms` for writes, `now_ms` for queries.
//!
//! Reading order: `command.rs` (what can be asked), `machine.rs` (one match for writes, one for reads), then a
//! command in `write/` or `read/`. State, from outside in: `keyspace.rs` > `stream.rs` > `block.rs` for entries
//! and `group.rs` > `pending.rs` for delivery. All of it lies in `cow_map.rs`, so a clone is O(1) and no command
//! copies more than the path to what it changes; `snapshot.rs` turns such a clone into bytes.
//!
//! Deliberately absent: waiting (the server parks readers and asks again after a wake), protocol versions,
//! argument syntax, and anything that could fail other than by a refusal that all replicas share.
#![no_std]

extern crate alloc;

mod block;
mod budget;
mod codec;
mod command;
mod cow_map;
mod dump;
mod entry_id;
mod garbage;
mod group;
mod idempotence;
mod keys;
mod keyspace;
mod machine;
mod outcome;
mod ownership;
mod pending;
mod read;
mod refs;
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
pub use dump::{Dump, DumpError, load as load_dump};
pub use entry_id::{EntryId, IdParseError, parse_u64};
pub use garbage::Garbage;
pub use keys::Keys;
pub use machine::{Answer, GroupReady, GroupStats, Machine, Stats, StreamStats};
pub use outcome::{Effect, Outcome};
pub use read::scan_position;
pub use reply::{Entries, EntryRef, FieldIter, Refusal, Reply};
pub use slot::{SLOT_COUNT, Slot, SlotRange, key_slot};
pub use snapshot::{Restore, RestoreError, Snapshot};
pub use stamp::Stamp;
