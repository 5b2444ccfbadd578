//! P8: at most one shard owns a slot, in the state of the replica that leads it.

use std::collections::BTreeMap;

pub(crate) const NAME: &str = "one_owner_per_slot";

/// `owned`: of each shard that is led, the slot ranges its leader's state owns, both ends included.
pub(crate) fn check(owned: &BTreeMap<u32, Vec<(u16, u16)>>) -> Result<(), String> {
    let mut ranges: Vec<(u16, u16, u32)> =
        owned.iter().flat_map(|(shard, ranges)| ranges.iter().map(|(a, b)| (*a, *b, *shard))).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let ((_, last, one), (first, _, other)) = (pair[0], pair[1]);
        if first <= last && one != other {
            return Err(format!("slot {first} belongs to shard {one} and to shard {other}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_of_two_shards_is_seen() {
        let owned = |second: u16| BTreeMap::from([(0, vec![(0, 99)]), (1, vec![(second, 200)])]);
        assert!(check(&owned(100)).is_ok());
        assert!(check(&owned(99)).is_err());
    }
}
