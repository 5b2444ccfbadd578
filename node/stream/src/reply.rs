//! Replies as values: what a command answers, before any protocol version is chosen.

use crate::{Dump, EntryId, Slot};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// An answer. `command/reply.rs` of the server turns it into RESP2 or RESP3.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// No reply was asked for (followers, replay).
    None,
    /// `+OK`.
    Ok,
    /// Any other simple string.
    Simple(&'static str),
    /// A simple string that was made up; without line ends.
    Line(Bytes),
    /// Integer.
    Int(i64),
    /// Bulk string.
    Bulk(Bytes),
    /// An entry id as bulk string.
    Id(EntryId),
    /// `$-1`; `_` in RESP3.
    NilBulk,
    /// `*-1`; `_` in RESP3.
    NilArray,
    /// Array.
    Array(Vec<Reply>),
    /// Map in RESP3, flat array of keys and values in RESP2.
    Map(Vec<(Reply, Reply)>),
    /// Set in RESP3, array in RESP2.
    Set(Vec<Reply>),
    /// Push in RESP3, array in RESP2: what was not asked for.
    Push(Vec<Reply>),
    /// Several replies, one after the other.
    Many(Vec<Reply>),
    /// Double in RESP3, its text as bulk string in RESP2.
    Double(f64),
    /// A list of stream entries, packed: an array of `[id, [field, value, ...]]`.
    Entries(Entries),
    /// XREAD / XREADGROUP: RESP2 array of `[key, entries]`, RESP3 map (a key may appear twice).
    Streams(Vec<(Bytes, Entries)>),
    /// A bulk string: the payload of DUMP, made where it is sent.
    Dump(Dump),
    /// A refusal; equal on all replicas.
    Error(Refusal),
}

/// Why a command was refused. `Display` spells the exact text with its prefix (`ERR`, `WRONGTYPE`, `NOGROUP` ...).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The shard does not own the slot (or no longer): the server answers `MOVED`. Nothing was done.
    NotOwned(Slot),
    /// Any other refusal, with its full text. Constructors in `refusal.rs` of the engine spell the texts once.
    Text(String),
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Refusal::NotOwned(slot) => write!(f, "MOVED {} ", slot.0),
            Refusal::Text(text) => f.write_str(text),
        }
    }
}

/// A packed list of entries: one allocation for all of them, so that a read of many is cheap.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Entries {
    count: usize,
    bytes: Vec<u8>,
    /// Of each entry, if they are shown: milliseconds since its last delivery and deliveries before this one.
    deliveries: Vec<(Option<u64>, u64)>,
}

/// One entry of [`Entries`].
pub struct EntryRef<'a> {
    /// Its id.
    pub id: EntryId,
    /// Field, value, field, value ...; `None` when the entry left the stream (nil array).
    pub fields: Option<FieldIter<'a>>,
    /// Shown after the fields if the read claims: milliseconds since the last delivery (`None`: it was given back since)
    /// and deliveries before this one.
    pub delivery: Option<(Option<u64>, u64)>,
}

/// Walks the strings of an entry; its length is known up front.
#[derive(Clone)]
pub struct FieldIter<'a> {
    left: usize,
    bytes: &'a [u8],
}

impl Entries {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.count
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// Bytes of the packed form.
    pub fn packed_len(&self) -> usize {
        self.bytes.len()
    }
    /// Adds an entry; `strings` is field, value, field, value ...
    pub fn push<'s>(&mut self, id: EntryId, strings: impl Iterator<Item = &'s [u8]>) {
        self.head(id);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        let mut n = 0u32;
        for s in strings {
            self.bytes.extend_from_slice(&(s.len() as u32).to_le_bytes());
            self.bytes.extend_from_slice(s);
            n += 1;
        }
        self.bytes[at..at + 4].copy_from_slice(&n.to_le_bytes());
    }
    /// Adds an entry with what was known of its delivery. A list has that of all its entries or of none.
    pub fn push_delivered<'s>(
        &mut self,
        id: EntryId,
        strings: impl Iterator<Item = &'s [u8]>,
        idle_ms: Option<u64>,
        deliveries: u64,
    ) {
        self.push(id, strings);
        self.deliveries.push((idle_ms, deliveries));
    }
    /// Adds an entry that left the stream: answered as `[id, nil array]`.
    pub fn push_gone(&mut self, id: EntryId) {
        self.head(id);
        self.bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    }
    fn head(&mut self, id: EntryId) {
        self.count += 1;
        self.bytes.extend_from_slice(&id.ms.to_le_bytes());
        self.bytes.extend_from_slice(&id.seq.to_le_bytes());
    }
    /// Walks the list.
    pub fn iter(&self) -> impl Iterator<Item = EntryRef<'_>> {
        let mut rest = &self.bytes[..];
        let mut deliveries = self.deliveries.iter().copied();
        core::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let id = EntryId::new(take_u64(&mut rest), take_u64(&mut rest));
            let n = take_u32(&mut rest);
            if n == u32::MAX {
                return Some(EntryRef { id, fields: None, delivery: None });
            }
            let fields = FieldIter { left: n as usize, bytes: rest };
            for _ in 0..n {
                let len = take_u32(&mut rest) as usize;
                rest = &rest[len..];
            }
            Some(EntryRef { id, fields: Some(fields), delivery: deliveries.next() })
        })
    }
}

impl<'a> Iterator for FieldIter<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let len = take_u32(&mut self.bytes) as usize;
        let (s, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        Some(s)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}
impl ExactSizeIterator for FieldIter<'_> {}

fn take_u64(rest: &mut &[u8]) -> u64 {
    let (head, tail) = rest.split_at(8);
    *rest = tail;
    u64::from_le_bytes(head.try_into().unwrap_or([0; 8]))
}
fn take_u32(rest: &mut &[u8]) -> u32 {
    let (head, tail) = rest.split_at(4);
    *rest = tail;
    u32::from_le_bytes(head.try_into().unwrap_or([0; 4]))
}
