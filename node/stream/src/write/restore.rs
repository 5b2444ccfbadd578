//! RESTORE.

use super::expire::deadline;
use crate::keyspace::{Item, Value};
use crate::machine::Machine;
use crate::unit::Unit;
use crate::{ExpireWhen, Key, Refusal, Reply};

impl Machine {
    pub(crate) fn restore_value(
        &mut self,
        unit: &mut Unit,
        key: &Key,
        value: &[u8],
        ends: Option<ExpireWhen>,
        replace: bool,
    ) -> Result<Reply, Refusal> {
        if !replace && self.keyspace.get(key).is_some() {
            return Err(Refusal::busy_key());
        }
        let value = the_value(value);
        // What no clock reaches never ends.
        let deadline_ms = ends.map(|when| deadline(when, unit.now_ms).unwrap_or(i64::MAX as u64));
        if deadline_ms.is_some_and(|deadline| deadline <= unit.now_ms) {
            self.remove_key(unit, key);
            return Ok(Reply::Ok);
        }
        if value.stream().is_some() {
            unit.wake(key);
        }
        if let Some(overwritten) = self.keyspace.put(key, Item::new(value, deadline_ms)) {
            unit.removed(key, overwritten);
        }
        Ok(Reply::Ok)
    }
}

/// The one value of a snapshot that [`crate::load_dump`] made.
fn the_value(snapshot: &[u8]) -> Value {
    let mut restore = Machine::restore();
    let machine = restore.push(snapshot).and_then(|()| restore.finish());
    let machine = match machine {
        Ok(machine) => machine,
        // Passing over it would make this replica differ from those that can read it.
        Err(error) => panic!("a restored value in the log cannot be read by this version of weir: {error}"),
    };
    let mut items = machine.keyspace.items_after(None);
    match items.next() {
        Some((_, item)) => item.value.clone(),
        None => panic!("a restored value in the log is empty"),
    }
}
