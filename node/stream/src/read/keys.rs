//! GET, EXISTS, TYPE, TTL, DUMP and the queries about slots.

use crate::keyspace::Value;
use crate::machine::{Machine, int};
use crate::write::strings::canonical_int;
use crate::{Dump, Key, Refusal, Reply, Slot};
use bytes::Bytes;

impl Value {
    /// As TYPE answers it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::String(_) => "string",
            Value::Stream(_) => "stream",
        }
    }
}

impl Machine {
    pub(crate) fn get(&self, key: &Key) -> Result<Reply, Refusal> {
        match self.keyspace.get(key).map(|item| &item.value) {
            None => Ok(Reply::NilBulk),
            Some(Value::String(value)) => Ok(Reply::Bulk(value.clone())),
            Some(_) => Err(Refusal::wrong_type()),
        }
    }

    pub(crate) fn get_many(&self, keys: &[Key]) -> Reply {
        let value = |key: &Key| match self.string(key) {
            Ok(Some(value)) => Reply::Bulk(value.clone()),
            _ => Reply::NilBulk,
        };
        Reply::Array(keys.iter().map(value).collect())
    }

    /// Both ends are included; what lies outside of the string is left out.
    pub(crate) fn get_range(&self, key: &Key, start: i64, end: i64) -> Result<Reply, Refusal> {
        let Some(value) = self.string(key)? else { return Ok(Reply::Bulk(Bytes::new())) };
        let len = value.len() as i64;
        let from_front = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
        // An end that lies before the string is cut to its first byte, unless start and end are both counted from the
        // end and out of order.
        if start < 0 && end < 0 && start > end {
            return Ok(Reply::Bulk(Bytes::new()));
        }
        let (start, end) = (from_front(start), from_front(end).min(len - 1));
        if len == 0 || start > end {
            return Ok(Reply::Bulk(Bytes::new()));
        }
        Ok(Reply::Bulk(value.slice(start as usize..=end as usize)))
    }

    /// In the words of Redis, by its rules; nothing here is stored that way.
    pub(crate) fn encoding(&self, key: &Key) -> Reply {
        const EMBEDDED_MAX: usize = 44;
        let Some(item) = self.keyspace.get(key) else { return Reply::NilBulk };
        Reply::Bulk(Bytes::from_static(match &item.value {
            Value::Stream(_) => b"stream",
            Value::String(value) if canonical_int(value).is_some() => b"int",
            Value::String(value) if value.len() <= EMBEDDED_MAX => b"embstr",
            Value::String(_) => b"raw",
        }))
    }

    pub(crate) fn exists(&self, keys: &[Key]) -> Reply {
        int(keys.iter().filter(|key| self.keyspace.get(key).is_some()).count() as u64)
    }

    pub(crate) fn type_of(&self, key: &Key) -> Reply {
        Reply::Simple(self.keyspace.get(key).map_or("none", |item| item.value.type_name()))
    }

    pub(crate) fn ttl(&self, now_ms: u64, key: &Key, seconds: bool, absolute: bool) -> Reply {
        let Some(item) = self.keyspace.get(key) else { return Reply::Int(-2) };
        let Some(deadline) = item.deadline_ms else { return Reply::Int(-1) };
        let ms = if absolute { deadline } else { deadline.saturating_sub(now_ms) };
        int(if seconds { ms.saturating_add(500) / 1000 } else { ms })
    }

    pub(crate) fn dump(&self, key: &Key) -> Reply {
        self.keyspace.get(key).map_or(Reply::NilBulk, |item| Reply::Dump(Dump(item.value.clone())))
    }

    pub(crate) fn count_keys_in_slot(&self, slot: Slot) -> Reply {
        int(self.keyspace.slot(slot).map_or(0, |keys| keys.len() as u64))
    }

    pub(crate) fn get_keys_in_slot(&self, slot: Slot, count: u64) -> Reply {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let keys = self.keyspace.slot(slot).into_iter().flat_map(|keys| keys.iter());
        Reply::Array(keys.take(count).map(|(key, _)| Reply::Bulk(key.clone())).collect())
    }
}
