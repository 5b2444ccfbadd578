//! At most one node leads a group in a term. Watched while the simulation runs.

use std::collections::BTreeMap;

pub(crate) const NAME: &str = "one_leader_per_term";

/// Who was seen leading which term of which group.
#[derive(Default)]
pub(crate) struct Leaders(BTreeMap<(u32, u64), u64>);

impl Leaders {
    /// Notes that `node` says it leads `term` of `group`. `Ok(true)` the first time.
    pub(crate) fn saw(&mut self, group: u32, term: u64, node: u64) -> Result<bool, String> {
        match self.0.insert((group, term), node) {
            None => Ok(true),
            Some(before) if before == node => Ok(false),
            Some(before) => Err(format!("group {group} term {term} was led by {before} and {node}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_leader_of_a_term_is_seen() {
        let mut leaders = Leaders::default();
        assert_eq!(leaders.saw(1, 4, 2), Ok(true));
        assert_eq!(leaders.saw(1, 4, 2), Ok(false));
        assert_eq!(leaders.saw(2, 4, 3), Ok(true));
        assert!(leaders.saw(1, 4, 3).is_err());
    }
}
