//! Plain strings beyond SET: APPEND, SETRANGE, INCRBY, GETDEL, GETEX, MSET and MSETNX.

use super::expire::deadline;
use crate::keyspace::{Item, Value};
use crate::machine::{Machine, int};
use crate::unit::Unit;
use crate::{KeepUntil, Key, Refusal, Reply, StringEdit};
use alloc::format;
use alloc::vec::Vec;
use bytes::Bytes;

/// Longest string, as in Redis.
const STRING_MAX: u64 = 512 << 20;

impl Machine {
    /// The string at `key`.
    pub(crate) fn string(&self, key: &[u8]) -> Result<Option<&Bytes>, Refusal> {
        match self.keyspace.get(key).map(|item| &item.value) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(Value::Stream(_)) => Err(Refusal::wrong_type()),
        }
    }

    pub(crate) fn edit_string(
        &mut self,
        unit: &mut Unit,
        key: &Key,
        edit: &StringEdit,
    ) -> Result<Reply, Refusal> {
        if let StringEdit::DeleteIf(condition) = edit {
            let Some(item) = self.keyspace.get(key) else { return Ok(Reply::Int(0)) };
            let Value::String(value) = &item.value else { return Err(Refusal::condition_of_no_string()) };
            let removed = condition.holds(true, Some(value))? && self.remove_key(unit, key);
            return Ok(int(u64::from(removed)));
        }
        let old = self.string(key)?.cloned();
        match edit {
            StringEdit::DeleteIf(_) => unreachable!("answered above"),
            StringEdit::Append(tail) if old.is_none() => {
                self.replace_string(key, Bytes::copy_from_slice(tail));
                Ok(int(tail.len() as u64))
            }
            StringEdit::Append(tail) => self.write_at(key, old.map_or(0, |old| old.len() as u64), tail),
            StringEdit::SetRange { offset, value } => self.write_at(key, *offset, value),
            StringEdit::Increment(by) => {
                let old =
                    old.map_or(Some(0), |old| canonical_int(&old)).ok_or_else(Refusal::not_an_integer)?;
                let new = old.checked_add(*by).ok_or_else(Refusal::increment_overflows)?;
                self.replace_string(key, Bytes::from(format!("{new}")));
                Ok(Reply::Int(new))
            }
            StringEdit::GetDelete => {
                self.remove_key(unit, key);
                Ok(old.map_or(Reply::NilBulk, Reply::Bulk))
            }
            StringEdit::GetExpire(until) => {
                let Some(old) = old else { return Ok(Reply::NilBulk) };
                match until {
                    KeepUntil::Forever => {
                        self.persist(key)?;
                    }
                    KeepUntil::Deadline(when) => match deadline(*when, unit.now_ms)? {
                        at if at <= unit.now_ms => {
                            self.remove_key(unit, key);
                        }
                        at => self.keyspace.set_deadline(key, Some(at)),
                    },
                }
                Ok(Reply::Bulk(old))
            }
        }
    }

    /// Answers the new length. Nothing to write leaves all as it is.
    fn write_at(&mut self, key: &Key, offset: u64, value: &Bytes) -> Result<Reply, Refusal> {
        let mut bytes: Vec<u8> = self.string(key)?.map_or_else(Vec::new, |old| old.to_vec());
        if value.is_empty() {
            return Ok(int(bytes.len() as u64));
        }
        let end = offset.saturating_add(value.len() as u64);
        let end =
            usize::try_from(end).ok().filter(|_| end <= STRING_MAX).ok_or_else(Refusal::string_too_long)?;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[end - value.len()..end].copy_from_slice(value);
        let length = bytes.len() as u64;
        self.replace_string(key, Bytes::from(bytes));
        Ok(int(length))
    }

    /// Puts a string in the place of another; its end stays.
    fn replace_string(&mut self, key: &Key, value: Bytes) {
        let deadline_ms = self.keyspace.get(key).and_then(|item| item.deadline_ms);
        self.keyspace.put(key, Item::new(Value::String(value), deadline_ms));
    }

    pub(crate) fn set_many(
        &mut self,
        unit: &mut Unit,
        pairs: &[(Key, Bytes)],
        only_if_absent: bool,
    ) -> Result<Reply, Refusal> {
        if only_if_absent && pairs.iter().any(|(key, _)| self.keyspace.get(key).is_some()) {
            return Ok(Reply::Int(0));
        }
        for (key, value) in pairs {
            let item = Item::new(Value::String(Bytes::copy_from_slice(value)), None);
            if let Some(old) = self.keyspace.put(key, item) {
                unit.removed(key, old);
            }
        }
        Ok(if only_if_absent { Reply::Int(1) } else { Reply::Ok })
    }
}

/// The number that a string spells in its one usual form.
pub(crate) fn canonical_int(text: &[u8]) -> Option<i64> {
    let number: i64 = core::str::from_utf8(text).ok()?.parse().ok()?;
    (format!("{number}").as_bytes() == text).then_some(number)
}
