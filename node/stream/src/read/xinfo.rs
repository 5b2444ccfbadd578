//! XINFO STREAM, STREAM FULL, GROUPS and CONSUMERS.

use crate::block::EntryView;
use crate::group::{Consumer, Group};
use crate::idempotence::Idempotence;
use crate::machine::{Machine, int};
use crate::pending::Nack;
use crate::stream::{EntryStore, Stream};
use crate::{Entries, EntryId, Key, Refusal, Reply};
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::ControlFlow;

impl Machine {
    fn known_stream(&self, key: &Key) -> Result<&Stream, Refusal> {
        self.keyspace.stream(key)?.ok_or_else(Refusal::no_such_key)
    }

    pub(crate) fn xinfo_stream(&self, key: &Key) -> Result<Reply, Refusal> {
        let stream = self.known_stream(key)?;
        let entries = &stream.entries;
        let mut map = counters(stream);
        map.push(field("groups", int(stream.groups.len() as u64)));
        map.push(field("first-entry", entry(entries.entry(entries.first_id))));
        map.push(field("last-entry", entry(entries.last_live().and_then(|id| entries.entry(id)))));
        Ok(Reply::Map(map))
    }

    /// `count` bounds entries and pending rows in the answer; 0 = everything.
    pub(crate) fn xinfo_stream_full(&self, key: &Key, count: u64) -> Result<Reply, Refusal> {
        let stream = self.known_stream(key)?;
        let count = if count == 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) };
        let mut list = Entries::new();
        stream.entries.walk(EntryId::MIN, EntryId::MAX, |entry| {
            list.push(entry.id, entry.strings());
            if list.len() < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let mut map = counters(stream);
        map.push(field("entries", Reply::Entries(list)));
        let groups =
            stream.groups.iter().map(|(name, group)| full_group(name, group, &stream.entries, count));
        map.push(field("groups", Reply::Array(groups.collect())));
        Ok(Reply::Map(map))
    }

    pub(crate) fn xinfo_groups(&self, key: &Key) -> Result<Reply, Refusal> {
        let stream = self.known_stream(key)?;
        let group = |(name, group): (&Bytes, &alloc::sync::Arc<Group>)| {
            Reply::Map(vec![
                field("name", Reply::Bulk(name.clone())),
                field("consumers", int(group.consumers.len() as u64)),
                field("pending", int(group.pending.len())),
                field("last-delivered-id", Reply::Id(group.last_delivered_id)),
                field("entries-read", known(group.entries_read)),
                field("lag", known(group.lag(&stream.entries))),
            ])
        };
        Ok(Reply::Array(stream.groups.iter().map(group).collect()))
    }

    pub(crate) fn xinfo_consumers(&self, now_ms: u64, key: &Key, group: &Bytes) -> Result<Reply, Refusal> {
        let groups = &self.known_stream(key)?.groups;
        let group = groups.get(group).ok_or_else(|| Refusal::no_group_for_key(key, group))?;
        let consumer = |(name, consumer): (&Bytes, &Consumer)| {
            let age = |at_ms: u64| int(now_ms.saturating_sub(at_ms));
            Reply::Map(vec![
                field("name", Reply::Bulk(name.clone())),
                field("pending", int(consumer.pending)),
                field("idle", age(consumer.seen_ms)),
                field("inactive", consumer.active_ms.map_or(Reply::Int(-1), age)),
            ])
        };
        Ok(Reply::Array(group.consumers.iter().map(consumer).collect()))
    }
}

fn field(name: &'static str, value: Reply) -> (Reply, Reply) {
    (Reply::Bulk(Bytes::from_static(name.as_bytes())), value)
}

fn known(count: Option<u64>) -> Reply {
    count.map_or(Reply::NilBulk, int)
}

fn counters(stream: &Stream) -> Vec<(Reply, Reply)> {
    let entries = &stream.entries;
    let default = Idempotence::default();
    let idempotence = stream.idempotence.as_deref().unwrap_or(&default);
    vec![
        field("length", int(entries.len)),
        // The blocks stand where Redis has the nodes of a tree: one key each, and a root.
        field("radix-tree-keys", int(entries.blocks())),
        field("radix-tree-nodes", int(entries.blocks() + 1)),
        field("last-generated-id", Reply::Id(entries.last_id)),
        field("max-deleted-entry-id", Reply::Id(entries.max_deleted_id)),
        field("entries-added", int(entries.entries_added)),
        field("recorded-first-entry-id", Reply::Id(entries.first_id)),
        field("idmp-duration", int(idempotence.duration_s.into())),
        field("idmp-maxsize", int(idempotence.maxsize.into())),
        field("pids-tracked", int(idempotence.producers.len() as u64)),
        field("iids-tracked", int(idempotence.records)),
        field("iids-added", int(idempotence.added)),
        field("iids-duplicates", int(idempotence.duplicates)),
    ]
}

fn entry(entry: Option<EntryView<'_>>) -> Reply {
    let Some(entry) = entry else { return Reply::NilBulk };
    let strings = entry.strings().map(|s| Reply::Bulk(Bytes::copy_from_slice(s)));
    Reply::Array(vec![Reply::Id(entry.id), Reply::Array(strings.collect())])
}

fn full_group(name: &Bytes, group: &Group, entries: &EntryStore, count: usize) -> Reply {
    let row = |(id, nack): (EntryId, Nack)| {
        let owner = Reply::Bulk(group.name_of(nack.owner));
        let delivered_ms = if nack.is_released() { 0 } else { nack.delivered_ms };
        Reply::Array(vec![Reply::Id(id), owner, int(delivered_ms), int(nack.deliveries)])
    };
    let consumers =
        group.consumers.iter().map(|(name, consumer)| full_consumer(name, consumer, group, count));
    Reply::Map(vec![
        field("name", Reply::Bulk(name.clone())),
        field("last-delivered-id", Reply::Id(group.last_delivered_id)),
        field("entries-read", known(group.entries_read)),
        field("lag", known(group.lag(entries))),
        field("pel-count", int(group.pending.len())),
        field("nacked-count", int(group.pending.released())),
        field("pending", Reply::Array(group.pending.iter().take(count).map(row).collect())),
        field("consumers", Reply::Array(consumers.collect())),
    ])
}

fn full_consumer(name: &Bytes, consumer: &Consumer, group: &Group, count: usize) -> Reply {
    let row = |(id, nack): (EntryId, Nack)| {
        Reply::Array(vec![Reply::Id(id), int(nack.delivered_ms), int(nack.deliveries)])
    };
    let rows = group.pending.iter_owned_from(consumer.number, EntryId::MIN);
    Reply::Map(vec![
        field("name", Reply::Bulk(name.clone())),
        field("seen-time", int(consumer.seen_ms)),
        field("active-time", consumer.active_ms.map_or(Reply::Int(-1), int)),
        field("pel-count", int(consumer.pending)),
        field("pending", Reply::Array(rows.take(count).map(row).collect())),
    ])
}
