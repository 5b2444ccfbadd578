//! The points of progress keep their order: a snapshot covers only what was applied, what was applied only what a
//! majority has on disk (in mode `always`); and within the life of a process none of them goes back.

use std::collections::BTreeMap;

pub(crate) const NAME: &str = "watermarks_keep_order";

/// Where one replica is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) term: u64,
    pub(crate) snapshot: u64,
    pub(crate) applied: u64,
}

/// What was seen of every replica, with the life of the process that it was seen in.
#[derive(Default)]
pub(crate) struct Watermarks(BTreeMap<(usize, u32), (u32, Marks)>);

impl Watermarks {
    /// Notes where the replica of `shard` on `node` is, in the node's `life`th process.
    pub(crate) fn saw(&mut self, node: usize, life: u32, shard: u32, now: Marks) -> Result<(), String> {
        if now.snapshot > now.applied {
            return Err(format!(
                "shard {shard} on n{}: a snapshot up to {}, applied up to {}",
                node + 1,
                now.snapshot,
                now.applied
            ));
        }
        let before = self.0.insert((node, shard), (life, now));
        let Some((_, before)) = before.filter(|(of, _)| *of == life) else { return Ok(()) };
        let falls = [
            ("term", before.term, now.term),
            ("snapshot", before.snapshot, now.snapshot),
            ("applied index", before.applied, now.applied),
        ];
        match falls.into_iter().find(|(_, before, now)| now < before) {
            Some((what, before, now)) => {
                Err(format!("shard {shard} on n{}: its {what} went back from {before} to {now}", node + 1))
            }
            None => Ok(()),
        }
    }
}

/// `applied`: the furthest that any replica of `shard` applied. `durable`: the last index on the disk of each voter that
/// runs; `None`, of one that does not: it may have anything.
pub(crate) fn check_majority(shard: u32, applied: u64, durable: &[Option<u64>]) -> Result<(), String> {
    let holders = durable.iter().filter(|index| index.is_none_or(|index| index >= applied)).count();
    if 2 * holders > durable.len() {
        return Ok(());
    }
    Err(format!("shard {shard}: applied up to {applied}, the voters' disks hold up to {durable:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_ahead_of_apply_and_a_mark_that_goes_back_are_seen() {
        let marks = |term, snapshot, applied| Marks { term, snapshot, applied };
        let mut seen = Watermarks::default();
        assert!(seen.saw(0, 1, 0, marks(2, 5, 9)).is_ok());
        assert!(seen.saw(0, 1, 0, marks(2, 10, 9)).is_err());
        assert!(seen.saw(1, 1, 0, marks(2, 5, 9)).is_ok());
        assert!(seen.saw(1, 1, 0, marks(2, 5, 8)).is_err());
        // Another process begins where its disk is.
        assert!(seen.saw(1, 2, 0, marks(2, 0, 0)).is_ok());
        assert!(seen.saw(1, 2, 0, marks(1, 0, 0)).is_err());
    }

    #[test]
    fn what_only_a_minority_has_on_disk_must_not_be_applied() {
        assert!(check_majority(0, 9, &[Some(9), Some(9), Some(4)]).is_ok());
        assert!(check_majority(0, 9, &[Some(9), Some(8), None]).is_ok());
        assert!(check_majority(0, 9, &[Some(9), Some(8), Some(4)]).is_err());
    }
}
