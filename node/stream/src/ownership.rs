//! The slots that a shard serves, as replicated state.
//!
//! Ownership is checked when a command is routed and again here, in apply, since a slot can move in between;
//! the shard's own log is the authority.

use crate::{Slot, SlotRange};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Slots in sorted ranges that do not touch.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Ownership {
    ranges: Arc<[SlotRange]>,
}

impl Ownership {
    pub(crate) fn new(mut ranges: Vec<SlotRange>) -> Ownership {
        ranges.retain(|range| range.first <= range.last);
        ranges.sort_unstable();
        let mut merged: Vec<SlotRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.first.0 <= last.last.0.saturating_add(1) => {
                    last.last = last.last.max(range.last);
                }
                _ => merged.push(range),
            }
        }
        Ownership { ranges: merged.into() }
    }

    pub(crate) fn owns(&self, slot: Slot) -> bool {
        let at = self.ranges.partition_point(|range| range.last < slot);
        self.ranges.get(at).is_some_and(|range| range.contains(slot))
    }

    pub(crate) fn ranges(&self) -> &[SlotRange] {
        &self.ranges
    }
}
