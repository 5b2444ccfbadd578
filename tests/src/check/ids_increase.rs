//! Ids of one stream increase in real time: an XADD sent after another was answered gets a higher id.

use super::{Violation, adds, by_key, first_sent};
use crate::history::{History, Id};

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for ops in by_key(history) {
        let sent = first_sent(&ops);
        let mut adds: Vec<(u64, u64, Id)> = ops
            .iter()
            .flat_map(|op| adds(op).into_iter().map(|(token, id)| (sent[&token], op.ended, id)))
            .filter_map(|(started, ended, id)| Some((started, ended, id?)))
            .collect();
        let mut ends = adds.clone();
        adds.sort();
        ends.sort_by_key(|&(_, ended, _)| ended);
        // Walk in order of the start, beside the highest id answered until then.
        let mut highest = Id::ZERO;
        let mut ended = ends.iter().peekable();
        for (started, _, id) in adds {
            while let Some(&&(_, _, earlier)) = ended.peek().filter(|&&&(_, end, _)| end < started) {
                highest = highest.max(earlier);
                ended.next();
            }
            if id <= highest {
                let key = &history.keys[usize::from(ops[0].key)];
                let text =
                    format!("{key}: answered {id} although {highest} had been answered before it was sent");
                found.push(Violation { invariant: "ids_increase", at: started, text });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{added, good, op};
    use crate::history::{Outcome, What};

    #[test]
    fn an_id_that_steps_back_is_seen() {
        let mut history = good();
        history.ops.push(added(100, 8, 1));
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn the_same_id_twice_is_seen() {
        let mut history = good();
        history.ops.push(added(100, 8, 2));
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn an_idempotent_add_that_is_repeated_may_answer_its_first_id() {
        let mut history = good();
        history.ops.push(op(8, 9, What::Add { token: 8 }, Outcome::Unknown("timed out".into())));
        let first = Outcome::Added(Id { ms: 1, seq: 1 });
        history.ops.push(op(500, 505, What::Add { token: 8 }, first));
        assert_eq!(check(&history), []);
    }

    #[test]
    fn calls_that_overlap_may_come_in_any_order() {
        let mut history = good();
        let early = Outcome::Added(Id { ms: 1, seq: 1 });
        history.ops.push(op(8, 500, What::Add { token: 8 }, early));
        assert_eq!(check(&history), []);
    }
}
