//! WAIT never counts more replicas than can have the write: the other nodes, less those that were down from before
//! the write was sent until after WAIT was answered.

use super::Violation;
use crate::history::{History, Outcome, What};
use std::collections::HashSet;

/// A stopped process may still have been running this long after the signal (microseconds).
const SETTLES: u64 = 200_000;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for op in &history.ops {
        let (What::Wait { written, .. }, &Outcome::Count(count)) = (&op.what, &op.outcome) else { continue };
        let down: HashSet<usize> = history
            .outages
            .iter()
            .filter(|outage| outage.from + SETTLES <= *written && op.ended <= outage.to)
            .map(|outage| outage.node)
            .collect();
        let most = history.nodes.saturating_sub(1 + down.len()) as u64;
        if count > most {
            let key = &history.keys[usize::from(op.key)];
            let text = format!(
                "{key}: WAIT answered {count}, but at most {most} others can have the write (down: {down:?})"
            );
            found.push(Violation { invariant: "waits_are_honest", at: op.started, text });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{good, op};
    use crate::history::Outage;

    #[test]
    fn a_count_that_includes_the_leader_is_seen() {
        let mut history = good();
        history.ops.push(op(100, 105, What::Wait { wanted: 3, written: 90 }, Outcome::Count(3)));
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn a_count_that_includes_a_stopped_node_is_seen() {
        let mut history = good();
        history.outages.push(Outage { node: 2, from: 1_000_000, to: 5_000_000 });
        let wait = |written| op(written, written + 50, What::Wait { wanted: 2, written }, Outcome::Count(2));
        history.ops.push(wait(1_050_000));
        assert_eq!(check(&history), []);
        history.ops.push(wait(2_000_000));
        assert_eq!(check(&history).len(), 1);
    }
}
