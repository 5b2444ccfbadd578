//! The replicated state machine: one match for writes, one for reads.

use crate::cow_map::Start;
use crate::group::Group;
use crate::keyspace::{Keyspace, owned_keys};
use crate::ownership::Ownership;
use crate::snapshot::{Restore, Snapshot};
use crate::stream::Stream;
use crate::unit::Unit;
use crate::{
    Command, EntryId, Key, Op, Outcome, Query, ReadId, ReadLimits, ReadyAnswer, Refs, Refusal, Reply,
    Settings, Slot, SlotRange, Stamp, key_slot,
};
use alloc::string::String;
use alloc::vec::Vec;

/// The state of one shard. Cloning is O(1): clones share everything until one of them changes it.
///
/// A new machine owns no slots; [`Command::SetOwnedSlots`] is the first entry of a shard's log.
#[derive(Clone, Default)]
pub struct Machine {
    pub(crate) keyspace: Keyspace,
    pub(crate) owned: Ownership,
    pub(crate) settings: Settings,
    pub(crate) last_stamp_ms: u64,
}

/// Answer to a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// What the client is answered.
    Reply(Reply),
    /// These keys of the query are due. Propose [`Command::ExpireDue`] for them and ask again after commit: a
    /// read never hides a key by a local clock.
    Due(Vec<Key>),
}

/// What a parked group reader would find.
#[derive(Debug, Clone, PartialEq)]
pub enum GroupReady {
    /// It goes on waiting.
    Nothing,
    /// So many entries wait to be delivered; counting stops soon after [`GroupReady::ENOUGH`].
    Entries(u64),
    /// Key or group are gone: the wait ends with this reply.
    Gone(Reply),
}

impl GroupReady {
    /// More than this need not be counted.
    pub const ENOUGH: u64 = 4096;
}

/// What a shard holds, kept up to date by every command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys of any type.
    pub keys: u64,
    /// Keys that hold streams.
    pub streams: u64,
    /// Entries of all streams.
    pub entries: u64,
    /// Groups of all streams.
    pub groups: u64,
    /// Consumers of all groups.
    pub consumers: u64,
    /// Pending entries of all groups.
    pub pending: u64,
    /// Memory of keys and values in bytes, estimated.
    pub memory_bytes: u64,
}

/// One stream, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStats {
    /// Entries.
    pub length: u64,
    /// Entries ever added.
    pub entries_added: u64,
    /// First entry, `0-0` without any.
    pub first_id: EntryId,
    /// Last id ever given out.
    pub last_id: EntryId,
    /// Pending entries of all groups.
    pub pending: u64,
    /// Memory in bytes, estimated.
    pub memory_bytes: u64,
    /// Groups by name, as far as they were asked for.
    pub groups: Vec<GroupStats>,
}

/// One group, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStats {
    /// Name.
    pub name: Key,
    /// Consumers.
    pub consumers: u64,
    /// Pending entries.
    pub pending: u64,
    /// Pending entries of consumers by name, as far as they were asked for.
    pub pending_of: Vec<(Key, u64)>,
    /// The cursor.
    pub last_delivered_id: EntryId,
    /// Entries still to be read; `None` where that is not known.
    pub lag: Option<u64>,
    /// Delivery time (Unix ms) of the entry pending longest.
    pub oldest_delivery_ms: Option<u64>,
}

impl Machine {
    /// An empty machine that owns no slots.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies one command of the log. The same log makes the same state on every node, whatever `want_reply`
    /// says: it only spares building the reply where no client waits.
    ///
    /// Time is the stamp's, or the last one's if that was later. Keys of the command that are due by then are
    /// deleted first.
    pub fn apply(&mut self, stamp: Stamp, command: &Command, want_reply: bool) -> Outcome {
        self.last_stamp_ms = self.last_stamp_ms.max(stamp.now_ms);
        let in_exec = matches!(command, Command::Exec(_) | Command::ExecWatched { .. });
        let mut unit = Unit::new(self.last_stamp_ms, want_reply, in_exec);
        let result = match self.foreign_slot(command.keys()) {
            // Expiry is housekeeping: what moved away in the meantime is passed over there.
            Some(slot) if !matches!(command, Command::ExpireDue { .. }) => Err(Refusal::NotOwned(slot)),
            _ => {
                self.expire_due(&mut unit, command.keys());
                self.execute(&mut unit, command)
            }
        };
        let reply = if want_reply { result.unwrap_or_else(Reply::Error) } else { Reply::None };
        Outcome { reply, effects: unit.finish(self) }
    }

    fn execute(&mut self, unit: &mut Unit, command: &Command) -> Result<Reply, Refusal> {
        match command {
            Command::Xadd(add) => self.xadd(unit, add, Refs::Keep),
            Command::Xdel { key, ids } => self.xdel(key, ids),
            Command::Xtrim { key, trim } => self.xtrim(unit, key, trim, Refs::Keep),
            Command::Xsetid { key, last_id, entries_added, max_deleted_id } => {
                self.xsetid(key, *last_id, *entries_added, *max_deleted_id)
            }
            Command::Xgroup { key, group, change } => self.xgroup(unit, key, group, change),
            Command::Xreadgroup(read) => self.xreadgroup(unit, read, None, ReadLimits::default()),
            Command::Xack { key, group, ids } => self.xack(key, group, ids),
            Command::Xclaim(claim) => self.xclaim(unit, claim),
            Command::Xautoclaim { key, group, consumer, min_idle_ms, start, count, justid } => {
                self.xautoclaim(unit, (key, group, consumer), *min_idle_ms, *start, *count, *justid)
            }
            Command::Del { keys } => self.del(unit, keys),
            Command::Set(set) => self.set(unit, set),
            Command::EditString { key, edit } => self.edit_string(unit, key, edit),
            Command::SetMany { pairs, only_if_absent } => self.set_many(unit, pairs, *only_if_absent),
            Command::Copy { from, to, replace } => self.copy(unit, from, to, *replace),
            Command::Restore { key, value, ends, replace } => {
                self.restore_value(unit, key, value, *ends, *replace)
            }
            Command::Rename { from, to, only_if_absent } => self.rename(unit, from, to, *only_if_absent),
            Command::Expire { key, when, condition } => self.expire(unit, key, *when, *condition),
            Command::Persist { key } => self.persist(key),
            Command::ExpireDue { .. } => Ok(Reply::Ok),
            Command::Exec(ops) => Ok(self.exec(unit, ops)),
            Command::ExecWatched { watched, ops } => {
                let untouched = watched.iter().all(|(key, seen)| self.keyspace.version_of(key) == *seen);
                Ok(if untouched { self.exec(unit, ops) } else { Reply::NilArray })
            }
            Command::SetOwnedSlots { ranges } => self.set_owned_slots(unit, ranges),
            Command::Configure(settings) => {
                self.settings = *settings;
                Ok(Reply::Ok)
            }
            Command::Flush => self.flush(unit),
            Command::TouchConsumer { key, group, consumer } => {
                self.touch_consumer(unit, key, group, consumer);
                Ok(Reply::None)
            }
            Command::Xcfgset { key, duration_s, maxsize } => self.xcfgset(unit, key, *duration_s, *maxsize),
            Command::Xidmprecord { key, add, id } => self.xidmprecord(unit, key, add, *id),
            Command::WithRefs { refs, command } => match &**command {
                Command::Xadd(add) => self.xadd(unit, add, *refs),
                Command::Xtrim { key, trim } => self.xtrim(unit, key, trim, *refs),
                other => self.execute(unit, other),
            },
            Command::Xdelex { key, refs, ids } => self.xdelex(key, *refs, ids),
            Command::Xackdel { key, group, refs, ids } => self.xackdel(key, group, *refs, ids),
            Command::Xnack(nack) => self.xnack(unit, nack),
            Command::XreadgroupWithin { read, claim_min_idle_ms, limits } => {
                self.xreadgroup(unit, read, *claim_min_idle_ms, *limits)
            }
        }
    }

    fn exec(&mut self, unit: &mut Unit, ops: &[Op]) -> Reply {
        let mut replies = Vec::with_capacity(if unit.want_reply { ops.len() } else { 0 });
        for op in ops {
            let reply = match op {
                Op::Command(Command::Exec(_) | Command::ExecWatched { .. }) => {
                    Reply::Error(Refusal::nested_exec())
                }
                Op::Command(command) => self.execute(unit, command).unwrap_or_else(Reply::Error),
                Op::Query(query) => unit.reply(|| self.look(unit.now_ms, query).unwrap_or_else(Reply::Error)),
                Op::Answer(answer) => unit.reply(|| ready(answer)),
            };
            if unit.want_reply {
                replies.push(reply);
            }
        }
        unit.reply(|| Reply::Array(replies))
    }

    /// Answers a query from the state as it is. `now_ms` is the caller's clock, used for idle times, TTLs and
    /// for telling which keys are due; time never reads below the last stamp.
    pub fn query(&self, now_ms: u64, query: &Query) -> Answer {
        let now_ms = now_ms.max(self.last_stamp_ms);
        let mut due = query.keys().filter(|key| self.is_due(key, now_ms)).peekable();
        if due.peek().is_some() && self.foreign_slot(query.keys()).is_none() {
            return Answer::Due(owned_keys(due));
        }
        Answer::Reply(self.query_as_logged(now_ms, query))
    }

    /// Like [`Machine::query`], but shows keys that are due and whose expiry is not in the log yet: what a
    /// follower answers.
    pub fn query_as_logged(&self, now_ms: u64, query: &Query) -> Reply {
        if let Some(slot) = self.foreign_slot(query.keys()) {
            return Reply::Error(Refusal::NotOwned(slot));
        }
        self.look(now_ms.max(self.last_stamp_ms), query).unwrap_or_else(Reply::Error)
    }

    fn look(&self, now_ms: u64, query: &Query) -> Result<Reply, Refusal> {
        match query {
            Query::Xlen { key } => self.xlen(key),
            Query::Xrange { key, start, end, count, reverse } => {
                self.xrange(key, *start, *end, *count, *reverse)
            }
            Query::Xread { keys, count } => self.xread(keys, *count, ReadLimits::default()),
            Query::XreadWithin { keys, count, limits } => self.xread(keys, *count, *limits),
            Query::Xpending { key, group, range } => self.xpending(now_ms, key, group, range.as_ref()),
            Query::XinfoStream { key, full: None } => self.xinfo_stream(key),
            Query::XinfoStream { key, full: Some(count) } => self.xinfo_stream_full(key, *count),
            Query::XinfoGroups { key } => self.xinfo_groups(key),
            Query::XinfoConsumers { key, group } => self.xinfo_consumers(now_ms, key, group),
            Query::Get { key } => self.get(key),
            Query::Digest { key } => {
                let value = self.string(key)?;
                Ok(value.map_or(Reply::NilBulk, |value| Reply::Bulk(crate::write::set::digest(value).into())))
            }
            Query::GetMany { keys } => Ok(self.get_many(keys)),
            Query::Strlen { key } => Ok(int(self.string(key)?.map_or(0, |value| value.len() as u64))),
            Query::GetRange { key, start, end } => self.get_range(key, *start, *end),
            Query::Encoding { key } => Ok(self.encoding(key)),
            Query::RefCount { key } => Ok(self.keyspace.get(key).map_or(Reply::NilBulk, |_| Reply::Int(1))),
            Query::MemoryUsage { key } => Ok(self.keyspace.memory_of(key).map_or(Reply::NilBulk, int)),
            Query::Scan { cursor, count } => Ok(self.scan(now_ms, *cursor, *count)),
            Query::Exists { keys } => Ok(self.exists(keys)),
            Query::Versions { keys } => {
                let versions = keys.iter().map(|key| int(self.keyspace.version_of(key)));
                Ok(Reply::Array(versions.collect()))
            }
            Query::Type { key } => Ok(self.type_of(key)),
            Query::Ttl { key, seconds, absolute } => Ok(self.ttl(now_ms, key, *seconds, *absolute)),
            Query::Dump { key } => Ok(self.dump(key)),
            Query::CountKeysInSlot { slot } => Ok(self.count_keys_in_slot(*slot)),
            Query::GetKeysInSlot { slot, count } => Ok(self.get_keys_in_slot(*slot, *count)),
            Query::HaveGroup { keys, group } => self.have_group(keys.iter(), group).map(|()| Reply::Ok),
            Query::KeyCount => Ok(int(self.keyspace.stats().keys)),
        }
    }

    /// Resolves `$`, and `+` on a stream without entries, against the state: what a reader that parks waits
    /// behind.
    pub fn resolve_read(&self, keys: &[(Key, ReadId)]) -> Vec<(Key, ReadId)> {
        let resolve = |(key, id): &(Key, ReadId)| {
            let stream = self.keyspace.stream(key).ok().flatten();
            let id = match (id, stream) {
                (ReadId::Last, stream) => {
                    ReadId::After(stream.map_or(EntryId::MIN, |stream| stream.entries.last_id))
                }
                (ReadId::LastEntry, Some(stream)) if stream.entries.len > 0 => ReadId::LastEntry,
                (ReadId::LastEntry, _) => ReadId::After(EntryId::MIN),
                (after, _) => *after,
            };
            (key.clone(), id)
        };
        keys.iter().map(resolve).collect()
    }

    /// What a reader of `group` parked on `key` would find now, asked after a wake; `claim`: it takes over pending
    /// entries of that age in ms. A key that is due is neither hidden nor shown: the reader waits for the logged
    /// expiry.
    pub fn group_ready(&self, now_ms: u64, key: &Key, group: &[u8], claim: Option<u64>) -> GroupReady {
        if self.is_due(key, now_ms) {
            return GroupReady::Nothing;
        }
        let gone = |refusal| GroupReady::Gone(Reply::Error(refusal));
        let slot = key_slot(key);
        if !self.owned.owns(slot) {
            return gone(Refusal::NotOwned(slot));
        }
        let stream = match self.keyspace.stream(key) {
            Ok(stream) => stream,
            Err(refusal) => return gone(refusal),
        };
        let Some((entries, group)) = stream.and_then(|s| Some((&s.entries, s.groups.get(group)?))) else {
            return gone(Refusal::no_group_to_read(key, group));
        };
        let claimable = claim.map_or(0, |min_idle_ms| {
            group.claimable(entries, now_ms, min_idle_ms).take(GroupReady::ENOUGH as usize).count() as u64
        });
        match claimable + entries.count_after(group.last_delivered_id, GroupReady::ENOUGH) {
            0 => GroupReady::Nothing,
            count => GroupReady::Entries(count),
        }
    }

    /// When a reader of `group` parked on `key` that takes over pending entries of this age will find one, as things
    /// are: Unix milliseconds.
    pub fn claim_due_ms(&self, key: &Key, group: &[u8], min_idle_ms: u64) -> Option<u64> {
        let (stream, group) = self.group(key, group).ok()?;
        let (_, oldest) = group.claimable(&stream.entries, u64::MAX, 0).next()?;
        Some(if oldest.is_released() { 0 } else { oldest.delivered_ms.saturating_add(min_idle_ms) })
    }

    /// Time of the last command, Unix milliseconds.
    pub fn last_stamp_ms(&self) -> u64 {
        self.last_stamp_ms
    }

    /// Keys that are due at `now_ms`, the earliest first, for [`Command::ExpireDue`].
    pub fn due_keys(&self, now_ms: u64, limit: usize) -> Vec<Key> {
        let due = self.keyspace.due(now_ms.max(self.last_stamp_ms));
        owned_keys(due.filter(|key| self.owned.owns(key_slot(key))).take(limit))
    }

    /// The earliest deadline of a key, Unix milliseconds.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.keyspace.next_deadline_ms()
    }

    /// Whether this shard serves the slot.
    pub fn owns(&self, slot: Slot) -> bool {
        self.owned.owns(slot)
    }

    /// The slots that this shard serves.
    pub fn owned_ranges(&self) -> Vec<SlotRange> {
        self.owned.ranges().to_vec()
    }

    /// The replicated settings.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// What the shard holds. O(1).
    pub fn stats(&self) -> Stats {
        self.keyspace.stats()
    }

    /// Up to `limit` streams behind the key `after`, in order of slot and key; with them up to `limit` groups and
    /// up to `limit` consumers in all. For metrics: costs what it lists, however much is pending.
    pub fn stream_stats(&self, after: Option<&Key>, limit: usize) -> Vec<(Key, StreamStats)> {
        let mut left = StatsLeft { groups: limit, consumers: limit };
        let items = self.keyspace.items_after(after.map(|key| &key[..]));
        let streams = items.filter_map(|(key, item)| Some((key, item.value.stream()?)));
        streams.take(limit).map(|(key, stream)| (key.clone(), stream_stats(stream, &mut left))).collect()
    }

    /// Keys of all slots behind `after`, in order of slot and key: up to `limit` of them, with whether each
    /// holds a stream. For SCAN and KEYS.
    pub fn keys_from(&self, slot: Slot, after: Option<&[u8]>, limit: usize) -> Vec<(Key, &'static str)> {
        let keys = self.keyspace.slots_from(slot.0).flat_map(|(at, keys)| match after {
            Some(after) if at == slot.0 => keys.iter_from(Start::Beyond(after)),
            _ => keys.iter(),
        });
        keys.take(limit).map(|(key, item)| (key.clone(), item.value.type_name())).collect()
    }

    /// Slots that hold keys, and how many.
    pub fn keys_by_slot(&self) -> impl Iterator<Item = (Slot, u64)> + '_ {
        self.keyspace.slots_from(0).map(|(slot, keys)| (Slot(slot), keys.len() as u64))
    }

    /// Keys that end by themselves.
    pub fn keys_with_deadline(&self) -> u64 {
        self.keyspace.deadlines() as u64
    }

    /// A frozen view for a snapshot. O(1).
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.clone())
    }

    /// Gives the whole state up, to be freed in slices.
    pub fn discard(self) -> crate::Garbage {
        crate::Garbage::of_keyspace(self.keyspace)
    }

    /// Builds a machine from the chunks of a snapshot.
    pub fn restore() -> Restore {
        Restore::new()
    }

    /// A hash over everything replicated. Replicas that applied the same index have the same. Walks the whole
    /// state: for checks, not for the path of a command.
    pub fn state_hash(&self) -> u64 {
        self.snapshot().hash()
    }

    fn foreign_slot<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> Option<Slot> {
        keys.map(|key| key_slot(key)).find(|slot| !self.owned.owns(*slot))
    }

    fn is_due(&self, key: &[u8], now_ms: u64) -> bool {
        // Most shards have no deadline that has passed; that is one look.
        self.keyspace.next_deadline_ms().is_some_and(|next| next <= now_ms)
            && self.keyspace.get(key).is_some_and(|item| item.is_due(now_ms))
    }

    fn expire_due<'a>(&mut self, unit: &mut Unit, keys: impl Iterator<Item = &'a Key>) {
        for key in keys {
            if self.is_due(key, unit.now_ms) && self.owned.owns(key_slot(key)) {
                self.remove_key(unit, key);
            }
        }
    }

    /// Deletes a key; false if it is not there.
    pub(crate) fn remove_key(&mut self, unit: &mut Unit, key: &Key) -> bool {
        match self.keyspace.remove(key) {
            Some(item) => {
                unit.removed(key, item);
                true
            }
            None => false,
        }
    }

    /// The group at `key`, with the refusal of XPENDING, XCLAIM and XAUTOCLAIM.
    pub(crate) fn group(&self, key: &[u8], group: &[u8]) -> Result<(&Stream, &Group), Refusal> {
        let found =
            self.keyspace.stream(key)?.and_then(|stream| Some((stream, &**stream.groups.get(group)?)));
        found.ok_or_else(|| Refusal::no_key_or_group(key, group))
    }
}

fn ready(answer: &ReadyAnswer) -> Reply {
    match answer {
        ReadyAnswer::Simple(text) if &text[..] == b"OK" => Reply::Ok,
        ReadyAnswer::Simple(text) if &text[..] == b"PONG" => Reply::Simple("PONG"),
        ReadyAnswer::Simple(text) | ReadyAnswer::Bulk(text) => Reply::Bulk(text.clone()),
        ReadyAnswer::Error(text) => Reply::Error(Refusal::Text(String::from_utf8_lossy(text).into_owned())),
    }
}

/// How much more [`Machine::stream_stats`] may list.
struct StatsLeft {
    groups: usize,
    consumers: usize,
}

fn stream_stats(stream: &Stream, left: &mut StatsLeft) -> StreamStats {
    let mut groups = Vec::new();
    for (name, group) in stream.groups.iter().take(left.groups) {
        let consumers = group.consumers.iter().take(left.consumers);
        let pending_of: Vec<_> = consumers.map(|(name, c)| (name.clone(), c.pending)).collect();
        left.consumers -= pending_of.len();
        groups.push(GroupStats {
            name: name.clone(),
            consumers: group.consumers.len() as u64,
            pending: group.pending.len(),
            pending_of,
            last_delivered_id: group.last_delivered_id,
            lag: group.lag(&stream.entries),
            oldest_delivery_ms: group.pending.oldest_ms(),
        });
    }
    left.groups -= groups.len();
    StreamStats {
        length: stream.entries.len,
        entries_added: stream.entries.entries_added,
        first_id: stream.entries.first_id,
        last_id: stream.entries.last_id,
        pending: stream.pending,
        memory_bytes: stream.memory_bytes(),
        groups,
    }
}

/// A count as an integer reply.
pub(crate) fn int(count: u64) -> Reply {
    Reply::Int(i64::try_from(count).unwrap_or(i64::MAX))
}
