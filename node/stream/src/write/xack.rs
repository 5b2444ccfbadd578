//! XACK: take rows out of the PEL.

use crate::machine::{Machine, int};
use crate::{EntryId, Key, Refusal, Reply};
use alloc::vec::Vec;
use bytes::Bytes;

impl Machine {
    /// Without key or group the answer is 0 before the ids are looked at; with them one bad id fails all.
    pub(crate) fn xack(&mut self, key: &Key, group: &Bytes, ids: &[Bytes]) -> Result<Reply, Refusal> {
        if !self.keyspace.stream(key)?.is_some_and(|stream| stream.groups.contains_key(group)) {
            return Ok(Reply::Int(0));
        }
        let ids: Result<Vec<EntryId>, _> = ids.iter().map(|id| EntryId::parse(id, 0)).collect();
        let ids = ids.map_err(|_| Refusal::bad_id())?;
        let acked = self.change_group(key, group, |_, group| {
            ids.iter().filter(|id| group.remove_pending(**id).is_some()).count() as u64
        });
        Ok(int(acked.unwrap_or(0)))
    }
}
