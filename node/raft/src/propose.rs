//! What became of a proposal: the waiting table behind the three answers.
//!
//! The consensus library answers "forward to the leader" for a batch that was never appended, for one
//! that was appended and later cut, and for one that is still waiting; only the first is an answer. So
//! the table is kept here. A proposal is *submitted* when it is handed over and *appended* once the log
//! store learned its (term, index). From then on only the log decides:
//!
//! - the same (term, index) is applied here: done, told by apply itself;
//! - another entry is applied at that index, or an entry of a later term at or below it: not done, since
//!   terms never fall along a committed log;
//! - the index lies inside an installed snapshot, or the group stops: unknown.
//!
//! A submitted proposal whose [`Ticket`] is gone was never appended: not done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use openraft::raft::responder::Responder;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use weir_store::LogPosition;

use crate::types::TypeConfig;

/// Names one proposal inside the proposing process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(pub u64);

/// What became of a proposal that apply will not tell about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is not in the log and never will be.
    NotDone,
    /// It may or may not have been applied, and this node cannot find out.
    Unknown,
}

/// Why a proposal was refused. Nothing was and nothing will be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another node leads, or nobody does.
    #[error("not the leader")]
    NotLeader {
        /// The node believed to lead.
        leader: Option<u64>,
    },
    /// The batch is larger than a log entry can be.
    #[error("{bytes} bytes in one proposal, at most {max}")]
    TooLarge {
        /// The batch's size.
        bytes: usize,
        /// The bound, [`PROPOSAL_BYTES_MAX`].
        max: usize,
    },
    /// The group has stopped, on request or because its storage failed.
    #[error("the group has stopped")]
    Stopped,
}

/// Largest proposal, in bytes: it has to fit into one call of the log and one message to a peer.
pub const PROPOSAL_BYTES_MAX: usize = 768 << 20;

#[derive(Default)]
struct Table {
    submitted: BTreeSet<Nonce>,
    /// Keyed by (index, term): the order in which the log decides.
    appended: BTreeMap<(u64, u64), Nonce>,
    /// The term of the last applied entry; a rise decides over everything older above it.
    applied_term: u64,
}

/// All proposals of this process that wait for their fate. Bounded by the proposals in flight.
pub(crate) struct Waiting {
    table: Mutex<Table>,
    never_appended: mpsc::UnboundedSender<Nonce>,
}

impl Waiting {
    /// The receiver yields proposals that were handed over and never appended.
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Nonce>) {
        let (never_appended, receiver) = mpsc::unbounded_channel();
        (Arc::new(Self { table: Mutex::default(), never_appended }), receiver)
    }

    /// Registers a proposal that is about to be handed over; the ticket travels with it.
    pub(crate) fn submit(self: &Arc<Self>, nonce: Nonce) -> Ticket {
        let fresh = self.table.lock().submitted.insert(nonce);
        assert!(fresh, "nonce {} proposed twice", nonce.0);
        Ticket { nonce, waiting: self.clone() }
    }

    /// The log store is about to append the proposal at `at`.
    pub(crate) fn appended(&self, nonce: Nonce, at: LogPosition) {
        let mut table = self.table.lock();
        table.submitted.remove(&nonce);
        table.appended.insert((at.index, at.term), nonce);
    }

    /// An entry is being applied. Answers the local proposal that it is, and pushes to `not_done` the
    /// proposals that it rules out.
    pub(crate) fn applied(&self, at: LogPosition, not_done: &mut Vec<Nonce>) -> Option<Nonce> {
        let mut table = self.table.lock();
        let newer_term = at.term > table.applied_term;
        table.applied_term = table.applied_term.max(at.term);
        if table.appended.is_empty() {
            return None;
        }
        let done = table.appended.remove(&(at.index, at.term));
        if newer_term {
            // Everything at or above this index in an older term can no longer be committed.
            table.appended.retain(|&(index, term), nonce| {
                let ruled_out = index >= at.index && term < at.term;
                if ruled_out {
                    not_done.push(*nonce);
                }
                !ruled_out
            });
        }
        // What still waits below or here lost its index to this entry or to an earlier one.
        while let Some(entry) = table.appended.first_entry() {
            if entry.key().0 > at.index {
                break;
            }
            not_done.push(entry.remove());
        }
        done
    }

    /// A snapshot up to `upto` replaced the state; what lies inside is beyond finding out.
    pub(crate) fn covered_by_snapshot(&self, upto: LogPosition) -> Vec<(Nonce, Fate)> {
        let mut table = self.table.lock();
        table.applied_term = table.applied_term.max(upto.term);
        let mut fates = Vec::new();
        table.appended.retain(|&(index, term), nonce| {
            if index == upto.index && term != upto.term || index > upto.index && term < upto.term {
                fates.push((*nonce, Fate::NotDone));
                return false;
            }
            if index <= upto.index {
                fates.push((*nonce, Fate::Unknown));
                return false;
            }
            true
        });
        fates
    }

    /// The group has stopped: nothing more will be learned.
    pub(crate) fn drain(&self) -> Vec<(Nonce, Fate)> {
        let mut table = self.table.lock();
        let appended = std::mem::take(&mut table.appended);
        appended.into_values().map(|nonce| (nonce, Fate::Unknown)).collect()
    }

    /// Proposals that wait for their fate.
    pub(crate) fn len(&self) -> usize {
        let table = self.table.lock();
        table.submitted.len() + table.appended.len()
    }

    fn ticket_gone(&self, nonce: Nonce) {
        if self.table.lock().submitted.remove(&nonce) {
            let _ = self.never_appended.send(nonce);
        }
    }
}

/// Travels with a proposal through the consensus library. When it is gone before the log store saw the
/// proposal, the proposal is gone too.
pub(crate) struct Ticket {
    nonce: Nonce,
    waiting: Arc<Waiting>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.waiting.ticket_gone(self.nonce);
    }
}

impl<T> Responder<TypeConfig, T> for Ticket
where
    T: Send + 'static,
{
    /// Whatever the library believes, the table decides when the ticket drops.
    fn on_complete(self, _result: T) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(term: u64, index: u64) -> LogPosition {
        LogPosition { term, index }
    }

    fn waiting(appended: &[(u64, u64, u64)]) -> (Arc<Waiting>, mpsc::UnboundedReceiver<Nonce>) {
        let (waiting, never) = Waiting::new();
        for &(nonce, term, index) in appended {
            let ticket = waiting.submit(Nonce(nonce));
            waiting.appended(Nonce(nonce), at(term, index));
            drop(ticket);
        }
        (waiting, never)
    }

    #[test]
    fn a_ticket_dropped_before_append_means_not_done() {
        let (waiting, mut never) = Waiting::new();
        drop(waiting.submit(Nonce(1)));
        assert_eq!(never.try_recv(), Ok(Nonce(1)));
        assert_eq!(waiting.len(), 0);
    }

    #[test]
    fn a_ticket_dropped_after_append_decides_nothing() {
        let (waiting, mut never) = waiting(&[(1, 1, 5)]);
        assert!(never.try_recv().is_err());
        assert_eq!(waiting.len(), 1);
    }

    #[test]
    fn the_same_position_is_done_and_another_term_there_is_not_done() {
        let (waiting, _never) = waiting(&[(1, 1, 5), (2, 1, 6)]);
        let mut not_done = Vec::new();
        assert_eq!(waiting.applied(at(1, 5), &mut not_done), Some(Nonce(1)));
        assert_eq!(not_done, []);
        assert_eq!(waiting.applied(at(2, 6), &mut not_done), None);
        assert_eq!(not_done, [Nonce(2)]);
    }

    #[test]
    fn an_entry_of_a_later_term_rules_out_all_older_proposals_above_it() {
        let (waiting, _never) = waiting(&[(1, 1, 7), (2, 1, 8), (3, 3, 9)]);
        let mut not_done = Vec::new();
        assert_eq!(waiting.applied(at(2, 5), &mut not_done), None);
        assert_eq!(not_done, [Nonce(1), Nonce(2)]);
        assert_eq!(waiting.applied(at(3, 9), &mut not_done), Some(Nonce(3)));
    }

    #[test]
    fn a_proposal_cut_here_may_still_be_done() {
        // Appended in term 1 and cut by a leader that died; another replica had it and now leads.
        let (waiting, _never) = waiting(&[(1, 1, 7)]);
        let mut not_done = Vec::new();
        assert_eq!(waiting.applied(at(1, 6), &mut not_done), None);
        assert_eq!(waiting.applied(at(1, 7), &mut not_done), Some(Nonce(1)));
        assert_eq!(not_done, []);
    }

    #[test]
    fn a_snapshot_leaves_what_it_covers_unknown() {
        let (waiting, _never) = waiting(&[(1, 1, 7), (2, 1, 9), (3, 1, 10)]);
        let fates = waiting.covered_by_snapshot(at(2, 9));
        assert_eq!(fates, [(Nonce(1), Fate::Unknown), (Nonce(2), Fate::NotDone), (Nonce(3), Fate::NotDone)]);
    }

    #[test]
    fn a_stopped_group_leaves_appended_proposals_unknown() {
        let (waiting, _never) = waiting(&[(1, 1, 7)]);
        assert_eq!(waiting.drain(), [(Nonce(1), Fate::Unknown)]);
        assert_eq!(waiting.len(), 0);
    }
}
