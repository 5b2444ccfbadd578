//! When this replica last heard a leader that it follows: the age bound of follower reads.

use crate::types::LogId;
use parking_lot::Mutex;
use weir_env::time::Instant;

/// A leader's word, accepted by this replica.
#[derive(Debug, Clone, Copy)]
pub struct LeaderContact {
    /// When it was accepted.
    pub at: Instant,
    /// What the leader said was committed by then, or more: state applied up to here is no older than `at`.
    pub commit: u64,
}

/// Notes what leaders say and whether this replica accepts it.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    claimed: Mutex<u64>,
    heard: Mutex<Option<LeaderContact>>,
}

impl Contact {
    /// A request arrived; nothing is known about its sender's right to lead yet.
    pub(crate) fn claimed(&self, commit: Option<&LogId>) {
        let mut claimed = self.claimed.lock();
        *claimed = (*claimed).max(commit.map_or(0, |id| id.index));
    }

    /// The request was accepted: its sender leads.
    pub(crate) fn accepted(&self) {
        let commit = *self.claimed.lock();
        *self.heard.lock() = Some(LeaderContact { at: Instant::now(), commit });
    }

    pub(crate) fn last(&self) -> Option<LeaderContact> {
        *self.heard.lock()
    }
}
