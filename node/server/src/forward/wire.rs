//! Forwarded requests and their answers as bytes. The first byte is the version; numbers of variants are permanent.

use super::{Tried, Wait, Work};
use crate::shard::{Answer, ShardId, Unblock};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;
use weir_env::time::Instant;
use weir_stream::{Command, Entries, EntryId, Query, Refusal, Reply, Slot};

const VERSION: u8 = 1;

/// Work for one shard, in order.
#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    shard: ShardId,
    jobs: Vec<Job>,
}

#[derive(Serialize, Deserialize)]
enum Job {
    Write(Command, Option<Within>),
    Read(Query, Option<Within>),
    Replicas { index: u64, wanted: u64, ms: Option<u64> },
    Unblock { waiter: u64, error: bool },
}

/// How a reader waits. Clocks of nodes differ, so moments do not travel.
#[derive(Serialize, Deserialize)]
struct Within {
    /// From when it is sent; `None` is for ever.
    ms: Option<u64>,
    waiter: u64,
}

impl Request {
    pub(super) fn of(shard: ShardId, work: &[Work], now: Instant) -> Request {
        let ms = |until: Option<Instant>| {
            until.map(|until| {
                u64::try_from(until.saturating_duration_since(now).as_millis()).unwrap_or(u64::MAX)
            })
        };
        let within = |wait: Wait| Within { ms: ms(wait.until), waiter: wait.waiter };
        let job = |work: &Work| match work {
            Work::Write(command, wait) => Job::Write(command.clone(), wait.map(within)),
            Work::Read(query, wait) => Job::Read(query.clone(), wait.map(within)),
            Work::Replicas { index, wanted, until } => {
                Job::Replicas { index: *index, wanted: *wanted as u64, ms: ms(*until) }
            }
            Work::Unblock { waiter, how } => Job::Unblock { waiter: *waiter, error: *how == Unblock::Error },
        };
        Request { shard, jobs: work.iter().map(job).collect() }
    }

    pub(super) fn into_work(self, now: Instant) -> (ShardId, Vec<Work>) {
        let until = |ms: Option<u64>| ms.and_then(|ms| now.checked_add(Duration::from_millis(ms)));
        let wait = |within: Within| Wait { until: until(within.ms), waiter: within.waiter };
        let work = |job| match job {
            Job::Write(command, within) => Work::Write(command, within.map(wait)),
            Job::Read(query, within) => Work::Read(query, within.map(wait)),
            Job::Replicas { index, wanted, ms } => {
                Work::Replicas { index, wanted: wanted as usize, until: until(ms) }
            }
            Job::Unblock { waiter, error } => {
                let how = if error { Unblock::Error } else { Unblock::Timeout };
                Work::Unblock { waiter, how }
            }
        };
        (self.shard, self.jobs.into_iter().map(work).collect())
    }

    pub(super) fn encode(&self) -> Bytes {
        encode(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Request, String> {
        decode(bytes)
    }
}

/// The end of one piece of work on its way between nodes.
#[derive(Serialize, Deserialize)]
pub(super) enum Told {
    Reply { reply: Value, index: u64 },
    Moved,
    Busy,
    Unknown,
    OutOfSpace,
    TooLarge,
    NotLed,
}

/// A reply on its way between nodes.
#[derive(Serialize, Deserialize)]
pub(super) enum Value {
    None,
    Ok,
    Simple(String),
    Int(i64),
    Bulk(Bytes),
    Id(EntryId),
    NilBulk,
    NilArray,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Entries(Entries),
    Streams(Vec<(Bytes, Entries)>),
    NotOwned(u16),
    Error(String),
    Set(Vec<Value>),
    Double(f64),
}

impl Told {
    pub(super) fn encode(all: Vec<Tried>) -> Bytes {
        encode(&all.into_iter().map(Told::from).collect::<Vec<_>>())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Told>, String> {
        decode(bytes)
    }
}

impl From<Tried> for Told {
    fn from(tried: Tried) -> Told {
        match tried {
            Tried::NotReached => Told::NotLed,
            Tried::Moved | Tried::Answered(Answer::Moved | Answer::Later(_)) => Told::Moved,
            Tried::Answered(Answer::Reply { reply, index }) => Told::Reply { reply: reply.into(), index },
            Tried::Answered(Answer::Busy) => Told::Busy,
            Tried::Answered(Answer::Unknown) => Told::Unknown,
            Tried::Answered(Answer::OutOfSpace) => Told::OutOfSpace,
            Tried::Answered(Answer::TooLarge) => Told::TooLarge,
        }
    }
}

impl From<Told> for Tried {
    fn from(told: Told) -> Tried {
        Tried::Answered(match told {
            Told::NotLed => return Tried::NotReached,
            Told::Moved => return Tried::Moved,
            Told::Reply { reply, index } => Answer::Reply { reply: reply.into(), index },
            Told::Busy => Answer::Busy,
            Told::Unknown => Answer::Unknown,
            Told::OutOfSpace => Answer::OutOfSpace,
            Told::TooLarge => Answer::TooLarge,
        })
    }
}

impl From<Reply> for Value {
    fn from(reply: Reply) -> Value {
        let all = |replies: Vec<Reply>| replies.into_iter().map(Value::from).collect();
        match reply {
            Reply::None => Value::None,
            Reply::Ok => Value::Ok,
            Reply::Simple(text) => Value::Simple(text.to_owned()),
            Reply::Int(n) => Value::Int(n),
            Reply::Bulk(bytes) => Value::Bulk(bytes),
            Reply::Dump(dump) => Value::Bulk(dump.payload().into()),
            Reply::Id(id) => Value::Id(id),
            Reply::NilBulk => Value::NilBulk,
            Reply::NilArray => Value::NilArray,
            Reply::Array(items) => Value::Array(all(items)),
            // No shard answers these: they are a connection's own.
            Reply::Push(items) | Reply::Many(items) => Value::Array(all(items)),
            Reply::Line(text) => Value::Bulk(text),
            Reply::Set(items) => Value::Set(all(items)),
            Reply::Double(number) => Value::Double(number),
            Reply::Map(pairs) => Value::Map(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect()),
            Reply::Entries(entries) => Value::Entries(entries),
            Reply::Streams(streams) => Value::Streams(streams),
            Reply::Error(Refusal::NotOwned(slot)) => Value::NotOwned(slot.0),
            Reply::Error(Refusal::Text(text)) => Value::Error(text),
        }
    }
}

impl From<Value> for Reply {
    fn from(value: Value) -> Reply {
        let all = |values: Vec<Value>| values.into_iter().map(Reply::from).collect();
        match value {
            Value::None => Reply::None,
            Value::Ok => Reply::Ok,
            Value::Simple(text) => Reply::Simple(kept(text)),
            Value::Int(n) => Reply::Int(n),
            Value::Bulk(bytes) => Reply::Bulk(bytes),
            Value::Id(id) => Reply::Id(id),
            Value::NilBulk => Reply::NilBulk,
            Value::NilArray => Reply::NilArray,
            Value::Array(items) => Reply::Array(all(items)),
            Value::Set(items) => Reply::Set(all(items)),
            Value::Double(number) => Reply::Double(number),
            Value::Map(pairs) => Reply::Map(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect()),
            Value::Entries(entries) => Reply::Entries(entries),
            Value::Streams(streams) => Reply::Streams(streams),
            Value::NotOwned(slot) => Reply::Error(Refusal::NotOwned(Slot(slot))),
            Value::Error(text) => Reply::Error(Refusal::Text(text)),
        }
    }
}

/// Simple strings are the few fixed words that the state machine says; each is kept once.
fn kept(text: String) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock();
    match kept.get(text.as_str()) {
        Some(known) => known,
        None => {
            let text: &'static str = text.leak();
            kept.insert(text);
            text
        }
    }
}

fn encode<T: Serialize>(value: &T) -> Bytes {
    let bytes = vec![VERSION];
    match postcard::to_extend(value, bytes) {
        Ok(bytes) => bytes.into(),
        Err(e) => unreachable!("plain data always encodes: {e}"),
    }
}

fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, String> {
    match bytes.split_first() {
        Some((&VERSION, body)) => {
            postcard::from_bytes(body).map_err(|e| format!("forwarded work is unreadable: {e}"))
        }
        Some((other, _)) => Err(format!("forwarded work has version {other}, this build reads {VERSION}")),
        None => Err("forwarded work is empty".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_answer_reads_back() {
        let mut entries = Entries::new();
        entries.push(EntryId::new(1, 2), [&b"f"[..], b"v"].into_iter());
        entries.push_gone(EntryId::new(3, 4));
        let replies = vec![
            Reply::Ok,
            Reply::Simple("QUEUED"),
            Reply::Int(-3),
            Reply::Bulk(Bytes::from_static(b"\0x")),
            Reply::Id(EntryId::new(5, 6)),
            Reply::NilBulk,
            Reply::NilArray,
            Reply::Map(vec![(Reply::Int(1), Reply::Set(vec![Reply::Double(0.5)]))]),
            Reply::Entries(entries.clone()),
            Reply::Streams(vec![(Bytes::from_static(b"k"), entries)]),
            Reply::Error(Refusal::Text("ERR x".into())),
            Reply::Error(Refusal::NotOwned(Slot(7))),
        ];
        let told = Told::encode(vec![
            Tried::Answered(Answer::Reply { reply: Reply::Array(replies.clone()), index: 9 }),
            Tried::Answered(Answer::Busy),
            Tried::NotReached,
        ]);
        let mut back: Vec<Tried> = Told::decode(&told).unwrap().into_iter().map(Tried::from).collect();
        assert!(matches!(back.pop(), Some(Tried::NotReached)));
        assert!(matches!(back.pop(), Some(Tried::Answered(Answer::Busy))));
        let Some(Tried::Answered(Answer::Reply { reply, index: 9 })) = back.pop() else { panic!() };
        assert_eq!(reply, Reply::Array(replies));
        assert!(decode::<u8>(&[9, 0]).unwrap_err().contains("version 9"));
    }
}
