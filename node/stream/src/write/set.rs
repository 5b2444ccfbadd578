//! SET.

use super::expire::deadline;
use crate::keyspace::{Item, Value};
use crate::machine::Machine;
use crate::unit::Unit;
use crate::{Refusal, Reply, Set, SetCondition};
use alloc::format;
use alloc::string::String;
use bytes::Bytes;

const DIGEST_DIGITS: usize = 16;

/// XXH3 of a string, as DIGEST answers it.
pub(crate) fn digest(value: &[u8]) -> String {
    format!("{:016x}", twox_hash::XxHash3_64::oneshot(value))
}

impl SetCondition {
    /// Whether it looks at the old value.
    fn compares(&self) -> bool {
        !matches!(self, SetCondition::Always | SetCondition::IfAbsent | SetCondition::IfPresent)
    }

    /// Whether it holds for a key that is there or not, with this string. A digest is read only where there is one to
    /// compare it with.
    pub(crate) fn holds(&self, is_there: bool, old: Option<&Bytes>) -> Result<bool, Refusal> {
        let has_digest = |wanted: &Bytes| match old {
            None => Ok(false),
            Some(_) if wanted.len() != DIGEST_DIGITS => Err(Refusal::bad_digest()),
            Some(old) => Ok(digest(old).as_bytes().eq_ignore_ascii_case(wanted)),
        };
        Ok(match self {
            SetCondition::Always => true,
            SetCondition::IfAbsent => !is_there,
            SetCondition::IfPresent => is_there,
            SetCondition::IfEqual(value) => old == Some(value),
            SetCondition::IfNotEqual(value) => old != Some(value),
            SetCondition::IfDigest(wanted) => has_digest(wanted)?,
            SetCondition::IfNotDigest(wanted) => !has_digest(wanted)?,
        })
    }
}

impl Machine {
    pub(crate) fn set(&mut self, unit: &mut Unit, set: &Set) -> Result<Reply, Refusal> {
        let old = self.keyspace.get(&set.key);
        let old_value = match old.map(|item| &item.value) {
            Some(Value::String(value)) => Some(value.clone()),
            Some(_) if set.get || set.condition.compares() => return Err(Refusal::wrong_type()),
            _ => None,
        };
        let answer = |done: Reply| match &old_value {
            _ if !set.get => done,
            Some(value) => Reply::Bulk(value.clone()),
            None => Reply::NilBulk,
        };
        if !set.condition.holds(old.is_some(), old_value.as_ref())? {
            return Ok(answer(Reply::NilBulk));
        }
        let deadline_ms = match set.expire {
            Some(when) => Some(deadline(when, unit.now_ms)?),
            None if set.keep_ttl => old.and_then(|item| item.deadline_ms),
            None => None,
        };
        if deadline_ms.is_some_and(|deadline| deadline <= unit.now_ms) {
            self.remove_key(unit, &set.key);
        } else {
            let value = Value::String(Bytes::copy_from_slice(&set.value));
            if let Some(old) = self.keyspace.put(&set.key, Item::new(value, deadline_ms)) {
                unit.removed(&set.key, old);
            }
        }
        Ok(answer(Reply::Ok))
    }
}
