//! Followers whose log no longer holds what they confirmed to this leader.
//!
//! A replica that knows that a power loss may have taken its log's tail says so (`lost_tail.rs`) and is sent it
//! again. From any other the leader takes no such answer: its disk has lost what it said was safe, or its directory
//! was replaced by an older copy, and what was committed by its word may be on too few nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use weir_env::time::Instant;
use weir_store::GroupId;

use crate::NodeId;
use crate::types::LogId;

/// A replica that lost its tail says so more often than this until it is restored.
const ANNOUNCED_FOR: Duration = Duration::from_secs(10);
/// Its first heartbeat may be answered before it has said so.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// One group's followers, as its replica on this node sees them.
pub(crate) struct Reversions {
    group: GroupId,
    /// The mode lets a power loss take what was confirmed.
    possible: bool,
    peers: Mutex<BTreeMap<NodeId, Seen>>,
}

#[derive(Default)]
struct Seen {
    announced: Option<Instant>,
    refused_since: Option<Instant>,
    told: bool,
}

impl Reversions {
    pub(crate) fn new(group: GroupId, possible: bool) -> Self {
        Self { group, possible, peers: Mutex::default() }
    }

    /// A follower says whether it lost its tail.
    pub(crate) fn announced(&self, peer: NodeId, lost: bool) {
        let announced = lost.then(Instant::now);
        self.peers.lock().insert(peer, Seen { announced, ..Seen::default() });
    }

    /// The follower's log does not hold `confirmed`, which it had confirmed to this leader. `Err`: its answer must
    /// not be believed.
    pub(crate) fn check(&self, peer: NodeId, confirmed: &LogId) -> Result<(), String> {
        let mut peers = self.peers.lock();
        let seen = peers.entry(peer).or_default();
        let known = seen.announced.is_some_and(|at| at.elapsed() < ANNOUNCED_FOR);
        if self.possible && known {
            return Ok(());
        }
        let since = *seen.refused_since.get_or_insert_with(Instant::now);
        if !seen.told && (!self.possible || since.elapsed() > SILENT_FOR) {
            seen.told = true;
            tracing::error!(
                group = self.group.0,
                node = peer,
                index = confirmed.index,
                "node {peer} no longer has log entries that it confirmed: its disk lost them or its data directory \
                 was replaced by an older copy; it is sent nothing more; stop it and let it join again with an \
                 empty directory"
            );
        }
        Err(format!("node {peer} no longer has entry {}, which it confirmed", confirmed.index))
    }

    /// Whether an operator was told about the follower.
    #[cfg(test)]
    pub(crate) fn told(&self, peer: NodeId) -> bool {
        self.peers.lock().get(&peer).is_some_and(|seen| seen.told)
    }
}

#[cfg(test)]
mod tests {
    use weir_store::LogPosition;

    use super::*;
    use crate::types::log_id;

    #[test]
    fn only_a_follower_that_said_so_in_a_mode_that_allows_it_may_go_back() {
        let entry = log_id(LogPosition::new(1, 7));
        let weak = Reversions::new(GroupId(1), true);
        assert!(weak.check(2, &entry).is_err());
        weak.announced(2, true);
        assert!(weak.check(2, &entry).is_ok());
        assert!(weak.check(3, &entry).is_err(), "another follower said nothing");
        weak.announced(2, false);
        assert!(weak.check(2, &entry).is_err());

        let always = Reversions::new(GroupId(1), false);
        always.announced(2, true);
        assert!(always.check(2, &entry).is_err());
    }
}
