//! XPENDING, summary and extended. Changes nothing.

use crate::group::Group;
use crate::machine::{Machine, int};
use crate::pending::Nack;
use crate::{EntryId, Key, PendingRange, Refusal, Reply};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use bytes::Bytes;

impl Machine {
    pub(crate) fn xpending(
        &self,
        now_ms: u64,
        key: &Key,
        group: &Bytes,
        range: Option<&PendingRange>,
    ) -> Result<Reply, Refusal> {
        let (_, group) = self.group(key, group)?;
        Ok(match range {
            None => summary(group),
            Some(range) => rows(now_ms, group, range),
        })
    }
}

fn summary(group: &Group) -> Reply {
    let (Some(first), Some(last)) = (group.pending.first(), group.pending.last()) else {
        return Reply::Array(vec![Reply::Int(0), Reply::NilBulk, Reply::NilBulk, Reply::NilArray]);
    };
    let busy = group.consumers.iter().filter(|(_, consumer)| consumer.pending > 0);
    let counts = busy.map(|(name, consumer)| {
        let count = Bytes::from(format!("{}", consumer.pending));
        Reply::Array(vec![Reply::Bulk(name.clone()), Reply::Bulk(count)])
    });
    Reply::Array(vec![
        int(group.pending.len()),
        Reply::Id(first),
        Reply::Id(last),
        Reply::Array(counts.collect()),
    ])
}

fn rows(now_ms: u64, group: &Group, range: &PendingRange) -> Reply {
    // Nothing was delivered that long ago if the clock does not reach back so far.
    let latest_ms = now_ms.checked_sub(range.min_idle_ms);
    let rows: Box<dyn Iterator<Item = (EntryId, Nack)> + '_> = match (&range.consumer, latest_ms) {
        _ if range.min_idle_ms == 0 && range.consumer.is_none() => {
            Box::new(group.pending.iter_from(range.start))
        }
        (None, _) => Box::new(group.pending.iter_delivered_by(range.start, latest_ms)),
        (Some(_), None) => Box::new(core::iter::empty()),
        (Some(name), Some(latest_ms)) => match group.consumers.get(name) {
            None => Box::new(core::iter::empty()),
            Some(consumer) => {
                let mine = group.pending.iter_owned_from(consumer.number, range.start);
                let all = range.min_idle_ms == 0;
                Box::new(mine.filter(move |(_, nack)| all || nack.delivered_ms <= latest_ms))
            }
        },
    };
    let count = usize::try_from(range.count).unwrap_or(usize::MAX);
    let rows = rows.take_while(|(id, _)| *id <= range.end).take(count);
    let row = |(id, nack): (EntryId, Nack)| {
        Reply::Array(vec![
            Reply::Id(id),
            Reply::Bulk(group.name_of(nack.owner)),
            nack.idle_ms(now_ms).map_or(Reply::Int(-1), int),
            int(nack.deliveries),
        ])
    };
    Reply::Array(rows.map(row).collect())
}
