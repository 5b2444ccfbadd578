//! What a replica may do that lost the end of its log in a power loss (`docs/adr/0012-a-lost-tail.md`).
//!
//! In the modes that do not sync each batch a replica confirms entries that a power loss takes from it. An entry
//! that was committed by that confirmation may then be on fewer nodes than a majority, so a vote of this replica for
//! a log without it could elect a leader that never had it. Until it is restored a replica therefore grants votes to
//! such logs alone, and asks for votes with such a log alone, that reach as far as the longest log of all voters, as
//! each of them told it after its start; before all of them have told it neither grants nor asks.
//!
//! It is restored, for good, once its log holds what a leader of its term or a later one had when it was asked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use openraft::ServerState;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use weir_store::{GroupId, GroupLog};

use crate::peers::method;
use crate::types::{LogId, Raft, Vote, log_id};
use crate::{Error, NodeId, Peers, wire};

/// Asks a replica of the same group how far it is. Positions of fields are permanent.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) from: NodeId,
    /// The asker's log may lack entries that it had confirmed.
    pub(crate) lost: bool,
}

/// How far a replica is. Positions of fields are permanent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    vote: Vote,
    last: Option<LogId>,
    leads: bool,
    /// The last entry on its disk.
    synced: Option<LogId>,
}

impl Standing {
    pub(crate) async fn of(raft: &Raft, log: &GroupLog) -> Result<Self, Error> {
        let synced = log.synced().map(log_id);
        let look = move |state: &openraft::RaftState<crate::types::TypeConfig>| Self {
            synced,
            vote: *state.vote_ref(),
            last: state.log_ids.last().copied(),
            leads: state.server_state == ServerState::Leader,
        };
        raft.with_raft_state(look).await.map_err(|error| Error::Stopped(error.to_string()))
    }
}

/// Whether this replica's log may lack entries that it had confirmed, and what it may do meanwhile.
pub(crate) struct LostTail {
    me: NodeId,
    log: GroupLog,
    lost: watch::Sender<bool>,
    /// The longest log of all voters, once each has told.
    floor: Mutex<Option<Option<LogId>>>,
}

impl LostTail {
    pub(crate) fn new(me: NodeId, log: GroupLog) -> Arc<Self> {
        let lost = watch::Sender::new(log.tail_may_be_lost());
        Arc::new(Self { me, log, lost, floor: Mutex::default() })
    }

    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.lost.subscribe()
    }

    /// Whether this replica may help to elect a leader whose log ends with `last`, itself included.
    pub(crate) fn may_elect(&self, last: Option<&LogId>) -> Result<(), String> {
        if !*self.lost.borrow() {
            return Ok(());
        }
        match &*self.floor.lock() {
            Some(floor) if last >= floor.as_ref() => Ok(()),
            Some(_) => Err(format!("a log of another replica is longer, and node {} lost its tail", self.me)),
            None => Err(format!("node {} lost its log's tail, and not all voters could be asked", self.me)),
        }
    }

    /// Asks the other voters until this replica is restored. `founders` are asked as long as it knows no voters.
    pub(crate) async fn restore(
        self: Arc<Self>,
        raft: Raft,
        peers: Peers,
        founders: BTreeSet<NodeId>,
        pause: Duration,
    ) {
        if !*self.lost.borrow() {
            return;
        }
        let group = self.log.id();
        tracing::warn!(
            group = group.0,
            "power failed, and the log's last entries may be lost: this replica elects no leader without them"
        );
        let term = term_of(&self.log);
        // What a leader had when it was asked.
        let mut wanted: Option<Standing> = None;
        loop {
            let voters: BTreeSet<NodeId> = {
                use openraft::async_runtime::watch::WatchReceiver;
                raft.metrics().borrow_watched().membership_config.membership().voter_ids().collect()
            };
            let voters = if voters.is_empty() { founders.clone() } else { voters };
            let Ok(mine) = Standing::of(&raft, &self.log).await else { return };
            let answers = self.ask(&peers, group, &voters, pause).await;
            let leader =
                answers.iter().flatten().filter(|theirs| theirs.leads && theirs.vote.leader_id.term >= term);
            if let Some(theirs) = leader.max_by_key(|theirs| theirs.vote.leader_id.term)
                && wanted.is_none_or(|wanted| wanted.vote.leader_id.term < theirs.vote.leader_id.term)
            {
                wanted = Some(*theirs);
            }
            if voters.contains(&self.me) && answers.iter().all(Option::is_some) {
                let longest = answers.iter().flatten().map(|theirs| theirs.last).max().flatten();
                *self.floor.lock() = Some(longest.max(mine.last));
            }
            let caught_up = match wanted {
                Some(wanted) => self.holds(wanted.last).await,
                None => false,
            };
            if (mine.leads || caught_up) && self.is_restored().await {
                tracing::info!(group = group.0, "the log lacks nothing any more");
                // So that they need not wait to hear it.
                self.ask(&peers, group, &voters, pause).await;
                return;
            }
            weir_env::time::sleep(pause).await;
        }
    }

    /// How many of the other `voters` have `index` on their disks, as far as they answer in time.
    pub(crate) async fn synced_elsewhere(
        &self,
        peers: &Peers,
        voters: &BTreeSet<NodeId>,
        index: u64,
        timeout: Duration,
    ) -> usize {
        let mut count = 0;
        for theirs in self.ask(peers, self.log.id(), voters, timeout).await.into_iter().flatten() {
            // An entry of both logs stands for all before it.
            let synced = theirs.synced.filter(|synced| synced.index >= index);
            count += usize::from(synced.is_some() && self.holds(synced).await);
        }
        count
    }

    /// The standing of every other voter; `None` where it could not be learned.
    async fn ask(
        &self,
        peers: &Peers,
        group: GroupId,
        voters: &BTreeSet<NodeId>,
        timeout: Duration,
    ) -> Vec<Option<Standing>> {
        let question = wire::to_bytes(&Question { from: self.me, lost: *self.lost.borrow() });
        let others = voters.iter().filter(|node| **node != self.me);
        let calls = others.map(|node| {
            let question = question.clone();
            async move {
                let answer =
                    peers.group_call(*node, group, method::STANDING, question, timeout).await.ok()?;
                wire::from_bytes("standing", &answer).ok()
            }
        });
        futures_util::future::join_all(calls).await
    }

    /// Whether the log holds this entry, and so all before it.
    async fn holds(&self, entry: Option<LogId>) -> bool {
        let Some(entry) = entry else { return true };
        if self.log.state().purged.is_some_and(|purged| purged.index >= entry.index) {
            return true;
        }
        match self.log.read(entry.index..entry.index + 1, 1).await {
            Ok(found) => found.first().is_some_and(|found| log_id(found.position) == entry),
            // The log has failed, and the node stops.
            Err(_) => false,
        }
    }

    /// Notes that nothing is missing any more, if that can be noted.
    async fn is_restored(&self) -> bool {
        let noted = self.log.tail_restored().await;
        match &noted {
            Ok(()) => drop(self.lost.send_replace(false)),
            Err(error) => {
                tracing::warn!(%error, "cannot note that the log lacks nothing any more; trying again");
            }
        }
        noted.is_ok()
    }
}

/// The term of the group's last vote.
fn term_of(log: &GroupLog) -> u64 {
    let vote = log.state().vote.and_then(|vote| wire::decode_vote(vote).ok());
    vote.map_or(0, |vote| vote.leader_id.term)
}
