//! Large values on their way out, dropped in slices where nobody waits.

use crate::cow_map::{CowMap, Debris};
use crate::group::{Consumer, Group};
use crate::idempotence::{Producer, Producers, Record};
use crate::keyspace::{Item, Keyspace, SlotKeys, Value};
use crate::pending::PendingDebris;
use crate::stream::{Blocks, Stream};
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;

/// A large value on its way out. Free it in slices off the apply path; dropping it at once is correct too,
/// only slow.
pub struct Garbage {
    heaps: Vec<Heap>,
}

enum Heap {
    Slots(Debris<u16, SlotKeys>),
    Keys(Debris<Bytes, Item>),
    Deadlines(Debris<(u64, Bytes), ()>),
    Blocks(Debris<crate::EntryId, Arc<crate::block::Block>>),
    Groups(Debris<Bytes, Arc<Group>>),
    Consumers(Debris<Bytes, Consumer>),
    Names(Debris<u32, Bytes>),
    Pending(PendingDebris),
    Producers(Debris<Bytes, Arc<Producer>>),
    Records(Debris<u64, Record>),
    Numbers(Debris<Bytes, u64>),
}

/// What weighs less is dropped on the spot, in bytes.
const SMALL_BYTES: u64 = 256 * 1024;

impl Garbage {
    /// Drops about `budget` items (entries blocks, rows, keys); answers whether anything is left.
    pub fn drop_slice(&mut self, budget: usize) -> bool {
        let mut budget = budget.max(1);
        while budget > 0 {
            let Some(mut heap) = self.heaps.pop() else { return false };
            let mut found = Vec::new();
            if heap.drop_slice(&mut budget, &mut found) {
                self.heaps.push(heap);
            }
            self.heaps.append(&mut found);
        }
        !self.heaps.is_empty()
    }

    /// A removed value, if it is worth the trouble.
    pub(crate) fn of_item(item: Item) -> Option<Garbage> {
        match item.value {
            Value::Stream(stream) if stream.memory_bytes() > SMALL_BYTES => {
                let mut heaps = Vec::new();
                shed_stream(stream, &mut heaps);
                Some(Garbage { heaps })
            }
            _ => None,
        }
    }

    /// Trimmed blocks, if they are many.
    pub(crate) fn of_blocks(blocks: Blocks) -> Option<Garbage> {
        let many = blocks.len() as u64 * 4096 > SMALL_BYTES;
        many.then(|| Garbage { heaps: alloc::vec![Heap::Blocks(blocks.into_debris())] })
    }

    /// A destroyed group, if it is large.
    pub(crate) fn of_group(group: Arc<Group>) -> Option<Garbage> {
        if (group.pending.len() + group.consumers.len() as u64) * 32 <= SMALL_BYTES {
            return None;
        }
        let mut heaps = Vec::new();
        shed_group(group, &mut heaps);
        Some(Garbage { heaps })
    }

    /// Forgotten producers, if they are many.
    pub(crate) fn of_producers(producers: Producers) -> Option<Garbage> {
        let records: usize = producers.iter().map(|(_, producer)| producer.records.len()).sum();
        let many = records as u64 * 128 > SMALL_BYTES;
        many.then(|| Garbage { heaps: alloc::vec![Heap::Producers(producers.into_debris())] })
    }

    /// Everything.
    pub(crate) fn of_keyspace(keyspace: Keyspace) -> Garbage {
        let (slots, deadlines) = keyspace.into_maps();
        Garbage {
            heaps: alloc::vec![Heap::Slots(slots.into_debris()), Heap::Deadlines(deadlines.into_debris())],
        }
    }
}

impl Heap {
    fn drop_slice(&mut self, budget: &mut usize, found: &mut Vec<Heap>) -> bool {
        match self {
            Heap::Slots(slots) => slots.drop_slice(budget, |keys| found.push(Heap::Keys(keys.into_debris()))),
            Heap::Keys(keys) => keys.drop_slice(budget, |item| {
                if let Value::Stream(stream) = item.value {
                    shed_stream(stream, found);
                }
            }),
            Heap::Deadlines(deadlines) => deadlines.drop_slice(budget, drop),
            Heap::Blocks(blocks) => blocks.drop_slice(budget, drop),
            Heap::Groups(groups) => groups.drop_slice(budget, |group| shed_group(group, found)),
            Heap::Consumers(consumers) => consumers.drop_slice(budget, drop),
            Heap::Names(names) => names.drop_slice(budget, drop),
            Heap::Pending(pending) => pending.drop_slice(budget),
            Heap::Producers(producers) => producers.drop_slice(budget, |producer| {
                if let Some(producer) = Arc::into_inner(producer) {
                    let (records, numbers) = producer.into_maps();
                    push_map(records, Heap::Records, found);
                    push_map(numbers, Heap::Numbers, found);
                }
            }),
            Heap::Records(records) => records.drop_slice(budget, drop),
            Heap::Numbers(numbers) => numbers.drop_slice(budget, drop),
        }
    }
}

fn shed_stream(stream: Arc<Stream>, heaps: &mut Vec<Heap>) {
    // What a snapshot still holds is the snapshot's to drop.
    if let Some(stream) = Arc::into_inner(stream) {
        push_map(stream.entries.sealed, Heap::Blocks, heaps);
        push_map(stream.groups, Heap::Groups, heaps);
        if let Some(idempotence) = stream.idempotence.and_then(Arc::into_inner) {
            push_map(idempotence.producers, Heap::Producers, heaps);
        }
    }
}

fn shed_group(group: Arc<Group>, heaps: &mut Vec<Heap>) {
    if let Some(group) = Arc::into_inner(group) {
        push_map(group.consumers, Heap::Consumers, heaps);
        push_map(group.names, Heap::Names, heaps);
        if group.pending.len() > 0 {
            heaps.push(Heap::Pending(group.pending.into_debris()));
        }
    }
}

fn push_map<K: Ord + Clone, V: Clone>(
    map: CowMap<K, V>,
    heap: fn(Debris<K, V>) -> Heap,
    heaps: &mut Vec<Heap>,
) {
    if !map.is_empty() {
        heaps.push(heap(map.into_debris()));
    }
}

impl fmt::Debug for Garbage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Garbage").field("heaps", &self.heaps.len()).finish()
    }
}
