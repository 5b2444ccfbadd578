//! XAUTOCLAIM: take over pending entries that have been idle long enough, a stretch of the list at a time.

use super::xclaim::Claimed;
use crate::group::Group;
use crate::machine::Machine;
use crate::pending::{Nack, one_more};
use crate::stream::EntryStore;
use crate::unit::Unit;
use crate::{EntryId, Key, Refusal, Reply};
use alloc::vec::Vec;
use bytes::Bytes;

/// Rows taken from the list at once while scanning.
const STRETCH: u64 = 64;

struct Scan {
    min_idle_ms: u64,
    start: EntryId,
    count: u64,
    justid: bool,
}

impl Machine {
    pub(crate) fn xautoclaim(
        &mut self,
        unit: &mut Unit,
        (key, group, consumer): (&Key, &Bytes, &Bytes),
        min_idle_ms: u64,
        start: EntryId,
        count: u64,
        justid: bool,
    ) -> Result<Reply, Refusal> {
        self.group(key, group)?;
        let scan = Scan { min_idle_ms, start, count, justid };
        let answer =
            self.change_group(key, group, |entries, group| claim_idle(entries, group, unit, consumer, &scan));
        Ok(answer.unwrap_or(Reply::NilArray))
    }
}

/// Looks at up to ten times COUNT rows; those too young use up that budget as well.
fn claim_idle(entries: &EntryStore, group: &mut Group, unit: &Unit, consumer: &Bytes, scan: &Scan) -> Reply {
    let now_ms = unit.now_ms;
    let owner = group.see(consumer, now_ms);
    let (mut left, mut looks) = (scan.count, scan.count.saturating_mul(10));
    let (mut claimed, mut vanished, mut any) = (Claimed::new(scan.justid), Vec::new(), false);
    let mut next = Some(scan.start);
    while let Some(from) = next
        && left > 0
        && looks > 0
    {
        let rows: Vec<(EntryId, Nack)> =
            group.pending.iter_from(from).take(STRETCH.min(looks) as usize).collect();
        if rows.is_empty() {
            break;
        }
        for (id, nack) in rows {
            if left == 0 {
                break;
            }
            looks -= 1;
            next = id.next();
            if !entries.has(id) {
                group.remove_pending(id);
                vanished.push(id);
                left -= 1;
            } else if nack.is_idle(now_ms, scan.min_idle_ms) {
                let deliveries = if scan.justid { nack.deliveries } else { one_more(nack.deliveries) };
                group.set_pending(id, Nack { owner, delivered_ms: now_ms, deliveries });
                claimed.push(unit, entries, id);
                left -= 1;
                any = true;
            }
        }
    }
    if any {
        group.touch_active(consumer, now_ms);
    }
    unit.reply(|| {
        let cursor = next.and_then(|from| group.pending.iter_from(from).next());
        let cursor = cursor.map_or(EntryId::MIN, |(id, _)| id);
        let vanished = vanished.into_iter().map(Reply::Id).collect();
        Reply::Array(alloc::vec![Reply::Id(cursor), claimed.reply(), Reply::Array(vanished)])
    })
}
