//! XSETID: set the last id, and the counters beside it.

use crate::machine::Machine;
use crate::{EntryId, Key, Refusal, Reply};

impl Machine {
    pub(crate) fn xsetid(
        &mut self,
        key: &Key,
        last_id: EntryId,
        entries_added: Option<u64>,
        max_deleted_id: Option<EntryId>,
    ) -> Result<Reply, Refusal> {
        if max_deleted_id.is_some_and(|max_deleted| max_deleted > last_id) {
            return Err(Refusal::xsetid_below_given_max_deleted());
        }
        let entries = &self.keyspace.stream(key)?.ok_or_else(Refusal::no_such_key)?.entries;
        if last_id < entries.max_deleted_id {
            return Err(Refusal::xsetid_below_max_deleted());
        }
        if entries.last_live().is_some_and(|last| last_id < last) {
            return Err(Refusal::xsetid_below_last_entry());
        }
        if entries.len > 0 && entries_added.is_some_and(|added| added < entries.len) {
            return Err(Refusal::xsetid_entries_added_below_length());
        }
        self.keyspace.change_stream(key, |stream| {
            let entries = &mut stream.entries;
            entries.set_last_id(last_id);
            entries.entries_added = entries_added.unwrap_or(entries.entries_added);
            match max_deleted_id {
                None | Some(EntryId::MIN) => {}
                Some(max_deleted) => entries.max_deleted_id = max_deleted,
            }
        });
        Ok(Reply::Ok)
    }
}
