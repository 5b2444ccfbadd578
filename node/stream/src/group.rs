//! A consumer group: its cursor, its consumers and its pending entries.

use crate::EntryId;
use crate::cow_map::CowMap;
use crate::pending::{Nack, PendingList};
use crate::stream::EntryStore;
use bytes::Bytes;

/// Reads a stream together, each entry going to one member.
///
/// Invariants: `names` is the inverse of the numbers in `consumers`; a consumer's `pending` counts its rows.
#[derive(Clone, Default)]
pub(crate) struct Group {
    /// The cursor.
    pub(crate) last_delivered_id: EntryId,
    /// How many entries were read up to the cursor, where that is known.
    pub(crate) entries_read: Option<u64>,
    /// By name.
    pub(crate) consumers: CowMap<Bytes, Consumer>,
    /// Names by number.
    pub(crate) names: CowMap<u32, Bytes>,
    /// Number that the next consumer gets, unless numbers have run out and a free one is looked for.
    pub(crate) next_number: u32,
    pub(crate) pending: PendingList,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Consumer {
    /// Stands for the name in PEL rows.
    pub(crate) number: u32,
    /// Last attempt to read or claim, Unix milliseconds.
    pub(crate) seen_ms: u64,
    /// Last delivery or claim, Unix milliseconds.
    pub(crate) active_ms: Option<u64>,
    /// Rows in the PEL.
    pub(crate) pending: u64,
}

impl Group {
    pub(crate) fn new(last_delivered_id: EntryId, entries_read: Option<u64>) -> Group {
        Group { last_delivered_id, entries_read, ..Group::default() }
    }

    /// The number of a consumer seen now, created if absent.
    pub(crate) fn see(&mut self, name: &[u8], now_ms: u64) -> u32 {
        match self.consumers.get_mut(name) {
            Some(consumer) => {
                consumer.seen_ms = now_ms;
                consumer.number
            }
            None => self.create(name, now_ms),
        }
    }

    fn create(&mut self, name: &[u8], now_ms: u64) -> u32 {
        let number = self.free_number();
        let name = Bytes::copy_from_slice(name);
        let consumer = Consumer { number, seen_ms: now_ms, active_ms: None, pending: 0 };
        self.consumers.insert(name.clone(), consumer);
        self.names.insert(number, name);
        number
    }

    fn free_number(&mut self) -> u32 {
        if let Some(next) = self.next_number.checked_add(1) {
            return core::mem::replace(&mut self.next_number, next);
        }
        // Four thousand million consumers came and went: take the first gap, which there is below NOBODY.
        let taken = self.names.iter().map(|(number, _)| *number);
        taken.zip(0..).take_while(|(taken, free)| taken == free).count() as u32
    }

    /// A claim by this consumer happened now.
    pub(crate) fn touch_active(&mut self, name: &[u8], now_ms: u64) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.active_ms = Some(now_ms);
        }
    }

    /// Removes a consumer with its pending entries; answers how many those were.
    pub(crate) fn remove_consumer(&mut self, name: &[u8]) -> Option<u64> {
        let consumer = self.consumers.remove(name)?;
        self.names.remove(&consumer.number);
        Some(self.pending.remove_owner(consumer.number))
    }

    /// Adds or replaces a PEL row.
    pub(crate) fn set_pending(&mut self, id: EntryId, nack: Nack) {
        if self.hand_over(id, nack) {
            self.count_pending(nack.owner, 1);
        }
    }

    /// Like [`Group::set_pending`], but leaves it to the caller to count the row for its owner: answers
    /// whether the owner gained it.
    pub(crate) fn hand_over(&mut self, id: EntryId, nack: Nack) -> bool {
        match self.pending.set(id, nack) {
            Some(old) if old.owner == nack.owner => false,
            Some(old) => {
                self.count_pending(old.owner, -1);
                true
            }
            None => true,
        }
    }

    /// A delivery to this consumer happened now, and made it the owner of `gained` rows.
    pub(crate) fn add_delivered(&mut self, name: &[u8], gained: u64, now_ms: u64) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.active_ms = Some(now_ms);
            consumer.pending = consumer.pending.saturating_add(gained);
        }
    }

    /// Takes a PEL row out.
    pub(crate) fn remove_pending(&mut self, id: EntryId) -> Option<Nack> {
        let nack = self.pending.remove(id)?;
        self.count_pending(nack.owner, -1);
        Some(nack)
    }

    fn count_pending(&mut self, owner: u32, change: i64) {
        let Some(name) = self.names.get(&owner) else { return };
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.pending = consumer.pending.saturating_add_signed(change);
        }
    }

    pub(crate) fn name_of(&self, owner: u32) -> Bytes {
        self.names.get(&owner).cloned().unwrap_or_default()
    }

    /// Moves the cursor to a delivered entry, and the counter where it can be known.
    pub(crate) fn advance(&mut self, entries: &EntryStore, id: EntryId) {
        let known = self.entries_read.filter(|_| {
            self.last_delivered_id >= entries.first_id && !entries.has_tombstones_from(self.last_delivered_id)
        });
        self.entries_read = match known {
            Some(read) => Some(read.saturating_add(1)),
            None if entries.entries_added > 0 => entries.entries_added_up_to(id),
            None => self.entries_read,
        };
        self.last_delivered_id = id;
    }

    /// Entries that the group has yet to read, where that can be known.
    pub(crate) fn lag(&self, entries: &EntryStore) -> Option<u64> {
        if entries.entries_added == 0 || entries.len == 0 {
            return Some(0);
        }
        if self.last_delivered_id < entries.first_id && entries.max_deleted_id < entries.first_id {
            return Some(entries.len);
        }
        let counted = self.entries_read.filter(|_| !entries.has_tombstones_from(self.last_delivered_id));
        let read = counted.or_else(|| entries.entries_added_up_to(self.last_delivered_id))?;
        Some(entries.entries_added.saturating_sub(read))
    }
}
