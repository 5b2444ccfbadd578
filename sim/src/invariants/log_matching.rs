//! Two logs that hold an entry of the same index and term hold the same bytes there, and what is committed everywhere
//! is one sequence. Judged at the end on the nodes' disks, read by the real recovery.

use std::collections::BTreeMap;

pub(crate) const NAME: &str = "log_matching";

/// Of one node, by group: index to (term, digest of the entry).
pub(crate) type Logs = BTreeMap<u32, BTreeMap<u64, (u64, u64)>>;

/// `logs`: of each node its name and what it holds. All replicas are level, so they agree up to the end.
pub(crate) fn check(logs: &[(String, Logs)]) -> Vec<String> {
    let mut first: BTreeMap<(u32, u64), (&str, u64, u64)> = BTreeMap::new();
    let mut found = Vec::new();
    for (node, groups) in logs {
        for (group, entries) in groups {
            for (index, &(term, digest)) in entries {
                let (by, known_term, known) = *first.entry((*group, *index)).or_insert((node, term, digest));
                if (known_term, known) != (term, digest) {
                    found.push(format!(
                        "group {group} index {index}: {by} holds {known:016x} of term {known_term}, {node} \
                         {digest:016x} of term {term}"
                    ));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_entry_at_the_same_place_is_seen() {
        let log = |name: &str, term, digest| {
            (name.to_owned(), Logs::from([(1, BTreeMap::from([(5, (term, digest)), (6, (3, 60))]))]))
        };
        assert_eq!(check(&[log("n1", 2, 50), log("n2", 2, 50)]), Vec::<String>::new());
        assert_eq!(check(&[log("n1", 2, 50), log("n2", 2, 51)]).len(), 1);
        assert_eq!(check(&[log("n1", 2, 50), log("n2", 1, 50)]).len(), 1);
    }
}
