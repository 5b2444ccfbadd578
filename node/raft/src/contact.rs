//! When this replica last heard a leader that it follows: the age bound of follower reads.

use parking_lot::Mutex;
use weir_env::time::Instant;

use crate::types::{LogId, Vote};

/// A leader's word, accepted by this replica.
#[derive(Debug, Clone, Copy)]
pub struct LeaderContact {
    /// When it arrived, which may be long before it was accepted: accepting entries takes a sync.
    pub at: Instant,
    /// What leaders had said was committed by then, or more: state applied up to here is no older than `at`.
    pub commit: u64,
}

/// What a request says, from when it arrived. Nothing is known yet about its sender's right to lead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    at: Instant,
    /// `None` while the sender has committed nothing of its own term: before that it may not know all that is
    /// committed.
    commit: Option<u64>,
}

impl Claim {
    /// A request has arrived now.
    pub(crate) fn arrived(vote: &Vote, commit: Option<&LogId>) -> Self {
        let own = commit.filter(|id| id.leader_id.term == vote.leader_id.term);
        Self { at: Instant::now(), commit: own.map(|id| id.index) }
    }
}

/// Notes which claims this replica accepts.
#[derive(Debug, Default)]
pub(crate) struct Contact(Mutex<Option<LeaderContact>>);

impl Contact {
    /// The request was accepted: its sender led when it arrived.
    pub(crate) fn accepted(&self, claim: Claim) {
        let Some(commit) = claim.commit else { return };
        let mut heard = self.0.lock();
        let now = LeaderContact { at: claim.at, commit };
        // Heartbeats overtake entries that wait for a sync.
        *heard = Some(heard.map_or(now, |before| LeaderContact {
            at: before.at.max(now.at),
            commit: before.commit.max(now.commit),
        }));
    }

    pub(crate) fn last(&self) -> Option<LeaderContact> {
        *self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_store::LogPosition;

    use super::*;
    use crate::types::log_id;

    #[test]
    fn age_counts_from_arrival_and_only_what_the_leader_surely_knows_counts() {
        let contact = Contact::default();
        let of_term_2 = Vote::new_committed(2, 1);
        let before = log_id(LogPosition::new(1, 7));
        contact.accepted(Claim::arrived(&of_term_2, Some(&before)));
        contact.accepted(Claim::arrived(&of_term_2, None));
        assert!(contact.last().is_none(), "a leader that committed nothing yet knows too little");

        let claim = Claim::arrived(&of_term_2, Some(&log_id(LogPosition::new(2, 8))));
        let later = Claim { at: claim.at + Duration::from_secs(1), commit: Some(9) };
        contact.accepted(claim);
        let heard = contact.last().expect("it was accepted");
        assert_eq!((heard.at, heard.commit), (claim.at, 8));

        // A heartbeat that came later is answered before the entries.
        contact.accepted(later);
        contact.accepted(claim);
        let heard = contact.last().expect("it was accepted");
        assert_eq!((heard.at, heard.commit), (later.at, 9));
    }
}
