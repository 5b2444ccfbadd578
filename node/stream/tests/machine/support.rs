//! Short ways to say commands and to read replies.

use bytes::Bytes;
use weir_stream::*;

/// A machine that owns all slots, with a clock that the test moves.
pub(crate) struct Shard {
    pub(crate) machine: Machine,
    pub(crate) now_ms: u64,
    /// Effects of the last command.
    pub(crate) effects: Vec<Effect>,
}

pub(crate) fn all_slots() -> Command {
    Command::SetOwnedSlots { ranges: vec![SlotRange { first: Slot(0), last: Slot(SLOT_COUNT - 1) }] }
}

impl Shard {
    pub(crate) fn new() -> Shard {
        let mut shard = Shard { machine: Machine::new(), now_ms: 1_000_000, effects: Vec::new() };
        assert_eq!(shard.run(all_slots()), "OK");
        shard
    }

    /// Applies and shows the reply.
    pub(crate) fn run(&mut self, command: Command) -> String {
        let outcome = self.machine.apply(Stamp { now_ms: self.now_ms }, &command, true);
        self.effects = outcome.effects;
        show(&outcome.reply)
    }

    /// Queries and shows the reply.
    pub(crate) fn ask(&self, query: Query) -> String {
        match self.machine.query(self.now_ms, &query) {
            Answer::Reply(reply) => show(&reply),
            Answer::Due(keys) => format!("due: {keys:?}"),
        }
    }

    /// Keys that the last command woke.
    pub(crate) fn woken(&self) -> Vec<String> {
        let key = |effect: &Effect| match effect {
            Effect::Wake(key) => Some(text(key)),
            _ => None,
        };
        self.effects.iter().filter_map(key).collect()
    }

    pub(crate) fn wait_ms(&mut self, ms: u64) {
        self.now_ms += ms;
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A reply in one line: `1-1 f v, 2-1 f v idle 5 after 1` for entries, `s: ...` for streams, `!ERR ...` for refusals.
pub(crate) fn show(reply: &Reply) -> String {
    let all = |replies: &[Reply]| replies.iter().map(show).collect::<Vec<_>>().join(" ");
    match reply {
        Reply::None => "nothing".into(),
        Reply::Ok => "OK".into(),
        Reply::Simple(text) => (*text).into(),
        Reply::Int(n) => n.to_string(),
        Reply::Bulk(bytes) | Reply::Line(bytes) => text(bytes),
        Reply::Dump(dump) => text(&dump.payload()),
        Reply::Id(id) => id.to_string(),
        Reply::NilBulk => "nil".into(),
        Reply::NilArray => "nil-array".into(),
        Reply::Array(replies) | Reply::Set(replies) | Reply::Push(replies) | Reply::Many(replies) => {
            format!("[{}]", all(replies))
        }
        Reply::Double(number) => number.to_string(),
        Reply::Map(pairs) => {
            let pair = |(key, value): &(Reply, Reply)| format!("{}={}", show(key), show(value));
            format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(" "))
        }
        Reply::Entries(list) => show_entries(list),
        Reply::Streams(streams) => {
            let one = |(key, list): &(Bytes, Entries)| format!("{}: {}", text(key), show_entries(list));
            streams.iter().map(one).collect::<Vec<_>>().join(" | ")
        }
        Reply::Error(refusal) => format!("!{refusal}"),
    }
}

fn show_entries(list: &Entries) -> String {
    let entry = |entry: EntryRef<'_>| match entry.fields {
        None => format!("{} gone", entry.id),
        Some(fields) => {
            let fields: Vec<String> = fields.map(text).collect();
            let delivery = entry.delivery.map_or(String::new(), |(idle_ms, deliveries)| {
                format!(
                    " idle {} after {deliveries}",
                    idle_ms.map_or_else(|| "-".into(), |ms| ms.to_string())
                )
            });
            format!("{} {}{delivery}", entry.id, fields.join(" "))
        }
    };
    list.iter().map(entry).collect::<Vec<_>>().join(", ")
}

pub(crate) fn id(text: &str) -> EntryId {
    EntryId::parse(text.as_bytes(), 0).expect("an id")
}

pub(crate) fn ids(text: &str) -> Vec<EntryId> {
    text.split_whitespace().map(id).collect()
}

pub(crate) fn words(text: &str) -> Vec<Bytes> {
    text.split_whitespace().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

pub(crate) fn key(name: &str) -> Key {
    Bytes::copy_from_slice(name.as_bytes())
}

/// `at`: `*`, `5-*` or an id.
pub(crate) fn xadd(stream: &str, at: &str, fields: &str) -> Command {
    xadd_trimmed(stream, at, fields, None)
}

pub(crate) fn xadd_trimmed(stream: &str, at: &str, fields: &str, trim: Option<Trim>) -> Command {
    let add_id = match at.strip_suffix("-*") {
        Some(ms) => AddId::AutoSeq(ms.parse().expect("milliseconds")),
        None if at == "*" => AddId::Auto,
        None => AddId::Given(id(at)),
    };
    Command::Xadd(Xadd { key: key(stream), no_mkstream: false, trim, id: add_id, fields: words(fields) })
}

pub(crate) fn maxlen(max: u64) -> Trim {
    Trim { to: TrimTo::MaxLen(max), approximate: false, limit: None }
}

pub(crate) fn minid(min: &str) -> Trim {
    Trim { to: TrimTo::MinId(id(min)), approximate: false, limit: None }
}

pub(crate) fn xtrim(stream: &str, trim: Trim) -> Command {
    Command::Xtrim { key: key(stream), trim }
}

pub(crate) fn xdel(stream: &str, deleted: &str) -> Command {
    Command::Xdel { key: key(stream), ids: ids(deleted) }
}

pub(crate) fn xgroup(stream: &str, group: &str, change: GroupChange) -> Command {
    Command::Xgroup { key: key(stream), group: key(group), change }
}

pub(crate) fn xgroup_create(stream: &str, group: &str, at: &str) -> Command {
    let at = if at == "$" { GroupStart::Last } else { GroupStart::Id(id(at)) };
    xgroup(stream, group, GroupChange::Create { at, mkstream: true, entries_read: None })
}

/// `from`: `>` or an id.
pub(crate) fn xreadgroup(group: &str, consumer: &str, stream: &str, from: &str) -> Command {
    Command::Xreadgroup(xreadgroup_call(group, consumer, stream, from))
}

pub(crate) fn xreadgroup_call(group: &str, consumer: &str, stream: &str, from: &str) -> Xreadgroup {
    let from = if from == ">" { GroupReadId::New } else { GroupReadId::After(id(from)) };
    Xreadgroup {
        group: key(group),
        consumer: key(consumer),
        count: None,
        noack: false,
        keys: vec![(key(stream), from)],
        woken: false,
    }
}

pub(crate) fn xack(stream: &str, group: &str, acked: &str) -> Command {
    Command::Xack { key: key(stream), group: key(group), ids: words(acked) }
}

/// XREADGROUP with `>`, taking over pending entries of this age.
pub(crate) fn xreadgroup_claim(group: &str, consumer: &str, stream: &str, min_idle_ms: u64) -> Command {
    let read = xreadgroup_call(group, consumer, stream, ">");
    Command::XreadgroupWithin { read, claim_min_idle_ms: Some(min_idle_ms), limits: ReadLimits::default() }
}

pub(crate) fn xnack(stream: &str, group: &str, mode: NackMode, nacked: &str) -> Xnack {
    Xnack { key: key(stream), group: key(group), mode, ids: ids(nacked), retry_count: None, force: false }
}

pub(crate) fn xclaim(stream: &str, group: &str, consumer: &str, min_idle_ms: u64, claimed: &str) -> Xclaim {
    Xclaim {
        key: key(stream),
        group: key(group),
        consumer: key(consumer),
        min_idle_ms,
        ids: ids(claimed),
        delivery_time: ClaimTime::Now,
        retry_count: None,
        force: false,
        justid: false,
        last_id: None,
    }
}

pub(crate) fn xautoclaim(
    stream: &str,
    group: &str,
    consumer: &str,
    min_idle_ms: u64,
    start: &str,
    count: u64,
) -> Command {
    Command::Xautoclaim {
        key: key(stream),
        group: key(group),
        consumer: key(consumer),
        min_idle_ms,
        start: id(start),
        count,
        justid: true,
    }
}

pub(crate) fn set(name: &str, value: &str) -> Command {
    Command::Set(Set {
        key: key(name),
        value: key(value),
        expire: None,
        keep_ttl: false,
        condition: SetCondition::Always,
        get: false,
    })
}

pub(crate) fn del(name: &str) -> Command {
    Command::Del { keys: vec![key(name)] }
}

pub(crate) fn pexpire(name: &str, ms: i64) -> Command {
    Command::Expire { key: key(name), when: ExpireWhen::In(ms), condition: ExpireCondition::Always }
}

pub(crate) fn exec(commands: Vec<Command>) -> Command {
    Command::Exec(commands.into_iter().map(Op::Command).collect())
}

pub(crate) fn xlen(stream: &str) -> Query {
    Query::Xlen { key: key(stream) }
}

pub(crate) fn xrange(stream: &str, start: &str, end: &str) -> Query {
    Query::Xrange { key: key(stream), start: id(start), end: id(end), count: None, reverse: false }
}

pub(crate) fn whole(stream: &str) -> Query {
    Query::Xrange { key: key(stream), start: EntryId::MIN, end: EntryId::MAX, count: None, reverse: false }
}

pub(crate) fn whole_reversed(stream: &str) -> Query {
    Query::Xrange { key: key(stream), start: EntryId::MIN, end: EntryId::MAX, count: None, reverse: true }
}

pub(crate) fn xread(stream: &str, from: ReadId) -> Query {
    Query::Xread { keys: vec![(key(stream), from)], count: None }
}

pub(crate) fn xpending(stream: &str, group: &str) -> Query {
    Query::Xpending { key: key(stream), group: key(group), range: None }
}

pub(crate) fn pending_rows(stream: &str, group: &str) -> Query {
    pending_rows_of(stream, group, None, 0)
}

pub(crate) fn pending_rows_of(stream: &str, group: &str, consumer: Option<&str>, min_idle_ms: u64) -> Query {
    let range = PendingRange {
        min_idle_ms,
        start: EntryId::MIN,
        end: EntryId::MAX,
        count: 1000,
        consumer: consumer.map(key),
    };
    Query::Xpending { key: key(stream), group: key(group), range: Some(range) }
}

pub(crate) fn xinfo_groups(stream: &str) -> Query {
    Query::XinfoGroups { key: key(stream) }
}

/// The machine that a snapshot of this one makes, pushed in pieces of `piece` bytes.
pub(crate) fn through_a_snapshot(machine: &Machine, piece: usize) -> Machine {
    let mut snapshot = machine.snapshot();
    let mut restore = Machine::restore();
    let mut more = true;
    while more {
        let mut chunk = Vec::new();
        more = snapshot.next_chunk(300, &mut chunk);
        for piece in chunk.chunks(piece) {
            restore.push(piece).expect("a sound snapshot");
        }
    }
    restore.finish().expect("a whole snapshot")
}
