//! An error reply other than UNKNOWN means that the command did nothing: a refused XADD's content is nowhere, a
//! refused XACK's id is still pending unless another attempt took it, and no consumer owns an entry that it got only
//! from a refused read.

use super::{Violation, acks, adds};
use crate::history::{History, Outcome, What};
use std::collections::{HashMap, HashSet};

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut complain = |at, text| found.push(Violation { invariant: "refusals_did_nothing", at, text });
    let kept: Vec<HashSet<_>> = history.last.iter().map(|last| last.entries.values().collect()).collect();
    // An idempotent add is sent again under the same token: only what was refused each time did nothing.
    let mut perhaps = HashSet::new();
    for op in history.ops.iter().filter(|op| !matches!(op.outcome, Outcome::Refused(_))) {
        perhaps.extend(adds(op).into_iter().map(|(token, _)| token));
    }
    for op in &history.ops {
        let Outcome::Refused(error) = &op.outcome else { continue };
        for (token, _) in adds(op) {
            if kept[usize::from(op.key)].contains(&token) && !perhaps.contains(&token) {
                let key = &history.keys[usize::from(op.key)];
                complain(
                    op.started,
                    format!("{key}: XADD of token {token} was answered {error:?}, yet the entry exists"),
                );
            }
        }
    }
    for ((key, group, id), ack) in acks(history) {
        let Some(at) = ack.refused.filter(|_| ack.attempts == 0) else { continue };
        let last = &history.last[usize::from(key)];
        if last.entries.contains_key(&id) && !last.pending[usize::from(group)].contains_key(&id) {
            let (key, group) = (&history.keys[usize::from(key)], &history.groups[usize::from(group)]);
            complain(at, format!("{key} {group} {id}: every XACK was refused, yet it is no longer pending"));
        }
    }
    // Who may own what: got it in a reply, or had a call whose end it does not know.
    let mut got = HashSet::new();
    let mut unsure: HashMap<(u16, u8, u16), u64> = HashMap::new();
    let mut refused: HashMap<(u16, u8, u16), u64> = HashMap::new();
    for op in &history.ops {
        let (What::Deliver { group, consumer } | What::Claim { group, consumer }) = op.what else { continue };
        let who = (op.key, group, consumer);
        match &op.outcome {
            Outcome::Entries(entries) => got.extend(entries.iter().map(|&(id, _)| (who, id))),
            Outcome::Unknown(_) | Outcome::Cut => _ = unsure.insert(who, op.started),
            Outcome::Refused(_) => _ = refused.insert(who, op.started),
            _ => {}
        }
    }
    for (key, last) in history.last.iter().enumerate() {
        for (group, pending) in last.pending.iter().enumerate() {
            for (&id, &consumer) in pending {
                let who = (key as u16, group as u8, consumer);
                if !got.contains(&(who, id)) && !unsure.contains_key(&who) {
                    let at = refused.get(&who).copied().unwrap_or(0);
                    let (key, group) = (&history.keys[key], &history.groups[group]);
                    complain(
                        at,
                        format!("{key} {group} {id}: c{consumer} owns it, but no answer ever gave it"),
                    );
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{acked, good, id, op};

    #[test]
    fn a_refused_add_that_took_effect_is_seen() {
        let mut history = good();
        history.last[0].entries.insert(id(60), 3);
        assert_eq!(check(&history).len(), 1);
        history.ops.push(op(200, 205, What::Add { token: 3 }, Outcome::Added(id(60))));
        assert_eq!(check(&history), [], "sent again");
    }

    #[test]
    fn a_refused_acknowledgement_that_took_effect_is_seen() {
        let mut history = good();
        history.ops.push(acked(100, &[2], Outcome::Refused("CLUSTERDOWN".into())));
        assert_eq!(check(&history), []);
        history.last[0].pending[0].remove(&id(2));
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn a_refused_delivery_that_took_effect_is_seen() {
        let mut history = good();
        let refused = Outcome::Refused("MOVED 1 a:1".into());
        history.ops.push(op(100, 105, What::Deliver { group: 0, consumer: 7 }, refused));
        history.last[0].pending[0].insert(id(4), 7);
        assert_eq!(check(&history).len(), 1);
        let unknown = Outcome::Unknown("timed out".into());
        history.ops.push(op(110, 115, What::Deliver { group: 0, consumer: 7 }, unknown));
        assert_eq!(check(&history), []);
    }
}
