//! All keys of a shard: slot > key > value, so that a slot can be counted, listed and cut out whole.

use crate::cow_map::{CowMap, Start};
use crate::stream::Stream;
use crate::{Key, Refusal, Slot, Stats, key_slot};
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;

/// Keys of one slot.
pub(crate) type SlotKeys = CowMap<Bytes, Item>;

/// What a key holds.
#[derive(Clone)]
pub(crate) enum Value {
    String(Bytes),
    Stream(Arc<Stream>),
}

/// A value and when it ends.
#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) value: Value,
    /// Unix milliseconds; due once the time has reached it.
    pub(crate) deadline_ms: Option<u64>,
    /// Rises whenever entries, value or deadline change, over all keys of the shard; never 0. For WATCH.
    pub(crate) version: u64,
}

/// Invariants: no slot without keys; `deadlines` holds exactly the deadlines of the items; `stats` is the sum
/// over all items.
#[derive(Clone, Default)]
pub(crate) struct Keyspace {
    slots: CowMap<u16, SlotKeys>,
    /// (deadline, key)
    deadlines: CowMap<(u64, Bytes), ()>,
    stats: Stats,
    /// The last version given to a key.
    version: u64,
}

impl Item {
    pub(crate) fn new(value: Value, deadline_ms: Option<u64>) -> Item {
        Item { value, deadline_ms, version: 0 }
    }

    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        self.deadline_ms.is_some_and(|deadline| deadline <= now_ms)
    }

    fn stats(&self, key: &[u8]) -> Stats {
        const ITEM: u64 = 96;
        let mut stats = Stats { keys: 1, memory_bytes: ITEM + key.len() as u64, ..Stats::default() };
        match &self.value {
            Value::String(value) => stats.memory_bytes += value.len() as u64,
            Value::Stream(stream) => {
                stats.streams = 1;
                stats.entries = stream.entries.len;
                stats.groups = stream.groups.len() as u64;
                stats.consumers = stream.consumers;
                stats.pending = stream.pending;
                stats.memory_bytes += stream.memory_bytes();
            }
        }
        stats
    }
}

impl Value {
    pub(crate) fn stream(&self) -> Option<&Stream> {
        match self {
            Value::Stream(stream) => Some(stream),
            Value::String(_) => None,
        }
    }
}

impl Keyspace {
    pub(crate) fn stats(&self) -> Stats {
        self.stats
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Item> {
        self.slots.get(&key_slot(key).0)?.get(key)
    }

    /// The stream at `key`, if there is one.
    ///
    /// # Errors
    /// WRONGTYPE for a key of another type.
    pub(crate) fn stream(&self, key: &[u8]) -> Result<Option<&Stream>, Refusal> {
        match self.get(key).map(|item| &item.value) {
            None => Ok(None),
            Some(Value::Stream(stream)) => Ok(Some(stream)),
            Some(_) => Err(Refusal::wrong_type()),
        }
    }

    /// Changes the stream at `key`; `None` if there is none.
    pub(crate) fn change_stream<R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut Stream) -> R,
    ) -> Option<R> {
        let item = self.slots.get_mut(&key_slot(key).0)?.get_mut(key)?;
        let before = item.stats(key);
        let Value::Stream(stream) = &mut item.value else { return None };
        let stream = Arc::make_mut(stream);
        let edits = stream.entries.edits;
        let answer = change(stream);
        if stream.entries.edits != edits {
            self.version += 1;
            item.version = self.version;
        }
        let after = item.stats(key);
        self.stats.replace(&before, &after);
        Some(answer)
    }

    /// Puts a value in, under a new version; answers what was there.
    pub(crate) fn put(&mut self, key: &[u8], item: Item) -> Option<Item> {
        self.version += 1;
        self.put_as_it_was(key, Item { version: self.version, ..item })
    }

    /// Puts a value in that has a version; answers what was there.
    pub(crate) fn put_as_it_was(&mut self, key: &[u8], item: Item) -> Option<Item> {
        // A copy: the caller's bytes are a slice of a whole log record, which must not be kept alive.
        let key = Bytes::copy_from_slice(key);
        let (after, deadline_ms) = (item.stats(&key), item.deadline_ms);
        let slot = key_slot(&key).0;
        let old = match self.slots.get_mut(&slot) {
            Some(keys) => keys.insert(key.clone(), item),
            None => {
                let mut keys = SlotKeys::new();
                keys.insert(key.clone(), item);
                self.slots.insert(slot, keys);
                None
            }
        };
        let before = old.as_ref().map_or_else(Stats::default, |old| old.stats(&key));
        self.stats.replace(&before, &after);
        self.move_deadline(&key, old.as_ref().and_then(|old| old.deadline_ms), deadline_ms);
        old
    }

    fn move_deadline(&mut self, key: &Bytes, from: Option<u64>, to: Option<u64>) {
        if let Some(from) = from {
            self.deadlines.remove(&(from, key.clone()));
        }
        if let Some(to) = to {
            self.deadlines.insert((to, key.clone()), ());
        }
    }

    /// Takes a key out.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Item> {
        let slot = key_slot(key).0;
        let keys = self.slots.get(&slot)?;
        if !keys.contains_key(key) {
            return None;
        }
        let last = keys.len() == 1;
        let item = self.slots.get_mut(&slot)?.remove(key)?;
        if last {
            self.slots.remove(&slot);
        }
        if item.deadline_ms.is_some() {
            self.move_deadline(&Bytes::copy_from_slice(key), item.deadline_ms, None);
        }
        self.stats.replace(&item.stats(key), &Stats::default());
        Some(item)
    }

    /// Sets or clears the deadline of a key that exists.
    pub(crate) fn set_deadline(&mut self, key: &[u8], deadline_ms: Option<u64>) {
        let Some(item) = self.slots.get_mut(&key_slot(key).0).and_then(|keys| keys.get_mut(key)) else {
            return;
        };
        self.version += 1;
        item.version = self.version;
        let old = core::mem::replace(&mut item.deadline_ms, deadline_ms);
        self.move_deadline(&Bytes::copy_from_slice(key), old, deadline_ms);
    }

    /// Keys with a deadline.
    pub(crate) fn deadlines(&self) -> usize {
        self.deadlines.len()
    }

    /// Keys whose deadline has passed at `now_ms`, the earliest first.
    pub(crate) fn due(&self, now_ms: u64) -> impl Iterator<Item = &Key> {
        self.deadlines.iter().take_while(move |((at, _), ())| *at <= now_ms).map(|((_, key), ())| key)
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|((deadline, _), ())| *deadline)
    }

    pub(crate) fn slot(&self, slot: Slot) -> Option<&SlotKeys> {
        self.slots.get(&slot.0)
    }

    /// All slots that hold keys from `first` on.
    pub(crate) fn slots_from(&self, first: u16) -> impl Iterator<Item = (u16, &SlotKeys)> {
        self.slots.iter_from(Start::At(&first)).map(|(slot, keys)| (*slot, keys))
    }

    /// Everything behind `after` in order of slot and key.
    pub(crate) fn items_after<'a>(
        &'a self,
        after: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a Bytes, &'a Item)> {
        let slot = after.map_or(0, |key| key_slot(key).0);
        self.slots_from(slot).flat_map(move |(at, keys)| match after {
            Some(key) if at == slot => keys.iter_from(Start::Beyond(key)),
            _ => keys.iter(),
        })
    }

    /// Takes all slots out, for dropping in slices.
    pub(crate) fn take_all(&mut self) -> Keyspace {
        // Versions go on, so that no key comes back with one that was seen before.
        core::mem::replace(self, Keyspace { version: self.version, ..Keyspace::default() })
    }

    /// Memory of a key and its value in bytes, estimated.
    pub(crate) fn memory_of(&self, key: &[u8]) -> Option<u64> {
        self.get(key).map(|item| item.stats(key).memory_bytes)
    }

    /// The version of a key, 0 without one.
    pub(crate) fn version_of(&self, key: &[u8]) -> u64 {
        self.get(key).map_or(0, |item| item.version)
    }

    /// The last version given to a key.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// As [`Keyspace::version`], when a snapshot is restored.
    pub(crate) fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// The maps themselves.
    pub(crate) fn into_maps(self) -> (CowMap<u16, SlotKeys>, CowMap<(u64, Bytes), ()>) {
        (self.slots, self.deadlines)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl Stats {
    fn replace(&mut self, before: &Stats, after: &Stats) {
        let swap =
            |sum: &mut u64, before: u64, after: u64| *sum = sum.wrapping_sub(before).wrapping_add(after);
        swap(&mut self.keys, before.keys, after.keys);
        swap(&mut self.streams, before.streams, after.streams);
        swap(&mut self.entries, before.entries, after.entries);
        swap(&mut self.groups, before.groups, after.groups);
        swap(&mut self.consumers, before.consumers, after.consumers);
        swap(&mut self.pending, before.pending, after.pending);
        swap(&mut self.memory_bytes, before.memory_bytes, after.memory_bytes);
    }
}

/// Names a list of keys without holding them.
pub(crate) fn owned_keys<'a>(keys: impl Iterator<Item = &'a Key>) -> Vec<Key> {
    keys.map(|key| Bytes::copy_from_slice(key)).collect()
}
