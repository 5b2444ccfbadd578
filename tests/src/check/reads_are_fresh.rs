//! Reads at a leader are linearizable. On a stream that is only added to, where ids fix the order of the adds, that is:
//! such a read shows every entry whose XADD had been answered, or that another such read had shown, before it was sent;
//! nothing that was sent after it was answered; and no read anywhere has holes: it shows all entries from where it was
//! asked to begin up to the last one that it shows.

use super::{Violation, adds, by_key, first_sent};
use crate::history::{History, Id, Outcome, What};

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, ops) in by_key(history).iter().enumerate() {
        let name = &history.keys[key];
        let mut ends: Vec<(u64, Id)> = ops
            .iter()
            .flat_map(|op| adds(op).into_iter().filter_map(|(_, id)| Some((op.ended, id?))))
            .collect();
        for op in ops {
            if let (What::Read { follower: false, .. }, Outcome::Entries(entries)) = (&op.what, &op.outcome)
                && let Some(&(id, _)) = entries.iter().max()
            {
                ends.push((op.ended, id));
            }
        }
        let sent = first_sent(ops);
        ends.sort();
        // Ids of one stream increase in the log, so a read that shows all up to the highest answered id shows all:
        // it is enough to know that id for each moment, and that there are no holes.
        let mut highest = Id::ZERO;
        let steps: Vec<(u64, Id)> = ends
            .into_iter()
            .map(|(ended, id)| {
                highest = highest.max(id);
                (ended, highest)
            })
            .collect();
        for op in ops {
            let (What::Read { from, to, follower }, Outcome::Entries(entries)) = (&op.what, &op.outcome)
            else {
                continue;
            };
            let mut complain =
                |text| found.push(Violation { invariant: "reads_are_fresh", at: op.started, text });
            let mut ids: Vec<Id> = entries.iter().map(|&(id, _)| id).collect();
            ids.sort();
            if !follower {
                let before = steps.partition_point(|&(ended, _)| ended < op.started);
                let answered = before.checked_sub(1).map(|at| steps[at].1);
                if let Some(answered) = answered.filter(|id| (*from..=*to).contains(id))
                    && ids.last().is_none_or(|&shown| shown < answered)
                {
                    let shown = ids.last();
                    complain(format!(
                        "{name}: a read shows up to {shown:?}, but {answered} had been answered or read before"
                    ));
                }
            }
            if let Some((id, _)) =
                entries.iter().find(|(_, token)| sent.get(token).is_some_and(|&at| at > op.ended))
            {
                complain(format!("{name}: a read shows {id}, which was sent after the read was answered"));
            }
            if let Some(&high) = ids.last() {
                let between = history.last[key].entries.range(*from..=high).count();
                if between != ids.len() {
                    let shown = ids.len();
                    complain(format!(
                        "{name}: a read shows {shown} of the {between} entries from {from} to {high}"
                    ));
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
    use crate::history::Op;

    fn read(started: u64, follower: bool, ids: &[u64]) -> Op {
        let entries = ids.iter().map(|&n| (id(n), n)).collect();
        op(
            started,
            started + 5,
            What::Read { from: Id::ZERO, to: Id::MAX, follower },
            Outcome::Entries(entries),
        )
    }

    #[test]
    fn a_stale_read_at_a_leader_is_seen() {
        let mut history = good();
        history.ops.push(read(100, false, &[1]));
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn an_empty_read_at_a_leader_is_seen() {
        let mut history = good();
        history.ops.push(read(100, false, &[]));
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn a_read_that_goes_back_behind_another_read_is_seen() {
        let mut history = good();
        // The XADD of token 4 has no known end; the first of these reads shows that it was done.
        history.ops.retain(|op| !matches!(op.what, What::Read { .. }));
        history.ops.push(read(100, false, &[1, 2, 4]));
        assert_eq!(check(&history), []);
        history.ops.push(read(110, false, &[1, 2]));
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn a_read_of_what_is_sent_later_is_seen() {
        let mut history = good();
        history.ops.push(read(41, false, &[1, 2, 4]));
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn a_follower_may_be_behind_but_shows_no_holes() {
        let mut history = good();
        history.ops.push(read(100, true, &[1]));
        assert_eq!(check(&history), []);
        history.ops.push(read(110, true, &[1, 4]));
        assert_eq!(check(&history).len(), 1);
    }
}
