//! Whatever is read was added by somebody, under one id only, and is the same for every reader and at the end.

use super::{Violation, adds, by_key};
use crate::history::{History, Outcome};
use std::collections::{HashMap, HashSet};

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, ops) in by_key(history).iter().enumerate() {
        let name = &history.keys[key];
        let last = &history.last[key];
        let mut complain = |at, text| found.push(Violation { invariant: "nothing_invented", at, text });
        let sent: HashSet<_> = ops.iter().flat_map(|op| adds(op)).map(|(token, _)| token).collect();
        let mut once = HashMap::new();
        for (id, token) in &last.entries {
            if !sent.contains(token) {
                complain(0, format!("{name} {id} holds token {token}, which nobody added"));
            }
            if let Some(before) = once.insert(token, id) {
                complain(0, format!("{name}: one XADD of token {token} made two entries, {before} and {id}"));
            }
        }
        for op in ops {
            let Outcome::Entries(entries) = &op.outcome else { continue };
            for (id, token) in entries {
                let now = last.entries.get(id);
                if now != Some(token) {
                    let what = &op.what;
                    let text =
                        format!("{name} {id}: {what:?} saw token {token}; at the end that id holds {now:?}");
                    complain(op.started, text);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{good, id, op};
    use crate::history::{Id, What};

    #[test]
    fn an_entry_of_nobody_is_seen() {
        let mut history = good();
        history.last[0].entries.insert(id(50), 50);
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn one_call_that_made_two_entries_is_seen() {
        let mut history = good();
        history.last[0].entries.insert(id(50), 2);
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn a_read_of_something_that_was_never_committed_is_seen() {
        let mut history = good();
        let read = What::Read { from: Id::ZERO, to: Id::MAX, follower: true };
        history.ops.push(op(100, 105, read, Outcome::Entries(vec![(id(3), 3)])));
        assert_eq!(check(&history).len(), 1);
    }
}
