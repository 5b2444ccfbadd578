//! XDELEX and XACKDEL: delete entries, heeding or clearing what groups hold of them. One answer an id.

use crate::machine::Machine;
use crate::{EntryId, Key, Refs, Refusal, Reply};
use alloc::vec::Vec;
use bytes::Bytes;

impl Machine {
    pub(crate) fn xdelex(&mut self, key: &Key, refs: Refs, ids: &[EntryId]) -> Result<Reply, Refusal> {
        self.keyspace.stream(key)?;
        let answers = self.keyspace.change_stream(key, |stream| {
            ids.iter().map(|id| stream.delete_with_refs(*id, refs)).collect::<Vec<_>>()
        });
        Ok(each(ids.len(), answers))
    }

    /// Without key or group the answer is -1 for each before the ids are looked at; with them one bad id fails all.
    pub(crate) fn xackdel(
        &mut self,
        key: &Key,
        group: &Bytes,
        refs: Refs,
        ids: &[Bytes],
    ) -> Result<Reply, Refusal> {
        if !self.keyspace.stream(key)?.is_some_and(|stream| stream.groups.contains_key(group)) {
            return Ok(each(ids.len(), None));
        }
        let ids: Result<Vec<EntryId>, _> = ids.iter().map(|id| EntryId::parse(id, 0)).collect();
        let ids = ids.map_err(|_| Refusal::bad_id())?;
        let answers = self.keyspace.change_stream(key, |stream| {
            let ack_and_delete = |id: &EntryId| {
                let acked = stream.change_group(group, |_, group| group.remove_pending(*id));
                match acked.flatten() {
                    None => -1,
                    // The acknowledgement counts, whether or not there was something left to delete.
                    Some(_) => stream.delete_with_refs(*id, refs).abs(),
                }
            };
            ids.iter().map(ack_and_delete).collect::<Vec<_>>()
        });
        Ok(each(ids.len(), answers))
    }
}

fn each(ids: usize, answers: Option<Vec<i64>>) -> Reply {
    let answers = answers.unwrap_or_else(|| alloc::vec![-1; ids]);
    Reply::Array(answers.into_iter().map(Reply::Int).collect())
}
