//! XCFGSET and XIDMPRECORD: how long and how much a stream remembers of its producers, and what.

use crate::garbage::Garbage;
use crate::machine::Machine;
use crate::unit::Unit;
use crate::{EntryId, Idempotent, Key, Refusal, Reply};

impl Machine {
    pub(crate) fn xcfgset(
        &mut self,
        unit: &mut Unit,
        key: &Key,
        duration_s: Option<u32>,
        maxsize: Option<u32>,
    ) -> Result<Reply, Refusal> {
        self.keyspace.stream(key)?.ok_or_else(Refusal::no_such_key)?;
        let forgotten = self
            .keyspace
            .change_stream(key, |stream| stream.idempotence_mut().configure(duration_s, maxsize));
        if let Some(producers) = forgotten.flatten() {
            unit.discard(Garbage::of_producers(producers));
        }
        Ok(Reply::Ok)
    }

    /// Remembers an entry that is there as this add. Saying it twice is saying it once.
    pub(crate) fn xidmprecord(
        &mut self,
        unit: &Unit,
        key: &Key,
        add: &Idempotent,
        id: EntryId,
    ) -> Result<Reply, Refusal> {
        let stream = self.keyspace.stream(key)?.ok_or_else(Refusal::no_such_key)?;
        if !stream.entries.has(id) {
            return Err(Refusal::xidmprecord_without_entry());
        }
        let known = stream.idempotence.as_ref().and_then(|known| known.find(add, unit.now_ms));
        match known {
            Some(known) if known == id => return Ok(Reply::Ok),
            Some(_) => return Err(Refusal::xidmprecord_of_another()),
            None => {}
        }
        let recorded = self.keyspace.change_stream(key, |stream| {
            let idempotence = stream.idempotence_mut();
            idempotence.make_room(add, unit.now_ms)?;
            idempotence.remember(add, id, unit.now_ms);
            Ok(Reply::Ok)
        });
        recorded.unwrap_or(Ok(Reply::Ok))
    }
}
