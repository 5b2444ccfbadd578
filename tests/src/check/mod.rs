//! What must hold of every history, one file an invariant. Each file's tests show a history that breaks it.

mod acks_are_final;
mod adds_are_kept;
mod delivered_once;
mod errors_are_expected;
mod ids_increase;
mod nothing_invented;
mod nothing_skipped;
mod reads_are_fresh;
mod refusals_did_nothing;
mod waits_are_honest;

use crate::history::{History, Id, Op, Outcome};
use std::collections::HashMap;
use std::fmt;

/// Something that must not happen did.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// Name of the invariant: its file.
    pub invariant: &'static str,
    /// When the call that shows it was made, microseconds since the start of the run.
    pub at: u64,
    /// What was seen, with keys and ids.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.3} s: {}", self.invariant, self.at as f64 / 1e6, self.text)
    }
}

type Check = fn(&History) -> Vec<Violation>;

/// Every invariant, by name.
pub const ALL: [(&str, Check); 10] = [
    ("adds_are_kept", adds_are_kept::check),
    ("acks_are_final", acks_are_final::check),
    ("delivered_once", delivered_once::check),
    ("errors_are_expected", errors_are_expected::check),
    ("ids_increase", ids_increase::check),
    ("nothing_invented", nothing_invented::check),
    ("nothing_skipped", nothing_skipped::check),
    ("reads_are_fresh", reads_are_fresh::check),
    ("refusals_did_nothing", refusals_did_nothing::check),
    ("waits_are_honest", waits_are_honest::check),
];

/// All violations of all invariants, earliest first.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found: Vec<Violation> = ALL.iter().flat_map(|(_, check)| check(history)).collect();
    found.sort_by_key(|violation| violation.at);
    found
}

/// Calls by stream.
fn by_key(history: &History) -> Vec<Vec<&Op>> {
    let mut keys = vec![Vec::new(); history.keys.len()];
    for op in &history.ops {
        keys[usize::from(op.key)].push(op);
    }
    keys
}

/// When an acknowledgement of an id may first have taken effect and when one was first answered, by (stream, group, id).
fn acks(history: &History) -> HashMap<(u16, u8, Id), Acked> {
    let mut acks: HashMap<(u16, u8, Id), Acked> = HashMap::new();
    for op in &history.ops {
        let crate::history::What::Ack { group, ids } = &op.what else { continue };
        for &id in ids {
            let ack = acks.entry((op.key, *group, id)).or_default();
            match op.outcome {
                Outcome::Count(_) => {
                    ack.answered = Some(ack.answered.map_or(op.ended, |at| at.min(op.ended)));
                    ack.attempts += 1;
                }
                Outcome::Unknown(_) => {
                    ack.maybe = true;
                    ack.attempts += 1;
                }
                _ => ack.refused = Some(op.started),
            }
        }
    }
    acks
}

#[derive(Debug, Default, Clone, Copy)]
struct Acked {
    /// When the first answer arrived.
    answered: Option<u64>,
    /// An attempt with an unknown end exists.
    maybe: bool,
    /// Attempts that were or may have been done.
    attempts: u32,
    /// When a refused attempt was made.
    refused: Option<u64>,
}

/// Hand-made histories for the tests of the invariants: one stream `s`, groups `g0` and `g1`, three nodes.
#[cfg(test)]
pub(crate) mod example {
    use crate::history::{History, Id, LastState, Op, Outcome, Token, What};

    pub(crate) fn id(n: u64) -> Id {
        Id { ms: n, seq: 0 }
    }

    pub(crate) fn op(started: u64, ended: u64, what: What, outcome: Outcome) -> Op {
        Op { client: 1, key: 0, started, ended, what, outcome }
    }

    pub(crate) fn added(started: u64, token: Token, n: u64) -> Op {
        op(started, started + 5, What::Add { token }, Outcome::Added(id(n)))
    }

    pub(crate) fn delivered(started: u64, consumer: u16, ids: &[u64]) -> Op {
        let entries = ids.iter().map(|&n| (id(n), n)).collect();
        op(started, started + 5, What::Deliver { group: 0, consumer }, Outcome::Entries(entries))
    }

    pub(crate) fn acked(started: u64, ids: &[u64], outcome: Outcome) -> Op {
        op(started, started + 5, What::Ack { group: 0, ids: ids.iter().map(|&n| id(n)).collect() }, outcome)
    }

    /// Entries carry their number as token; pending of g0: (number, consumer).
    pub(crate) fn history(ops: Vec<Op>, entries: &[u64], pending: &[(u64, u16)]) -> History {
        let last = LastState {
            entries: entries.iter().map(|&n| (id(n), n)).collect(),
            pending: vec![
                pending.iter().map(|&(n, c)| (id(n), c)).collect(),
                entries.iter().map(|&n| (id(n), 9)).collect(),
            ],
        };
        let mut ops = ops;
        // The other group had everything delivered to consumer 9 at the end and acknowledged none.
        ops.push(Op {
            client: 9,
            key: 0,
            started: 900,
            ended: 905,
            what: What::Deliver { group: 1, consumer: 9 },
            outcome: Outcome::Entries(entries.iter().map(|&n| (id(n), n)).collect()),
        });
        History {
            keys: vec!["s".into()],
            groups: vec!["g0".into(), "g1".into()],
            nodes: 3,
            ops,
            outages: Vec::new(),
            last: vec![last],
        }
    }

    /// A run in which nothing is wrong.
    pub(crate) fn good() -> History {
        history(
            vec![
                added(0, 1, 1),
                added(10, 2, 2),
                delivered(20, 5, &[1, 2]),
                acked(30, &[1], Outcome::Count(1)),
                op(40, 45, What::Add { token: 3 }, Outcome::Refused("MOVED 1 a:1".into())),
                op(50, 55, What::Add { token: 4 }, Outcome::Unknown("timed out".into())),
                delivered(60, 6, &[4]),
                op(70, 75, What::Wait { wanted: 1, written: 0 }, Outcome::Count(2)),
                op(
                    80,
                    85,
                    What::Read { from: Id::ZERO, to: Id::MAX, follower: false },
                    Outcome::Entries(vec![(id(1), 1), (id(2), 2), (id(4), 4)]),
                ),
            ],
            &[1, 2, 4],
            &[(2, 5), (4, 6)],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_history_breaks_nothing() {
        assert_eq!(check(&example::good()), []);
    }
}
