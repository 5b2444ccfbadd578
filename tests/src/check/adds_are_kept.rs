//! An answered XADD is there at the end, with the same id and content.

use super::{Violation, adds};
use crate::history::History;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for op in &history.ops {
        for (token, id) in adds(op) {
            let Some(id) = id else { continue };
            let now = history.last[usize::from(op.key)].entries.get(&id);
            if now != Some(&token) {
                let key = &history.keys[usize::from(op.key)];
                let text = format!(
                    "XADD to {key} was answered {id} for token {token}; at the end that id holds {now:?}"
                );
                found.push(Violation { invariant: "adds_are_kept", at: op.started, text });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{added, good, id};

    #[test]
    fn a_lost_entry_is_seen() {
        let mut history = good();
        history.last[0].entries.remove(&id(2));
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn an_entry_with_other_content_is_seen() {
        let mut history = good();
        history.ops.push(added(100, 77, 4));
        assert_eq!(check(&history).len(), 1);
    }
}
