//! MULTI ... EXEC is one step: of its entries all are there or none, and no other entry is between them.

use super::Violation;
use crate::history::{History, Id, What};
use std::collections::HashMap;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let places: Vec<HashMap<u64, usize>> = history
        .last
        .iter()
        .map(|last| last.entries.values().enumerate().map(|(at, token)| (*token, at)).collect())
        .collect();
    let mut found = Vec::new();
    for op in &history.ops {
        let What::AddAll { tokens } = &op.what else { continue };
        let key = usize::from(op.key);
        let there: Vec<usize> = tokens.iter().filter_map(|token| places[key].get(token).copied()).collect();
        let side_by_side = there.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        if (!there.is_empty() && there.len() != tokens.len()) || !side_by_side {
            let ids: Vec<String> = there
                .iter()
                .filter_map(|at| history.last[key].entries.keys().nth(*at))
                .map(Id::to_string)
                .collect();
            let text = format!("{}: EXEC of tokens {tokens:?} left entries at {ids:?}", history.keys[key]);
            found.push(Violation { invariant: "transactions_are_whole", at: op.started, text });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{good, id, op};
    use crate::history::Outcome;

    #[test]
    fn half_a_transaction_and_an_entry_in_between_are_seen() {
        let mut history = good();
        let exec = What::AddAll { tokens: vec![30, 31] };
        history.ops.push(op(100, 105, exec, Outcome::Unknown("timed out".into())));
        assert_eq!(check(&history), []);
        history.last[0].entries.insert(id(30), 30);
        assert_eq!(check(&history).len(), 1);
        history.last[0].entries.insert(id(31), 31);
        assert_eq!(check(&history), []);
        history.last[0].entries.remove(&id(31));
        history.last[0].entries.insert(id(32), 1);
        history.last[0].entries.insert(id(33), 31);
        assert_eq!(check(&history).len(), 1);
    }
}
