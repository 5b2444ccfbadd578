//! XINFO.

use crate::client::{Call, Client};
use crate::command::Cmd;
use crate::reply::{Fields, FromValue};
use crate::{Entry, EntryId};
use bytes::Bytes;
use std::time::Duration;
use weir_resp::Value;

/// What XINFO STREAM answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    /// Number of entries.
    pub length: u64,
    /// The highest id ever given.
    pub last_id: EntryId,
    /// The highest id that was deleted, if the server tells.
    pub max_deleted_id: Option<EntryId>,
    /// Number of entries ever added, if the server tells.
    pub entries_added: Option<u64>,
    /// Number of groups.
    pub groups: u64,
    /// The oldest entry.
    pub first: Option<Entry>,
    /// The newest entry.
    pub last: Option<Entry>,
    /// How long ids of idempotent appends are remembered, if the server knows such appends.
    pub idmp_duration: Option<Duration>,
    /// How many ids of idempotent appends are remembered for each producer, if the server knows such appends.
    pub idmp_maxsize: Option<u64>,
}

impl FromValue for StreamInfo {
    fn from_value(value: Value) -> Result<Self, Value> {
        let mut fields = Fields::read(value)?;
        Ok(StreamInfo {
            length: fields.get("length")?,
            last_id: fields.get("last-generated-id")?,
            max_deleted_id: fields.get("max-deleted-entry-id")?,
            entries_added: fields.get("entries-added")?,
            groups: fields.get("groups")?,
            first: fields.get("first-entry")?,
            last: fields.get("last-entry")?,
            idmp_duration: fields.get::<Option<u64>>("idmp-duration")?.map(Duration::from_secs),
            idmp_maxsize: fields.get("idmp-maxsize")?,
        })
    }
}

/// What XINFO GROUPS answers for one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupInfo {
    /// Its name.
    pub name: Bytes,
    /// Number of consumers.
    pub consumers: u64,
    /// Number of pending entries.
    pub pending: u64,
    /// The highest id delivered.
    pub last_delivered_id: EntryId,
    /// Number of entries read, if it can be known.
    pub entries_read: Option<u64>,
    /// Number of entries not yet delivered, if it can be known.
    pub lag: Option<u64>,
}

impl FromValue for GroupInfo {
    fn from_value(value: Value) -> Result<Self, Value> {
        let mut fields = Fields::read(value)?;
        Ok(GroupInfo {
            name: fields.get("name")?,
            consumers: fields.get("consumers")?,
            pending: fields.get("pending")?,
            last_delivered_id: fields.get("last-delivered-id")?,
            entries_read: fields.get("entries-read")?,
            lag: fields.get("lag")?,
        })
    }
}

/// What XINFO CONSUMERS answers for one consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// Its name.
    pub name: Bytes,
    /// Number of pending entries.
    pub pending: u64,
    /// Time since it last asked for anything.
    pub idle: Duration,
    /// Time since it last got anything; `None` if it never did, or if the server does not tell.
    pub inactive: Option<Duration>,
}

impl FromValue for ConsumerInfo {
    fn from_value(value: Value) -> Result<Self, Value> {
        let mut fields = Fields::read(value)?;
        let inactive = fields.get::<Option<i64>>("inactive")?.and_then(|ms| u64::try_from(ms).ok());
        Ok(ConsumerInfo {
            name: fields.get("name")?,
            pending: fields.get("pending")?,
            idle: Duration::from_millis(fields.get("idle")?),
            inactive: inactive.map(Duration::from_millis),
        })
    }
}

impl Client {
    /// Describes a stream.
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `ERR` if there is no such stream.
    pub fn xinfo_stream(&self, key: impl AsRef<[u8]>) -> Call<StreamInfo> {
        self.call(Cmd::read("XINFO STREAM").key(key))
    }

    /// Lists the groups of a stream.
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `ERR` if there is no such stream.
    pub fn xinfo_groups(&self, key: impl AsRef<[u8]>) -> Call<Vec<GroupInfo>> {
        self.call(Cmd::read("XINFO GROUPS").key(key))
    }

    /// Lists the consumers of a group.
    ///
    /// # Errors
    /// [`crate::Error::Server`] with code `NOGROUP` if there is no such group.
    pub fn xinfo_consumers(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Call<Vec<ConsumerInfo>> {
        self.call(Cmd::read("XINFO CONSUMERS").key(key).arg(group))
    }
}
