//! XGROUP CREATE, SETID, DESTROY, CREATECONSUMER, DELCONSUMER.

use crate::garbage::Garbage;
use crate::group::Group;
use crate::keyspace::{Item, Value};
use crate::machine::{Machine, int};
use crate::stream::{EntryStore, Stream};
use crate::unit::Unit;
use crate::{EntryId, GroupChange, GroupStart, Key, Refusal, Reply};
use alloc::sync::Arc;
use bytes::Bytes;

impl Machine {
    pub(crate) fn xgroup(
        &mut self,
        unit: &mut Unit,
        key: &Key,
        group: &Bytes,
        change: &GroupChange,
    ) -> Result<Reply, Refusal> {
        let stream = self.keyspace.stream(key)?;
        let has_group = stream.is_some_and(|stream| stream.groups.contains_key(group));
        let may_create = matches!(change, GroupChange::Create { mkstream: true, .. });
        if stream.is_none() && !may_create {
            return Err(Refusal::xgroup_without_key());
        }
        match change {
            GroupChange::Create { at, entries_read, .. } => {
                if has_group {
                    return Err(Refusal::busy_group());
                }
                if stream.is_none() {
                    let value = Value::Stream(Arc::new(Stream::default()));
                    self.keyspace.put(key, Item::new(value, None));
                }
                self.keyspace.change_stream(key, |stream| {
                    let new =
                        Group::new(start(*at, &stream.entries), counter(*entries_read, &stream.entries));
                    stream.add_group(Bytes::copy_from_slice(group), new);
                });
                Ok(Reply::Ok)
            }
            GroupChange::Destroy => {
                let removed = self.keyspace.change_stream(key, |stream| stream.remove_group(group)).flatten();
                Ok(Reply::Int(match removed {
                    Some(removed) => {
                        unit.wake(key);
                        unit.discard(Garbage::of_group(removed));
                        1
                    }
                    None => 0,
                }))
            }
            _ if !has_group => Err(Refusal::no_group_for_key(key, group)),
            GroupChange::SetId { at, entries_read } => {
                self.change_group(key, group, |entries, group| {
                    group.last_delivered_id = start(*at, entries);
                    group.entries_read = counter(*entries_read, entries);
                });
                Ok(Reply::Ok)
            }
            GroupChange::CreateConsumer { consumer } => {
                let created = self.change_group(key, group, |_, group| {
                    let absent = !group.consumers.contains_key(consumer);
                    if absent {
                        group.see(consumer, unit.now_ms);
                    }
                    absent
                });
                Ok(int(u64::from(created.unwrap_or(false))))
            }
            GroupChange::DelConsumer { consumer } => {
                let pending = self.change_group(key, group, |_, group| group.remove_consumer(consumer));
                Ok(int(pending.flatten().unwrap_or(0)))
            }
        }
    }

    /// Changes a group; `None` if it is not there.
    pub(crate) fn change_group<R>(
        &mut self,
        key: &[u8],
        group: &[u8],
        change: impl FnOnce(&EntryStore, &mut Group) -> R,
    ) -> Option<R> {
        self.keyspace.change_stream(key, |stream| stream.change_group(group, change))?
    }

    /// Keeps a waiting reader's consumer in view: created if absent, seen now. Nothing without the group.
    pub(crate) fn touch_consumer(&mut self, unit: &Unit, key: &[u8], group: &[u8], consumer: &[u8]) {
        self.change_group(key, group, |_, group| group.see(consumer, unit.now_ms));
    }
}

fn start(at: GroupStart, entries: &EntryStore) -> EntryId {
    match at {
        GroupStart::Last => entries.last_id,
        GroupStart::Id(id) => id,
    }
}

/// ENTRIESREAD: negative is "not known", more than there were is clamped.
fn counter(given: Option<i64>, entries: &EntryStore) -> Option<u64> {
    given.and_then(|given| u64::try_from(given).ok()).map(|read| read.min(entries.entries_added))
}
