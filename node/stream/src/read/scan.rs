//! SCAN: keys in an order that depends on nothing but their names, so that a cursor means the same on every node.

use crate::machine::{Machine, int};
use crate::{Key, Reply, SLOT_COUNT, key_slot};
use alloc::vec;
use alloc::vec::Vec;

/// Bits of a position below the slot.
const HASH_BITS: u32 = 48;
/// A slot is walked whole for each call, so a call takes at least this share of its keys.
const SHARES: usize = 64;

/// Where a key stands in the order of SCAN: its slot, then a hash of its name.
pub fn scan_position(key: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in key {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    // The low bits of this hash are the weak ones.
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u64::from(key_slot(key).0) << HASH_BITS) | (hash >> (64 - HASH_BITS))
}

impl Machine {
    /// About `count` keys from `cursor` on, each followed by its type; before them the next cursor, 0 at the end.
    /// Keys with one position come together. Keys that are due are left out.
    pub(crate) fn scan(&self, now_ms: u64, cursor: u64, count: u64) -> Reply {
        let count = usize::try_from(count).unwrap_or(usize::MAX).max(1);
        let first = u16::try_from(cursor >> HASH_BITS).unwrap_or(SLOT_COUNT);
        let mut found: Vec<(u64, &Key, &'static str)> = Vec::new();
        let mut next = 0;
        for (_, keys) in self.keyspace.slots_from(first) {
            let mut here: Vec<_> = keys
                .iter()
                .map(|(key, item)| (scan_position(key), key, item))
                .filter(|(position, ..)| *position >= cursor)
                .collect();
            if found.len() >= count {
                next = here.iter().map(|(position, ..)| *position).min().unwrap_or(0);
                if next > 0 {
                    break;
                }
                continue;
            }
            here.sort_unstable_by_key(|(position, key, _)| (*position, *key));
            let wanted = (count - found.len()).max(keys.len() / SHARES).min(here.len());
            let last = wanted.checked_sub(1).map_or(0, |last| here[last].0);
            let taken = here.partition_point(|(position, ..)| *position <= last);
            let alive = here[..taken].iter().filter(|(.., item)| !item.is_due(now_ms));
            found.extend(alive.map(|(position, key, item)| (*position, *key, item.value.type_name())));
            if let Some((position, ..)) = here.get(taken) {
                next = *position;
                break;
            }
        }
        let mut rows = vec![int(next)];
        rows.extend(
            found.into_iter().flat_map(|(_, key, kind)| [Reply::Bulk(key.clone()), Reply::Simple(kind)]),
        );
        Reply::Array(rows)
    }
}
