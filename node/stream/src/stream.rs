//! A stream: entries in blocks, the counters behind ids and lag, and its consumer groups.

use crate::block::{Block, EntryView};
use crate::cow_map::{CowMap, Start};
use crate::group::Group;
use crate::idempotence::Idempotence;
use crate::{EntryId, Settings};
use alloc::sync::Arc;
use bytes::Bytes;
use core::ops::ControlFlow;

/// Blocks by the id of their first entry.
pub(crate) type Blocks = CowMap<EntryId, Arc<Block>>;

/// A value of type stream.
#[derive(Clone, Default)]
pub(crate) struct Stream {
    pub(crate) entries: EntryStore,
    pub(crate) groups: CowMap<Bytes, Arc<Group>>,
    /// Consumers of all groups.
    pub(crate) consumers: u64,
    /// Pending entries of all groups.
    pub(crate) pending: u64,
    /// `None` until the first idempotent add or XCFGSET.
    pub(crate) idempotence: Option<Arc<Idempotence>>,
}

/// Entries with rising ids, in sealed blocks and an open one that takes the next entry.
///
/// Invariants: every block holds a live entry; every id in `open` is above those in `sealed`; `len` counts
/// the live entries; `first_id` is the first of them, `0-0` without any.
#[derive(Clone, Default)]
pub(crate) struct EntryStore {
    pub(crate) sealed: Blocks,
    pub(crate) open: Option<Arc<Block>>,
    pub(crate) len: u64,
    pub(crate) first_id: EntryId,
    /// Highest id ever given out.
    pub(crate) last_id: EntryId,
    /// Highest id ever deleted by XDEL.
    pub(crate) max_deleted_id: EntryId,
    pub(crate) entries_added: u64,
    /// Memory of the blocks.
    pub(crate) block_bytes: u64,
    /// Grows when entries come or go. Only told apart from what it was before a command, so not part of snapshots.
    pub(crate) edits: u64,
}

impl Stream {
    /// Changes a group; `None` if there is none of that name. Keeps the stream's counters right.
    pub(crate) fn change_group<R>(
        &mut self,
        name: &[u8],
        change: impl FnOnce(&EntryStore, &mut Group) -> R,
    ) -> Option<R> {
        if !self.groups.contains_key(name) {
            return None;
        }
        let group = Arc::make_mut(self.groups.get_mut(name)?);
        self.consumers -= group.consumers.len() as u64;
        self.pending -= group.pending.len();
        let answer = change(&self.entries, group);
        self.consumers += group.consumers.len() as u64;
        self.pending += group.pending.len();
        Some(answer)
    }

    /// Takes a group out.
    pub(crate) fn remove_group(&mut self, name: &[u8]) -> Option<Arc<Group>> {
        let group = self.groups.remove(name)?;
        self.consumers -= group.consumers.len() as u64;
        self.pending -= group.pending.len();
        Some(group)
    }

    /// Puts a group in under a name that is free.
    pub(crate) fn add_group(&mut self, name: Bytes, group: Group) {
        self.consumers += group.consumers.len() as u64;
        self.pending += group.pending.len();
        self.groups.insert(name, Arc::new(group));
    }

    /// What the stream remembers of its producers, from now on.
    pub(crate) fn idempotence_mut(&mut self) -> &mut Idempotence {
        Arc::make_mut(self.idempotence.get_or_insert_default())
    }

    /// Memory, roughly.
    pub(crate) fn memory_bytes(&self) -> u64 {
        const STREAM: u64 = 256;
        const GROUP: u64 = 256;
        const CONSUMER: u64 = 160;
        const PENDING: u64 = 24;
        STREAM
            + self.entries.block_bytes
            + self.entries.blocks() * 24
            + self.groups.len() as u64 * GROUP
            + self.consumers * CONSUMER
            + self.pending * PENDING
            + self.idempotence.as_ref().map_or(0, |idempotence| idempotence.memory_bytes())
    }
}

impl EntryStore {
    /// Adds an entry. `id` has to be above [`EntryStore::last_id`], `fields` not empty.
    pub(crate) fn append(&mut self, id: EntryId, fields: &[impl AsRef<[u8]>], settings: &Settings) {
        debug_assert!(id > self.last_id, "{id} follows {}", self.last_id);
        let (entries_max, bytes_max) = (settings.stream_node_max_entries, settings.stream_node_max_bytes);
        if self.open.as_ref().is_some_and(|open| open.is_full_for(fields, entries_max, bytes_max)) {
            self.seal();
        }
        match &mut self.open {
            Some(open) => {
                let block = Arc::make_mut(open);
                let before = block.memory_bytes();
                block.append(id, fields);
                self.block_bytes += block.memory_bytes() - before;
            }
            None => {
                let block = Block::new(id, fields);
                self.block_bytes += block.memory_bytes();
                self.open = Some(Arc::new(block));
            }
        }
        if self.len == 0 {
            self.first_id = id;
        }
        self.len += 1;
        self.last_id = id;
        self.edits = self.edits.wrapping_add(1);
        self.entries_added = self.entries_added.saturating_add(1);
    }

    /// The open block takes no more entries.
    pub(crate) fn seal(&mut self) {
        if let Some(mut block) = self.open.take() {
            Arc::make_mut(&mut block).seal();
            self.sealed.insert(block.first, block);
        }
    }

    /// Deletes one entry as XDEL does; false if it is not there.
    pub(crate) fn delete(&mut self, id: EntryId) -> bool {
        let deleted = self.take_out(id);
        if deleted {
            self.max_deleted_id = self.max_deleted_id.max(id);
        }
        deleted
    }

    /// Deletes one entry as a trim does, which leaves `max_deleted_id` alone; false if it is not there.
    pub(crate) fn take_out(&mut self, id: EntryId) -> bool {
        let Some(block) = self.block_of(id).filter(|block| block.has(id)) else { return false };
        let key = block.first;
        if block.live == 1 {
            self.drop_block(key);
        } else if let Some(block) = self.block_mut(key) {
            block.delete(id);
        }
        self.len -= 1;
        self.edits = self.edits.wrapping_add(1);
        if id == self.first_id {
            self.find_first();
        }
        true
    }

    pub(crate) fn block_mut(&mut self, key: EntryId) -> Option<&mut Block> {
        match &mut self.open {
            Some(open) if open.first == key => Some(Arc::make_mut(open)),
            _ => self.sealed.get_mut(&key).map(Arc::make_mut),
        }
    }

    pub(crate) fn drop_block(&mut self, key: EntryId) {
        let dropped = match &self.open {
            Some(open) if open.first == key => self.open.take(),
            _ => self.sealed.remove(&key),
        };
        self.block_bytes -= dropped.map_or(0, |block| block.memory_bytes());
    }

    /// Sets the last id, which must not be below the last live entry.
    ///
    /// Below a deleted tail the tail is cut off, since ids have to rise inside a block.
    pub(crate) fn set_last_id(&mut self, id: EntryId) {
        self.last_id = id;
        let key =
            self.open.as_ref().map(|open| open.first).or_else(|| self.sealed.last().map(|(key, _)| *key));
        let Some(block) = key.and_then(|key| self.block_mut(key)) else { return };
        if block.last > id {
            let before = block.memory_bytes();
            block.cut_deleted_tail();
            let freed = before - block.memory_bytes();
            self.block_bytes -= freed;
        }
    }

    /// Finds the first live entry again after something went away at the front.
    pub(crate) fn find_first(&mut self) {
        let block = self.sealed.first().map(|(_, block)| block).or(self.open.as_ref());
        self.first_id = block.and_then(|block| block.first_live()).unwrap_or(EntryId::MIN);
    }

    fn block_of(&self, id: EntryId) -> Option<&Block> {
        match &self.open {
            Some(open) if open.first <= id => Some(open),
            _ => self.sealed.floor(&id).map(|(_, block)| &**block),
        }
    }

    /// A live entry.
    pub(crate) fn entry(&self, id: EntryId) -> Option<EntryView<'_>> {
        self.block_of(id)?.find(id).filter(|entry| !entry.deleted)
    }

    pub(crate) fn has(&self, id: EntryId) -> bool {
        self.entry(id).is_some()
    }

    /// Id of the last live entry.
    pub(crate) fn last_live(&self) -> Option<EntryId> {
        let block = self.open.as_ref().or_else(|| self.sealed.last().map(|(_, block)| block));
        block.and_then(|block| block.last_live())
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        (self.sealed.len() + usize::from(self.open.is_some())) as u64
    }

    /// Shows `visit` the live entries of `start..=end`, upwards, until it breaks off.
    pub(crate) fn walk<'a>(
        &'a self,
        start: EntryId,
        end: EntryId,
        mut visit: impl FnMut(EntryView<'a>) -> ControlFlow<()>,
    ) {
        if start > end || self.len == 0 {
            return;
        }
        let in_open = self.open.as_ref().is_some_and(|open| open.first <= start);
        let from =
            if in_open { None } else { Some(self.sealed.floor(&start).map_or(start, |(key, _)| *key)) };
        let sealed = from.map(|from| self.sealed.iter_from(Start::At(&from))).into_iter().flatten();
        for block in sealed.map(|(_, block)| block).chain(&self.open) {
            if block.first > end {
                return;
            }
            if block.last < start {
                continue;
            }
            for entry in block.iter().filter(|entry| !entry.deleted && entry.id >= start) {
                if entry.id > end || visit(entry).is_break() {
                    return;
                }
            }
        }
    }

    /// Shows `visit` the live entries of `start..=end`, downwards, until it breaks off.
    pub(crate) fn walk_back<'a>(
        &'a self,
        start: EntryId,
        end: EntryId,
        mut visit: impl FnMut(EntryView<'a>) -> ControlFlow<()>,
    ) {
        if start > end || self.len == 0 {
            return;
        }
        let sealed = self.sealed.iter_back_from(Start::At(&end)).map(|(_, block)| block);
        for block in self.open.iter().chain(sealed) {
            if block.last < start {
                return;
            }
            if block.first > end {
                continue;
            }
            let within = |entry: &EntryView<'_>| !entry.deleted && entry.id >= start && entry.id <= end;
            let entries: alloc::vec::Vec<_> = block.iter().filter(within).collect();
            for entry in entries.into_iter().rev() {
                if visit(entry).is_break() {
                    return;
                }
            }
        }
    }

    /// Live entries above `id`; stops counting some way beyond `enough`. Whole blocks count as one step.
    pub(crate) fn count_after(&self, id: EntryId, enough: u64) -> u64 {
        if id >= self.last_id {
            return 0;
        }
        let from = self.sealed.floor(&id).map_or(id, |(key, _)| *key);
        let mut count = 0;
        for block in self.sealed.iter_from(Start::At(&from)).map(|(_, block)| block).chain(&self.open) {
            count += match block.first > id {
                true => u64::from(block.live),
                false => block.iter().filter(|entry| !entry.deleted && entry.id > id).count() as u64,
            };
            if count >= enough {
                break;
            }
        }
        count
    }

    /// Whether something was deleted by XDEL at or above `start`, as far as the stream remembers: it keeps
    /// the highest deleted id alone.
    pub(crate) fn has_tombstones_from(&self, start: EntryId) -> bool {
        self.len > 0 && self.max_deleted_id != EntryId::MIN && start <= self.max_deleted_id
    }

    /// How many entries were ever added up to `id`, where that can be known.
    pub(crate) fn entries_added_up_to(&self, id: EntryId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if self.len == 0 && id <= self.last_id {
            return Some(self.entries_added);
        }
        if id != EntryId::MIN && id < self.max_deleted_id {
            return None;
        }
        if id >= self.last_id {
            return (id == self.last_id).then_some(self.entries_added);
        }
        if self.max_deleted_id != EntryId::MIN && self.max_deleted_id >= self.first_id {
            return None;
        }
        let before_first = self.entries_added.saturating_sub(self.len);
        match id.cmp(&self.first_id) {
            core::cmp::Ordering::Less => Some(before_first),
            core::cmp::Ordering::Equal => Some(before_first + 1),
            core::cmp::Ordering::Greater => None,
        }
    }
}
