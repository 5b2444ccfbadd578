//! EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT and PERSIST.

use crate::machine::Machine;
use crate::unit::Unit;
use crate::{ExpireCondition, ExpireWhen, Key, Refusal, Reply};

impl Machine {
    pub(crate) fn expire(
        &mut self,
        unit: &mut Unit,
        key: &Key,
        when: ExpireWhen,
        condition: ExpireCondition,
    ) -> Result<Reply, Refusal> {
        let deadline_ms = deadline(when, unit.now_ms)?;
        let Some(item) = self.keyspace.get(key) else { return Ok(Reply::Int(0)) };
        // No deadline at all counts as the latest one.
        let now_set = item.deadline_ms;
        let wanted = match condition {
            ExpireCondition::Always => true,
            ExpireCondition::IfNone => now_set.is_none(),
            ExpireCondition::IfSome => now_set.is_some(),
            ExpireCondition::IfLater => now_set.is_some_and(|now_set| deadline_ms > now_set),
            ExpireCondition::IfSooner => now_set.is_none_or(|now_set| deadline_ms < now_set),
            ExpireCondition::IfSomeAndSooner => now_set.is_some_and(|now_set| deadline_ms < now_set),
        };
        if !wanted {
            return Ok(Reply::Int(0));
        }
        if deadline_ms <= unit.now_ms {
            self.remove_key(unit, key);
        } else {
            self.keyspace.set_deadline(key, Some(deadline_ms));
        }
        Ok(Reply::Int(1))
    }

    pub(crate) fn persist(&mut self, key: &Key) -> Result<Reply, Refusal> {
        if self.keyspace.get(key).is_none_or(|item| item.deadline_ms.is_none()) {
            return Ok(Reply::Int(0));
        }
        self.keyspace.set_deadline(key, None);
        Ok(Reply::Int(1))
    }
}

/// Unix milliseconds; what lies before 1970 is 0.
///
/// # Errors
/// The deadline is beyond what Redis can hold.
pub(crate) fn deadline(when: ExpireWhen, now_ms: u64) -> Result<u64, Refusal> {
    let (at, given) = match when {
        ExpireWhen::In(delta_ms) => (i128::from(now_ms) + i128::from(delta_ms), delta_ms),
        ExpireWhen::At(at_ms) => (i128::from(at_ms), at_ms),
    };
    if at > i128::from(i64::MAX) {
        // Whole seconds can only have come from EXPIRE; PEXPIRE's largest values are not whole.
        return Err(Refusal::expire_out_of_range(given % 1000 != 0));
    }
    Ok(u64::try_from(at).unwrap_or(0))
}
