//! MAXLEN and MINID, exact and approximate.

use crate::stream::{Blocks, EntryStore};
use crate::{EntryId, Settings, Trim, TrimTo};

impl Trim {
    /// Most entries that this trim may remove.
    pub(crate) fn removals_max(&self, settings: &Settings) -> u64 {
        match self.limit {
            Some(0) => u64::MAX,
            Some(limit) => limit,
            None if !self.approximate => u64::MAX,
            None => match u64::from(settings.stream_node_max_entries) * 100 {
                0 => 10_000,
                limit => limit.min(1_000_000),
            },
        }
    }
}

impl EntryStore {
    /// Removes entries from the front; answers how many, and the blocks that went whole.
    ///
    /// Whole blocks go first; entries inside a block only when the trim is exact. Unlike XDEL it leaves
    /// `max_deleted_id` alone.
    pub(crate) fn trim(&mut self, trim: &Trim, settings: &Settings) -> (u64, Blocks) {
        let removals_max = trim.removals_max(settings);
        let mut removed = 0u64;
        let mut bytes = 0u64;
        // First block that stays, and whether the trim goes on inside it.
        let mut stays = None;
        for block in self.sealed.iter().map(|(_, block)| block).chain(&self.open) {
            let live = u64::from(block.live);
            let left = self.len - removed;
            let whole = match trim.to {
                TrimTo::MaxLen(max) if left <= max => {
                    stays = Some((block.first, false));
                    break;
                }
                TrimTo::MaxLen(max) => left - live >= max,
                TrimTo::MinId(min) => block.last < min,
            };
            if removed.saturating_add(live) > removals_max {
                stays = Some((block.first, false));
                break;
            }
            if !whole {
                stays = Some((block.first, !trim.approximate));
                break;
            }
            removed += live;
            bytes += block.memory_bytes();
        }
        let gone = self.cut_blocks(stays.map(|(key, _)| key));
        self.block_bytes -= bytes;
        self.len -= removed;
        if let Some((key, true)) = stays {
            removed += self.trim_inside(key, trim.to);
        }
        if removed > 0 {
            self.edits = self.edits.wrapping_add(1);
            self.find_first();
        }
        (removed, gone)
    }

    /// Takes out the blocks before `stays`, all of them if `None`.
    fn cut_blocks(&mut self, stays: Option<EntryId>) -> Blocks {
        match stays {
            Some(key) => self.sealed.split_below(&key),
            None => {
                self.open = None;
                core::mem::take(&mut self.sealed)
            }
        }
    }

    fn trim_inside(&mut self, key: EntryId, to: TrimTo) -> u64 {
        let mut surplus = match to {
            TrimTo::MaxLen(max) => self.len.saturating_sub(max),
            TrimTo::MinId(_) => u64::MAX,
        };
        let wanted = |id: EntryId| match to {
            TrimTo::MaxLen(_) => {
                let more = surplus > 0;
                surplus = surplus.saturating_sub(1);
                more
            }
            TrimTo::MinId(min) => id < min,
        };
        let Some(block) = self.block_mut(key) else { return 0 };
        let removed = block.delete_front(wanted);
        if block.live == 0 {
            self.drop_block(key);
        }
        self.len -= u64::from(removed);
        u64::from(removed)
    }
}
