//! COPY.

use crate::machine::Machine;
use crate::unit::Unit;
use crate::{Key, Refusal, Reply};

impl Machine {
    /// Copies a value with its end, its groups and what it remembers. What streams hold is shared until one changes.
    pub(crate) fn copy(
        &mut self,
        unit: &mut Unit,
        from: &Key,
        to: &Key,
        replace: bool,
    ) -> Result<Reply, Refusal> {
        let Some(item) = self.keyspace.get(from).cloned() else { return Ok(Reply::Int(0)) };
        if !replace && self.keyspace.get(to).is_some() {
            return Ok(Reply::Int(0));
        }
        if item.value.stream().is_some() {
            unit.wake(to);
        }
        if let Some(overwritten) = self.keyspace.put(to, item) {
            unit.removed(to, overwritten);
        }
        Ok(Reply::Int(1))
    }
}
