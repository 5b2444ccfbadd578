//! XREADGROUP: deliver entries to a consumer, claimed and new ones, or show it its pending ones again.

use crate::budget::Budget;
use crate::group::Group;
use crate::machine::Machine;
use crate::pending::{Nack, one_more};
use crate::stream::EntryStore;
use crate::unit::Unit;
use crate::{Entries, EntryId, GroupReadId, Key, ReadLimits, Refusal, Reply, Xreadgroup};
use alloc::vec::Vec;
use core::ops::ControlFlow;

/// Pending rows whose entries are gone that one CLAIM passes over. They stay pending and stay the oldest, so that
/// every claim meets them again; only XAUTOCLAIM and XCLAIM drop them.
const VANISHED_MAX: usize = 4096;

impl Machine {
    /// All keys are checked before anything is delivered. `claim`: pending entries of that age (ms) are taken over
    /// before new ones are delivered.
    pub(crate) fn xreadgroup(
        &mut self,
        unit: &mut Unit,
        read: &Xreadgroup,
        claim: Option<u64>,
        limits: ReadLimits,
    ) -> Result<Reply, Refusal> {
        self.have_group(read.keys.iter().map(|(key, _)| key), &read.group)?;
        let mut streams = Vec::new();
        let mut budget = Budget::new(limits);
        let mut claim = claim;
        for (key, from) in &read.keys {
            if budget.is_spent() {
                break;
            }
            // A key whose history is asked for ends the claiming, also of the keys behind it.
            claim = claim.filter(|_| history_after(*from).is_none());
            if read.woken && self.has_nothing(unit.now_ms, key, &read.group, *from, claim) {
                continue;
            }
            let shown = self.change_group(key, &read.group, |entries, group| match history_after(*from) {
                None => deliver(entries, group, unit, read, claim, &mut budget),
                Some(id) => Some(show_history(entries, group, unit, read, id, &mut budget)),
            });
            streams.extend(shown.flatten().map(|entries| (key.clone(), entries)));
        }
        Ok(if streams.is_empty() { Reply::NilArray } else { Reply::Streams(streams) })
    }

    /// Refuses for the first key without the group.
    pub(crate) fn have_group<'a>(
        &self,
        keys: impl Iterator<Item = &'a Key>,
        group: &[u8],
    ) -> Result<(), Refusal> {
        for key in keys {
            let stream = self.keyspace.stream(key)?;
            if !stream.is_some_and(|stream| stream.groups.contains_key(group)) {
                return Err(Refusal::no_group_to_read(key, group));
            }
        }
        Ok(())
    }

    fn has_nothing(
        &self,
        now_ms: u64,
        key: &[u8],
        group: &[u8],
        from: GroupReadId,
        claim: Option<u64>,
    ) -> bool {
        let Ok((stream, group)) = self.group(key, group) else { return false };
        history_after(from).is_none()
            && stream.entries.count_after(group.last_delivered_id, 1) == 0
            && claim.is_none_or(|min_idle_ms| {
                group.claimable(&stream.entries, now_ms, min_idle_ms).next().is_none()
            })
    }
}

impl Group {
    /// What a CLAIM of this age would take over: the rows in its order, entries that are gone left out.
    pub(crate) fn claimable<'a>(
        &'a self,
        entries: &'a EntryStore,
        now_ms: u64,
        min_idle_ms: u64,
    ) -> impl Iterator<Item = (EntryId, Nack)> + 'a {
        // Nothing was delivered that long ago if the clock does not reach back so far.
        let rows = match now_ms.checked_sub(min_idle_ms) {
            Some(latest_ms) => self.pending.oldest_first(Some(latest_ms)),
            None => self.pending.oldest_first(None),
        };
        let mut vanished = 0;
        let rows = rows.take_while(move |(id, _)| {
            vanished += usize::from(!entries.has(*id));
            vanished <= VANISHED_MAX
        });
        rows.filter(|(id, _)| entries.has(*id))
    }
}

/// The id after which history is wanted; `None`: new entries. The last possible id means the same as `>`.
fn history_after(from: GroupReadId) -> Option<EntryId> {
    match from {
        GroupReadId::New | GroupReadId::After(EntryId::MAX) => None,
        GroupReadId::After(id) => Some(id),
    }
}

/// `None`: nothing old enough to claim and nothing new. An empty list if no reply is wanted.
fn deliver(
    entries: &EntryStore,
    group: &mut Group,
    unit: &Unit,
    read: &Xreadgroup,
    claim: Option<u64>,
    budget: &mut Budget,
) -> Option<Entries> {
    let owner = group.see(&read.consumer, unit.now_ms);
    let mut delivery = Delivery {
        unit,
        owner,
        left: count_max(read),
        list: Entries::new(),
        gained: 0,
        any: false,
        active: !read.noack,
    };
    if let Some(min_idle_ms) = claim {
        delivery.claim(entries, group, min_idle_ms, budget);
    }
    delivery.deliver_new(entries, group, read.noack, claim.is_some(), budget);
    if !delivery.any {
        return None;
    }
    if delivery.active {
        group.add_delivered(&read.consumer, delivery.gained, unit.now_ms);
    }
    Some(delivery.list)
}

/// What goes to one consumer from one stream.
struct Delivery<'a> {
    unit: &'a Unit,
    owner: u32,
    /// Entries that may still be delivered.
    left: u64,
    list: Entries,
    /// Rows that the consumer did not own before.
    gained: u64,
    any: bool,
    /// Counts as activity of the consumer.
    active: bool,
}

impl Delivery<'_> {
    /// Takes over pending entries, whoever they were delivered to. NOACK does not apply to them.
    fn claim(&mut self, entries: &EntryStore, group: &mut Group, min_idle_ms: u64, budget: &mut Budget) {
        let now_ms = self.unit.now_ms;
        let mut claimed: Vec<(EntryId, Nack)> = Vec::new();
        for (id, nack) in group.claimable(entries, now_ms, min_idle_ms) {
            let entry = entries.entry(id);
            if self.left == 0 || budget.is_spent() {
                break;
            }
            self.left -= 1;
            budget.spend(entry.as_ref());
            if let (true, Some(entry)) = (self.unit.want_reply, entry) {
                // What was given back counts as delivered at the beginning of time, as in Redis.
                let idle_ms = nack.idle_ms(now_ms).unwrap_or(now_ms);
                self.list.push_delivered(id, entry.strings(), Some(idle_ms), nack.deliveries);
            }
            claimed.push((id, nack));
        }
        for (id, nack) in claimed {
            let deliveries = one_more(nack.deliveries);
            let nack = Nack { owner: self.owner, delivered_ms: now_ms, deliveries };
            self.gained += u64::from(group.hand_over(id, nack));
            self.any = true;
            self.active = true;
        }
    }

    fn deliver_new(
        &mut self,
        entries: &EntryStore,
        group: &mut Group,
        noack: bool,
        with_delivery: bool,
        budget: &mut Budget,
    ) {
        if entries.last_id <= group.last_delivered_id || self.left == 0 || budget.is_spent() {
            return;
        }
        let Some(start) = group.last_delivered_id.next() else { return };
        let nack = Nack { owner: self.owner, delivered_ms: self.unit.now_ms, deliveries: 1 };
        entries.walk(start, EntryId::MAX, |entry| {
            group.advance(entries, entry.id);
            if !noack {
                self.gained += u64::from(group.hand_over(entry.id, nack));
            }
            if self.unit.want_reply && with_delivery {
                self.list.push_delivered(entry.id, entry.strings(), Some(0), 0);
            } else if self.unit.want_reply {
                self.list.push(entry.id, entry.strings());
            }
            self.any = true;
            self.left -= 1;
            budget.spend(Some(&entry));
            if self.left > 0 && !budget.is_spent() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
    }
}

/// The consumer's own pending entries. Those still present count as delivered once more.
fn show_history(
    entries: &EntryStore,
    group: &mut Group,
    unit: &Unit,
    read: &Xreadgroup,
    after: EntryId,
    budget: &mut Budget,
) -> Entries {
    let owner = group.see(&read.consumer, unit.now_ms);
    let mut list = Entries::new();
    let Some(start) = after.next() else { return list };
    let count_max = usize::try_from(count_max(read)).unwrap_or(usize::MAX);
    let mut rows: Vec<(EntryId, Nack)> = Vec::new();
    for (id, nack) in group.pending.iter_owned_from(owner, start).take(count_max) {
        if budget.is_spent() {
            break;
        }
        budget.spend(entries.entry(id).as_ref());
        rows.push((id, nack));
    }
    for (id, nack) in rows {
        let entry = entries.entry(id);
        if entry.is_some() {
            let deliveries = one_more(nack.deliveries);
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
