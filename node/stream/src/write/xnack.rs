//! XNACK: give pending entries back, for any consumer to claim at once.

use crate::group::Group;
use crate::machine::{Machine, int};
use crate::pending::{DELIVERIES_MAX, NOBODY, Nack};
use crate::stream::EntryStore;
use crate::unit::Unit;
use crate::{EntryId, NackMode, Refusal, Reply, Xnack};

impl Machine {
    pub(crate) fn xnack(&mut self, unit: &mut Unit, nack: &Xnack) -> Result<Reply, Refusal> {
        self.group(&nack.key, &nack.group)?;
        let released = self.change_group(&nack.key, &nack.group, |entries, group| {
            nack.ids.iter().filter(|id| release(entries, group, nack, **id)).count() as u64
        });
        let released = released.unwrap_or(0);
        if released > 0 {
            unit.wake(&nack.key);
        }
        Ok(int(released))
    }
}

/// Whether the entry was pending, or is now.
fn release(entries: &EntryStore, group: &mut Group, nack: &Xnack, id: EntryId) -> bool {
    let (before, place) = match group.pending.get(id) {
        Some(row) if row.is_released() => (row.deliveries, row.delivered_ms),
        Some(row) => (row.deliveries, group.pending.next_release()),
        None if nack.force && entries.has(id) => (0, group.pending.next_release()),
        None => return false,
    };
    let deliveries = match (nack.retry_count, nack.mode) {
        (Some(count), _) => count,
        (None, NackMode::Silent) => before.saturating_sub(1),
        (None, NackMode::Fail) => before,
        (None, NackMode::Fatal) => DELIVERIES_MAX,
    };
    group.set_pending(id, Nack { owner: NOBODY, delivered_ms: place, deliveries });
    true
}
