//! The pending entries of a group: XACK, XPENDING, XCLAIM, XAUTOCLAIM.

use super::add::{Refs, Removal};
use super::{awaits, counted_ids, ids, millis};
use crate::client::{Call, Client};
use crate::command::Cmd;
use crate::reply::FromValue;
use crate::{Entry, EntryId};
use bytes::Bytes;
use std::time::Duration;
use weir_resp::Value;

/// What XPENDING without a range answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PendingSummary {
    /// Number of pending entries of the group.
    pub count: u64,
    /// Lowest and highest id, if there is any.
    pub range: Option<(EntryId, EntryId)>,
    /// How many each consumer has; those without any are left out.
    pub consumers: Vec<(Bytes, u64)>,
}

impl FromValue for PendingSummary {
    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            Value::Array(parts) if parts.len() == 4 => {
                let mut parts = parts.into_iter();
                let mut next = || parts.next().unwrap_or(Value::Null);
                let count = u64::from_value(next())?;
                let (first, last) = (Option::from_value(next())?, Option::from_value(next())?);
                let consumers = Vec::from_value(next())?;
                Ok(PendingSummary { count, range: first.zip(last), consumers })
            }
            other => Err(other),
        }
    }
}

/// One pending entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingEntry {
    /// Its id.
    pub id: EntryId,
    /// Who it was delivered to; empty if it was given back.
    pub consumer: Bytes,
    /// Time since it was last delivered, in whole milliseconds.
    pub idle: Duration,
    /// How often it was delivered.
    pub deliveries: u64,
}

impl FromValue for PendingEntry {
    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            Value::Array(parts) if parts.len() == 4 => {
                let mut parts = parts.into_iter();
                let mut next = || parts.next().unwrap_or(Value::Null);
                Ok(PendingEntry {
                    id: EntryId::from_value(next())?,
                    consumer: Bytes::from_value(next())?,
                    // -1 stands for one that was given back: as idle as can be.
                    idle: Duration::from_millis(u64::try_from(i64::from_value(next())?).unwrap_or(u64::MAX)),
                    deliveries: u64::from_value(next())?,
                })
            }
            other => Err(other),
        }
    }
}

/// XPENDING of single entries in the making: see [`Client::xpending_entries`].
#[must_use = "a call does nothing until it is awaited"]
pub struct XPending {
    client: Client,
    key: Vec<u8>,
    group: Vec<u8>,
    idle: Option<Duration>,
    range: (EntryId, EntryId),
    count: u64,
    consumer: Option<Vec<u8>>,
}

impl XPending {
    /// Only entries idle for this long.
    pub fn idle(mut self, min: Duration) -> Self {
        self.idle = Some(min);
        self
    }

    /// Only entries from `start` to `end`, both included.
    pub fn range(mut self, start: EntryId, end: EntryId) -> Self {
        self.range = (start, end);
        self
    }

    /// Only entries of this consumer.
    pub fn consumer(mut self, consumer: impl AsRef<[u8]>) -> Self {
        self.consumer = Some(consumer.as_ref().to_vec());
        self
    }

    fn into_cmd(self) -> Cmd {
        let mut cmd = Cmd::read("XPENDING").key(self.key).arg(self.group);
        if let Some(idle) = self.idle {
            cmd = cmd.arg("IDLE").int(millis(idle));
        }
        cmd = cmd.id(self.range.0).id(self.range.1).int(self.count);
        match self.consumer {
            Some(consumer) => cmd.arg(consumer),
            None => cmd,
        }
    }
}

awaits!(XPending => Vec<PendingEntry>);

/// XCLAIM in the making: see [`Client::xclaim`].
#[must_use = "a call does nothing until it is awaited"]
pub struct XClaim {
    client: Client,
    cmd: Cmd,
}

impl XClaim {
    /// Sets the time since the last delivery instead of starting it anew.
    pub fn idle(mut self, idle: Duration) -> Self {
        self.cmd.args.push("IDLE").push_int(millis(idle));
        self
    }

    /// Sets the number of deliveries.
    pub fn retry_count(mut self, deliveries: u64) -> Self {
        self.cmd.args.push("RETRYCOUNT").push_int(deliveries);
        self
    }

    /// Also claims entries that are not pending yet.
    pub fn force(mut self) -> Self {
        self.cmd.args.push("FORCE");
        self
    }

    /// Answers ids alone and does not count as a delivery.
    pub fn just_id(mut self) -> XClaimIds {
        self.cmd.args.push("JUSTID");
        XClaimIds { client: self.client, cmd: self.cmd }
    }

    fn into_cmd(self) -> Cmd {
        self.cmd
    }
}

awaits!(XClaim => Vec<Entry>);

/// XCLAIM JUSTID in the making: see [`XClaim::just_id`].
#[must_use = "a call does nothing until it is awaited"]
pub struct XClaimIds {
    client: Client,
    cmd: Cmd,
}

impl XClaimIds {
    fn into_cmd(self) -> Cmd {
        self.cmd
    }
}

awaits!(XClaimIds => Vec<EntryId>);

/// What XAUTOCLAIM answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AutoClaimed {
    /// Where to go on; [`EntryId::MIN`] when all were looked at.
    pub next: EntryId,
    /// What was claimed.
    pub entries: Vec<Entry>,
    /// Pending entries that had left the stream and were dropped from the group.
    pub gone: Vec<EntryId>,
}

impl FromValue for AutoClaimed {
    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            Value::Array(parts) if parts.len() == 2 || parts.len() == 3 => {
                let mut parts = parts.into_iter();
                let mut next = || parts.next().unwrap_or(Value::Null);
                Ok(AutoClaimed {
                    next: EntryId::from_value(next())?,
                    entries: Vec::from_value(next())?,
                    gone: Vec::from_value(next())?,
                })
            }
            other => Err(other),
        }
    }
}

/// XAUTOCLAIM in the making: see [`Client::xautoclaim`].
#[must_use = "a call does nothing until it is awaited"]
pub struct XAutoClaim {
    client: Client,
    cmd: Cmd,
}

impl XAutoClaim {
    /// At most this many entries. The server takes 100 without.
    pub fn count(mut self, entries: u64) -> Self {
        self.cmd.args.push("COUNT").push_int(entries);
        self
    }

    fn into_cmd(self) -> Cmd {
        self.cmd
    }
}

awaits!(XAutoClaim => AutoClaimed);

/// Why a consumer gives an entry back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nack {
    /// It did not try: the delivery does not count.
    Silent,
    /// It failed: the delivery counts.
    Fail,
    /// Nobody can do it: the number of deliveries becomes the largest there is.
    Fatal,
}

impl Client {
    /// Acknowledges entries of a group and removes them from the stream; what became of each.
    ///
    /// # Errors
    /// As [`Client::xack`].
    pub fn xackdel(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        refs: Refs,
        entries: impl IntoIterator<Item = EntryId>,
    ) -> Call<Vec<Removal>> {
        self.call(counted_ids(Cmd::write("XACKDEL").key(key).arg(group).arg(refs.word()), entries))
    }

    /// Gives pending entries back, for any consumer to claim at once; answers how many.
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `NOGROUP` if there is no such group; [`crate::Error::Unknown`] when the
    /// answer was lost.
    pub fn xnack(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        why: Nack,
        entries: impl IntoIterator<Item = EntryId>,
    ) -> Call<u64> {
        let word = match why {
            Nack::Silent => "SILENT",
            Nack::Fail => "FAIL",
            Nack::Fatal => "FATAL",
        };
        self.call(counted_ids(Cmd::write("XNACK").key(key).arg(group).arg(word), entries))
    }

    /// Acknowledges entries of a group and answers how many were pending. An answered acknowledgement is final.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`] when the answer was lost; doing it again is harmless.
    pub fn xack(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        entries: impl IntoIterator<Item = EntryId>,
    ) -> Call<u64> {
        self.call(ids(Cmd::write("XACK").key(key).arg(group), entries))
    }

    /// How much is pending in a group, and with whom.
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `NOGROUP` if there is no such group.
    pub fn xpending(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Call<PendingSummary> {
        self.call(Cmd::read("XPENDING").key(key).arg(group))
    }

    /// Pending entries of a group one by one, at most `count`, in order of their ids.
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `NOGROUP` if there is no such group.
    pub fn xpending_entries(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>, count: u64) -> XPending {
        XPending {
            client: self.clone(),
            key: key.as_ref().to_vec(),
            group: group.as_ref().to_vec(),
            idle: None,
            range: (EntryId::MIN, EntryId::MAX),
            count,
            consumer: None,
        }
    }

    /// Hands pending entries that are idle for at least `min_idle` to a consumer; answers those that were.
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `NOGROUP` if there is no such group; [`crate::Error::Unknown`] when the
    /// answer was lost.
    pub fn xclaim(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
        min_idle: Duration,
        entries: impl IntoIterator<Item = EntryId>,
    ) -> XClaim {
        let cmd = Cmd::write("XCLAIM").key(key).arg(group).arg(consumer).int(millis(min_idle));
        XClaim { client: self.clone(), cmd: ids(cmd, entries) }
    }

    /// Walks the pending entries from `start` on and hands those idle for at least `min_idle` to a consumer.
    ///
    /// # Errors
    /// As [`Client::xclaim`].
    pub fn xautoclaim(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
        min_idle: Duration,
        start: EntryId,
    ) -> XAutoClaim {
        let cmd = Cmd::write("XAUTOCLAIM").key(key).arg(group).arg(consumer).int(millis(min_idle)).id(start);
        XAutoClaim { client: self.clone(), cmd }
    }
}
