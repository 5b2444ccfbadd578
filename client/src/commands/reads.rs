//! XLEN, XRANGE, XREVRANGE, XREAD, XREADGROUP.

use super::{awaits, millis};
use crate::client::{Call, Client};
use crate::command::Cmd;
use crate::reply::{FromValue, Streams};
use crate::{Entry, EntryId};
use std::time::Duration;
use weir_resp::Value;

/// XRANGE or XREVRANGE in the making.
#[must_use = "a call does nothing until it is awaited"]
pub struct XRange {
    client: Client,
    cmd: Cmd,
}

impl XRange {
    /// At most this many entries.
    pub fn count(mut self, entries: u64) -> Self {
        self.cmd.args.push("COUNT").push_int(entries);
        self
    }

    fn into_cmd(self) -> Cmd {
        self.cmd
    }
}

awaits!(XRange => Vec<Entry>);

/// XREAD in the making: see [`Client::xread`].
#[must_use = "a call does nothing until it is awaited"]
pub struct XRead {
    client: Client,
    streams: Vec<(Vec<u8>, Vec<u8>)>,
    limits: Limits,
}

/// How much is read and how long is waited.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    count: Option<u64>,
    block: Option<Duration>,
    maxcount: Option<u64>,
    maxsize: Option<u64>,
}

impl XRead {
    /// Also entries of this stream with an id above `after`.
    pub fn after(mut self, key: impl AsRef<[u8]>, after: EntryId) -> Self {
        self.streams.push((key.as_ref().to_vec(), after.to_string().into_bytes()));
        self
    }

    /// Also entries of this stream that are added while the call waits. If the call has to be made again because an
    /// answer was lost, entries added in between are not seen; to follow a stream without gaps use
    /// [`XRead::after`] or [`Client::read_many`].
    pub fn new_of(mut self, key: impl AsRef<[u8]>) -> Self {
        self.streams.push((key.as_ref().to_vec(), b"$".to_vec()));
        self
    }

    /// At most this many entries of each stream.
    pub fn count(mut self, entries: u64) -> Self {
        self.limits.count = Some(entries);
        self
    }

    /// At most this many entries of all streams together.
    pub fn maxcount(mut self, entries: u64) -> Self {
        self.limits.maxcount = Some(entries);
        self
    }

    /// No further entry once the reply holds this many bytes; at least one entry in any case.
    pub fn maxsize(mut self, bytes: u64) -> Self {
        self.limits.maxsize = Some(bytes);
        self
    }

    /// If there is nothing yet, waits this long at the server (at least a millisecond).
    pub fn block(mut self, time: Duration) -> Self {
        self.limits.block = Some(time.max(Duration::from_millis(1)));
        self
    }

    fn into_cmd(self) -> Cmd {
        let mut cmd = Cmd::read("XREAD");
        self.limits.push(&mut cmd);
        streams(&mut cmd, &self.streams);
        cmd
    }
}

awaits!(XRead => Streams);

/// XREADGROUP in the making: see [`Client::xreadgroup`].
#[must_use = "a call does nothing until it is awaited"]
pub struct XReadGroup {
    client: Client,
    group: Vec<u8>,
    consumer: Vec<u8>,
    streams: Vec<(Vec<u8>, Vec<u8>)>,
    limits: Limits,
    noack: bool,
}

impl XReadGroup {
    /// Entries of this stream that were never delivered in the group.
    pub fn new_of(mut self, key: impl AsRef<[u8]>) -> Self {
        self.streams.push((key.as_ref().to_vec(), b">".to_vec()));
        self
    }

    /// The consumer's own pending entries of this stream with an id above `after`, once more.
    pub fn pending_after(mut self, key: impl AsRef<[u8]>, after: EntryId) -> Self {
        self.streams.push((key.as_ref().to_vec(), after.to_string().into_bytes()));
        self
    }

    /// At most this many entries of each stream.
    pub fn count(mut self, entries: u64) -> Self {
        self.limits.count = Some(entries);
        self
    }

    /// At most this many entries of all streams together.
    pub fn maxcount(mut self, entries: u64) -> Self {
        self.limits.maxcount = Some(entries);
        self
    }

    /// No further entry once the reply holds this many bytes; at least one entry in any case.
    pub fn maxsize(mut self, bytes: u64) -> Self {
        self.limits.maxsize = Some(bytes);
        self
    }

    /// If there is nothing new, waits this long at the server (at least a millisecond).
    pub fn block(mut self, time: Duration) -> Self {
        self.limits.block = Some(time.max(Duration::from_millis(1)));
        self
    }

    /// Entries count as acknowledged when they are delivered.
    pub fn noack(mut self) -> Self {
        self.noack = true;
        self
    }

    /// Also entries that are pending with anyone and idle for at least `min_idle`, longest first: they come before new
    /// ones and are this consumer's from then on.
    pub fn claim(self, min_idle: Duration) -> XReadGroupClaim {
        XReadGroupClaim { client: self.client.clone(), read: self, min_idle }
    }

    fn into_cmd(self) -> Cmd {
        self.cmd_claiming(None)
    }

    fn cmd_claiming(self, min_idle: Option<Duration>) -> Cmd {
        let mut cmd = Cmd::write("XREADGROUP").arg("GROUP").arg(self.group).arg(self.consumer);
        self.limits.push(&mut cmd);
        if let Some(min_idle) = min_idle {
            cmd.args.push("CLAIM").push_int(millis(min_idle));
        }
        if self.noack {
            cmd.args.push("NOACK");
        }
        streams(&mut cmd, &self.streams);
        cmd
    }
}

awaits!(XReadGroup => Streams);

/// XREADGROUP with CLAIM in the making: see [`XReadGroup::claim`].
#[must_use = "a call does nothing until it is awaited"]
pub struct XReadGroupClaim {
    client: Client,
    read: XReadGroup,
    min_idle: Duration,
}

impl XReadGroupClaim {
    fn into_cmd(self) -> Cmd {
        self.read.cmd_claiming(Some(self.min_idle))
    }
}

awaits!(XReadGroupClaim => Streams<Claimed>);

/// An entry read with CLAIM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The entry.
    pub entry: Entry,
    /// Time since it was delivered to whoever had it, in whole milliseconds; zero for a new entry.
    pub idle: Duration,
    /// How often it was delivered before; 0 for a new entry.
    pub deliveries: u64,
}

impl FromValue for Claimed {
    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            Value::Array(parts) if parts.len() == 4 => {
                let mut parts = parts.into_iter();
                let mut next = || parts.next().unwrap_or(Value::Null);
                let entry = Entry::from_value(Value::Array(vec![next(), next()]))?;
                // -1 stands for one that was given back: as idle as can be.
                let idle_ms = u64::try_from(i64::from_value(next())?).unwrap_or(u64::MAX);
                let deliveries = u64::from_value(next())?;
                Ok(Claimed { entry, idle: Duration::from_millis(idle_ms), deliveries })
            }
            other => Err(other),
        }
    }
}

impl Limits {
    fn push(self, cmd: &mut Cmd) {
        for (word, n) in [("COUNT", self.count), ("MAXCOUNT", self.maxcount), ("MAXSIZE", self.maxsize)] {
            if let Some(n) = n {
                cmd.args.push(word).push_int(n);
            }
        }
        if let Some(block) = self.block {
            cmd.args.push("BLOCK").push_int(millis(block));
            cmd.block = Some(block);
        }
    }
}

fn streams(cmd: &mut Cmd, streams: &[(Vec<u8>, Vec<u8>)]) {
    cmd.args.push("STREAMS");
    streams.iter().for_each(|(key, _)| cmd.add_key(key));
    streams.iter().for_each(|(_, id)| {
        cmd.args.push(id);
    });
}

impl Client {
    /// Number of entries of a stream; 0 if it is missing.
    pub fn xlen(&self, key: impl AsRef<[u8]>) -> Call<u64> {
        self.call(Cmd::read("XLEN").key(key))
    }

    /// The entries from `start` to `end`, both included, oldest first.
    ///
    /// ```no_run
    /// # async fn example(client: weir_client::Client) -> Result<(), weir_client::Error> {
    /// use weir_client::EntryId;
    /// let first = client.xrange("orders", EntryId::MIN, EntryId::MAX).count(10).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn xrange(&self, key: impl AsRef<[u8]>, start: EntryId, end: EntryId) -> XRange {
        XRange { client: self.clone(), cmd: Cmd::read("XRANGE").key(key).id(start).id(end) }
    }

    /// The entries from `end` down to `start`, both included, newest first.
    pub fn xrevrange(&self, key: impl AsRef<[u8]>, end: EntryId, start: EntryId) -> XRange {
        XRange { client: self.clone(), cmd: Cmd::read("XREVRANGE").key(key).id(end).id(start) }
    }

    /// Reads entries after given ids, of one stream or of several in one slot; may wait for them.
    /// For streams in different slots see [`Client::read_many`].
    ///
    /// ```no_run
    /// # async fn example(client: weir_client::Client) -> Result<(), weir_client::Error> {
    /// use std::time::Duration;
    /// use weir_client::EntryId;
    /// let mut last = EntryId::MIN;
    /// let read = client.xread().after("orders", last).count(100).block(Duration::from_secs(5)).await?;
    /// for entry in read.into_only() {
    ///     last = entry.id;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::CrossSlot`] for streams in different slots.
    pub fn xread(&self) -> XRead {
        XRead { client: self.clone(), streams: Vec::new(), limits: Limits::default() }
    }

    /// Delivers entries to a consumer of a group. It changes the group, so it is not repeated when its answer is
    /// lost: what was delivered is then pending, to be read again with [`XReadGroup::pending_after`].
    /// [`crate::Worker`] does all of that.
    ///
    /// ```no_run
    /// # async fn example(client: weir_client::Client) -> Result<(), weir_client::Error> {
    /// let read = client.xreadgroup("billing", "worker-1").new_of("orders").count(10).await?;
    /// for entry in read.into_only() {
    ///     client.xack("orders", "billing", [entry.id]).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `NOGROUP` if a stream or its group is missing;
    /// [`crate::Error::Unknown`] when the answer was lost.
    pub fn xreadgroup(&self, group: impl AsRef<[u8]>, consumer: impl AsRef<[u8]>) -> XReadGroup {
        XReadGroup {
            client: self.clone(),
            group: group.as_ref().to_vec(),
            consumer: consumer.as_ref().to_vec(),
            streams: Vec::new(),
            limits: Limits::default(),
            noack: false,
        }
    }
}
