//! XTRIM.

use crate::machine::{Machine, int};
use crate::unit::Unit;
use crate::{Key, Refs, Refusal, Reply, Trim};

impl Machine {
    pub(crate) fn xtrim(
        &mut self,
        unit: &mut Unit,
        key: &Key,
        trim: &Trim,
        refs: Refs,
    ) -> Result<Reply, Refusal> {
        if self.keyspace.stream(key)?.is_none() {
            return Ok(Reply::Int(0));
        }
        let settings = self.settings;
        let removed = self.keyspace.change_stream(key, |stream| stream.trim(unit, trim, refs, &settings));
        Ok(int(removed.unwrap_or(0)))
    }
}
