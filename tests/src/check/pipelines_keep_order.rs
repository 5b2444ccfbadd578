//! What one client sends to a stream at the same moment, on one connection, takes effect in that order: tokens rise
//! as they are sent, and so do the ids.

use super::{Violation, adds, by_key};
use crate::history::{History, Id, Token};
use std::collections::BTreeMap;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for ops in by_key(history) {
        let mut bursts: BTreeMap<(u32, u64), BTreeMap<Token, Id>> = BTreeMap::new();
        for op in &ops {
            for (token, id) in adds(op) {
                let Some(id) = id else { continue };
                bursts.entry((op.client, op.started)).or_default().insert(token, id);
            }
        }
        for ((client, started), ids) in bursts {
            let sent: Vec<(Token, Id)> = ids.into_iter().collect();
            if let Some(pair) = sent.windows(2).find(|pair| pair[0].1 >= pair[1].1) {
                let key = &history.keys[usize::from(ops[0].key)];
                let text = format!(
                    "{key}: client {client} sent token {} before token {} and got {} and {}",
                    pair[0].0, pair[1].0, pair[0].1, pair[1].1
                );
                found.push(Violation { invariant: "pipelines_keep_order", at: started, text });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{added, good};

    #[test]
    fn a_pipeline_out_of_order_is_seen() {
        let mut history = good();
        history.ops.push(added(100, 20, 8));
        history.ops.push(added(100, 21, 9));
        assert_eq!(check(&history), []);
        history.ops.push(added(200, 22, 12));
        history.ops.push(added(200, 23, 11));
        assert_eq!(check(&history).len(), 1);
    }
}
