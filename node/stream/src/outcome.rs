//! What applying a command leaves behind: a reply for the client and work for the shell.

use crate::{Garbage, Reply, Slot};
use alloc::vec::Vec;
use bytes::Bytes;

/// Result of one applied command.
#[derive(Debug)]
pub struct Outcome {
    /// What the client is answered. `Reply::None` when the caller asked for no reply.
    pub reply: Reply,
    /// Work that the state machine itself must not do. In order; act after the whole unit (command or EXEC).
    pub effects: Vec<Effect>,
}

/// Something the server has to act on after apply. The list is closed: nothing else leaves the machine.
#[derive(Debug)]
pub enum Effect {
    /// Readers parked on `key` must look again: entries came, the key went, its type changed, a group went.
    /// Emitted once a key and unit.
    Wake(Bytes),
    /// All parked readers must look again: every key went.
    WakeAll,
    /// A large value left the state; dropping it takes long, so it is dropped in slices elsewhere.
    Garbage(Garbage),
    /// The shard stopped serving a slot: parked readers of its keys must be sent elsewhere.
    SlotMoved(Slot),
}
