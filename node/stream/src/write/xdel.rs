//! XDEL: mark entries as deleted. Pending rows stay.

use crate::machine::{Machine, int};
use crate::{EntryId, Key, Refusal, Reply};

impl Machine {
    pub(crate) fn xdel(&mut self, key: &Key, ids: &[EntryId]) -> Result<Reply, Refusal> {
        if self.keyspace.stream(key)?.is_none() {
            return Ok(Reply::Int(0));
        }
        let deleted = self
            .keyspace
            .change_stream(key, |stream| ids.iter().filter(|id| stream.entries.delete(**id)).count() as u64);
        Ok(int(deleted.unwrap_or(0)))
    }
}
