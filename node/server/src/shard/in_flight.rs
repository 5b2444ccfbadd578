//! Who waits for which proposal.
//!
//! A proposal ends in one of three ways: apply tells that it is *done* (with the real reply), consensus tells
//! that it is *not done*, or nobody can tell in time and the client is answered *unknown*. The table is keyed
//! by nonce, which rises with time, so the oldest proposal stands first.

use super::batcher::Waiting;
use super::handle::Answer;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_env::time::Instant;
use weir_raft::Nonce;
use weir_stream::Batch;

/// One proposal whose end nobody knows yet.
pub(super) struct Proposal {
    /// As decoded here, so that the leader does not decode its own bytes again.
    pub(super) batch: Arc<Batch>,
    /// One a command, in the batch's order.
    pub(super) waiting: Vec<Waiting>,
    /// When it was proposed.
    pub(super) started: Instant,
    /// After this moment the clients are answered unknown.
    pub(super) deadline: Instant,
}

/// All proposals of one shard on this node.
#[derive(Default)]
pub(super) struct InFlight {
    proposals: BTreeMap<u64, Proposal>,
}

impl InFlight {
    pub(super) fn len(&self) -> usize {
        self.proposals.len()
    }

    pub(super) fn insert(&mut self, nonce: Nonce, proposal: Proposal) {
        let before = self.proposals.insert(nonce.0, proposal);
        assert!(before.is_none(), "nonce {} proposed twice", nonce.0);
    }

    /// Takes the proposal that was applied.
    pub(super) fn take(&mut self, nonce: Nonce) -> Option<Proposal> {
        self.proposals.remove(&nonce.0)
    }

    /// Answers every client of `nonce` alike; tells how many there were.
    pub(super) fn end(&mut self, nonce: Nonce, answer: fn() -> Answer) -> usize {
        let waiting = self.take(nonce).map(|proposal| proposal.waiting).unwrap_or_default();
        let clients = waiting.len();
        for one in waiting {
            one.answer(answer());
        }
        clients
    }

    /// Answers *unknown* to everybody whose deadline has passed; the proposals may still be applied. Tells how
    /// many clients there were.
    pub(super) fn expire(&mut self, now: Instant) -> usize {
        let mut clients = 0;
        while let Some(first) = self.proposals.first_entry()
            && first.get().deadline <= now
        {
            for waiting in first.remove().waiting {
                clients += 1;
                waiting.answer(Answer::Unknown);
            }
        }
        clients
    }
}
