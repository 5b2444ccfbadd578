//! With `>` an entry goes to one consumer of a group, once.

use super::Violation;
use crate::history::{History, Outcome, What};
use std::collections::HashMap;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut taken = HashMap::new();
    let mut found = Vec::new();
    for op in &history.ops {
        let (What::Deliver { group, consumer } | What::Take { group, consumer }, Outcome::Entries(entries)) =
            (&op.what, &op.outcome)
        else {
            continue;
        };
        for (id, _) in entries {
            if let Some((before, at)) = taken.insert((op.key, *group, *id), (*consumer, op.started)) {
                let (key, group) = (&history.keys[usize::from(op.key)], &history.groups[usize::from(*group)]);
                let at = at as f64 / 1e6;
                let text = format!("{key} {group} {id}: to c{consumer}, after c{before} had it at {at:.3} s");
                found.push(Violation { invariant: "delivered_once", at: op.started, text });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{delivered, good};

    #[test]
    fn a_second_delivery_is_seen() {
        let mut history = good();
        history.ops.push(delivered(100, 6, &[2]));
        assert_eq!(check(&history).len(), 1);
    }
}
