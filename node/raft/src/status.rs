//! What a group tells about itself, published when it changes.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant as _, LogIdOptionExt, RaftMetrics, ServerState};
use parking_lot::RwLock;
use tokio::sync::watch;
use weir_env::time::Instant;

use crate::types::{TypeConfig, why};
use crate::{NodeId, Watermark};

/// Progress is published at most this often; a change of leadership is never held back.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(1);

/// A group as this node sees it. Indexes are 0 before the first entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupStatus {
    /// The current term.
    pub term: u64,
    /// The node believed to lead.
    pub leader: Option<NodeId>,
    /// This node leads, as far as it knows.
    pub is_leader: bool,
    /// This node leads and has applied its own first entry of the term: its state holds every write that
    /// was ever answered.
    pub ready: bool,
    /// This node leads and a quorum acknowledged it within one election timeout. A leader without it
    /// counts as deposed for clients.
    pub quorum_alive: bool,
    /// The last entry in this node's log.
    pub last_index: u64,
    /// The last entry that this node knows to be committed.
    pub committed: u64,
    /// The last entry applied here.
    pub applied: u64,
    /// The last entry covered by this node's newest snapshot.
    pub snapshot: u64,
    /// The voters of the effective membership, joint ones included, in order.
    pub voters: Vec<NodeId>,
    /// The learners of the effective membership, in order.
    pub learners: Vec<NodeId>,
    /// Set for good when the group has stopped: why.
    pub stopped: Option<String>,
}

/// Keeps [`GroupStatus`] and the followers' progress up to date.
pub(crate) struct Publisher {
    pub(crate) me: NodeId,
    /// How long a quorum's acknowledgement counts.
    pub(crate) quorum_timeout: Duration,
    pub(crate) applied: Watermark,
    pub(crate) status: watch::Sender<GroupStatus>,
    pub(crate) matched: Arc<RwLock<Vec<(NodeId, u64)>>>,
    pub(crate) matched_version: watch::Sender<u64>,
}

impl Publisher {
    /// Runs until the library stops. Sleeps between changes; an expiring quorum is the only timer.
    pub(crate) async fn run(self, mut metrics: Metrics, mut server: ServerMetrics) {
        loop {
            let seen = self.publish(&metrics.borrow_and_update());
            let published = Instant::now();
            if seen.stopped {
                return;
            }
            let expiry = async {
                match seen.alive_until {
                    Some(at) => weir_env::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let alive = tokio::select! {
                alive = metrics.changed() => alive.is_ok(),
                () = expiry => true,
            };
            if !alive || !self.pause(&mut metrics, &mut server, &seen, published).await {
                return self.ended("raft stopped");
            }
        }
    }

    /// Lets changes gather until the interval since the last publication is over. Within it only a change
    /// of leadership is worth going on at once. `false` when the library has stopped.
    async fn pause(
        &self,
        metrics: &mut Metrics,
        server: &mut ServerMetrics,
        seen: &Seen,
        published: Instant,
    ) -> bool {
        let pause = weir_env::time::sleep_until(published + PUBLISH_INTERVAL);
        tokio::pin!(pause);
        while published.elapsed() < PUBLISH_INTERVAL {
            if leadership_of(&metrics.borrow_and_update()) != seen.leadership {
                break;
            }
            // The metrics change several times a write, what tells of leadership hardly ever. Only a leader that is
            // not ready yet waits for progress.
            let changed = async {
                match seen.settled {
                    true => server.changed().await,
                    false => metrics.changed().await,
                }
            };
            tokio::select! {
                () = &mut pause => break,
                alive = changed => if alive.is_err() { return false },
            }
        }
        true
    }

    pub(crate) fn ended(&self, why: &str) {
        self.status.send_if_modified(|status| {
            if status.stopped.is_some() {
                return false;
            }
            status.stopped = Some(why.to_owned());
            status.is_leader = false;
            status.ready = false;
            status.quorum_alive = false;
            true
        });
    }

    fn publish(&self, metrics: &RaftMetrics<TypeConfig>) -> Seen {
        let is_leader = metrics.state == ServerState::Leader;
        let membership = metrics.membership_config.membership();
        let mut voters: Vec<NodeId> = membership.voter_ids().collect();
        voters.sort_unstable();
        voters.dedup();
        let mut learners: Vec<NodeId> = membership.learner_ids().collect();
        learners.sort_unstable();
        let alone = voters == [self.me];
        let age = metrics.last_quorum_acked.as_ref().map(|acked| acked.elapsed());
        let left = age.and_then(|age| self.quorum_timeout.checked_sub(age)).filter(|left| !left.is_zero());
        let quorum_alive = is_leader && (alone || left.is_some());
        let applied_own = metrics.last_applied.is_some_and(|id| id.leader_id.term == metrics.current_term);
        let stopped = metrics.running_state.as_ref().err().map(|fatal| why(fatal));
        let fresh = GroupStatus {
            term: metrics.current_term,
            leader: metrics.current_leader,
            is_leader: is_leader && stopped.is_none(),
            ready: is_leader && applied_own && stopped.is_none(),
            quorum_alive: quorum_alive && stopped.is_none(),
            last_index: metrics.last_log_index.unwrap_or(0),
            committed: metrics.local_committed.index().unwrap_or(0),
            applied: metrics.last_applied.index().unwrap_or(0).max(self.applied.get()),
            snapshot: metrics.snapshot.index().unwrap_or(0),
            voters,
            learners,
            stopped: stopped.clone(),
        };
        self.publish_matched(&fresh, metrics);
        self.status.send_if_modified(|status| {
            let changed = *status != fresh;
            *status = fresh;
            changed
        });
        let alive_until = left.filter(|_| quorum_alive && !alone).map(|left| Instant::now() + left);
        let settled = !is_leader || applied_own;
        Seen { leadership: leadership_of(metrics), settled, alive_until, stopped: stopped.is_some() }
    }

    fn publish_matched(&self, status: &GroupStatus, metrics: &RaftMetrics<TypeConfig>) {
        let mut fresh = Vec::new();
        if let Some(replication) = metrics.replication.as_ref().filter(|_| status.is_leader) {
            for (node, matched) in replication {
                if *node != self.me && status.voters.contains(node) {
                    fresh.push((*node, matched.index().unwrap_or(0)));
                }
            }
        }
        if *self.matched.read() != fresh {
            *self.matched.write() = fresh;
            self.matched_version.send_modify(|version| *version += 1);
        }
    }
}

/// What one publication saw.
struct Seen {
    leadership: Leadership,
    /// Only another term or leader can change the leadership.
    settled: bool,
    /// When the quorum's acknowledgement expires, if one counts now.
    alive_until: Option<Instant>,
    stopped: bool,
}

pub(crate) type Metrics = openraft::alias::WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>;

pub(crate) type ServerMetrics =
    openraft::alias::WatchReceiverOf<TypeConfig, openraft::metrics::RaftServerMetrics<TypeConfig>>;

type Leadership = (u64, ServerState, Option<NodeId>, bool);

fn leadership_of(metrics: &RaftMetrics<TypeConfig>) -> Leadership {
    let applied_own = metrics.last_applied.is_some_and(|id| id.leader_id.term == metrics.current_term);
    (metrics.current_term, metrics.state, metrics.current_leader, applied_own)
}
