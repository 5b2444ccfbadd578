//! An id whose XACK was answered never comes back in that group: not by `>`, not in a consumer's pending entries, not
//! by XAUTOCLAIM, not in the pending list at the end. And an XACK of pending entries counts them.

use super::{Violation, acks};
use crate::history::{History, Outcome, What};

pub(super) fn check(history: &History) -> Vec<Violation> {
    let acks = acks(history);
    let mut found = Vec::new();
    let mut complain = |at, text| found.push(Violation { invariant: "acks_are_final", at, text });
    for op in &history.ops {
        let key = &history.keys[usize::from(op.key)];
        match (&op.what, &op.outcome) {
            (
                What::Deliver { group, .. } | What::Pending { group, .. } | What::Claim { group, .. },
                Outcome::Entries(entries),
            ) => {
                for (id, _) in entries {
                    let answered = acks.get(&(op.key, *group, *id)).and_then(|ack| ack.answered);
                    if answered.is_some_and(|at| at < op.started) {
                        let what = &op.what;
                        complain(
                            op.started,
                            format!("{key} {id}: acknowledged before, yet answered by {what:?}"),
                        );
                    }
                }
            }
            (What::Ack { group, ids }, Outcome::Count(count)) => {
                // Ids that only this call acknowledges were pending (they had been delivered), so they count.
                let alone =
                    ids.iter().filter(|&&id| acks[&(op.key, *group, id)].attempts == 1).count() as u64;
                if *count < alone || *count > ids.len() as u64 {
                    complain(
                        op.started,
                        format!("{key}: XACK of {ids:?} answered {count}, {alone} or more were pending"),
                    );
                }
            }
            _ => {}
        }
    }
    for (key, last) in history.last.iter().enumerate() {
        for (group, pending) in last.pending.iter().enumerate() {
            for id in pending.keys() {
                let ack = acks.get(&(key as u16, group as u8, *id));
                if let Some(at) = ack.and_then(|ack| ack.answered) {
                    let (key, group) = (&history.keys[key], &history.groups[group]);
                    complain(at, format!("{key} {group} {id}: acknowledged, yet pending at the end"));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{acked, delivered, good, id};

    #[test]
    fn a_redelivery_after_the_answer_is_seen() {
        let mut history = good();
        history.ops.push(delivered(200, 6, &[1]));
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn an_acknowledged_entry_in_the_last_pending_list_is_seen() {
        let mut history = good();
        history.last[0].pending[0].insert(id(1), 5);
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn an_acknowledgement_that_found_nothing_pending_is_seen() {
        let mut history = good();
        history.ops.push(acked(100, &[4], Outcome::Count(0)));
        history.last[0].pending[0].remove(&id(4));
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn a_delivery_that_overlaps_the_acknowledgement_is_none_of_our_business() {
        let mut history = good();
        history.ops.push(delivered(33, 6, &[1]));
        assert_eq!(check(&history), []);
    }
}
