//! XLEN, XRANGE and XREVRANGE.

use crate::machine::{Machine, int};
use crate::{Entries, EntryId, Key, Refusal, Reply};
use core::ops::ControlFlow;

impl Machine {
    pub(crate) fn xlen(&self, key: &Key) -> Result<Reply, Refusal> {
        Ok(int(self.keyspace.stream(key)?.map_or(0, |stream| stream.entries.len)))
    }

    pub(crate) fn xrange(
        &self,
        key: &Key,
        start: EntryId,
        end: EntryId,
        count: Option<u64>,
        reverse: bool,
    ) -> Result<Reply, Refusal> {
        let mut list = Entries::new();
        let Some(stream) = self.keyspace.stream(key)? else { return Ok(Reply::Entries(list)) };
        let mut left = count.unwrap_or(u64::MAX);
        if left == 0 {
            return Ok(Reply::NilArray);
        }
        let visit = |entry: crate::block::EntryView<'_>| {
            list.push(entry.id, entry.strings());
            left -= 1;
            if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        if reverse {
            stream.entries.walk_back(start, end, visit);
        } else {
            stream.entries.walk(start, end, visit);
        }
        Ok(Reply::Entries(list))
    }
}
