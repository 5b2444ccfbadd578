//! SET.

use super::expire::deadline;
use crate::keyspace::{Item, Value};
use crate::machine::Machine;
use crate::unit::Unit;
use crate::{Refusal, Reply, Set, SetCondition};
use bytes::Bytes;

impl SetCondition {
    /// Whether it looks at the old value.
    fn compares(&self) -> bool {
        matches!(self, SetCondition::IfEqual(_) | SetCondition::IfNotEqual(_))
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
        let wanted = match &set.condition {
            SetCondition::Always => true,
            SetCondition::IfAbsent => old.is_none(),
            SetCondition::IfPresent => old.is_some(),
            SetCondition::IfEqual(value) => old_value.as_ref() == Some(value),
            SetCondition::IfNotEqual(value) => old_value.as_ref() != Some(value),
        };
        if !wanted {
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
