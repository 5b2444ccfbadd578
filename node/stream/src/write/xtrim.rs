//! XTRIM.

use crate::garbage::Garbage;
use crate::machine::{Machine, int};
use crate::unit::Unit;
use crate::{Key, Refusal, Reply, Trim};

impl Machine {
    pub(crate) fn xtrim(&mut self, unit: &mut Unit, key: &Key, trim: &Trim) -> Result<Reply, Refusal> {
        if self.keyspace.stream(key)?.is_none() {
            return Ok(Reply::Int(0));
        }
        let settings = self.settings;
        let trimmed = self.keyspace.change_stream(key, |stream| stream.entries.trim(trim, &settings));
        let Some((removed, blocks)) = trimmed else { return Ok(Reply::Int(0)) };
        unit.discard(Garbage::of_blocks(blocks));
        Ok(int(removed))
    }
}
