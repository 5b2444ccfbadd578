//! FLUSHALL: every key of the shard goes. Ownership and settings stay.

use crate::garbage::Garbage;
use crate::machine::Machine;
use crate::unit::Unit;
use crate::{Effect, Refusal, Reply};

impl Machine {
    pub(crate) fn flush(&mut self, unit: &mut Unit) -> Result<Reply, Refusal> {
        if !self.keyspace.is_empty() {
            unit.effect(Effect::WakeAll);
            unit.effect(Effect::Garbage(Garbage::of_keyspace(self.keyspace.take_all())));
        }
        Ok(Reply::Ok)
    }
}
