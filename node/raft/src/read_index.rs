//! Proof of leadership for reads: one quorum round shared by everyone who waits.
//!
//! A caller that arrives while a round is under way waits for the next one: that round may have begun
//! before a write which the caller already saw answered. A round fixes the commit index first and then
//! hears from a quorum, so whoever waits until apply reaches the answer reads nothing older than what was
//! committed when it asked. A node that cannot prove its leadership gives no answer but an error.

use std::sync::Arc;
use std::time::Duration;

use openraft::LinearizerOption;
use openraft::errors::{LinearizableReadError, RaftError};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::NodeId;
use crate::types::Raft;

/// Why a read cannot be served here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Another node leads, or nobody does.
    #[error("not the leader")]
    NotLeader {
        /// The node believed to lead.
        leader: Option<NodeId>,
    },
    /// No quorum confirmed the leadership in time.
    #[error("no quorum confirmed the leadership")]
    NoQuorum,
    /// The group has stopped.
    #[error("the group has stopped")]
    Stopped,
}

type Answer = Result<u64, ReadError>;

#[derive(Default)]
struct Waiters {
    asking: Vec<oneshot::Sender<Answer>>,
    stopped: bool,
}

/// The queue before the next round.
#[derive(Default)]
pub(crate) struct ReadIndex {
    waiters: Mutex<Waiters>,
    wake: Notify,
}

impl ReadIndex {
    pub(crate) async fn ask(&self) -> Answer {
        let (answer, told) = oneshot::channel();
        let first = {
            let mut waiters = self.waiters.lock();
            if waiters.stopped {
                return Err(ReadError::Stopped);
            }
            waiters.asking.push(answer);
            waiters.asking.len() == 1
        };
        if first {
            self.wake.notify_one();
        }
        told.await.unwrap_or(Err(ReadError::Stopped))
    }

    pub(crate) fn stop(&self) {
        let mut waiters = self.waiters.lock();
        waiters.stopped = true;
        waiters.asking.clear();
    }

    /// Runs the rounds, one at a time. Ends by being aborted with the group.
    pub(crate) async fn run(self: Arc<Self>, raft: Raft, round_timeout: Duration) {
        loop {
            self.wake.notified().await;
            let asking = std::mem::take(&mut self.waiters.lock().asking);
            if asking.is_empty() {
                continue;
            }
            let answer = round(&raft, round_timeout).await;
            for asker in asking {
                let _ = asker.send(answer.clone());
            }
        }
    }
}

async fn round(raft: &Raft, timeout: Duration) -> Answer {
    let option = LinearizerOption::new(Some(Duration::ZERO), true).with_wait_timeout(timeout);
    match raft.get_read_linearizer(option).await {
        Ok(linearizer) => Ok(linearizer.read_log_id().index()),
        Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
            Err(ReadError::NotLeader { leader: forward.leader_id })
        }
        Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => Err(ReadError::NoQuorum),
        Err(RaftError::Fatal(_)) => Err(ReadError::Stopped),
    }
}
