//! The whole state of a shard as bytes and back.
//!
//! # Format
//!
//! The magic `WEIRSHRD`, a version byte, then records: tag (1 byte), varint length, payload. Numbers are
//! varints, strings stand behind their length, an optional number is a byte 0 or 1 and the number. Records
//! come in one order only, so equal states have equal bytes and [`Machine::state_hash`] is a hash of them.
//! Tags are permanent:
//!
//! | tag | record | payload |
//! |---|---|---|
//! | 1 | shard | last stamp, both settings, number of slot ranges, first and last of each, last version of a key |
//! | 2 | string | key, deadline?, value, version |
//! | 3 | stream | key, deadline?, last id, max deleted id, entries added, version; its blocks and groups follow |
//! | 4 | block | 1 if open, first id, last id, count, live, the block's buffer (layout in `block.rs`) |
//! | 5 | group | name, last delivered id, entries read?, next consumer number; its consumers and rows follow |
//! | 6 | consumer | name, number, seen, active? |
//! | 7 | rows | number, then id, owner, delivered, deliveries of each |
//! | 8 | end | keys, entries and pending entries of the whole, for a check |
//! | 9 | idempotence | duration in seconds, maximum, ids added, duplicates; before the stream's blocks, if it has any |
//! | 10 | idempotent ids | producer, number, then idempotent id, entry id, time of each; oldest first |
//!
//! Version 2 has the last two, version 3 pending rows of nobody (owner 4294967295, in the place of the delivery the
//! place in the order of release), version 4 the versions of keys. All versions are read.

use crate::block::Block;
use crate::cow_map::Start;
use crate::group::{Consumer, Group};
use crate::idempotence::{Idempotence, Producer, Record};
use crate::keyspace::{Item, Value};
use crate::machine::Machine;
use crate::ownership::Ownership;
use crate::pending::Nack;
use crate::stream::{EntryStore, Stream};
use crate::varint::{self, put_str, put_u64};
use crate::{EntryId, Key, Settings, Slot, SlotRange};
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;

const MAGIC: &[u8] = b"WEIRSHRD";
const VERSION: u8 = 4;
const VERSION_MIN: u8 = 1;
const ROWS_MAX: usize = 256;
/// A record of idempotent ids ends after this many bytes.
const IIDS_BYTES: usize = 4096;

const SHARD: u8 = 1;
const STRING: u8 = 2;
const STREAM: u8 = 3;
const BLOCK: u8 = 4;
const GROUP: u8 = 5;
const CONSUMER: u8 = 6;
const ROWS: u8 = 7;
const END: u8 = 8;
const IDEMPOTENCE: u8 = 9;
const IIDS: u8 = 10;

/// A frozen view of a machine that turns into bytes bit by bit, while the machine goes on.
pub struct Snapshot {
    machine: Machine,
    at: At,
    scratch: Vec<u8>,
}

/// The record to come. Positions are names, looked up anew, so that nothing borrows between two chunks.
enum At {
    Head,
    Key {
        after: Option<Key>,
    },
    Idempotence {
        key: Key,
    },
    /// Records of the producers behind `after`; of itself from the number on, if one is given.
    Iids {
        key: Key,
        after: Option<Bytes>,
        from: Option<u64>,
    },
    Block {
        key: Key,
        after: Option<EntryId>,
    },
    Group {
        key: Key,
        after: Option<Bytes>,
    },
    Consumer {
        key: Key,
        group: Bytes,
        after: Option<Bytes>,
    },
    Rows {
        key: Key,
        group: Bytes,
        from: EntryId,
    },
    End,
    Done,
}

impl Snapshot {
    pub(crate) fn of(machine: Machine) -> Snapshot {
        Snapshot { machine, at: At::Head, scratch: Vec::new() }
    }

    /// Appends about `budget` bytes to `out`: more by at most one record, which is a block or a string.
    /// Answers whether more is to come; the last bytes come with `false`.
    pub fn next_chunk(&mut self, budget: usize, out: &mut Vec<u8>) -> bool {
        let full = out.len().saturating_add(budget.max(1));
        while out.len() < full && !matches!(self.at, At::Done) {
            self.step(out);
        }
        !matches!(self.at, At::Done)
    }

    fn step(&mut self, out: &mut Vec<u8>) {
        let machine = &self.machine;
        let payload = &mut self.scratch;
        payload.clear();
        let (tag, next) = match core::mem::replace(&mut self.at, At::Done) {
            At::Head => {
                out.extend_from_slice(MAGIC);
                out.push(VERSION);
                put_shard(payload, machine);
                (Some(SHARD), At::Key { after: None })
            }
            At::Key { after } => match machine.keyspace.items_after(after.as_deref()).next() {
                None => (None, At::End),
                Some((key, item)) => match &item.value {
                    Value::String(value) => {
                        put_str(payload, key);
                        put_option(payload, item.deadline_ms);
                        put_str(payload, value);
                        put_u64(payload, item.version);
                        (Some(STRING), At::Key { after: Some(key.clone()) })
                    }
                    Value::Stream(stream) => {
                        put_str(payload, key);
                        put_option(payload, item.deadline_ms);
                        put_stream(payload, &stream.entries);
                        put_u64(payload, item.version);
                        (Some(STREAM), At::Idempotence { key: key.clone() })
                    }
                },
            },
            At::Idempotence { key } => match find_idempotence(machine, &key) {
                None => (None, At::Block { key, after: None }),
                Some(idempotence) => {
                    put_idempotence(payload, idempotence);
                    (Some(IDEMPOTENCE), At::Iids { key, after: None, from: None })
                }
            },
            At::Iids { key, after, from } => {
                let producer = find_idempotence(machine, &key).and_then(|idempotence| match (&after, from) {
                    (Some(name), Some(_)) => idempotence.producers.iter_from(Start::At(&name[..])).next(),
                    (Some(name), None) => idempotence.producers.iter_from(Start::Beyond(&name[..])).next(),
                    (None, _) => idempotence.producers.first(),
                });
                match producer {
                    None => (None, At::Block { key, after: None }),
                    Some((name, producer)) => {
                        let from = put_iids(payload, name, producer, from.unwrap_or(0));
                        (Some(IIDS), At::Iids { key, after: Some(name.clone()), from })
                    }
                }
            }
            At::Block { key, after } => {
                let entries = machine.keyspace.get(&key).and_then(|item| Some(&item.value.stream()?.entries));
                match entries.and_then(|entries| block_after(entries, after)) {
                    None => (None, At::Group { key, after: None }),
                    Some((block, open)) => {
                        put_block(payload, block, open);
                        (Some(BLOCK), At::Block { key, after: Some(block.first) })
                    }
                }
            }
            At::Group { key, after } => {
                let stream = machine.keyspace.get(&key).and_then(|item| item.value.stream());
                let start = after.as_ref().map_or(Start::Edge, |after| Start::Beyond(&after[..]));
                match stream.and_then(|stream| stream.groups.iter_from(start).next()) {
                    None => (None, At::Key { after: Some(key) }),
                    Some((name, group)) => {
                        put_group(payload, name, group);
                        (Some(GROUP), At::Consumer { key, group: name.clone(), after: None })
                    }
                }
            }
            At::Consumer { key, group, after } => {
                let start = after.as_ref().map_or(Start::Edge, |after| Start::Beyond(&after[..]));
                match find_group(machine, &key, &group).and_then(|g| g.consumers.iter_from(start).next()) {
                    None => (None, At::Rows { key, group, from: EntryId::MIN }),
                    Some((name, consumer)) => {
                        put_consumer(payload, name, consumer);
                        (Some(CONSUMER), At::Consumer { key, group, after: Some(name.clone()) })
                    }
                }
            }
            At::Rows { key, group, from } => match put_rows(payload, find_group(machine, &key, &group), from)
            {
                None => (None, At::Group { key, after: Some(group) }),
                Some(last) => {
                    let next = match last.next() {
                        Some(from) => At::Rows { key, group, from },
                        None => At::Group { key, after: Some(group) },
                    };
                    (Some(ROWS), next)
                }
            },
            At::End => {
                let stats = machine.stats();
                [stats.keys, stats.entries, stats.pending].iter().for_each(|n| put_u64(payload, *n));
                (Some(END), At::Done)
            }
            At::Done => (None, At::Done),
        };
        if let Some(tag) = tag {
            out.push(tag);
            put_str(out, payload);
        }
        self.at = next;
    }

    /// A hash of all bytes that are still to come.
    pub(crate) fn hash(mut self) -> u64 {
        let (mut hash, mut buffer) = (0xcbf2_9ce4_8422_2325u64, Vec::new());
        let mut more = true;
        while more {
            more = self.next_chunk(64 * 1024, &mut buffer);
            let whole = if more { buffer.len() / 8 * 8 } else { buffer.len() };
            for word in buffer[..whole].chunks(8) {
                let mut bytes = [0; 8];
                bytes[..word.len()].copy_from_slice(word);
                hash = (hash.rotate_left(23) ^ u64::from_le_bytes(bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
            buffer.drain(..whole);
        }
        hash ^ (hash >> 32)
    }
}

fn find_group<'a>(machine: &'a Machine, key: &[u8], group: &[u8]) -> Option<&'a Group> {
    machine.keyspace.get(key)?.value.stream()?.groups.get(group).map(|group| &**group)
}

fn find_idempotence<'a>(machine: &'a Machine, key: &[u8]) -> Option<&'a Idempotence> {
    machine.keyspace.get(key)?.value.stream()?.idempotence.as_deref()
}

fn block_after(entries: &EntryStore, after: Option<EntryId>) -> Option<(&Block, bool)> {
    let start = after.as_ref().map_or(Start::Edge, Start::Beyond);
    let sealed = entries.sealed.iter_from(start).next().map(|(_, block)| (&**block, false));
    let open = entries.open.as_ref().filter(|open| after.is_none_or(|after| after < open.first));
    sealed.or_else(|| open.map(|open| (&**open, true)))
}

fn put_option(out: &mut Vec<u8>, value: Option<u64>) {
    out.push(u8::from(value.is_some()));
    value.into_iter().for_each(|value| put_u64(out, value));
}

fn put_id(out: &mut Vec<u8>, id: EntryId) {
    put_u64(out, id.ms);
    put_u64(out, id.seq);
}

fn put_shard(out: &mut Vec<u8>, machine: &Machine) {
    put_u64(out, machine.last_stamp_ms);
    put_u64(out, machine.settings.stream_node_max_entries.into());
    put_u64(out, machine.settings.stream_node_max_bytes.into());
    put_u64(out, machine.owned.ranges().len() as u64);
    for range in machine.owned.ranges() {
        put_u64(out, range.first.0.into());
        put_u64(out, range.last.0.into());
    }
    put_u64(out, machine.keyspace.version());
}

fn put_stream(out: &mut Vec<u8>, entries: &EntryStore) {
    put_id(out, entries.last_id);
    put_id(out, entries.max_deleted_id);
    put_u64(out, entries.entries_added);
}

fn put_idempotence(out: &mut Vec<u8>, idempotence: &Idempotence) {
    put_u64(out, idempotence.duration_s.into());
    put_u64(out, idempotence.maxsize.into());
    put_u64(out, idempotence.added);
    put_u64(out, idempotence.duplicates);
}

/// Answers the number of the next record, if this producer has more.
fn put_iids(out: &mut Vec<u8>, name: &[u8], producer: &Producer, from: u64) -> Option<u64> {
    put_str(out, name);
    let mut records = producer.records.iter_from(Start::At(&from)).peekable();
    let (mut rows, mut count) = (Vec::new(), 0);
    while rows.len() < IIDS_BYTES
        && let Some((_, record)) = records.next()
    {
        put_str(&mut rows, &record.iid);
        put_id(&mut rows, record.id);
        put_u64(&mut rows, record.at_ms);
        count += 1;
    }
    put_u64(out, count);
    out.extend_from_slice(&rows);
    records.peek().map(|(number, _)| **number)
}

fn put_block(out: &mut Vec<u8>, block: &Block, open: bool) {
    out.push(u8::from(open));
    put_id(out, block.first);
    put_id(out, block.last);
    put_u64(out, block.count.into());
    put_u64(out, block.live.into());
    put_str(out, &block.bytes);
}

fn put_group(out: &mut Vec<u8>, name: &[u8], group: &Group) {
    put_str(out, name);
    put_id(out, group.last_delivered_id);
    put_option(out, group.entries_read);
    put_u64(out, group.next_number.into());
}

fn put_consumer(out: &mut Vec<u8>, name: &[u8], consumer: &Consumer) {
    put_str(out, name);
    put_u64(out, consumer.number.into());
    put_u64(out, consumer.seen_ms);
    put_option(out, consumer.active_ms);
}

/// Answers the last row's id; `None` without rows.
fn put_rows(out: &mut Vec<u8>, group: Option<&Group>, from: EntryId) -> Option<EntryId> {
    let rows: Vec<(EntryId, Nack)> = group?.pending.iter_from(from).take(ROWS_MAX).collect();
    let (last, _) = *rows.last()?;
    put_u64(out, rows.len() as u64);
    for (id, nack) in rows {
        put_id(out, id);
        put_u64(out, nack.owner.into());
        put_u64(out, nack.delivered_ms);
        put_u64(out, nack.deliveries);
    }
    Some(last)
}

/// Bytes that do not make a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreError {
    /// Not a snapshot of a shard.
    NotASnapshot,
    /// Written by a newer Weir: upgrade this node first.
    Version(u8),
    /// The named part is damaged.
    Damaged(&'static str),
    /// The bytes end before the state does.
    Incomplete,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::NotASnapshot => f.write_str("not a snapshot of a shard"),
            RestoreError::Version(version) => {
                write!(f, "snapshot of format version {version}, this node reads version {VERSION}")
            }
            RestoreError::Damaged(part) => write!(f, "snapshot is damaged: {part}"),
            RestoreError::Incomplete => f.write_str("snapshot ends too early"),
        }
    }
}

impl core::error::Error for RestoreError {}

/// A machine being built from the chunks of a snapshot.
pub struct Restore {
    /// Bytes of a record that is not complete yet.
    rest: Vec<u8>,
    machine: Machine,
    /// The stream that blocks and groups belong to, and the key that it goes to.
    stream: Option<Stream>,
    item: Option<(Key, Item)>,
    /// The group that consumers and rows belong to.
    group: Option<(Bytes, Group)>,
    progress: Progress,
}

#[derive(PartialEq)]
enum Progress {
    Head,
    Records,
    Ended,
}

/// Reads a payload; the first thing that does not fit makes the record damaged.
struct Payload<'a>(&'a [u8], &'static str);

impl<'a> Payload<'a> {
    fn damaged(&self) -> RestoreError {
        RestoreError::Damaged(self.1)
    }

    fn u64(&mut self) -> Result<u64, RestoreError> {
        varint::try_take_u64(&mut self.0).ok_or_else(|| self.damaged())
    }

    fn number<T: TryFrom<u64>>(&mut self) -> Result<T, RestoreError> {
        T::try_from(self.u64()?).map_err(|_| self.damaged())
    }

    fn str(&mut self) -> Result<&'a [u8], RestoreError> {
        varint::try_take_str(&mut self.0).ok_or_else(|| self.damaged())
    }

    fn bytes(&mut self) -> Result<Bytes, RestoreError> {
        self.str().map(Bytes::copy_from_slice)
    }

    fn id(&mut self) -> Result<EntryId, RestoreError> {
        Ok(EntryId { ms: self.u64()?, seq: self.u64()? })
    }

    fn option(&mut self) -> Result<Option<u64>, RestoreError> {
        match self.u64()? {
            0 => Ok(None),
            1 => self.u64().map(Some),
            _ => Err(self.damaged()),
        }
    }

    /// A version of a key; 1 where it is left out, as before version 4 of the format.
    fn version(&mut self) -> Result<u64, RestoreError> {
        if self.0.is_empty() { Ok(1) } else { self.u64() }
    }

    fn end(&self) -> Result<(), RestoreError> {
        if self.0.is_empty() { Ok(()) } else { Err(self.damaged()) }
    }
}

impl Restore {
    pub(crate) fn new() -> Restore {
        let machine = Machine::new();
        Restore { rest: Vec::new(), machine, stream: None, item: None, group: None, progress: Progress::Head }
    }

    /// Takes the next bytes, cut anywhere.
    ///
    /// # Errors
    /// [`RestoreError`]: give the whole attempt up.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), RestoreError> {
        let mut bytes = core::mem::take(&mut self.rest);
        bytes.extend_from_slice(chunk);
        let mut left = &bytes[..];
        if self.progress == Progress::Head {
            let known = left.len().min(MAGIC.len());
            if left[..known] != MAGIC[..known] {
                return Err(RestoreError::NotASnapshot);
            }
            match left.get(MAGIC.len()) {
                None => {
                    self.rest = bytes;
                    return Ok(());
                }
                Some(VERSION_MIN..=VERSION) => left = &left[MAGIC.len() + 1..],
                Some(&version) => return Err(RestoreError::Version(version)),
            }
            self.progress = Progress::Records;
        }
        while let Some((&tag, mut tail)) = left.split_first() {
            if self.progress == Progress::Ended {
                return Err(RestoreError::Damaged("bytes behind the end"));
            }
            // A length that is not all there yet waits for more; so does a payload.
            let Some(payload) = varint::try_take_str(&mut tail) else { break };
            self.record(tag, payload)?;
            left = tail;
        }
        let consumed = bytes.len() - left.len();
        bytes.drain(..consumed);
        self.rest = bytes;
        Ok(())
    }

    /// The machine, once all bytes were pushed.
    ///
    /// # Errors
    /// [`RestoreError::Incomplete`]: bytes are missing.
    pub fn finish(self) -> Result<Machine, RestoreError> {
        if self.progress == Progress::Ended && self.rest.is_empty() {
            Ok(self.machine)
        } else {
            Err(RestoreError::Incomplete)
        }
    }

    fn record(&mut self, tag: u8, payload: &[u8]) -> Result<(), RestoreError> {
        match tag {
            SHARD => self.shard(Payload(payload, "shard")),
            STRING => self.string(Payload(payload, "string")),
            STREAM => self.stream(Payload(payload, "stream")),
            BLOCK => self.block(Payload(payload, "block")),
            GROUP => self.group(Payload(payload, "group")),
            CONSUMER => self.consumer(Payload(payload, "consumer")),
            ROWS => self.rows(Payload(payload, "pending rows")),
            END => self.end(Payload(payload, "end")),
            IDEMPOTENCE => self.idempotence(Payload(payload, "idempotence")),
            IIDS => self.iids(Payload(payload, "idempotent ids")),
            _ => Err(RestoreError::Damaged("record of unknown kind")),
        }
    }

    fn shard(&mut self, mut from: Payload<'_>) -> Result<(), RestoreError> {
        self.machine.last_stamp_ms = from.u64()?;
        self.machine.settings =
            Settings { stream_node_max_entries: from.number()?, stream_node_max_bytes: from.number()? };
        let mut ranges = Vec::new();
        for _ in 0..from.number::<u16>()? {
            ranges.push(SlotRange { first: Slot(from.number()?), last: Slot(from.number()?) });
        }
        self.machine.owned = Ownership::new(ranges);
        self.machine.keyspace.set_version(from.version()?);
        from.end()
    }

    fn string(&mut self, mut from: Payload<'_>) -> Result<(), RestoreError> {
        self.close_stream();
        let (key, deadline_ms, value) = (from.str()?, from.option()?, from.bytes()?);
        let item = Item { value: Value::String(value), deadline_ms, version: from.version()? };
        self.machine.keyspace.put_as_it_was(key, item);
        from.end()
    }

    fn stream(&mut self, mut from: Payload<'_>) -> Result<(), RestoreError> {
        self.close_stream();
        let (key, deadline_ms) = (from.bytes()?, from.option()?);
        let mut stream = Stream::default();
        stream.entries.last_id = from.id()?;
        stream.entries.max_deleted_id = from.id()?;
        stream.entries.entries_added = from.u64()?;
        let value = Value::Stream(Arc::default());
        self.item = Some((key, Item { value, deadline_ms, version: from.version()? }));
        self.stream = Some(stream);
        from.end()
    }

    fn idempotence(&mut self, mut from: Payload<'_>) -> Result<(), RestoreError> {
        let mut idempotence = Idempotence::new(from.number()?, from.number()?);
        (idempotence.added, idempotence.duplicates) = (from.u64()?, from.u64()?);
        let Some(stream) = self.stream.as_mut() else { return Err(from.damaged()) };
        stream.idempotence = Some(Arc::new(idempotence));
        from.end()
    }

    fn iids(&mut self, mut from: Payload<'_>) -> Result<(), RestoreError> {
        let known = self.stream.as_mut().and_then(|stream| stream.idempotence.as_mut());
        let idempotence = Arc::make_mut(known.ok_or_else(|| from.damaged())?);
        let producer = from.str()?;
        for _ in 0..from.u64()? {
            let record = Record { iid: from.bytes()?, id: from.id()?, at_ms: from.u64()? };
            if !idempotence.insert(producer, record) {
                return Err(from.damaged());
            }
        }
        from.end()
    }

    fn block(&mut self, mut from: Payload<'_>) -> Result<(), RestoreError> {
        let open = from.u64()? == 1;
        let (first, last) = (from.id()?, from.id()?);
        let (count, live) = (from.number()?, from.number()?);
        let block = Block { first, last, count, live, bytes: from.str()?.to_vec() };
        from.end()?;
        let Some(stream) = self.stream.as_mut() else { return Err(from.damaged()) };
        let entries = &mut stream.entries;
        let behind = entries.sealed.last().is_none_or(|(_, before)| before.last < first);
        if !block.is_sound() || !behind || entries.open.is_some() || last > entries.last_id {
            return Err(from.damaged());
        }
        entries.len += u64::from(live);
        entries.block_bytes += block.memory_bytes();
        if open {
            entries.open = Some(Arc::new(block));
        } else {
            entries.sealed.insert(first, Arc::new(block));
        }
        Ok(())
    }

    fn group(&mut self, mut from: Payload<'_>) -> Result<(), RestoreError> {
        self.close_group();
        let name = from.bytes()?;
        let mut group = Group::new(from.id()?, from.option()?);
        group.next_number = from.number()?;
        from.end()?;
        if self.stream.is_none() {
            return Err(from.damaged());
        }
        self.group = Some((name, group));
        Ok(())
    }

    fn consumer(&mut self, mut from: Payload<'_>) -> Result<(), RestoreError> {
        let name = from.bytes()?;
        let (number, seen_ms, active_ms) = (from.number()?, from.u64()?, from.option()?);
        let Some((_, group)) = self.group.as_mut() else { return Err(from.damaged()) };
        group.names.insert(number, name.clone());
        group.consumers.insert(name, Consumer { number, seen_ms, active_ms, pending: 0 });
        from.end()
    }

    fn rows(&mut self, mut from: Payload<'_>) -> Result<(), RestoreError> {
        let Some((_, group)) = self.group.as_mut() else { return Err(from.damaged()) };
        for _ in 0..from.u64()? {
            let id = from.id()?;
            let nack = Nack { owner: from.number()?, delivered_ms: from.u64()?, deliveries: from.u64()? };
            if !group.names.contains_key(&nack.owner) && !nack.is_released() {
                return Err(from.damaged());
            }
            group.set_pending(id, nack);
        }
        from.end()
    }

    fn end(&mut self, mut from: Payload<'_>) -> Result<(), RestoreError> {
        self.close_stream();
        let stats = self.machine.stats();
        if [from.u64()?, from.u64()?, from.u64()?] != [stats.keys, stats.entries, stats.pending] {
            return Err(from.damaged());
        }
        self.progress = Progress::Ended;
        from.end()
    }

    fn close_group(&mut self) {
        if let (Some((name, group)), Some(stream)) = (self.group.take(), &mut self.stream) {
            stream.add_group(name, group);
        }
    }

    fn close_stream(&mut self) {
        self.close_group();
        if let (Some(mut stream), Some((key, item))) = (self.stream.take(), self.item.take()) {
            stream.entries.find_first();
            let value = Value::Stream(Arc::new(stream));
            self.machine.keyspace.put_as_it_was(&key, Item { value, ..item });
        }
    }
}
