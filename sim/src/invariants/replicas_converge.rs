//! After the faults all replicas of a shard reach the same index, with nothing more in their logs.

use std::collections::BTreeMap;

pub(crate) const NAME: &str = "replicas_converge";

/// How far one replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) last: u64,
    pub(crate) applied: u64,
}

/// `replicas`: of each shard, those that run, by node. `out`: nodes that stay out. `nodes`: all of them.
pub(crate) fn are_level(replicas: &BTreeMap<u32, Vec<(usize, Progress)>>, out: usize, nodes: usize) -> bool {
    !replicas.is_empty()
        && replicas.values().all(|replicas| {
            let Some((_, first)) = replicas.first() else { return false };
            replicas.len() + out >= nodes.min(3)
                && first.last == first.applied
                && replicas.iter().all(|(_, progress)| progress == first)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_is_behind_or_missing_is_seen() {
        let at = |last, applied| Progress { last, applied };
        let shard =
            |replicas: &[Progress]| BTreeMap::from([(0, replicas.iter().copied().enumerate().collect())]);
        let level = at(9, 9);
        assert!(are_level(&shard(&[level, level, level]), 0, 3));
        assert!(!are_level(&shard(&[level, level, at(9, 8)]), 0, 3));
        assert!(!are_level(&shard(&[level, level, at(8, 8)]), 0, 3));
        assert!(!are_level(&shard(&[level, level]), 0, 3));
        assert!(are_level(&shard(&[level, level]), 1, 3));
    }
}
