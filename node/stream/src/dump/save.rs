//! Values to payloads.

use super::listpack::Listpack;
use super::rdb::{put_id, put_number, put_raw_id, put_string, put_time_ms};
use super::{STREAM_2, STREAM_4, STREAM_5, STRING, StreamForm, put_footer};
use crate::EntryId;
use crate::block::{Block, EntryView};
use crate::group::Group;
use crate::idempotence::Idempotence;
use crate::keyspace::Value;
use crate::stream::Stream;
use alloc::vec::Vec;

/// Flags of an entry in a listpack. (1 is "deleted".)
pub(super) const MASTER_FIELDS: i64 = 2;

/// Number of entries read that is not known.
const NOT_KNOWN: u64 = u64::MAX;

pub(super) fn payload(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let version = match value {
        Value::String(value) => {
            out.push(STRING);
            put_string(&mut out, value);
            10
        }
        Value::Stream(stream) => {
            let (form, kind, version) = form_of(stream);
            out.push(kind);
            put_stream(&mut out, stream, form);
            version
        }
    };
    put_footer(&mut out, version);
    out
}

/// The oldest form that holds all of the stream, its type and the version of the format that has it.
fn form_of(stream: &Stream) -> (StreamForm, u8, u16) {
    let released = stream.groups.iter().any(|(_, group)| group.pending.released() > 0);
    let remembers = stream.idempotence.as_ref().is_some_and(|known| !known.is_untouched());
    match (released, remembers) {
        (true, _) => (StreamForm::Released, STREAM_5, 14),
        (false, true) => (StreamForm::Producers, STREAM_4, 13),
        (false, false) => (StreamForm::Counters, STREAM_2, 10),
    }
}

fn put_stream(out: &mut Vec<u8>, stream: &Stream, form: StreamForm) {
    let entries = &stream.entries;
    put_number(out, entries.blocks());
    for block in entries.sealed.iter().map(|(_, block)| block).chain(&entries.open) {
        put_block(out, block);
    }
    put_number(out, entries.len);
    put_id(out, entries.last_id);
    put_id(out, entries.first_id);
    put_id(out, entries.max_deleted_id);
    put_number(out, entries.entries_added);
    put_number(out, stream.groups.len() as u64);
    for (name, group) in stream.groups.iter() {
        put_string(out, name);
        put_id(out, group.last_delivered_id);
        // Redis takes no counter that is above what was ever added.
        put_number(out, group.entries_read.map_or(NOT_KNOWN, |read| read.min(entries.entries_added)));
        put_group(out, group, form);
    }
    if form >= StreamForm::Producers {
        let default = Idempotence::default();
        put_idempotence(out, stream.idempotence.as_deref().unwrap_or(&default));
    }
}

/// What is deleted is left out.
fn put_block(out: &mut Vec<u8>, block: &Block) {
    let master = block.first_live().unwrap_or(block.first);
    let mut list = Listpack::new(block.bytes.len() * 2);
    list.push_int(block.live.into());
    list.push_int(0);
    let names = block.names();
    list.push_int(names.len() as i64);
    names.iter().for_each(|name| list.push_str(name));
    list.push_int(0);
    for entry in block.iter().filter(|entry| !entry.deleted) {
        put_entry(&mut list, master, &entry);
    }
    let mut key = Vec::with_capacity(16);
    put_raw_id(&mut key, master);
    put_string(out, &key);
    put_string(out, &list.finish());
}

fn put_entry(list: &mut Listpack, master: EntryId, entry: &EntryView<'_>) {
    let (shared, fields) = (entry.has_names_of_block(), entry.fields() as i64);
    list.push_int(if shared { MASTER_FIELDS } else { 0 });
    list.push_int(entry.id.ms.wrapping_sub(master.ms) as i64);
    list.push_int(entry.id.seq.wrapping_sub(master.seq) as i64);
    if shared {
        entry.strings().skip(1).step_by(2).for_each(|value| list.push_str(value));
        list.push_int(fields + 3);
    } else {
        list.push_int(fields);
        entry.strings().for_each(|string| list.push_str(string));
        list.push_int(2 * fields + 4);
    }
}

fn put_group(out: &mut Vec<u8>, group: &Group, form: StreamForm) {
    put_number(out, group.pending.len());
    for (id, nack) in group.pending.iter() {
        put_raw_id(out, id);
        put_time_ms(out, Some(if nack.is_released() { 0 } else { nack.delivered_ms }));
        put_number(out, nack.deliveries);
    }
    put_number(out, group.consumers.len() as u64);
    for (name, consumer) in group.consumers.iter() {
        put_string(out, name);
        put_time_ms(out, Some(consumer.seen_ms));
        if form >= StreamForm::Activity {
            put_time_ms(out, consumer.active_ms);
        }
        put_number(out, consumer.pending);
        let rows = group.pending.iter_owned_from(consumer.number, EntryId::MIN);
        rows.for_each(|(id, _)| put_raw_id(out, id));
    }
    if form >= StreamForm::Released {
        put_number(out, group.pending.released());
        group.pending.oldest_first(None).for_each(|(id, _)| put_raw_id(out, id));
    }
}

fn put_idempotence(out: &mut Vec<u8>, known: &Idempotence) {
    put_number(out, known.duration_s.into());
    put_number(out, known.maxsize.into());
    put_number(out, known.producers.len() as u64);
    for (name, producer) in known.producers.iter() {
        put_string(out, name);
        put_number(out, producer.records.len() as u64);
        for (_, record) in producer.records.iter() {
            put_string(out, &record.iid);
            put_id(out, record.id);
        }
    }
    put_number(out, known.added);
    put_number(out, known.duplicates);
}
