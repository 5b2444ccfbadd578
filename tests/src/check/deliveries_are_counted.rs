//! The delivery count of a pending entry is the number of times that it was delivered, shown to its owner again or
//! claimed. Calls of unknown end on the same stream and group may have been deliveries, one each.

use super::Violation;
use crate::history::{History, Outcome, What};
use std::collections::HashMap;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut known = HashMap::new();
    let mut unsure: HashMap<(u16, u8), u64> = HashMap::new();
    for op in &history.ops {
        let (What::Deliver { group, .. } | What::Pending { group, .. } | What::Claim { group, .. }) = op.what
        else {
            continue;
        };
        match &op.outcome {
            Outcome::Entries(entries) => {
                for &(id, _) in entries {
                    *known.entry((op.key, group, id)).or_insert(0) += 1;
                }
            }
            Outcome::Unknown(_) | Outcome::Cut => *unsure.entry((op.key, group)).or_insert(0) += 1,
            _ => {}
        }
    }
    let mut found = Vec::new();
    for (key, last) in history.last.iter().enumerate() {
        for (group, counts) in last.deliveries.iter().enumerate() {
            let place = (key as u16, group as u8);
            let more = unsure.get(&place).copied().unwrap_or(0);
            for (&id, &count) in counts {
                let least: u64 = known.get(&(place.0, place.1, id)).copied().unwrap_or(0);
                if !(least..=least + more).contains(&count) {
                    let (key, group) = (&history.keys[key], &history.groups[group]);
                    let text = format!(
                        "{key} {group} {id}: counts {count} deliveries, {least} were answered and {more} calls \
                         have an unknown end"
                    );
                    found.push(Violation { invariant: "deliveries_are_counted", at: 0, text });
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

    #[test]
    fn a_count_too_low_and_a_count_too_high_are_seen() {
        let mut history = good();
        history.last[0].deliveries[0].insert(id(2), 0);
        assert_eq!(check(&history).len(), 1);
        history.last[0].deliveries[0].insert(id(2), 2);
        assert_eq!(check(&history).len(), 1);
        let unknown = Outcome::Unknown("timed out".into());
        history.ops.push(op(100, 105, What::Claim { group: 0, consumer: 7 }, unknown));
        assert_eq!(check(&history), []);
    }
}
