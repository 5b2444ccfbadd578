//! A compact run of entries: the role of Redis' listpack node.
//!
//! # Layout
//!
//! `names, entry, entry, ...` in one buffer. `names` is the field names of the first entry: a count, then
//! the strings. An entry is
//!
//! | part | meaning |
//! |---|---|
//! | flags, 1 byte | bit 0: deleted; bit 1: the field names are the block's |
//! | varint | milliseconds since the entry before it (the first: since `first`) |
//! | varint | sequence: a difference in the same millisecond, else the number itself |
//! | varint | length of the body in bytes |
//! | body | values; with names of its own: a count of fields, then name, value, name, value ... |
//!
//! A string is a varint length and its bytes. A varint is LEB128: seven bits a byte, lowest first.
//! The buffer is stored in snapshots as it is, so this layout is part of the snapshot format.

use crate::EntryId;
use crate::varint::{self, put_str, put_u64};
use alloc::vec::Vec;

const DELETED: u8 = 1;
const BLOCK_NAMES: u8 = 2;

/// Bounds that hold even where the settings say "no bound", so that one block never gets long to copy.
const ENTRIES_MAX: u32 = 4096;
const BYTES_MAX: usize = 64 * 1024;

/// Entries with rising ids. At least one of them is not deleted while the block is part of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Block {
    /// Id of the first entry ever, deleted or not; the block is found under it.
    pub(crate) first: EntryId,
    /// Id of the last entry, deleted or not.
    pub(crate) last: EntryId,
    /// Entries, deleted ones included.
    pub(crate) count: u32,
    /// Entries that are not deleted.
    pub(crate) live: u32,
    /// See the layout above.
    pub(crate) bytes: Vec<u8>,
}

/// One entry while walking.
#[derive(Clone, Copy)]
pub(crate) struct EntryView<'a> {
    pub(crate) id: EntryId,
    pub(crate) deleted: bool,
    /// Where the flags byte lies in the block's buffer.
    flags_at: usize,
    /// Names of the block, for entries that share them.
    shared_names: Option<&'a [u8]>,
    fields: usize,
    body: &'a [u8],
}

impl Block {
    /// A block that holds one entry.
    pub(crate) fn new(id: EntryId, fields: &[impl AsRef<[u8]>]) -> Block {
        let bytes_len = fields.iter().map(|s| s.as_ref().len() + 2).sum::<usize>();
        let mut block =
            Block { first: id, last: id, count: 0, live: 0, bytes: Vec::with_capacity(bytes_len + 8) };
        put_u64(&mut block.bytes, (fields.len() / 2) as u64);
        for name in fields.iter().step_by(2) {
            put_str(&mut block.bytes, name.as_ref());
        }
        block.append(id, fields);
        block
    }

    /// Whether an entry of these fields belongs into the next block. Zero = no bound.
    pub(crate) fn is_full_for(&self, fields: &[impl AsRef<[u8]>], entries_max: u32, bytes_max: u32) -> bool {
        let entries_max = if entries_max == 0 { ENTRIES_MAX } else { entries_max.min(ENTRIES_MAX) };
        let bytes_max = if bytes_max == 0 { BYTES_MAX } else { (bytes_max as usize).min(BYTES_MAX) };
        let adds: usize = fields.iter().map(|s| s.as_ref().len()).sum();
        self.count >= entries_max || self.bytes.len().saturating_add(adds) >= bytes_max
    }

    /// Adds an entry behind the last one. `id` has to be above it.
    pub(crate) fn append(&mut self, id: EntryId, fields: &[impl AsRef<[u8]>]) {
        debug_assert!(self.count == 0 || id > self.last, "{id} follows {}", self.last);
        let shared = self.count == 0 || self.has_names(fields);
        self.bytes.push(if shared { BLOCK_NAMES } else { 0 });
        let ms = id.ms - self.last.ms;
        put_u64(&mut self.bytes, ms);
        put_u64(&mut self.bytes, if ms == 0 { id.seq - self.last.seq } else { id.seq });
        let strings = fields.iter().skip(usize::from(shared)).step_by(1 + usize::from(shared));
        let count_len = if shared { 0 } else { varint::len((fields.len() / 2) as u64) };
        let body_len = count_len + strings.clone().map(|s| varint::str_len(s.as_ref())).sum::<usize>();
        put_u64(&mut self.bytes, body_len as u64);
        if !shared {
            put_u64(&mut self.bytes, (fields.len() / 2) as u64);
        }
        strings.for_each(|s| put_str(&mut self.bytes, s.as_ref()));
        self.last = id;
        self.count += 1;
        self.live += 1;
    }

    fn has_names(&self, fields: &[impl AsRef<[u8]>]) -> bool {
        let mut rest = &self.bytes[..];
        varint::take_u64(&mut rest) == (fields.len() / 2) as u64
            && fields.iter().step_by(2).all(|name| varint::take_str(&mut rest) == name.as_ref())
    }

    /// Walks all entries, deleted ones included.
    pub(crate) fn iter(&self) -> BlockIter<'_> {
        let mut rest = &self.bytes[..];
        let names = varint::take_u64(&mut rest);
        let shared_names = rest;
        (0..names).for_each(|_| {
            varint::take_str(&mut rest);
        });
        BlockIter {
            whole_len: self.bytes.len(),
            rest,
            shared_names,
            names: names as usize,
            before: EntryId { ms: self.first.ms, seq: self.first.seq },
        }
    }

    /// Field names of the first entry.
    pub(crate) fn names(&self) -> Vec<&[u8]> {
        let mut rest = &self.bytes[..];
        let names = varint::take_u64(&mut rest);
        (0..names).map(|_| varint::take_str(&mut rest)).collect()
    }

    /// The entry with this id, deleted or not.
    pub(crate) fn find(&self, id: EntryId) -> Option<EntryView<'_>> {
        if id < self.first || id > self.last {
            return None;
        }
        self.iter().find(|entry| entry.id >= id).filter(|entry| entry.id == id)
    }

    /// Whether the entry is there and not deleted.
    pub(crate) fn has(&self, id: EntryId) -> bool {
        self.find(id).is_some_and(|entry| !entry.deleted)
    }

    /// Marks an entry as deleted; false if it is not there.
    pub(crate) fn delete(&mut self, id: EntryId) -> bool {
        let Some(entry) = self.find(id).filter(|entry| !entry.deleted) else { return false };
        let at = entry.flags_at;
        self.bytes[at] |= DELETED;
        self.live -= 1;
        true
    }

    /// Marks entries as deleted from the front while `wanted` says so; answers how many.
    pub(crate) fn delete_front(&mut self, mut wanted: impl FnMut(EntryId) -> bool) -> u32 {
        let marks: Vec<usize> = self
            .iter()
            .filter(|entry| !entry.deleted)
            .take_while(|entry| wanted(entry.id))
            .map(|e| e.flags_at)
            .collect();
        for at in &marks {
            self.bytes[*at] |= DELETED;
        }
        self.live -= marks.len() as u32;
        marks.len() as u32
    }

    /// Id of the first entry that is not deleted.
    pub(crate) fn first_live(&self) -> Option<EntryId> {
        self.iter().find(|entry| !entry.deleted).map(|entry| entry.id)
    }

    /// Id of the last entry that is not deleted.
    pub(crate) fn last_live(&self) -> Option<EntryId> {
        self.iter().filter(|entry| !entry.deleted).last().map(|entry| entry.id)
    }

    /// Cuts off what is deleted behind the last live entry.
    pub(crate) fn cut_deleted_tail(&mut self) {
        let Some((at, end)) = self.iter().enumerate().filter(|(_, entry)| !entry.deleted).last() else {
            return;
        };
        let (last, count) = (end.id, at as u32 + 1);
        let cut = self.iter().nth(at + 1).map(|entry| entry.flags_at);
        if let Some(cut) = cut {
            self.bytes.truncate(cut);
            (self.last, self.count) = (last, count);
        }
    }

    /// Whether counts and ids are what the buffer says: asked of blocks that come from a snapshot.
    pub(crate) fn is_sound(&self) -> bool {
        if !self.is_framed() {
            return false;
        }
        let (mut count, mut live, mut before) = (0u32, 0u32, None);
        for entry in self.iter() {
            if before.is_some_and(|before| entry.id <= before) || !entry.is_sound() {
                return false;
            }
            before = Some(entry.id);
            count += 1;
            live += u32::from(!entry.deleted);
        }
        self.iter().next().is_some_and(|entry| entry.id == self.first)
            && before == Some(self.last)
            && (count, live) == (self.count, self.live)
            && live > 0
    }

    /// Whether the buffer is names and whole entries up to its end.
    fn is_framed(&self) -> bool {
        let mut rest = &self.bytes[..];
        let Some(names) = varint::try_take_u64(&mut rest) else { return false };
        if (0..names).any(|_| varint::try_take_str(&mut rest).is_none()) {
            return false;
        }
        while let Some((_, tail)) = rest.split_first() {
            rest = tail;
            let sound = varint::try_take_u64(&mut rest).is_some()
                && varint::try_take_u64(&mut rest).is_some()
                && varint::try_take_str(&mut rest).is_some();
            if !sound {
                return false;
            }
        }
        true
    }

    /// Bytes in memory, roughly: the buffer and what surrounds it.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.bytes.len() + 112) as u64
    }

    /// Gives back what the buffer has to spare; called when the block is sealed.
    pub(crate) fn seal(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

/// See [`Block::iter`].
pub(crate) struct BlockIter<'a> {
    whole_len: usize,
    rest: &'a [u8],
    shared_names: &'a [u8],
    names: usize,
    before: EntryId,
}

impl<'a> Iterator for BlockIter<'a> {
    type Item = EntryView<'a>;

    fn next(&mut self) -> Option<EntryView<'a>> {
        let flags_at = self.whole_len - self.rest.len();
        let (&flags, rest) = self.rest.split_first()?;
        self.rest = rest;
        let ms = varint::take_u64(&mut self.rest);
        let seq = varint::take_u64(&mut self.rest);
        // Wrapping only so that a damaged snapshot cannot panic here; sound blocks never wrap.
        let id = EntryId {
            ms: self.before.ms.wrapping_add(ms),
            seq: if ms == 0 { self.before.seq.wrapping_add(seq) } else { seq },
        };
        self.before = id;
        let mut body = varint::take_str(&mut self.rest);
        let shared = flags & BLOCK_NAMES != 0;
        let fields = if shared { self.names } else { varint::take_u64(&mut body) as usize };
        Some(EntryView {
            id,
            deleted: flags & DELETED != 0,
            flags_at,
            shared_names: shared.then_some(self.shared_names),
            fields,
            body,
        })
    }
}

impl<'a> EntryView<'a> {
    /// Whether the body is as many strings as it should be.
    fn is_sound(&self) -> bool {
        let strings = if self.shared_names.is_some() { self.fields } else { self.fields.saturating_mul(2) };
        let mut body = self.body;
        strings <= body.len()
            && (0..strings).all(|_| varint::try_take_str(&mut body).is_some())
            && body.is_empty()
    }

    /// Whether its field names are those of the block.
    pub(crate) fn has_names_of_block(&self) -> bool {
        self.shared_names.is_some()
    }

    /// Number of fields.
    pub(crate) fn fields(&self) -> usize {
        self.fields
    }

    /// Field, value, field, value ...
    pub(crate) fn strings(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (mut names, mut body, mut left) = (self.shared_names, self.body, self.fields * 2);
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            left -= 1;
            Some(match &mut names {
                Some(names) if left % 2 == 1 => varint::take_str(names),
                _ => varint::take_str(&mut body),
            })
        })
    }
}
