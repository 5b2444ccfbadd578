//! XREADGROUP: deliver new entries to a consumer, or show it its pending ones again.

use crate::group::Group;
use crate::machine::Machine;
use crate::pending::Nack;
use crate::stream::EntryStore;
use crate::unit::Unit;
use crate::{Entries, EntryId, GroupReadId, Refusal, Reply, Xreadgroup};
use alloc::vec::Vec;
use core::ops::ControlFlow;

impl Machine {
    /// All keys are checked before anything is delivered.
    pub(crate) fn xreadgroup(&mut self, unit: &mut Unit, read: &Xreadgroup) -> Result<Reply, Refusal> {
        for (key, _) in &read.keys {
            let stream = self.keyspace.stream(key)?;
            if !stream.is_some_and(|stream| stream.groups.contains_key(&read.group)) {
                return Err(Refusal::no_group_to_read(key, &read.group));
            }
        }
        let mut streams = Vec::new();
        for (key, from) in &read.keys {
            if read.woken && self.has_nothing_new(key, &read.group, *from) {
                continue;
            }
            let shown = self.change_group(key, &read.group, |entries, group| match history_after(*from) {
                None => deliver_new(entries, group, unit, read),
                Some(id) => Some(show_history(entries, group, unit, read, id)),
            });
            streams.extend(shown.flatten().map(|entries| (key.clone(), entries)));
        }
        Ok(if streams.is_empty() { Reply::NilArray } else { Reply::Streams(streams) })
    }

    fn has_nothing_new(&self, key: &[u8], group: &[u8], from: GroupReadId) -> bool {
        let Ok((stream, group)) = self.group(key, group) else { return false };
        history_after(from).is_none() && stream.entries.count_after(group.last_delivered_id, 1) == 0
    }
}

/// The id after which history is wanted; `None`: new entries. The last possible id means the same as `>`.
fn history_after(from: GroupReadId) -> Option<EntryId> {
    match from {
        GroupReadId::New | GroupReadId::After(EntryId::MAX) => None,
        GroupReadId::After(id) => Some(id),
    }
}

/// `None`: nothing new. An empty list if no reply is wanted.
fn deliver_new(entries: &EntryStore, group: &mut Group, unit: &Unit, read: &Xreadgroup) -> Option<Entries> {
    let owner = group.see(&read.consumer, unit.now_ms);
    if entries.last_id <= group.last_delivered_id {
        return None;
    }
    let start = group.last_delivered_id.next()?;
    let count_max = count_max(read);
    let nack = Nack { owner, delivered_ms: unit.now_ms, deliveries: 1 };
    let mut list = Entries::new();
    let (mut delivered, mut gained) = (0, 0);
    entries.walk(start, EntryId::MAX, |entry| {
        group.advance(entries, entry.id);
        if !read.noack {
            gained += u64::from(group.hand_over(entry.id, nack));
        }
        if unit.want_reply {
            list.push(entry.id, entry.strings());
        }
        delivered += 1;
        if delivered < count_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if delivered == 0 {
        return None;
    }
    if !read.noack {
        group.add_delivered(&read.consumer, gained, unit.now_ms);
    }
    Some(list)
}

/// The consumer's own pending entries. Those still present count as delivered once more.
fn show_history(
    entries: &EntryStore,
    group: &mut Group,
    unit: &Unit,
    read: &Xreadgroup,
    after: EntryId,
) -> Entries {
    let owner = group.see(&read.consumer, unit.now_ms);
    let mut list = Entries::new();
    let Some(start) = after.next() else { return list };
    let count_max = usize::try_from(count_max(read)).unwrap_or(usize::MAX);
    let rows: Vec<(EntryId, Nack)> = group.pending.iter_owned_from(owner, start).take(count_max).collect();
    for (id, nack) in rows {
        let entry = entries.entry(id);
        if entry.is_some() {
            let deliveries = nack.deliveries.saturating_add(1);
            group.pending.set(id, Nack { delivered_ms: unit.now_ms, deliveries, ..nack });
        }
        match entry {
            _ if !unit.want_reply => {}
            Some(entry) => list.push(id, entry.strings()),
            None => list.push_gone(id),
        }
    }
    list
}

fn count_max(read: &Xreadgroup) -> u64 {
    read.count.filter(|count| *count > 0).unwrap_or(u64::MAX)
}
