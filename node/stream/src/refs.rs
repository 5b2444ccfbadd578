//! What groups still hold of an entry, and what becomes of that when the entry goes: KEEPREF, DELREF, ACKED.

use crate::cow_map::Start;
use crate::garbage::Garbage;
use crate::stream::{Blocks, EntryStore, Stream};
use crate::unit::Unit;
use crate::{EntryId, Refs, Settings, Trim, TrimTo};
use alloc::vec::Vec;

/// Entries that one trim with ACKED looks at. What groups hold stays in front and would be looked at by every
/// trim again.
const LOOKS_MAX: usize = 16_384;

impl Stream {
    /// Whether a group has the entry pending or has yet to come to it.
    pub(crate) fn is_held(&self, id: EntryId) -> bool {
        self.groups.iter().any(|(_, group)| group.last_delivered_id < id || group.pending.get(id).is_some())
    }

    /// Takes the entry out of all pending lists.
    pub(crate) fn drop_references(&mut self, id: EntryId) {
        let holding = self.groups.iter().filter(|(_, group)| group.pending.get(id).is_some());
        let names: Vec<_> = holding.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.change_group(&name, |_, group| group.remove_pending(id));
        }
    }

    /// Deletes an entry as XDEL does, unless `refs` forbids it. 1: deleted; 2: held by a group, or it would be; -1: not
    /// there, though references to it may have been.
    pub(crate) fn delete_with_refs(&mut self, id: EntryId, refs: Refs) -> i64 {
        if refs == Refs::Delete {
            self.drop_references(id);
        }
        if refs == Refs::Acked && self.is_held(id) {
            return 2;
        }
        if self.entries.delete(id) { 1 } else { -1 }
    }

    /// Trims, heeding what groups hold; answers how many entries went.
    pub(crate) fn trim(&mut self, unit: &mut Unit, trim: &Trim, refs: Refs, settings: &Settings) -> u64 {
        match refs {
            Refs::Acked if !self.groups.is_empty() => self.trim_acked(trim, settings),
            Refs::Delete if !self.groups.is_empty() => {
                let before = self.entries.clone();
                let removed = self.trim_front(unit, trim, settings);
                self.drop_trimmed(&before);
                removed
            }
            _ => self.trim_front(unit, trim, settings),
        }
    }

    fn trim_front(&mut self, unit: &mut Unit, trim: &Trim, settings: &Settings) -> u64 {
        let (removed, blocks): (u64, Blocks) = self.entries.trim(trim, settings);
        unit.discard(Garbage::of_blocks(blocks));
        removed
    }

    /// Takes what was there before and no longer is out of all pending lists.
    fn drop_trimmed(&mut self, before: &EntryStore) {
        let (first, left) = (before.first_id, self.entries.first_id);
        let names: Vec<_> = self.groups.iter().map(|(name, _)| name.clone()).collect();
        for name in names {
            self.change_group(&name, |entries, group| {
                let rows = group.pending.iter_from(first).map(|(id, _)| id);
                let rows = rows.take_while(|id| entries.len == 0 || *id < left);
                let trimmed: Vec<EntryId> = rows.filter(|id| before.has(*id)).collect();
                trimmed.into_iter().for_each(|id| {
                    group.remove_pending(id);
                });
            });
        }
    }

    /// Trims what no group holds: held entries stay, also between others that go.
    fn trim_acked(&mut self, trim: &Trim, settings: &Settings) -> u64 {
        let surplus = match trim.to {
            TrimTo::MaxLen(max) => self.entries.len.saturating_sub(max),
            TrimTo::MinId(_) => u64::MAX,
        };
        let free = self.free_entries(trim, surplus.min(trim.removals_max(settings)));
        free.iter().for_each(|id| {
            self.entries.take_out(*id);
        });
        free.len() as u64
    }

    /// Up to `most` entries in front that the trim is about and no group holds. An approximate trim is about whole
    /// blocks alone.
    fn free_entries(&self, trim: &Trim, most: u64) -> Vec<EntryId> {
        let mut free = Vec::new();
        // What the slowest group has yet to come to is held, and all that follows.
        let Some(reached) = self.groups.iter().map(|(_, group)| group.last_delivered_id).min() else {
            return free;
        };
        let (mut looks, mut left) = (LOOKS_MAX, self.entries.len);
        let sealed = self.entries.sealed.iter_from(Start::<EntryId>::Edge).map(|(_, block)| block);
        for block in sealed.chain(&self.entries.open) {
            let whole = match trim.to {
                TrimTo::MaxLen(max) => left.saturating_sub(u64::from(block.live)) >= max,
                TrimTo::MinId(min) => block.last < min,
            };
            if trim.approximate && !whole {
                break;
            }
            left = left.saturating_sub(u64::from(block.live));
            for entry in block.iter().filter(|entry| !entry.deleted) {
                let wanted = match trim.to {
                    TrimTo::MaxLen(_) => true,
                    TrimTo::MinId(min) => entry.id < min,
                };
                if !wanted || entry.id > reached || looks == 0 || free.len() as u64 >= most {
                    return free;
                }
                looks -= 1;
                if !self.is_held(entry.id) {
                    free.push(entry.id);
                }
            }
        }
        free
    }
}
