//! P10: replicas that applied the same index have the same state.

use std::collections::BTreeMap;

pub(crate) const NAME: &str = "equal_state_at_equal_index";

/// First hash seen of each (shard, applied index), and by which node.
#[derive(Default)]
pub(crate) struct States(BTreeMap<(u32, u64), (u64, String)>);

impl States {
    /// Notes the hash of `node`'s replica.
    pub(crate) fn saw(&mut self, shard: u32, applied: u64, hash: u64, node: &str) -> Result<(), String> {
        let (first, by) = self.0.entry((shard, applied)).or_insert_with(|| (hash, node.to_owned()));
        if *first == hash {
            return Ok(());
        }
        Err(format!("shard {shard} at index {applied}: {by} has state {first:016x}, {node} has {hash:016x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_state_at_the_same_index_is_seen() {
        let mut states = States::default();
        assert!(states.saw(0, 10, 7, "n1").is_ok());
        assert!(states.saw(0, 10, 7, "n2").is_ok());
        assert!(states.saw(0, 11, 8, "n2").is_ok());
        assert!(states.saw(0, 10, 8, "n3").is_err());
    }
}
