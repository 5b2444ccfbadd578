//! DEL, UNLINK and RENAME.

use crate::machine::{Machine, int};
use crate::unit::Unit;
use crate::{Key, Refusal, Reply};

impl Machine {
    pub(crate) fn del(&mut self, unit: &mut Unit, keys: &[Key]) -> Result<Reply, Refusal> {
        Ok(int(keys.iter().filter(|key| self.remove_key(unit, key)).count() as u64))
    }

    pub(crate) fn rename(
        &mut self,
        unit: &mut Unit,
        from: &Key,
        to: &Key,
        only_if_absent: bool,
    ) -> Result<Reply, Refusal> {
        if self.keyspace.get(from).is_none() {
            return Err(Refusal::no_such_key());
        }
        if only_if_absent && self.keyspace.get(to).is_some() {
            return Ok(Reply::Int(0));
        }
        if from != to
            && let Some(item) = self.keyspace.remove(from)
        {
            if item.value.stream().is_some() {
                unit.wake(from);
                unit.wake(to);
            }
            if let Some(overwritten) = self.keyspace.put(to, item) {
                unit.removed(to, overwritten);
            }
        }
        Ok(if only_if_absent { Reply::Int(1) } else { Reply::Ok })
    }
}
