//! A call that gives the server a time (BLOCK, WAIT) is answered when that time is up, also by a leader that loses its
//! place meanwhile. Not counted: calls during which something was slow, cut off or down.

use super::{Violation, disturbed};
use crate::history::{History, Outcome, What};

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for op in &history.ops {
        if op.limit == 0 || matches!(op.outcome, Outcome::Cut) || disturbed(history, op.started, op.ended) {
            continue;
        }
        let took = op.ended - op.started;
        let late_max = match op.what {
            What::Wait { .. } => history.wait_late_max,
            _ => history.late_max,
        };
        if took > op.limit + late_max {
            let text = format!(
                "{} {:?} gave {} ms and was answered after {} ms",
                history.keys[usize::from(op.key)],
                op.what,
                op.limit / 1000,
                took / 1000
            );
            found.push(Violation { invariant: "answers_are_in_time", at: op.started, text });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::example::{good, op};
    use crate::history::{Disturbance, Op};

    fn waited(started: u64, ended: u64) -> Op {
        Op { limit: 5_000, ..op(started, ended, What::Wait { wanted: 1, written: 0 }, Outcome::Count(2)) }
    }

    #[test]
    fn a_blocked_read_has_more_time_than_a_wait_and_not_for_ever() {
        let read = |ended| {
            let what = What::Deliver { group: 0, consumer: 5 };
            Op { limit: 5_000, ..op(10_000, ended, what, Outcome::Entries(Vec::new())) }
        };
        let mut history = good();
        history.ops.push(read(15_900));
        assert_eq!(check(&history), []);
        history.ops.push(read(16_100));
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn an_answer_after_its_time_is_seen() {
        let mut history = good();
        history.ops.push(waited(10_000, 15_400));
        assert_eq!(check(&history), []);
        history.ops.push(waited(10_000, 15_600));
        assert_eq!(check(&history).len(), 1);
        history.disturbances.push(Disturbance { from: 12_000, to: 13_000 });
        assert_eq!(check(&history), []);
    }
}
