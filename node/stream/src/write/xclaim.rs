//! XCLAIM: take over named pending entries.

use crate::group::Group;
use crate::machine::Machine;
use crate::pending::{Nack, one_more};
use crate::stream::EntryStore;
use crate::unit::Unit;
use crate::{ClaimTime, Entries, EntryId, Refusal, Reply, Xclaim};
use alloc::vec::Vec;

/// What a claim answers: entries, or ids alone with JUSTID. Stays empty where no client waits.
pub(crate) struct Claimed {
    entries: Entries,
    ids: Vec<Reply>,
    justid: bool,
}

impl Claimed {
    pub(crate) fn new(justid: bool) -> Claimed {
        Claimed { entries: Entries::new(), ids: Vec::new(), justid }
    }

    pub(crate) fn push(&mut self, unit: &Unit, entries: &EntryStore, id: EntryId) {
        if !unit.want_reply {
            return;
        }
        if self.justid {
            self.ids.push(Reply::Id(id));
        } else if let Some(entry) = entries.entry(id) {
            self.entries.push(id, entry.strings());
        }
    }

    pub(crate) fn reply(self) -> Reply {
        if self.justid { Reply::Array(self.ids) } else { Reply::Entries(self.entries) }
    }
}

impl Machine {
    pub(crate) fn xclaim(&mut self, unit: &mut Unit, claim: &Xclaim) -> Result<Reply, Refusal> {
        self.group(&claim.key, &claim.group)?;
        let claimed = self
            .change_group(&claim.key, &claim.group, |entries, group| claim_ids(entries, group, unit, claim));
        Ok(claimed.map_or(Reply::NilArray, Claimed::reply))
    }
}

fn claim_ids(entries: &EntryStore, group: &mut Group, unit: &Unit, claim: &Xclaim) -> Claimed {
    if let Some(last_id) = claim.last_id {
        group.last_delivered_id = group.last_delivered_id.max(last_id);
    }
    let now_ms = unit.now_ms;
    let delivered_ms = delivery_time(claim.delivery_time, now_ms);
    let owner = group.see(&claim.consumer, now_ms);
    let mut claimed = Claimed::new(claim.justid);
    let mut any = false;
    for &id in &claim.ids {
        let pending = group.pending.get(id);
        if !entries.has(id) {
            // What left the stream leaves the list too, whatever its age.
            group.remove_pending(id);
            continue;
        }
        let before = match pending {
            Some(nack) if !nack.is_idle(now_ms, claim.min_idle_ms) => continue,
            Some(nack) => nack.deliveries,
            // A row made by FORCE starts as delivered once, and has no age to compare.
            None if claim.force => 1,
            None => continue,
        };
        let deliveries = match claim.retry_count {
            Some(count) => count,
            None if claim.justid => before,
            None => one_more(before),
        };
        group.set_pending(id, Nack { owner, delivered_ms, deliveries });
        claimed.push(unit, entries, id);
        any = true;
    }
    if any {
        group.touch_active(&claim.consumer, now_ms);
    }
    claimed
}

/// Bogus times become now: clients compute them from clocks of their own.
fn delivery_time(wanted: ClaimTime, now_ms: u64) -> u64 {
    let at = match wanted {
        ClaimTime::Now => return now_ms,
        ClaimTime::Idle(idle_ms) => i128::from(now_ms) - i128::from(idle_ms),
        ClaimTime::At(at_ms) => i128::from(at_ms),
    };
    u64::try_from(at).ok().filter(|at| *at <= now_ms).unwrap_or(now_ms)
}
