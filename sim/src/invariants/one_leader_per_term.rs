//! At most one node leads a group in a term. Watched while the simulation runs.

use std::collections::BTreeMap;

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
