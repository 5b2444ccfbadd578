//! What can be asked of the machine: [`Command`] goes into the log, [`Query`] does not.
//!
//! Arguments arrive parsed and range-checked; what depends on state is checked in apply.
//! Both are encoded with postcard behind a version byte (see [`Batch`]).

use crate::{EntryId, SlotRange, Stamp};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A key, byte for byte as the client sent it.
pub type Key = Bytes;

/// Commands that share one stamp and one log entry, applied in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Fixed by the leader.
    pub stamp: Stamp,
    /// Applied in this order.
    pub commands: Vec<Command>,
}

/// A write. Adding variants goes at the end: positions are permanent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "a variant's line says what its fields are")]
pub enum Command {
    /// XADD.
    Xadd(Xadd),
    /// XDEL. Answers the number deleted.
    Xdel { key: Key, ids: Vec<EntryId> },
    /// XTRIM. Answers the number removed.
    Xtrim { key: Key, trim: Trim },
    /// XSETID.
    Xsetid { key: Key, last_id: EntryId, entries_added: Option<u64>, max_deleted_id: Option<EntryId> },
    /// XGROUP CREATE | SETID | DESTROY | CREATECONSUMER | DELCONSUMER.
    Xgroup { key: Key, group: Bytes, change: GroupChange },
    /// XREADGROUP. Answers `Reply::Streams`, or `Reply::NilArray` when there is nothing (the server may then park).
    Xreadgroup(Xreadgroup),
    /// XACK. Ids arrive unparsed: with a missing key or group they are not validated.
    Xack { key: Key, group: Bytes, ids: Vec<Bytes> },
    /// XCLAIM.
    Xclaim(Xclaim),
    /// XAUTOCLAIM.
    Xautoclaim {
        key: Key,
        group: Bytes,
        consumer: Bytes,
        min_idle_ms: u64,
        start: EntryId,
        count: u64,
        justid: bool,
    },
    /// DEL and UNLINK. Answers the number of keys removed.
    Del { keys: Vec<Key> },
    /// SET.
    Set(Set),
    /// RENAME / RENAMENX.
    Rename { from: Key, to: Key, only_if_absent: bool },
    /// EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT, with the deadline or the delta in milliseconds.
    Expire { key: Key, when: ExpireWhen, condition: ExpireCondition },
    /// PERSIST.
    Persist { key: Key },
    /// Proposed by a leader that met keys whose deadline has passed: those due at the stamp are deleted.
    ExpireDue { keys: Vec<Key> },
    /// MULTI .. EXEC: one unit, all in one log entry. Answers an array of replies.
    Exec(Vec<Op>),
    /// The slots this shard serves from here on (first entry of a new shard; later migrations).
    SetOwnedSlots { ranges: Vec<SlotRange> },
    /// Settings that change outcomes, as replicated state.
    Configure(Settings),
    /// FLUSHALL / FLUSHDB: every key of the shard goes.
    Flush,
    /// Consumer seen-time of a reader that goes on waiting (kept cheap; answers nothing). Reserved for the server.
    TouchConsumer { key: Key, group: Bytes, consumer: Bytes },
    /// XCFGSET: seconds and records a producer that idempotent adds are remembered.
    Xcfgset { key: Key, duration_s: Option<u32>, maxsize: Option<u32> },
    /// XIDMPRECORD.
    Xidmprecord { key: Key, add: Idempotent, id: EntryId },
    /// An XADD or XTRIM whose trim heeds what groups hold.
    WithRefs { refs: Refs, command: Box<Command> },
    /// XDELEX. Answers for each id 1: deleted, 2: held by a group, -1: not there.
    Xdelex { key: Key, refs: Refs, ids: Vec<EntryId> },
    /// XACKDEL. As XDELEX, -1: not pending in the group. Ids arrive unparsed, as XACK's do.
    Xackdel { key: Key, group: Bytes, refs: Refs, ids: Vec<Bytes> },
    /// XNACK. Answers how many were given back.
    Xnack(Xnack),
    /// XREADGROUP with CLAIM (an age in ms), MAXCOUNT or MAXSIZE.
    XreadgroupWithin { read: Xreadgroup, claim_min_idle_ms: Option<u64>, limits: ReadLimits },
    /// WATCH .. MULTI .. EXEC: as [`Command::Exec`], or nothing and a nil array if a key has another version than the
    /// one that [`Query::Versions`] showed.
    ExecWatched { watched: Vec<(Key, u64)>, ops: Vec<Op> },
    /// COPY. 1 or 0.
    Copy { from: Key, to: Key, replace: bool },
    /// Any change of one string that depends on what it was.
    EditString { key: Key, edit: StringEdit },
    /// MSET; MSETNX and SETNX (1 or 0): all or none.
    SetMany { pairs: Vec<(Key, Bytes)>, only_if_absent: bool },
    /// RESTORE. `value` is what [`crate::load_dump`] made of the payload.
    Restore { key: Key, value: Bytes, ends: Option<ExpireWhen>, replace: bool },
}

/// A change of a string.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "a variant's line says what its fields are")]
pub enum StringEdit {
    /// APPEND. Answers the new length.
    Append(Bytes),
    /// SETRANGE. Answers the new length.
    SetRange { offset: u64, value: Bytes },
    /// INCR, DECR, INCRBY, DECRBY. Answers the new number.
    Increment(i64),
    /// GETDEL. Answers the old value.
    GetDelete,
    /// GETEX. Answers the value.
    GetExpire(KeepUntil),
    /// DELEX with a condition: 1 if the key was removed, else 0.
    DeleteIf(SetCondition),
}

/// What GETEX makes of the end of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeepUntil {
    /// PERSIST.
    Forever,
    /// EX, PX, EXAT, PXAT.
    Deadline(ExpireWhen),
}

impl Command {
    /// The group read that this is, and the age in ms of the pending entries that it claims.
    pub fn group_read(&self) -> Option<(&Xreadgroup, Option<u64>)> {
        match self {
            Command::Xreadgroup(read) => Some((read, None)),
            Command::XreadgroupWithin { read, claim_min_idle_ms, .. } => Some((read, *claim_min_idle_ms)),
            _ => None,
        }
    }

    /// The same group read, asked again for a reader that was woken.
    pub fn woken(mut self) -> Command {
        if let Command::Xreadgroup(read) | Command::XreadgroupWithin { read, .. } = &mut self {
            read.woken = true;
        }
        self
    }
}

/// What becomes of the references that groups hold to an entry that goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refs {
    /// KEEPREF: they stay.
    Keep,
    /// DELREF: they go too.
    Delete,
    /// ACKED: the entry stays while a group has it pending or has yet to come to it.
    Acked,
}

/// Bounds of one read over all its streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadLimits {
    /// MAXCOUNT: entries.
    pub max_count: Option<u64>,
    /// MAXSIZE: bytes of the answer, roughly. It is exceeded by one entry at most.
    pub max_size: Option<u64>,
}

/// XNACK.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Xnack {
    /// Stream.
    pub key: Key,
    /// Group.
    pub group: Bytes,
    /// What the delivery counts for.
    pub mode: NackMode,
    /// Entries to give back.
    pub ids: Vec<EntryId>,
    /// RETRYCOUNT, whatever the mode.
    pub retry_count: Option<u64>,
    /// FORCE: entries that are not pending become so.
    pub force: bool,
}

/// What the delivery of an entry that is given back counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NackMode {
    /// SILENT: nothing.
    Silent,
    /// FAIL: a failure.
    Fail,
    /// FATAL: more than enough.
    Fatal,
}

/// One element of a transaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// A write.
    Command(Command),
    /// A read, answered from the state inside the transaction. Uses the batch's stamp as time.
    Query(Query),
    /// A command that the server answers itself (PING, ECHO inside MULTI): the reply stands ready.
    Answer(ReadyAnswer),
}

/// A reply known before apply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ReadyAnswer {
    /// Simple string.
    Simple(Bytes),
    /// Bulk string.
    Bulk(Bytes),
    /// Error text with prefix: a syntax error that surfaces only in EXEC.
    Error(Bytes),
}

/// XADD.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Xadd {
    /// Stream.
    pub key: Key,
    /// NOMKSTREAM.
    pub no_mkstream: bool,
    /// MAXLEN / MINID, applied after the add.
    pub trim: Option<Trim>,
    /// `*`, `ms-*` or explicit.
    pub id: AddId,
    /// Field, value, field, value ...; never empty, even length.
    pub fields: Vec<Bytes>,
}

/// How XADD chooses the id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddId {
    /// `*`: from the stamp and the last id.
    Auto,
    /// `ms-*`: next free sequence in this millisecond.
    AutoSeq(u64),
    /// Explicit.
    Given(EntryId),
    /// `*`, unless the producer added this before: then nothing is added, and the answer is the id of then.
    Once(Box<Idempotent>),
}

/// Names an add, so that a retry can be told from a new one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idempotent {
    /// Who adds.
    pub producer: Bytes,
    /// Which add of this producer.
    pub iid: Bytes,
}

/// MAXLEN / MINID.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trim {
    /// What stays.
    pub to: TrimTo,
    /// `~`: whole blocks only.
    pub approximate: bool,
    /// LIMIT: most entries removed by this call; `None` = not given (default 100 x block entries when `~`, else none); `Some(0)` = no limit.
    pub limit: Option<u64>,
}

/// Threshold of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrimTo {
    /// At most this many entries stay.
    MaxLen(u64),
    /// Entries below this id go.
    MinId(EntryId),
}

/// XGROUP's changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "a variant's line says what its fields are")]
pub enum GroupChange {
    /// CREATE. BUSYGROUP if present.
    Create { at: GroupStart, mkstream: bool, entries_read: Option<i64> },
    /// SETID.
    SetId { at: GroupStart, entries_read: Option<i64> },
    /// DESTROY. 1 or 0.
    Destroy,
    /// CREATECONSUMER. 1 or 0.
    CreateConsumer { consumer: Bytes },
    /// DELCONSUMER. Answers how many pending entries went with it.
    DelConsumer { consumer: Bytes },
}

/// Where a group starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupStart {
    /// `$`.
    Last,
    /// An id.
    Id(EntryId),
}

/// XREADGROUP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Xreadgroup {
    /// Group name.
    pub group: Bytes,
    /// Consumer name; created when absent.
    pub consumer: Bytes,
    /// COUNT; `None` = no limit (0 and negative too).
    pub count: Option<u64>,
    /// NOACK.
    pub noack: bool,
    /// Keys with `>` or an id.
    pub keys: Vec<(Key, GroupReadId)>,
    /// A parked reader that was woken asks again: its consumer's seen-time is not touched when there is nothing.
    pub woken: bool,
}

/// `>` or history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupReadId {
    /// `>`: entries never delivered to the group.
    New,
    /// The consumer's own pending entries after this id.
    After(EntryId),
}

/// XCLAIM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Xclaim {
    /// Stream.
    pub key: Key,
    /// Group.
    pub group: Bytes,
    /// New owner; created when absent.
    pub consumer: Bytes,
    /// Only entries idle at least this long.
    pub min_idle_ms: u64,
    /// Entries to claim.
    pub ids: Vec<EntryId>,
    /// IDLE / TIME: the last one given wins.
    pub delivery_time: ClaimTime,
    /// RETRYCOUNT.
    pub retry_count: Option<u64>,
    /// FORCE.
    pub force: bool,
    /// JUSTID.
    pub justid: bool,
    /// LASTID.
    pub last_id: Option<EntryId>,
}

/// Delivery time set by XCLAIM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimTime {
    /// Neither: now.
    Now,
    /// IDLE ms: now minus this; negative becomes now.
    Idle(i64),
    /// TIME unix-ms: future or negative becomes now.
    At(i64),
}

/// SET.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Set {
    /// Key.
    pub key: Key,
    /// Value.
    pub value: Bytes,
    /// EX/PX (delta) or EXAT/PXAT (deadline), in ms.
    pub expire: Option<ExpireWhen>,
    /// KEEPTTL.
    pub keep_ttl: bool,
    /// NX, XX, IFEQ, IFNE.
    pub condition: SetCondition,
    /// GET: answer the old value.
    pub get: bool,
}

/// NX, XX, IFEQ, IFNE of SET.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetCondition {
    /// Always.
    Always,
    /// NX.
    IfAbsent,
    /// XX.
    IfPresent,
    /// IFEQ: this string is there.
    IfEqual(Bytes),
    /// IFNE: another string, or nothing.
    IfNotEqual(Bytes),
    /// IFDEQ: a string with this digest is there, 16 hexadecimal digits.
    IfDigest(Bytes),
    /// IFDNE: a string with another digest, or nothing.
    IfNotDigest(Bytes),
}

/// A time to live or a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExpireWhen {
    /// Milliseconds from the stamp; zero and negative delete at once.
    In(i64),
    /// Unix milliseconds; the past deletes at once.
    At(i64),
}

/// NX XX GT LT of the EXPIRE family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExpireCondition {
    /// Always.
    Always,
    /// NX.
    IfNone,
    /// XX.
    IfSome,
    /// GT.
    IfLater,
    /// LT.
    IfSooner,
    /// XX LT.
    IfSomeAndSooner,
}

/// Settings that change what a command does; replicated, never read from a node's configuration in apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `stream-node-max-entries`; 0 = no bound.
    pub stream_node_max_entries: u32,
    /// `stream-node-max-bytes`; 0 = no bound.
    pub stream_node_max_bytes: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { stream_node_max_entries: 100, stream_node_max_bytes: 4096 }
    }
}

/// A read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "a variant's line says what its fields are")]
pub enum Query {
    /// XLEN.
    Xlen { key: Key },
    /// XRANGE / XREVRANGE (`reverse`). Bounds are inclusive. `count`: `Some(0)` answers a nil array if the key exists.
    Xrange { key: Key, start: EntryId, end: EntryId, count: Option<u64>, reverse: bool },
    /// XREAD. `$` and `+` are resolved against the state at the call.
    Xread { keys: Vec<(Key, ReadId)>, count: Option<u64> },
    /// XPENDING, summary or (with `range`) extended.
    Xpending { key: Key, group: Bytes, range: Option<PendingRange> },
    /// XINFO STREAM [FULL [COUNT n]]; `full`: `None` = short form, `Some(0)` = everything.
    XinfoStream { key: Key, full: Option<u64> },
    /// XINFO GROUPS.
    XinfoGroups { key: Key },
    /// XINFO CONSUMERS.
    XinfoConsumers { key: Key, group: Bytes },
    /// GET.
    Get { key: Key },
    /// EXISTS: a key given twice counts twice.
    Exists { keys: Vec<Key> },
    /// TYPE.
    Type { key: Key },
    /// TTL / PTTL / EXPIRETIME / PEXPIRETIME.
    Ttl { key: Key, seconds: bool, absolute: bool },
    /// DUMP; nil without a key.
    Dump { key: Key },
    /// CLUSTER COUNTKEYSINSLOT.
    CountKeysInSlot { slot: crate::Slot },
    /// CLUSTER GETKEYSINSLOT.
    GetKeysInSlot { slot: crate::Slot, count: u64 },
    /// Number of keys of the shard (part of DBSIZE).
    KeyCount,
    /// XREAD with MAXCOUNT or MAXSIZE.
    XreadWithin { keys: Vec<(Key, ReadId)>, count: Option<u64>, limits: ReadLimits },
    /// WATCH. Answers the version of each key, 0 without one: a key that was made and went again is as it was.
    Versions { keys: Vec<Key> },
    /// MGET: nil for what is missing or no string.
    GetMany { keys: Vec<Key> },
    /// STRLEN.
    Strlen { key: Key },
    /// GETRANGE: negative positions count from the end.
    GetRange { key: Key, start: i64, end: i64 },
    /// OBJECT ENCODING; nil without a key.
    Encoding { key: Key },
    /// OBJECT REFCOUNT; nil without a key.
    RefCount { key: Key },
    /// MEMORY USAGE in bytes, estimated; nil without a key.
    MemoryUsage { key: Key },
    /// Part of SCAN: the next cursor (0 at the end), then key and type of about `count` keys from `cursor` on.
    Scan { cursor: u64, count: u64 },
    /// Whether XREADGROUP finds the group at each key: OK, or its refusal.
    HaveGroup { keys: Vec<Key>, group: Bytes },
    /// DIGEST; nil without a key.
    Digest { key: Key },
}

impl Query {
    /// The stream read that this is: its keys.
    pub fn stream_read(&self) -> Option<&[(Key, ReadId)]> {
        match self {
            Query::Xread { keys, .. } | Query::XreadWithin { keys, .. } => Some(keys),
            _ => None,
        }
    }

    /// The same stream read with other places to start from.
    pub fn with_read_ids(mut self, ids: Vec<(Key, ReadId)>) -> Query {
        if let Query::Xread { keys, .. } | Query::XreadWithin { keys, .. } = &mut self {
            *keys = ids;
        }
        self
    }
}

/// Where XREAD starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadId {
    /// Entries after this id.
    After(EntryId),
    /// `$`: after the last generated id.
    Last,
    /// `+`: the last entry still present.
    LastEntry,
}

/// Extended XPENDING.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingRange {
    /// IDLE.
    pub min_idle_ms: u64,
    /// Inclusive.
    pub start: EntryId,
    /// Inclusive.
    pub end: EntryId,
    /// Most rows.
    pub count: u64,
    /// Only this consumer's.
    pub consumer: Option<Bytes>,
}
