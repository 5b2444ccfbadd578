//! One Raft group on this node: started here, fed by one proposer, told by its machine.
//!
//! A group runs until [`Group::shutdown`] or until its storage fails; then [`GroupStatus::stopped`] says
//! why, reads and proposals are refused, and every proposal that still waited is settled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{ClientWriteError, InitializeError, RaftError};
use openraft::{BasicNode, ChangeMembers, Config, SnapshotPolicy};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, watch};
use tonic::Status;
use weir_env::planted::{Bug, planted};
use weir_env::{Env, TaskHandle};
use weir_store::{GroupId, GroupLog, SnapshotStore};

use crate::log_store::LogStore;
use crate::lost_tail::{LostTail, Question, Standing};
use crate::machine::{Applier, LogBytes, SharedMachine};
use crate::network::Network;
use crate::propose::{PROPOSAL_BYTES_MAX, Waiting};
use crate::read_index::ReadIndex;
use crate::reversion::Reversions;
use crate::snapshot_file::SnapshotFile;
use crate::snapshot_transfer::Receiver;
use crate::status::Publisher;
use crate::types::{LogId, Proposal, Raft, TypeConfig, Vote, why};
use crate::{
    Error, Fate, GroupStatus, NodeId, Nonce, Peers, ProposeError, ReadError, StateMachine, Watermark, runtime,
};

type AppendRequest = openraft::raft::AppendEntriesRequest<TypeConfig>;
type AppendAnswer = openraft::raft::StreamAppendResult<TypeConfig>;

/// The timing of elections, in milliseconds. All nodes of a cluster use the same.
///
/// A follower grants no vote for `election_max_ms` after it heard from a leader, and then waits another
/// `election_min_ms..election_max_ms` before it campaigns. A killed leader is thus replaced after
/// `election_max_ms` plus one draw plus a few round trips: 0.75 to 1.0 s by default, and within 1.4 s if the
/// first campaign fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaftTimings {
    /// Between a leader's heartbeats.
    pub heartbeat_ms: u64,
    /// The shortest election timeout.
    pub election_min_ms: u64,
    /// The longest election timeout; also how long a quorum's acknowledgement counts.
    pub election_max_ms: u64,
}

impl Default for RaftTimings {
    fn default() -> Self {
        Self { heartbeat_ms: 150, election_min_ms: 300, election_max_ms: 450 }
    }
}

impl RaftTimings {
    /// The longest election timeout.
    pub fn election_max(&self) -> Duration {
        Duration::from_millis(self.election_max_ms)
    }
}

/// What a group is made of.
pub struct GroupOptions {
    /// The group's number, the same on all nodes.
    pub id: GroupId,
    /// This node.
    pub me: NodeId,
    /// Elections.
    pub timings: RaftTimings,
    /// The group's part of the node's log.
    pub log: GroupLog,
    /// The group's snapshots.
    pub snapshots: SnapshotStore,
    /// Clients of the other nodes.
    pub peers: Peers,
    /// The edges of the process.
    pub env: Env,
    /// The replicated thing, empty.
    pub machine: Box<dyn StateMachine>,
    /// The voters as they were founded, for as long as the log does not name any.
    pub founders: BTreeSet<NodeId>,
    /// A snapshot is taken after this many bytes of log; then the log is purged but for a quarter of them.
    pub snapshot_log_bytes: u64,
}

/// Numbers for metrics that [`GroupStatus`] does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupMetrics {
    /// Proposals whose fate is open.
    pub waiting: usize,
    /// The highest index on this node's disk.
    pub durable: u64,
    /// The last applied index.
    pub applied: u64,
}

/// A running group. Clones are handles to the same group.
#[derive(Clone)]
pub struct Group(Arc<Inner>);

struct Inner {
    id: GroupId,
    timings: RaftTimings,
    peers: Peers,
    raft: Raft,
    waiting: Arc<Waiting>,
    machine: SharedMachine,
    status: watch::Receiver<GroupStatus>,
    matched: Arc<RwLock<Vec<(NodeId, u64)>>>,
    matched_version: watch::Receiver<u64>,
    log: GroupLog,
    durable_vote: Arc<Mutex<Option<Vote>>>,
    applied: Watermark,
    reads: Arc<ReadIndex>,
    receiver: Receiver,
    lost_tail: Arc<LostTail>,
    reversions: Arc<Reversions>,
    contact: crate::contact::Contact,
    tasks: Mutex<Vec<TaskHandle>>,
}

impl Group {
    /// Restores the newest snapshot and the log behind it as far as it was known to be committed, and joins
    /// the group's elections. A group that was never initialized waits for a leader to call.
    ///
    /// # Errors
    /// [`Error::Storage`]: the log or a snapshot cannot be read; this replica must not serve.
    pub async fn start(options: GroupOptions) -> Result<Group, Error> {
        let GroupOptions {
            id,
            me,
            timings,
            log,
            snapshots,
            peers,
            env,
            machine,
            founders,
            snapshot_log_bytes,
        } = options;
        runtime::seed_process(env.rng.u64());
        let config = config(id, timings, log.may_lose_tail())?;
        let (waiting, never_appended) = Waiting::new();
        let log_store = LogStore::new(log.clone(), waiting.clone());
        let durable_vote = log_store.durable_vote();
        let machine: SharedMachine = Arc::new(Mutex::new(machine));
        let log_bytes = Arc::new(LogBytes::new(snapshot_log_bytes));
        let applied = Watermark::new(0);
        let receiver = Receiver::new(snapshots.clone());
        SnapshotFile::check(&snapshots, log.state().purged)
            .await
            .map_err(|error| Error::Storage(error.to_string()))?;
        let applier = Applier::open(
            me,
            env.clone(),
            machine.clone(),
            snapshots,
            waiting.clone(),
            log_bytes.clone(),
            applied.clone(),
        )
        .await
        .map_err(|error| Error::Storage(error.to_string()))?;
        let lost_tail = LostTail::new(me, log.clone());
        let reversions = Arc::new(Reversions::new(id, log.may_lose_tail()));
        let network = Network {
            peers: peers.clone(),
            group: id,
            lost_tail: lost_tail.clone(),
            reversions: reversions.clone(),
        };
        let raft = Raft::new(me, Arc::new(config), network, log_store, applier)
            .await
            .map_err(|error| Error::Storage(why(&error)))?;

        let (status_sender, status) = watch::channel(GroupStatus::default());
        let (matched_sender, matched_version) = watch::channel(0);
        let matched = Arc::new(RwLock::new(Vec::new()));
        let reads = Arc::new(ReadIndex::default());
        let publisher = Publisher {
            me,
            quorum_timeout: timings.election_max(),
            applied: applied.clone(),
            status: status_sender,
            matched: matched.clone(),
            matched_version: matched_sender,
        };
        let spawn = |name, future| env.spawn.spawn(name, future);
        let end = End { waiting: waiting.clone(), machine: machine.clone(), reads: reads.clone() };
        let tasks = vec![
            spawn("raft reads", Box::pin(reads.clone().run(raft.clone(), timings.election_max()))),
            spawn(
                "raft lost tail",
                Box::pin(lost_tail.clone().restore(
                    raft.clone(),
                    peers.clone(),
                    founders,
                    Duration::from_millis(timings.election_min_ms),
                )),
            ),
            spawn("raft snapshots", Box::pin(take_snapshots(raft.clone(), log_bytes, status.clone()))),
        ];
        // Not among the tasks that shutdown aborts: they end by themselves, after the library.
        spawn("raft fates", Box::pin(settle_never_appended(never_appended, machine.clone())));
        let publish = publisher.run(raft.metrics(), raft.server_metrics());
        env.spawn.spawn(
            "raft status",
            Box::pin(async move {
                publish.await;
                end.settle_all();
            }),
        );
        Ok(Group(Arc::new(Inner {
            id,
            timings,
            peers,
            raft,
            waiting,
            machine,
            status,
            matched,
            matched_version,
            log,
            durable_vote,
            applied,
            reads,
            receiver,
            lost_tail,
            reversions,
            contact: crate::contact::Contact::default(),
            tasks: Mutex::new(tasks),
        })))
    }

    /// The group's number.
    pub fn id(&self) -> GroupId {
        self.0.id
    }

    /// Makes this node the first to know the group's members (number to peer address). Every member may do
    /// it, with the same list; where it was done before nothing happens.
    ///
    /// # Errors
    /// [`Error::Invalid`] when this node is not on the list, [`Error::Stopped`].
    pub async fn initialize(&self, members: BTreeMap<NodeId, String>) -> Result<(), Error> {
        let members: BTreeMap<_, _> =
            members.into_iter().map(|(node, addr)| (node, BasicNode { addr })).collect();
        match self.0.raft.initialize(members).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(RaftError::APIError(error)) => Err(Error::Invalid(error.to_string())),
            Err(RaftError::Fatal(fatal)) => Err(Error::Stopped(fatal.to_string())),
        }
    }

    /// Hands a batch to consensus without waiting for it.
    ///
    /// Called by one task a group: the order of calls is the order in the log. Once it returns `Ok`, exactly
    /// one of these follows: the machine applies the entry with this nonce, or it is told the nonce's
    /// [`Fate`]. A dropped future may or may not have handed the batch over; its fate is told all the same.
    ///
    /// # Errors
    /// Nothing was done and nothing will be told.
    pub async fn propose(&self, nonce: Nonce, payload: Bytes) -> Result<(), ProposeError> {
        {
            let status = self.0.status.borrow();
            if status.stopped.is_some() {
                return Err(ProposeError::Stopped);
            }
            if !status.is_leader {
                return Err(ProposeError::NotLeader { leader: status.leader });
            }
        }
        if payload.len() > PROPOSAL_BYTES_MAX {
            return Err(ProposeError::TooLarge { bytes: payload.len(), max: PROPOSAL_BYTES_MAX });
        }
        let ticket = self.0.waiting.submit(nonce);
        let proposal = Proposal { payload, nonce: Some(nonce) };
        // A library that has stopped drops the ticket, which settles the proposal.
        let _ = self.0.raft.client_write_ff(proposal, Some(ticket)).await;
        Ok(())
    }

    /// Proves that this node leads and answers the index that apply must reach before a read that is asked
    /// for now may look at the state. One quorum round serves all who wait for it.
    ///
    /// # Errors
    /// The leadership could not be proven; the read must not be answered here.
    pub async fn read_index(&self) -> Result<u64, ReadError> {
        self.0.reads.ask().await
    }

    /// The group's state, published when it changes.
    pub fn status(&self) -> watch::Receiver<GroupStatus> {
        self.0.status.clone()
    }

    /// The other voters and how far each has the log on its disk, as this leader knows it. Empty elsewhere.
    pub fn matched(&self) -> Vec<(NodeId, u64)> {
        self.0.matched.read().clone()
    }

    /// A version that changes whenever [`Group::matched`] does.
    pub fn matched_changed(&self) -> watch::Receiver<u64> {
        self.0.matched_version.clone()
    }

    /// The highest index on this node's disk.
    pub fn durable_index(&self) -> u64 {
        self.0.log.synced().map_or(0, |synced| synced.index)
    }

    /// How many other voters have the entry at `index` on their disks, asked now. For the modes in which
    /// [`Group::matched`] tells what they hold in memory; in mode `always` that is the same and costs nothing.
    pub async fn synced_elsewhere(&self, index: u64) -> usize {
        let voters = self.0.status.borrow().voters.iter().copied().collect();
        let timeout = Duration::from_millis(self.0.timings.election_min_ms);
        self.0.lost_tail.synced_elsewhere(&self.0.peers, &voters, index, timeout).await
    }

    /// The last leader this replica accepted, and what was committed then; `None` since the start.
    pub fn leader_contact(&self) -> Option<crate::LeaderContact> {
        self.0.contact.last()
    }

    /// Whether a power loss may have taken entries that this replica had confirmed. Until it is false again the
    /// replica helps to elect only leaders that certainly have what is left of them.
    pub fn tail_lost(&self) -> watch::Receiver<bool> {
        self.0.lost_tail.watch()
    }

    /// Says no to an election that this replica must not help with, see `lost_tail.rs`.
    pub(crate) fn may_elect(&self, last: Option<&LogId>) -> Result<(), Status> {
        self.0.lost_tail.may_elect(last).map_err(Status::unavailable)
    }

    #[cfg(test)]
    pub(crate) fn reversions(&self) -> &Reversions {
        &self.0.reversions
    }

    /// Tells a peer how far this replica is.
    pub(crate) async fn standing(&self, question: Question) -> Result<Standing, Status> {
        self.0.reversions.announced(question.from, question.lost);
        Standing::of(&self.0.raft, &self.0.log).await.map_err(|error| Status::unavailable(error.to_string()))
    }

    pub(crate) fn contact(&self) -> &crate::contact::Contact {
        &self.0.contact
    }

    /// How far the machine has applied the log.
    pub fn applied(&self) -> &Watermark {
        &self.0.applied
    }

    /// Hands leadership to `to` and returns once it leads.
    ///
    /// # Errors
    /// [`Error::NotLeader`]; [`Error::Invalid`] when `to` is not a voter or did not take over within two
    /// election timeouts. A leader that tried accepts no proposals until the next election.
    pub async fn transfer_leader(&self, to: NodeId) -> Result<(), Error> {
        let mut status = self.status();
        {
            let now = status.borrow();
            if !now.is_leader {
                return Err(Error::NotLeader { leader: now.leader });
            }
            if now.leader == Some(to) {
                return Ok(());
            }
            if !now.voters.contains(&to) {
                return Err(Error::Invalid(format!("node {to} is not a voter")));
            }
        }
        self.0.raft.trigger().transfer_leader(to).await.map_err(|error| Error::Stopped(error.to_string()))?;
        let taken = status.wait_for(|status| status.leader == Some(to) || status.stopped.is_some());
        match weir_env::time::timeout(self.0.timings.election_max() * 2, taken).await {
            Ok(Ok(status)) if status.leader == Some(to) => Ok(()),
            Ok(_) => Err(Error::Stopped("while handing over leadership".to_owned())),
            Err(_) => Err(Error::Invalid(format!("node {to} did not take over"))),
        }
    }

    /// Adds a node that receives the log without a vote. Returns once that is committed; it may still lag.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::Invalid`], [`Error::Stopped`].
    pub async fn add_learner(&self, node: NodeId, addr: String) -> Result<(), Error> {
        let added = self.0.raft.add_learner(node, BasicNode { addr }, false).await;
        added.map(drop).map_err(membership_error)
    }

    /// Makes exactly these nodes the voters, by joint consensus. All must be members already; voters that
    /// are left out go on as learners if `keep_as_learners`. Returns once the new membership is committed.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::Invalid`], [`Error::Stopped`].
    pub async fn change_voters(&self, voters: BTreeSet<NodeId>, keep_as_learners: bool) -> Result<(), Error> {
        let change = ChangeMembers::ReplaceAllVoters(voters);
        let changed = self.0.raft.change_membership(change, keep_as_learners).await;
        changed.map(drop).map_err(membership_error)
    }

    /// Asks for a snapshot now. [`GroupStatus::snapshot`] rises when it is on disk.
    pub async fn trigger_snapshot(&self) {
        // A stopped group takes none.
        let _ = self.0.raft.trigger().snapshot().await;
    }

    /// Numbers for metrics.
    pub fn metrics(&self) -> GroupMetrics {
        GroupMetrics {
            waiting: self.0.waiting.len(),
            durable: self.durable_index(),
            applied: self.0.applied.get(),
        }
    }

    /// Stops the group and settles what still waited. The log and the snapshots stay.
    pub async fn shutdown(&self) {
        let _ = self.0.raft.shutdown().await;
        for task in self.0.tasks.lock().drain(..) {
            task.abort();
        }
        End { waiting: self.0.waiting.clone(), machine: self.0.machine.clone(), reads: self.0.reads.clone() }
            .settle_all();
    }

    pub(crate) fn raft(&self) -> &Raft {
        &self.0.raft
    }

    /// Answers a leader's heartbeat.
    ///
    /// The library answers once everything it accepted before is on disk, which ties the proof of
    /// leadership, and with it every read, to the speed of this node's disk. A heartbeat carries no
    /// entries, so it is answered as soon as the library has taken it, provided that the vote it
    /// acknowledges is on disk and the log matches. Everything else is the library's to answer.
    pub(crate) async fn beat(&self, request: AppendRequest) -> Result<AppendAnswer, RaftError<TypeConfig>> {
        let (vote, prev, empty) = (request.vote, request.prev_log_id, request.entries.is_empty());
        let answer = self.0.raft.append_entries(request);
        let known = self.0.raft.with_raft_state(move |state| {
            let matches = |prev: LogId| state.log_ids.get(prev.index) == Some(prev);
            *state.vote_ref() == vote && prev.is_none_or(matches)
        });
        tokio::pin!(answer);
        // The request is handed over first, so the state is looked at after it took effect.
        let known = tokio::select! {
            biased;
            answer = &mut answer => return Ok(answer?.into_stream_result(prev, prev)),
            known = known => known.map_err(RaftError::Fatal)?,
        };
        if known && empty && *self.0.durable_vote.lock() == Some(vote) {
            return Ok(Ok(prev));
        }
        Ok(answer.await?.into_stream_result(prev, prev))
    }

    pub(crate) async fn receive_snapshot(&self, message: Bytes) -> Result<Bytes, Status> {
        self.0.receiver.receive(&self.0.raft, message).await
    }
}

fn config(id: GroupId, timings: RaftTimings, may_lose_tail: bool) -> Result<Config, Error> {
    let config = Config {
        cluster_name: format!("group {id}"),
        heartbeat_interval: timings.heartbeat_ms,
        election_timeout_min: timings.election_min_ms,
        election_timeout_max: timings.election_max_ms,
        // Only timeouts of ours bound a snapshot's transfer, chunk by chunk.
        install_snapshot_timeout: 3_600_000,
        max_payload_entries: 1024,
        // Snapshots and purging go by bytes, see `LogBytes`.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        // A leader that crashed after replicating and before its own sync would come back in the same
        // term without those entries, and reuse their positions for others.
        enable_leader_restore: Some(planted(Bug::LeaderRestore)),
        enable_pre_vote: Some(true),
        // A replica that lost its log's tail in a power loss (possible in the modes that do not sync every
        // batch) is sent that tail again; otherwise the leader would take it for replicated for ever. Who may
        // claim that is decided in `reversion.rs`.
        allow_log_reversion: Some(may_lose_tail),
        ..Config::default()
    };
    config.validate().map_err(|error| Error::Invalid(error.to_string()))
}

fn membership_error(error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> Error {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            Error::NotLeader { leader: forward.leader_id }
        }
        RaftError::APIError(error) => Error::Invalid(error.to_string()),
        RaftError::Fatal(fatal) => Error::Stopped(fatal.to_string()),
    }
}

/// What is owed to waiting callers when the group is over.
struct End {
    waiting: Arc<Waiting>,
    machine: SharedMachine,
    reads: Arc<ReadIndex>,
}

impl End {
    fn settle_all(&self) {
        self.reads.stop();
        let fates = self.waiting.drain();
        let mut machine = self.machine.lock();
        for (nonce, fate) in fates {
            machine.settle(nonce, fate);
        }
    }
}

async fn settle_never_appended(mut nonces: mpsc::UnboundedReceiver<Nonce>, machine: SharedMachine) {
    while let Some(nonce) = nonces.recv().await {
        machine.lock().settle(nonce, Fate::NotDone);
    }
}

/// Takes a snapshot when enough log has gathered, and purges the log behind each new one.
async fn take_snapshots(raft: Raft, log_bytes: Arc<LogBytes>, mut status: watch::Receiver<GroupStatus>) {
    let mut known = status.borrow().snapshot;
    loop {
        tokio::select! {
            () = log_bytes.due.notified() => {
                if raft.trigger().snapshot().await.is_err() {
                    return;
                }
            }
            taken = next_snapshot(&mut status, known) => {
                let Some(taken) = taken else { return };
                known = taken;
                if let Some(upto) = log_bytes.snapshot_taken(known)
                    && raft.trigger().purge_log(upto).await.is_err()
                {
                    return;
                }
            }
        }
    }
}

async fn next_snapshot(status: &mut watch::Receiver<GroupStatus>, known: u64) -> Option<u64> {
    let status = status.wait_for(|status| status.snapshot > known || status.stopped.is_some()).await.ok()?;
    (status.snapshot > known).then_some(status.snapshot)
}
