//! A reader that closed its connection while it was parked gets no delivery any more: nothing that was added well
//! after that is pending under its name. Each such call has a consumer of its own, so that the name tells the call.

use super::{Violation, adds, disturbed};
use crate::history::{History, Outcome, What};
use std::collections::HashMap;

/// A server learns of a closed connection within this (microseconds).
const NOTICED: u64 = 300_000;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut gone = HashMap::new();
    for op in &history.ops {
        if let (What::Deliver { group, consumer }, Outcome::Cut) = (&op.what, &op.outcome)
            && !disturbed(history, op.started, op.ended + NOTICED)
        {
            gone.insert((op.key, usize::from(*group), *consumer), op.ended);
        }
    }
    let mut found = Vec::new();
    for op in &history.ops {
        for (_, id) in adds(op) {
            let Some(id) = id else { continue };
            for (group, pending) in history.last[usize::from(op.key)].pending.iter().enumerate() {
                let Some(&consumer) = pending.get(&id) else { continue };
                let Some(&at) = gone.get(&(op.key, group, consumer)) else { continue };
                if op.started > at + NOTICED {
                    let (key, group) = (&history.keys[usize::from(op.key)], &history.groups[group]);
                    let text = format!(
                        "{key} {group} {id}: pending for c{consumer}, which had gone {} ms before it was added",
                        (op.started - at) / 1000
                    );
                    found.push(Violation { invariant: "gone_clients_get_nothing", at: op.started, text });
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{added, good, id, op};

    #[test]
    fn a_delivery_to_a_closed_connection_is_seen() {
        let mut history = good();
        history.ops.push(op(100, 200, What::Deliver { group: 0, consumer: 77 }, Outcome::Cut));
        history.ops.push(added(250, 70, 70));
        history.ops.push(added(900_000, 71, 71));
        history.last[0].pending[0].insert(id(70), 77);
        assert_eq!(check(&history), [], "the server may not have noticed yet");
        history.last[0].pending[0].insert(id(71), 77);
        assert_eq!(check(&history).len(), 1);
    }
}
