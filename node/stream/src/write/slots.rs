//! The slots that the shard serves from here on. Keys of slots that left stay until they are cut out: they are
//! out of reach, and whoever takes the slot over may still copy them.

use crate::machine::Machine;
use crate::ownership::Ownership;
use crate::unit::Unit;
use crate::{Effect, Refusal, Reply, SLOT_COUNT, Slot, SlotRange};

impl Machine {
    pub(crate) fn set_owned_slots(
        &mut self,
        unit: &mut Unit,
        ranges: &[SlotRange],
    ) -> Result<Reply, Refusal> {
        let before = core::mem::replace(&mut self.owned, Ownership::new(ranges.to_vec()));
        let moved = (0..SLOT_COUNT).map(Slot).filter(|slot| before.owns(*slot) && !self.owned.owns(*slot));
        moved.for_each(|slot| unit.effect(Effect::SlotMoved(slot)));
        Ok(Reply::Ok)
    }
}
