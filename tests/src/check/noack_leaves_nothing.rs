//! What a reader took with NOACK is pending for nobody, also when it was parked before the entry came.

use super::Violation;
use crate::history::{History, Outcome, What};

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for op in &history.ops {
        let (What::Take { group, consumer }, Outcome::Entries(entries)) = (&op.what, &op.outcome) else {
            continue;
        };
        for (id, _) in entries {
            if history.last[usize::from(op.key)].pending[usize::from(*group)].get(id) == Some(consumer) {
                let (key, group) = (&history.keys[usize::from(op.key)], &history.groups[usize::from(*group)]);
                let text = format!("{key} {group} {id}: c{consumer} took it with NOACK, yet it is pending");
                found.push(Violation { invariant: "noack_leaves_nothing", at: op.started, text });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{good, id, op};

    #[test]
    fn a_pending_entry_of_a_noack_reader_is_seen() {
        let mut history = good();
        let take = What::Take { group: 0, consumer: 8 };
        history.ops.push(op(100, 105, take, Outcome::Entries(vec![(id(4), 4)])));
        assert_eq!(check(&history), []);
        history.last[0].pending[0].insert(id(4), 8);
        assert_eq!(check(&history).len(), 1);
    }
}
