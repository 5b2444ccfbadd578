//! XADD: choose the id, append, trim, remember, wake readers.

use crate::idempotence::Idempotence;
use crate::keyspace::{Item, Value};
use crate::machine::Machine;
use crate::stream::Stream;
use crate::unit::Unit;
use crate::{AddId, EntryId, Idempotent, Key, Refs, Refusal, Reply, Xadd};
use alloc::sync::Arc;

impl Machine {
    pub(crate) fn xadd(&mut self, unit: &mut Unit, add: &Xadd, refs: Refs) -> Result<Reply, Refusal> {
        if add.id == AddId::Given(EntryId::MIN) {
            return Err(Refusal::xadd_zero_id());
        }
        if add.fields.is_empty() || !add.fields.len().is_multiple_of(2) {
            return Err(Refusal::wrong_arity("xadd"));
        }
        let last_id = self.keyspace.stream(&add.key)?.map(|stream| stream.entries.last_id);
        if last_id.is_none() && add.no_mkstream {
            return Ok(Reply::NilBulk);
        }
        let once = match &add.id {
            AddId::Once(once) => Some(&**once),
            _ => None,
        };
        if let Some(once) = once
            && let Some(first) = self.added_before(unit, &add.key, once)?
        {
            return Ok(Reply::Id(first));
        }
        let id = choose_id(&add.id, last_id.unwrap_or(EntryId::MIN), unit.now_ms)?;
        if last_id.is_none() {
            let value = Value::Stream(Arc::new(Stream::default()));
            self.keyspace.put(&add.key, Item::new(value, None));
        }
        let settings = self.settings;
        self.keyspace.change_stream(&add.key, |stream| {
            stream.entries.append(id, &add.fields, &settings);
            if let Some(once) = once {
                stream.idempotence_mut().remember(once, id, unit.now_ms);
            }
            if let Some(trim) = &add.trim {
                stream.trim(unit, trim, refs, &settings);
            }
        });
        unit.entry_added(&add.key, id, add.trim.is_some());
        Ok(Reply::Id(id))
    }

    /// The id of this add if it is a repetition; else makes sure that it can be remembered.
    fn added_before(
        &mut self,
        unit: &Unit,
        key: &Key,
        once: &Idempotent,
    ) -> Result<Option<EntryId>, Refusal> {
        let Some(stream) = self.keyspace.stream(key)?.filter(|stream| stream.idempotence.is_some()) else {
            return Idempotence::default().make_room(once, unit.now_ms).map(|()| None);
        };
        let first = stream.idempotence.as_ref().and_then(|known| known.find(once, unit.now_ms));
        let noted = self.keyspace.change_stream(key, |stream| {
            let idempotence = stream.idempotence_mut();
            match first {
                Some(_) => {
                    idempotence.duplicates = idempotence.duplicates.saturating_add(1);
                    Ok(())
                }
                None => idempotence.make_room(once, unit.now_ms),
            }
        });
        noted.unwrap_or(Ok(())).map(|()| first)
    }
}

/// The id of the next entry. `last` is the highest id given out, `0-0` for a new stream.
fn choose_id(wanted: &AddId, last: EntryId, now_ms: u64) -> Result<EntryId, Refusal> {
    // Nothing is above the last possible id, whatever was asked for.
    let next = last.next().ok_or_else(Refusal::xadd_exhausted)?;
    let id = match wanted {
        AddId::Auto | AddId::Once(_) => EntryId::new(now_ms, 0).max(next),
        &AddId::AutoSeq(ms) if ms == last.ms => {
            let seq = last.seq.checked_add(1).ok_or_else(Refusal::xadd_id_not_above_last)?;
            EntryId::new(ms, seq)
        }
        &AddId::AutoSeq(ms) => EntryId::new(ms, 0),
        &AddId::Given(id) => id,
    };
    if id > last { Ok(id) } else { Err(Refusal::xadd_id_not_above_last()) }
}
