//! What must hold of every history, one file an invariant. Each file's tests show a history that breaks it.

mod acks_are_final;
mod adds_are_kept;
mod answers_are_in_time;
mod delivered_once;
mod deliveries_are_counted;
mod errors_are_expected;
mod gone_clients_get_nothing;
mod ids_increase;
mod noack_leaves_nothing;
mod nothing_invented;
mod nothing_skipped;
mod pipelines_keep_order;
mod reads_are_fresh;
mod refusals_did_nothing;
mod transactions_are_whole;
mod waits_are_honest;

use crate::history::{History, Id, Op, Outcome, Token, What};
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

/// A property of every history.
#[derive(Debug)]
pub struct Invariant {
    /// The name of its file.
    pub name: &'static str,
    /// What it says.
    pub words: &'static str,
    check: fn(&History) -> Vec<Violation>,
}

const fn invariant(
    name: &'static str,
    words: &'static str,
    check: fn(&History) -> Vec<Violation>,
) -> Invariant {
    Invariant { name, words, check }
}

/// Every invariant, by name.
pub const ALL: [Invariant; 16] = [
    invariant(
        "adds_are_kept",
        "an answered XADD is there at the end, with its id and content",
        adds_are_kept::check,
    ),
    invariant("acks_are_final", "an acknowledged entry never comes back in its group", acks_are_final::check),
    invariant(
        "answers_are_in_time",
        "a blocked read and a WAIT are answered when their time is up",
        answers_are_in_time::check,
    ),
    invariant(
        "deliveries_are_counted",
        "a pending entry's delivery count is the number of its deliveries",
        deliveries_are_counted::check,
    ),
    invariant(
        "delivered_once",
        "with `>` an entry goes to one consumer of a group, once",
        delivered_once::check,
    ),
    invariant(
        "errors_are_expected",
        "no error but redirects and outages is answered",
        errors_are_expected::check,
    ),
    invariant(
        "gone_clients_get_nothing",
        "a reader that closed its connection gets no entry added afterwards",
        gone_clients_get_nothing::check,
    ),
    invariant("ids_increase", "ids of a stream rise in the order of real time", ids_increase::check),
    invariant(
        "noack_leaves_nothing",
        "what was read with NOACK is never pending",
        noack_leaves_nothing::check,
    ),
    invariant("nothing_invented", "only what was added is read, under one id, once", nothing_invented::check),
    invariant(
        "nothing_skipped",
        "every entry is delivered to each group, and pending there until it is acknowledged",
        nothing_skipped::check,
    ),
    invariant(
        "pipelines_keep_order",
        "commands of one pipeline take effect in the order in which they were sent",
        pipelines_keep_order::check,
    ),
    invariant(
        "reads_are_fresh",
        "a leader's read shows all that was answered or read before, nothing from later, and no holes",
        reads_are_fresh::check,
    ),
    invariant("refusals_did_nothing", "a refused command did nothing", refusals_did_nothing::check),
    invariant(
        "transactions_are_whole",
        "the writes of a transaction are all there, side by side, or not at all",
        transactions_are_whole::check,
    ),
    invariant(
        "waits_are_honest",
        "WAIT counts only other nodes that can have the write",
        waits_are_honest::check,
    ),
];

/// All violations of all invariants, earliest first.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found: Vec<Violation> = ALL.iter().flat_map(|invariant| (invariant.check)(history)).collect();
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

/// The tokens that a call tried to add, each with its id if that was answered.
fn adds(op: &Op) -> Vec<(Token, Option<Id>)> {
    match (&op.what, &op.outcome) {
        (What::Add { token }, Outcome::Added(id)) => vec![(*token, Some(*id))],
        (What::Add { token }, _) => vec![(*token, None)],
        (What::AddAll { tokens }, Outcome::AddedAll(ids)) => {
            tokens.iter().copied().zip(ids.iter().copied().map(Some)).collect()
        }
        (What::AddAll { tokens }, _) => tokens.iter().map(|token| (*token, None)).collect(),
        _ => Vec::new(),
    }
}

/// When each token was first sent: an idempotent add is sent again under the same one.
fn first_sent(ops: &[&Op]) -> HashMap<Token, u64> {
    let mut sent = HashMap::new();
    for op in ops {
        for (token, _) in adds(op) {
            sent.entry(token).and_modify(|at: &mut u64| *at = op.started.min(*at)).or_insert(op.started);
        }
    }
    sent
}

/// Whether something was slow, cut off or down at any time between the two.
fn disturbed(history: &History, from: u64, to: u64) -> bool {
    history.disturbances.iter().any(|time| time.from <= to && from <= time.to)
}

/// When an acknowledgement of an id may first have taken effect and when one was first answered, by (stream, group, id).
fn acks(history: &History) -> HashMap<(u16, u8, Id), Acked> {
    let mut acks: HashMap<(u16, u8, Id), Acked> = HashMap::new();
    for op in &history.ops {
        let What::Ack { group, ids } = &op.what else { continue };
        for &id in ids {
            let ack = acks.entry((op.key, *group, id)).or_default();
            match op.outcome {
                Outcome::Count(_) => {
                    ack.answered = Some(ack.answered.map_or(op.ended, |at| at.min(op.ended)));
                    ack.attempts += 1;
                }
                Outcome::Unknown(_) | Outcome::Cut => {
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
        Op { client: 1, key: 0, started, ended, limit: 0, what, outcome }
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
            deliveries: vec![
                pending.iter().map(|&(n, _)| (id(n), 1)).collect(),
                entries.iter().map(|&n| (id(n), 1)).collect(),
            ],
        };
        let mut ops = ops;
        // The other group had everything delivered to consumer 9 at the end and acknowledged none.
        ops.push(Op {
            client: 9,
            key: 0,
            started: 900,
            ended: 905,
            limit: 0,
            what: What::Deliver { group: 1, consumer: 9 },
            outcome: Outcome::Entries(entries.iter().map(|&n| (id(n), n)).collect()),
        });
        History {
            keys: vec!["s".into()],
            groups: vec!["g0".into(), "g1".into()],
            nodes: 3,
            ops,
            outages: Vec::new(),
            disturbances: Vec::new(),
            expected_errors: Vec::new(),
            late_max: 1_000,
            wait_late_max: 500,
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
