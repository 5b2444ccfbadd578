//! Entries, trims and pending lists against a model that is too simple to be wrong: sorted maps, no blocks,
//! no indices, no counters.

use crate::random::any_stream_command;
use crate::support::*;
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_stream::*;

#[derive(Default)]
struct ModelStream {
    entries: BTreeMap<EntryId, Vec<Bytes>>,
    last_id: EntryId,
    groups: BTreeMap<Bytes, ModelGroup>,
}

#[derive(Default)]
struct ModelGroup {
    cursor: EntryId,
    pending: BTreeMap<EntryId, Row>,
}

/// Owner, delivery time, count. Without an owner the time is the place in the order of release.
type Row = (Bytes, u64, u64);

fn is_released(row: &Row) -> bool {
    row.0.is_empty()
}

fn is_idle(row: &Row, now_ms: u64, min_idle_ms: u64) -> bool {
    is_released(row) || now_ms.saturating_sub(row.1) >= min_idle_ms
}

impl ModelStream {
    fn is_held(&self, id: EntryId) -> bool {
        self.groups.values().any(|group| group.cursor < id || group.pending.contains_key(&id))
    }

    fn drop_references(&mut self, id: EntryId) {
        self.groups.values_mut().for_each(|group| {
            group.pending.remove(&id);
        });
    }

    fn delete_with_refs(&mut self, id: EntryId, refs: Refs) -> i64 {
        if refs == Refs::Delete {
            self.drop_references(id);
        }
        // Held is also what no entry has yet, as in Redis.
        if refs == Refs::Acked && self.is_held(id) {
            return 2;
        }
        if self.entries.remove(&id).is_some() { 1 } else { -1 }
    }
}

type Model = BTreeMap<Key, ModelStream>;

/// Approximate trims depend on blocks, which the model has none of: there the machine says how many went.
fn trim(stream: &mut ModelStream, trim: &Trim, refs: Refs, removed: u64) {
    let gone: Vec<EntryId> = match trim.to {
        to if refs == Refs::Acked => {
            let surplus = match to {
                _ if trim.approximate => removed as usize,
                TrimTo::MaxLen(max) => stream.entries.len().saturating_sub(max as usize),
                TrimTo::MinId(_) => usize::MAX,
            };
            let below = |id: &EntryId| !matches!(to, TrimTo::MinId(min) if *id >= min);
            let free = stream.entries.keys().filter(|id| below(id) && !stream.is_held(**id));
            free.take(surplus).copied().collect()
        }
        _ if trim.approximate => stream.entries.keys().take(removed as usize).copied().collect(),
        TrimTo::MaxLen(max) => {
            let surplus = stream.entries.len().saturating_sub(max as usize);
            stream.entries.keys().take(surplus).copied().collect()
        }
        TrimTo::MinId(min) => stream.entries.range(..min).map(|(id, _)| *id).collect(),
    };
    gone.iter().for_each(|id| {
        stream.entries.remove(id);
        if refs == Refs::Delete {
            stream.drop_references(*id);
        }
    });
}

fn apply(model: &mut Model, now_ms: u64, command: &Command, reply: &Reply, length: u64) {
    let (command, refs) = match command {
        Command::WithRefs { refs, command } => (&**command, *refs),
        plain => (plain, Refs::Keep),
    };
    match command {
        Command::Xadd(add) => {
            // Which id it became is the reply's to say; that it was above the last one is checked here.
            let Reply::Id(id) = reply else { return };
            let stream = model.entry(add.key.clone()).or_default();
            if matches!(add.id, AddId::Once(_)) && *id <= stream.last_id {
                // A repetition; `idempotence.rs` says which.
                assert_eq!(length, stream.entries.len() as u64);
                return;
            }
            assert!(*id > stream.last_id);
            stream.last_id = *id;
            stream.entries.insert(*id, add.fields.clone());
            if let Some(how) = &add.trim {
                trim(stream, how, refs, stream.entries.len() as u64 - length);
            }
        }
        Command::Xdel { key, ids } => {
            let Some(stream) = model.get_mut(key) else { return };
            let deleted = ids.iter().filter(|id| stream.entries.remove(id).is_some()).count();
            assert_eq!(*reply, Reply::Int(deleted as i64));
        }
        Command::Xtrim { key, trim: how } => {
            let Some(stream) = model.get_mut(key) else { return };
            let before = stream.entries.len() as u64;
            trim(stream, how, refs, before - length);
            assert_eq!(*reply, Reply::Int((before - stream.entries.len() as u64) as i64));
        }
        Command::Xgroup { key, group, change } => {
            if matches!(reply, Reply::Error(_)) {
                return;
            }
            let stream = model.entry(key.clone()).or_default();
            let start = |at: &GroupStart| match at {
                GroupStart::Last => stream.last_id,
                GroupStart::Id(id) => *id,
            };
            match change {
                GroupChange::Create { at, .. } => {
                    let new = ModelGroup { cursor: start(at), ..ModelGroup::default() };
                    assert!(stream.groups.insert(group.clone(), new).is_none());
                }
                GroupChange::SetId { at, .. } => {
                    let cursor = start(at);
                    stream.groups.get_mut(group).unwrap().cursor = cursor;
                }
                GroupChange::Destroy => {
                    stream.groups.remove(group);
                }
                GroupChange::CreateConsumer { .. } => {}
                GroupChange::DelConsumer { consumer } => {
                    let pending = &mut stream.groups.get_mut(group).unwrap().pending;
                    let before = pending.len();
                    pending.retain(|_, (owner, _, _)| owner != consumer);
                    assert_eq!(*reply, Reply::Int((before - pending.len()) as i64));
                }
            }
        }
        Command::Xreadgroup(read) => xreadgroup(model, now_ms, read, None, ReadLimits::default(), reply),
        Command::XreadgroupWithin { read, claim_min_idle_ms, limits } => {
            xreadgroup(model, now_ms, read, *claim_min_idle_ms, *limits, reply)
        }
        Command::Xdelex { key, refs, ids } => {
            let stream = model.entry(key.clone()).or_default();
            let answers: Vec<_> = ids.iter().map(|id| stream.delete_with_refs(*id, *refs)).collect();
            assert_eq!(*reply, Reply::Array(answers.into_iter().map(Reply::Int).collect()));
        }
        Command::Xackdel { key, group, refs, ids } => {
            let stream = model.entry(key.clone()).or_default();
            let answer = |id: &Bytes| {
                let id = EntryId::parse(id, 0).unwrap();
                let pending = stream.groups.get_mut(group).and_then(|group| group.pending.remove(&id));
                Reply::Int(pending.map_or(-1, |_| stream.delete_with_refs(id, *refs).abs()))
            };
            assert_eq!(*reply, Reply::Array(ids.iter().map(answer).collect()));
        }
        Command::Xnack(nack) => xnack(model, nack, reply),
        Command::Xack { key, group, ids } => {
            let Some(group) = model.get_mut(key).and_then(|stream| stream.groups.get_mut(group)) else {
                return;
            };
            let acked =
                ids.iter().filter(|id| group.pending.remove(&EntryId::parse(id, 0).unwrap()).is_some());
            assert_eq!(*reply, Reply::Int(acked.count() as i64));
        }
        Command::Xclaim(claim) => xclaim(model, now_ms, claim, reply),
        Command::Xautoclaim { key, group, consumer, min_idle_ms, start, count, justid } => {
            let Some(stream) = model.get_mut(key) else { return };
            let Some(group) = stream.groups.get_mut(group) else { return };
            let (mut claimed, mut vanished, mut left) = (Vec::new(), Vec::new(), *count);
            let mut looked_at = Vec::new();
            for (id, row) in group.pending.range(start..).take(*count as usize * 10) {
                if left == 0 {
                    break;
                }
                looked_at.push(*id);
                if !stream.entries.contains_key(id) {
                    vanished.push(*id);
                    left -= 1;
                } else if is_idle(row, now_ms, *min_idle_ms) {
                    claimed.push(*id);
                    left -= 1;
                }
            }
            let cursor = match looked_at.last() {
                Some(last) => group.pending.range(*last..).nth(1),
                None => None,
            };
            let cursor = cursor.map_or(EntryId::MIN, |(id, _)| *id);
            vanished.iter().for_each(|id| {
                group.pending.remove(id);
            });
            for id in &claimed {
                let row = group.pending.get_mut(id).unwrap();
                *row = (consumer.clone(), now_ms, if *justid { row.2 } else { one_more(row.2) });
            }
            let shown = show_list(&stream.entries, &claimed, *justid);
            let vanished: Vec<String> = vanished.iter().map(EntryId::to_string).collect();
            assert_eq!(show(reply), format!("[{cursor} {shown} [{}]]", vanished.join(" ")));
        }
        _ => unreachable!("not among the commands here"),
    }
}

fn xnack(model: &mut Model, nack: &Xnack, reply: &Reply) {
    let Some(stream) = model.get_mut(&nack.key) else { return };
    let Some(group) = stream.groups.get_mut(&nack.group) else { return };
    let mut released = 0;
    for id in &nack.ids {
        let places = group.pending.values().filter(|row| is_released(row)).map(|row| row.1);
        let next = places.max().map_or(1, |last| last + 1);
        let (place, before) = match group.pending.get(id) {
            Some(row) if is_released(row) => (row.1, row.2),
            Some(row) => (next, row.2),
            None if nack.force && stream.entries.contains_key(id) => (next, 0),
            None => continue,
        };
        let count = match (nack.retry_count, nack.mode) {
            (Some(count), _) => count,
            (None, NackMode::Silent) => before.saturating_sub(1),
            (None, NackMode::Fail) => before,
            (None, NackMode::Fatal) => i64::MAX as u64,
        };
        group.pending.insert(*id, (Bytes::new(), place, count));
        released += 1;
    }
    assert_eq!(*reply, Reply::Int(released));
}

/// What one reply may still hold, in the terms of MAXCOUNT and MAXSIZE: a string counts its bytes and 6, an entry 32.
struct Budget {
    limits: ReadLimits,
    entries: u64,
    bytes: u64,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.limits.max_count.is_some_and(|max| self.entries >= max)
            || (self.entries > 0 && self.limits.max_size.is_some_and(|max| self.bytes >= max))
    }

    fn spend(&mut self, fields: Option<&Vec<Bytes>>) {
        self.entries += 1;
        self.bytes += 32 + fields.map_or(0, |fields| fields.iter().map(|field| field.len() as u64 + 6).sum());
    }
}

/// What was given up is not counted on.
fn one_more(deliveries: u64) -> u64 {
    if deliveries == i64::MAX as u64 { deliveries } else { deliveries.saturating_add(1) }
}

fn xreadgroup(
    model: &mut Model,
    now_ms: u64,
    read: &Xreadgroup,
    claim: Option<u64>,
    limits: ReadLimits,
    reply: &Reply,
) {
    if matches!(reply, Reply::Error(_)) {
        return;
    }
    let mut budget = Budget { limits, entries: 0, bytes: 0 };
    let count = read.count.filter(|count| *count > 0).unwrap_or(u64::MAX) as usize;
    let mut shown = Vec::new();
    let mut claim = claim;
    for (key, from) in &read.keys {
        if budget.is_spent() {
            break;
        }
        if !matches!(from, GroupReadId::New | GroupReadId::After(EntryId::MAX)) {
            claim = None;
        }
        let stream = model.get_mut(key).unwrap();
        let group = stream.groups.get_mut(&read.group).unwrap();
        let mut parts = Vec::new();
        match from {
            // The last possible id means the same as `>`.
            GroupReadId::New | GroupReadId::After(EntryId::MAX) => {
                let cursor = group.cursor;
                let mut claimable: Vec<(bool, u64, EntryId)> = Vec::new();
                for (id, row) in &group.pending {
                    if claim.is_some_and(|min| is_idle(row, now_ms, min)) && stream.entries.contains_key(id) {
                        claimable.push((!is_released(row), row.1, *id));
                    }
                }
                claimable.sort();
                for (owned, delivered, id) in claimable {
                    if parts.len() == count || budget.is_spent() {
                        break;
                    }
                    let row = group.pending.get_mut(&id).unwrap();
                    // What was given back counts as delivered at the beginning of time.
                    let idle = if owned { now_ms - delivered } else { now_ms };
                    let fields = &stream.entries[&id];
                    parts.push(format!("{} idle {idle} after {}", show_entry(id, fields), row.2));
                    *row = (read.consumer.clone(), now_ms, one_more(row.2));
                    budget.spend(Some(fields));
                }
                for (id, fields) in stream.entries.iter().filter(|(id, _)| **id > cursor) {
                    if parts.len() == count || budget.is_spent() {
                        break;
                    }
                    budget.spend(Some(fields));
                    group.cursor = *id;
                    if !read.noack {
                        group.pending.insert(*id, (read.consumer.clone(), now_ms, 1));
                    }
                    let delivery = if claim.is_some() { " idle 0 after 0" } else { "" };
                    parts.push(format!("{}{delivery}", show_entry(*id, fields)));
                }
                if parts.is_empty() {
                    continue;
                }
            }
            GroupReadId::After(after) => {
                let mine = group.pending.iter_mut().filter(|(id, row)| *id > after && row.0 == read.consumer);
                for (id, row) in mine.take(count) {
                    if budget.is_spent() {
                        break;
                    }
                    budget.spend(stream.entries.get(id));
                    match stream.entries.get(id) {
                        Some(fields) => {
                            *row = (row.0.clone(), now_ms, one_more(row.2));
                            parts.push(show_entry(*id, fields));
                        }
                        None => parts.push(format!("{id} gone")),
                    }
                }
            }
        }
        shown.push(format!("{}: {}", String::from_utf8_lossy(key), parts.join(", ")));
    }
    let shown = if shown.is_empty() { "nil-array".to_string() } else { shown.join(" | ") };
    assert_eq!(show(reply), shown);
}

fn xclaim(model: &mut Model, now_ms: u64, claim: &Xclaim, reply: &Reply) {
    let Some(stream) = model.get_mut(&claim.key) else { return };
    let Some(group) = stream.groups.get_mut(&claim.group) else { return };
    group.cursor = group.cursor.max(claim.last_id.unwrap_or(EntryId::MIN));
    let at = match claim.delivery_time {
        ClaimTime::Now => now_ms as i128,
        ClaimTime::Idle(idle) => now_ms as i128 - idle as i128,
        ClaimTime::At(at) => at as i128,
    };
    let at = if at < 0 || at > now_ms as i128 { now_ms } else { at as u64 };
    let mut claimed = Vec::new();
    for id in &claim.ids {
        let row = group.pending.get(id).cloned();
        if !stream.entries.contains_key(id) {
            group.pending.remove(id);
            continue;
        }
        let count = match row {
            Some(row) if is_idle(&row, now_ms, claim.min_idle_ms) => row.2,
            None if claim.force => 1,
            _ => continue,
        };
        let count = match claim.retry_count {
            Some(count) => count,
            None if claim.justid => count,
            None => one_more(count),
        };
        group.pending.insert(*id, (claim.consumer.clone(), at, count));
        claimed.push(*id);
    }
    assert_eq!(show(reply), show_list(&stream.entries, &claimed, claim.justid));
}

fn show_entry(id: EntryId, fields: &[Bytes]) -> String {
    let fields: Vec<_> = fields.iter().map(|field| String::from_utf8_lossy(field)).collect();
    format!("{id} {}", fields.join(" "))
}

fn show_list(entries: &BTreeMap<EntryId, Vec<Bytes>>, ids: &[EntryId], justid: bool) -> String {
    if justid {
        let ids: Vec<String> = ids.iter().map(EntryId::to_string).collect();
        return format!("[{}]", ids.join(" "));
    }
    ids.iter().map(|id| show_entry(*id, &entries[id])).collect::<Vec<_>>().join(", ")
}

fn check(machine: &Machine, now_ms: u64, model: &Model) {
    for (name, stream) in model {
        let ask = |query: Query| show(&machine.query_as_logged(now_ms, &query));
        let range = |reverse| Query::Xrange {
            key: name.clone(),
            start: EntryId::MIN,
            end: EntryId::MAX,
            count: None,
            reverse,
        };
        let mut shown: Vec<String> =
            stream.entries.iter().map(|(id, fields)| show_entry(*id, fields)).collect();
        assert_eq!(ask(range(false)), shown.join(", "));
        shown.reverse();
        assert_eq!(ask(range(true)), shown.join(", "));
        assert_eq!(ask(Query::Xlen { key: name.clone() }), stream.entries.len().to_string());
        for (group_name, group) in &stream.groups {
            let pending = |consumer: Option<Bytes>, min_idle_ms| Query::Xpending {
                key: name.clone(),
                group: group_name.clone(),
                range: Some(PendingRange {
                    min_idle_ms,
                    start: EntryId::MIN,
                    end: EntryId::MAX,
                    count: u64::MAX,
                    consumer,
                }),
            };
            let rows = |wanted: &dyn Fn(&Row) -> bool| {
                let rows = group.pending.iter().filter(|(_, row)| wanted(row));
                let row = |(id, row): (&EntryId, &Row)| {
                    let count = i64::try_from(row.2).unwrap_or(i64::MAX);
                    let idle = if is_released(row) { -1 } else { now_ms.saturating_sub(row.1) as i64 };
                    format!("[{id} {} {idle} {count}]", String::from_utf8_lossy(&row.0))
                };
                format!("[{}]", rows.map(row).collect::<Vec<_>>().join(" "))
            };
            assert_eq!(ask(pending(None, 0)), rows(&|_| true));
            assert_eq!(ask(pending(None, 5)), rows(&|row| is_idle(row, now_ms, 5)));
            let mut counts = 0;
            for consumer in ["a", "b", "c"] {
                let consumer = Bytes::from_static(consumer.as_bytes());
                assert_eq!(ask(pending(Some(consumer.clone()), 0)), rows(&|row| row.0 == consumer));
                counts += group.pending.values().filter(|row| row.0 == consumer).count();
            }
            let released = group.pending.values().filter(|row| is_released(row)).count();
            assert_eq!(counts + released, group.pending.len());
            let oldest = group.pending.values().filter(|row| !is_released(row)).map(|row| row.1).min();
            let stats = machine.stream_stats(None, 10);
            let stats = &stats.iter().find(|(key, _)| key == name).unwrap().1;
            let stats = stats.groups.iter().find(|stats| stats.name == group_name).unwrap();
            assert_eq!((stats.pending, stats.oldest_delivery_ms), (group.pending.len() as u64, oldest));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn entries_trims_and_pending_lists_behave_like_the_model(
        node_max_entries in 1..12u32,
        node_max_bytes in prop::sample::select(vec![0u32, 60, 200]),
        steps in prop::collection::vec((any_stream_command(), 0..2u64), 1..400),
    ) {
        let mut machine = Machine::new();
        let mut model = Model::new();
        let mut now_ms = 3;
        let settings = Settings { stream_node_max_entries: node_max_entries, stream_node_max_bytes: node_max_bytes };
        machine.apply(Stamp { now_ms }, &all_slots(), true);
        machine.apply(Stamp { now_ms }, &Command::Configure(settings), true);
        for (at, (command, passed)) in steps.iter().enumerate() {
            now_ms += passed;
            let reply = machine.apply(Stamp { now_ms }, command, true).reply;
            let touched = command.keys().next().unwrap().clone();
            let length = match machine.query_as_logged(now_ms, &Query::Xlen { key: touched }) {
                Reply::Int(length) => length as u64,
                other => panic!("{other:?}"),
            };
            apply(&mut model, now_ms, command, &reply, length);
            if at % 20 == 0 || at + 1 == steps.len() {
                check(&machine, now_ms, &model);
            }
        }
    }
}
