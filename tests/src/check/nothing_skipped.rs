//! A group loses no entry: after it has been drained at the end, each entry of the stream is pending in it, or
//! somebody tried to acknowledge it. A delivery nobody heard of leaves the entry pending, so it is not lost.

use super::{Violation, acks};
use crate::history::{History, Outcome, What};
use std::collections::HashSet;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let acks = acks(history);
    let mut found = Vec::new();
    // What NOACK gave away, and groups in which such a read has an unknown end: it may have taken anything.
    let mut taken = HashSet::new();
    let mut unsure = HashSet::new();
    for op in &history.ops {
        match (&op.what, &op.outcome) {
            (What::Take { group, .. }, Outcome::Entries(entries)) => {
                taken.extend(entries.iter().map(|&(id, _)| (op.key, *group, id)));
            }
            (What::Take { group, .. }, Outcome::Unknown(_) | Outcome::Cut) => {
                unsure.insert((op.key, *group));
            }
            _ => {}
        }
    }
    for (key, last) in history.last.iter().enumerate() {
        for (group, pending) in last.pending.iter().enumerate() {
            for id in last.entries.keys() {
                let ack = acks.get(&(key as u16, group as u8, *id));
                let place = (key as u16, group as u8);
                let gone = ack.is_some_and(|ack| ack.answered.is_some() || ack.maybe)
                    || taken.contains(&(place.0, place.1, *id))
                    || unsure.contains(&place);
                if !gone && !pending.contains_key(id) {
                    let (key, group) = (&history.keys[key], &history.groups[group]);
                    let text = format!("{key} {group} {id}: neither pending nor acknowledged at the end");
                    found.push(Violation { invariant: "nothing_skipped", at: 0, text });
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{good, id};

    #[test]
    fn a_forgotten_pending_entry_is_seen() {
        let mut history = good();
        history.last[0].pending[0].remove(&id(2));
        assert_eq!(check(&history).len(), 1);
    }
}
