//! XREAD without its waiting, which is the server's.

use crate::budget::Budget;
use crate::machine::Machine;
use crate::stream::EntryStore;
use crate::{Entries, EntryId, Key, ReadId, ReadLimits, Refusal, Reply};
use alloc::vec::Vec;
use core::ops::ControlFlow;

impl Machine {
    /// All keys are type-checked before anything is read. Streams with nothing new are left out.
    pub(crate) fn xread(
        &self,
        keys: &[(Key, ReadId)],
        count: Option<u64>,
        limits: ReadLimits,
    ) -> Result<Reply, Refusal> {
        let streams: Result<Vec<_>, _> = keys.iter().map(|(key, _)| self.keyspace.stream(key)).collect();
        let count = count.filter(|count| *count > 0).unwrap_or(u64::MAX);
        let mut answer = Vec::new();
        let mut budget = Budget::new(limits);
        for ((key, from), stream) in keys.iter().zip(streams?) {
            if budget.is_spent() {
                break;
            }
            let list = stream.map(|stream| read(&stream.entries, *from, count, &mut budget));
            answer.extend(list.filter(|list| !list.is_empty()).map(|list| (key.clone(), list)));
        }
        Ok(if answer.is_empty() { Reply::NilArray } else { Reply::Streams(answer) })
    }
}

fn read(entries: &EntryStore, from: ReadId, count: u64, budget: &mut Budget) -> Entries {
    let mut list = Entries::new();
    let mut left = count;
    let (start, last_only) = match from {
        ReadId::After(id) => (id.next(), false),
        ReadId::Last => (None, false),
        ReadId::LastEntry => (Some(EntryId::MIN), true),
    };
    let Some(start) = start else { return list };
    let visit = |entry: crate::block::EntryView<'_>| {
        list.push(entry.id, entry.strings());
        left -= 1;
        budget.spend(Some(&entry));
        if left > 0 && !last_only && !budget.is_spent() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    if last_only {
        entries.walk_back(start, EntryId::MAX, visit);
    } else if start <= entries.last_id {
        entries.walk(start, EntryId::MAX, visit);
    }
    list
}
