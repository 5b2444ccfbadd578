//! Clients that only add, read, acknowledge and claim on streams that exist meet redirects and outages, no other
//! errors: a NOGROUP or WRONGTYPE would mean that state was lost, and a reply of a wrong shape is no answer.

use super::Violation;
use crate::client::is_passing;
use crate::history::{History, Outcome};

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for op in &history.ops {
        let Outcome::Refused(error) = &op.outcome else { continue };
        let word = error.split(' ').next().unwrap_or_default();
        if !is_passing(error) && !history.expected_errors.iter().any(|expected| expected == word) {
            let text = format!("{} {:?} was answered {error:?}", history.keys[usize::from(op.key)], op.what);
            found.push(Violation { invariant: "errors_are_expected", at: op.started, text });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{good, op};
    use crate::history::What;

    #[test]
    fn a_lost_group_is_seen() {
        let mut history = good();
        let error = Outcome::Refused("NOGROUP No such key".into());
        history.ops.push(op(100, 101, What::Deliver { group: 0, consumer: 1 }, error));
        assert_eq!(check(&history).len(), 1);
        history.expected_errors.push("NOGROUP".into());
        assert_eq!(check(&history), []);
    }
}
