//! Payloads to values.

use super::listpack::{Element, Elements};
use super::rdb::{Reader, UNPACKED_MAX};
use super::save::MASTER_FIELDS;
use super::{DumpError, STREAM_1, STREAM_2, STREAM_3, STREAM_4, STREAM_5, STRING, StreamForm, checked};
use crate::group::{Consumer, Group};
use crate::idempotence::{Idempotence, Record};
use crate::keyspace::{Item, Value};
use crate::machine::Machine;
use crate::pending::{NOBODY, Nack};
use crate::stream::{EntryStore, Stream};
use crate::{EntryId, Settings};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;

const DELETED: i64 = 1;
/// Seconds and records that XCFGSET takes.
const DURATION_S: core::ops::RangeInclusive<u64> = 1..=86_400;
const MAXSIZE: core::ops::RangeInclusive<u64> = 1..=10_000;

/// The value of a payload in the form in which it goes into the log, for [`crate::Command::Restore`].
///
/// # Errors
/// [`DumpError`]: nothing can be restored from it.
pub fn load(payload: &[u8]) -> Result<Bytes, DumpError> {
    let value = value(payload)?;
    let mut alone = Machine::new();
    alone.keyspace.put(&[], Item::new(value, None));
    let (mut snapshot, mut bytes) = (alone.snapshot(), Vec::new());
    while snapshot.next_chunk(usize::MAX, &mut bytes) {}
    Ok(bytes.into())
}

pub(super) fn value(payload: &[u8]) -> Result<Value, DumpError> {
    let (kind, rest) = checked(payload)?;
    let mut from = Reader::new(rest);
    let form = match kind {
        STRING => return Ok(Value::String(from.string()?.into_owned().into())),
        STREAM_1 => StreamForm::First,
        STREAM_2 => StreamForm::Counters,
        STREAM_3 => StreamForm::Activity,
        STREAM_4 => StreamForm::Producers,
        STREAM_5 => StreamForm::Released,
        1..=7 | 9..=32 => return Err(DumpError::Type(kind)),
        _ => return Err(DumpError::Value),
    };
    Ok(Value::Stream(Arc::new(stream(&mut from, form)?)))
}

fn stream(from: &mut Reader<'_>, form: StreamForm) -> Result<Stream, DumpError> {
    let mut stream = Stream { entries: entries(from, form)?, ..Stream::default() };
    for _ in 0..from.number()? {
        let name = Bytes::copy_from_slice(&from.string()?);
        let group = group(from, form, &stream.entries)?;
        if stream.groups.contains_key(&name[..]) {
            return Err(DumpError::Value);
        }
        stream.add_group(name, group);
    }
    if form >= StreamForm::Producers {
        let known = idempotence(from)?;
        stream.idempotence = (!known.is_untouched()).then(|| Arc::new(known));
    }
    Ok(stream)
}

fn entries(from: &mut Reader<'_>, form: StreamForm) -> Result<EntryStore, DumpError> {
    let mut entries = EntryStore::default();
    for _ in 0..from.number()? {
        let key = from.string()?;
        let master = Reader::new(&key).raw_id()?;
        listpack(&mut entries, master, &from.string()?)?;
        // Runs stay as long as they were, so that approximate trims cut where they would have.
        entries.seal();
    }
    let (length, last_id) = (from.number()?, from.id()?);
    if length != entries.len || last_id < entries.last_id {
        return Err(DumpError::Value);
    }
    entries.last_id = last_id;
    entries.entries_added = entries.len;
    if form >= StreamForm::Counters {
        // What is first is known already.
        from.id()?;
        entries.max_deleted_id = from.id()?;
        entries.entries_added = from.number()?;
    }
    if entries.entries_added < entries.len || i64::try_from(entries.entries_added).is_err() {
        return Err(DumpError::Value);
    }
    Ok(entries)
}

/// Adds the entries of one run.
fn listpack(entries: &mut EntryStore, master: EntryId, bytes: &[u8]) -> Result<(), DumpError> {
    let no_bounds = Settings { stream_node_max_entries: 0, stream_node_max_bytes: 0 };
    let mut from = Elements::of(bytes)?;
    let (live, deleted) = (count(&mut from)?, count(&mut from)?);
    let mut names = Vec::new();
    for _ in 0..count(&mut from)? {
        names.push(from.next()?.string());
    }
    if from.next()?.int()? != 0 {
        return Err(DumpError::Value);
    }
    let (mut found_live, mut found_deleted) = (0u64, 0u64);
    while !from.is_at_end() {
        let flags = from.next()?.int()?;
        let (ms, seq) = (from.next()?.int()?, from.next()?.int()?);
        let id = EntryId::new(master.ms.wrapping_add_signed(ms), master.seq.wrapping_add_signed(seq));
        let strings = strings(&mut from, flags, &names)?;
        let shared = flags & MASTER_FIELDS != 0;
        let elements = if shared { strings.len() / 2 + 3 } else { strings.len() + 4 };
        if from.next()?.int()? != elements as i64 || strings.is_empty() {
            return Err(DumpError::Value);
        }
        if flags & DELETED != 0 {
            found_deleted += 1;
            continue;
        }
        if id <= entries.last_id {
            return Err(DumpError::Value);
        }
        entries.append(id, &strings, &no_bounds);
        found_live += 1;
        // Entries that share long names would grow by far when the first of them does not.
        if entries.block_bytes > UNPACKED_MAX as u64 {
            return Err(DumpError::Value);
        }
    }
    if (found_live, found_deleted) != (live, deleted) || live == 0 {
        return Err(DumpError::Value);
    }
    Ok(())
}

/// Field, value, field, value ... of one entry.
fn strings<'a>(
    from: &mut Elements<'a>,
    flags: i64,
    names: &[Cow<'a, [u8]>],
) -> Result<Vec<Cow<'a, [u8]>>, DumpError> {
    let mut strings = Vec::new();
    if flags & MASTER_FIELDS != 0 {
        for name in names {
            strings.push(name.clone());
            strings.push(from.next()?.string());
        }
    } else {
        for _ in 0..count(from)? {
            strings.push(from.next()?.string());
            strings.push(from.next()?.string());
        }
    }
    Ok(strings)
}

fn count(from: &mut Elements<'_>) -> Result<u64, DumpError> {
    let element: Element<'_> = from.next()?;
    u64::try_from(element.int()?).map_err(|_| DumpError::Value)
}

/// A row of a pending list whose owner is not known yet.
struct Row {
    delivered_ms: u64,
    deliveries: u64,
    owner: Option<u32>,
    /// Its place among those that were given back.
    place: Option<u64>,
}

fn group(from: &mut Reader<'_>, form: StreamForm, entries: &EntryStore) -> Result<Group, DumpError> {
    let last_delivered_id = from.id()?;
    let entries_read = match form {
        StreamForm::First => entries.entries_added_up_to(last_delivered_id),
        _ => match from.number()? {
            u64::MAX => None,
            // Redis writes more than there ever were where XSETID took some back.
            read => Some(read.min(entries.entries_added)),
        },
    };
    let mut group = Group::new(last_delivered_id, entries_read);
    let mut rows = BTreeMap::new();
    for _ in 0..from.number()? {
        let id = from.raw_id()?;
        let delivered_ms = from.time_ms()?.unwrap_or(0);
        let row = Row { delivered_ms, deliveries: from.number()?, owner: None, place: None };
        if rows.insert(id, row).is_some() {
            return Err(DumpError::Value);
        }
    }
    for _ in 0..from.number()? {
        let name = Bytes::copy_from_slice(&from.string()?);
        let seen_ms = from.time_ms()?.unwrap_or(0);
        let active_ms = if form >= StreamForm::Activity { from.time_ms()? } else { Some(seen_ms) };
        if group.consumers.contains_key(&name[..]) {
            return Err(DumpError::Value);
        }
        let number = group.see(&name, seen_ms);
        group.consumers.insert(name, Consumer { number, seen_ms, active_ms, pending: 0 });
        for _ in 0..from.number()? {
            let row = rows.get_mut(&from.raw_id()?).ok_or(DumpError::Value)?;
            if row.owner.replace(number).is_some() {
                return Err(DumpError::Value);
            }
        }
    }
    if form >= StreamForm::Released {
        for place in 1..=from.number()? {
            let row = rows.get_mut(&from.raw_id()?).ok_or(DumpError::Value)?;
            if row.owner.is_some() || row.place.replace(place).is_some() {
                return Err(DumpError::Value);
            }
        }
    }
    for (id, row) in rows {
        let nack = match (row.owner, row.place) {
            (Some(owner), None) => Nack { owner, delivered_ms: row.delivered_ms, deliveries: row.deliveries },
            (None, Some(place)) => Nack { owner: NOBODY, delivered_ms: place, deliveries: row.deliveries },
            _ => return Err(DumpError::Value),
        };
        group.set_pending(id, nack);
    }
    Ok(group)
}

/// A record is as old as its entry: Redis keeps no other time.
fn idempotence(from: &mut Reader<'_>) -> Result<Idempotence, DumpError> {
    let (duration_s, maxsize) = (from.number()?, from.number()?);
    if !DURATION_S.contains(&duration_s) || !MAXSIZE.contains(&maxsize) {
        return Err(DumpError::Value);
    }
    let mut known = Idempotence::new(duration_s as u32, maxsize as u32);
    for _ in 0..from.number()? {
        let producer = from.string()?.into_owned();
        let mut latest_ms = 0;
        for _ in 0..from.number()? {
            let iid = Bytes::copy_from_slice(&from.string()?);
            let id = from.id()?;
            latest_ms = id.ms.max(latest_ms);
            // What stands there twice counts once, as in Redis.
            known.insert(&producer, Record { iid, id, at_ms: latest_ms });
        }
    }
    (known.added, known.duplicates) = (from.number()?, from.number()?);
    Ok(known)
}
