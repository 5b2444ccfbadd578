//! Hash slots: CRC16/XMODEM of the key or of its hash tag, modulo 16384 (Redis cluster specification).

use serde::{Deserialize, Serialize};

/// Number of hash slots in a cluster.
pub const SLOT_COUNT: u16 = 16384;

/// A hash slot, `0..16384`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot(pub u16);

/// A run of slots, both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotRange {
    /// First slot of the run.
    pub first: Slot,
    /// Last slot of the run.
    pub last: Slot,
}

impl SlotRange {
    /// Whether `slot` lies in the run.
    pub fn contains(&self, slot: Slot) -> bool {
        self.first <= slot && slot <= self.last
    }
}

/// The slot of `key`. If the key holds a `{`, and a `}` after it, with something in between, only that part counts.
pub fn key_slot(key: &[u8]) -> Slot {
    Slot(crc16::State::<crc16::XMODEM>::calculate(hash_tag(key)) % SLOT_COUNT)
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&b| b == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|&b| b == b'}') {
        Some(len) if len > 0 => &rest[..len],
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_the_cluster_specification() {
        assert_eq!(key_slot(b"123456789"), Slot(0x31C3));
        assert_eq!(key_slot(b"foo"), Slot(12182));
        assert_eq!(key_slot(b"{user1000}.following"), key_slot(b"{user1000}.followers"));
        assert_eq!(
            key_slot(b"foo{}{bar}"),
            Slot(crc16::State::<crc16::XMODEM>::calculate(b"foo{}{bar}") % SLOT_COUNT)
        );
        assert_eq!(key_slot(b"foo{{bar}}zap"), key_slot(b"{bar"));
        assert_eq!(key_slot(b"foo{bar}{zap}"), key_slot(b"bar"));
    }
}
