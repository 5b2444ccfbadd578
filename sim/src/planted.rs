//! Planted bugs: what a check is worth is what it catches. Each bug has a scenario that has to find it within a number
//! of seeds, and the invariants that may say so.

use std::{collections::BTreeSet, process::ExitCode};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use weir_env::planted::{self, Bug as Inside};

use crate::{runs, scenarios::Scenario};

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Bug {
    /// The disk answers every sync at once and carries nothing over.
    Fsync,
    /// Nodes do not learn that power failed.
    Boot,
    /// A write is answered before a majority has it.
    ReplyBeforeCommit,
    /// Apply takes the time from the node's clock.
    ClockInApply,
    /// Apply goes through a batch in an order of the node's own.
    UnorderedApply,
    /// WAIT counts the node that answers.
    WaitCountsSelf,
    /// WAIT counts nodes that were sent the write.
    WaitCountsUnsynced,
    /// Leader reads take no quorum round.
    NoReadIndex,
    /// Pending lists are left out of snapshots.
    SnapshotWithoutPending,
    /// What streams remember of idempotent adds is left out of snapshots.
    SnapshotWithoutDedup,
    /// A client repeats an idempotent add of unknown end as a plain one.
    RetryWithoutDedup,
    /// Votes are not written down.
    VoteInMemory,
    /// Recovery takes a torn batch for whole.
    TornTail,
    /// A parked reader is served after its client has gone.
    ServeTheGone,
    /// A leader that restarts goes on leading its term.
    LeaderRestore,
    /// A parked reader's NOACK is forgotten.
    ForgetNoack,
    /// The log is purged beyond the snapshot.
    PurgeTooMuch,
    /// An old leader answers done for what another entry overwrote.
    DoneThoughOverwritten,
    /// The queue of a shard takes more than its bound.
    QueueWithoutBound,
    /// A reader that is woken for nothing waits its whole time again.
    DeadlineStartsAgain,
    /// A replica that did not propose a transaction leaves its last command out.
    HalfExec,
    /// A read hides keys by the node's own wall clock.
    ExpiryByClock,
    /// DELREF forgets all groups but the first.
    ForgetAGroup,
    /// Entries that were given back are left out of snapshots.
    SnapshotWithoutReleased,
    /// What was forwarded to a leader and has no answer is forwarded once more.
    ForwardAgain,
}

impl Bug {
    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Plants it in this process's nodes.
    pub(crate) fn plant(self) {
        if let Some(bug) = self.inside() {
            planted::plant(Some(bug));
        }
    }

    /// Those inside the server are compiled out of some builds.
    pub(crate) fn can_be_planted(self) -> bool {
        self.inside().is_none() || planted::plant(None)
    }

    /// `None`: it is in the simulated disk, or in a client.
    fn inside(self) -> Option<Inside> {
        Some(match self {
            Self::Fsync | Self::Boot | Self::RetryWithoutDedup => return None,
            Self::ReplyBeforeCommit => Inside::ReplyBeforeCommit,
            Self::ClockInApply => Inside::ClockInApply,
            Self::UnorderedApply => Inside::UnorderedApply,
            Self::WaitCountsSelf => Inside::WaitCountsSelf,
            Self::WaitCountsUnsynced => Inside::WaitCountsUnsynced,
            Self::NoReadIndex => Inside::NoReadIndex,
            Self::SnapshotWithoutPending => Inside::SnapshotWithoutPending,
            Self::SnapshotWithoutDedup => Inside::SnapshotWithoutDedup,
            Self::VoteInMemory => Inside::VoteInMemory,
            Self::TornTail => Inside::TornTail,
            Self::ServeTheGone => Inside::ServeTheGone,
            Self::LeaderRestore => Inside::LeaderRestore,
            Self::ForgetNoack => Inside::ForgetNoack,
            Self::PurgeTooMuch => Inside::PurgeTooMuch,
            Self::DoneThoughOverwritten => Inside::DoneThoughOverwritten,
            Self::QueueWithoutBound => Inside::QueueWithoutBound,
            Self::DeadlineStartsAgain => Inside::DeadlineStartsAgain,
            Self::HalfExec => Inside::HalfExec,
            Self::ExpiryByClock => Inside::ExpiryByClock,
            Self::ForgetAGroup => Inside::ForgetAGroup,
            Self::SnapshotWithoutReleased => Inside::SnapshotWithoutReleased,
            Self::ForwardAgain => Inside::ForwardAgain,
        })
    }

    /// The scenario that has to find it.
    pub(crate) fn scenario(self) -> Scenario {
        match self {
            Self::Fsync => Scenario::PowerLoss,
            Self::Boot => Scenario::Power,
            Self::ReplyBeforeCommit => Scenario::Failover,
            Self::ClockInApply | Self::UnorderedApply => Scenario::Smoke,
            Self::WaitCountsSelf | Self::WaitCountsUnsynced => Scenario::Wait,
            Self::NoReadIndex | Self::DoneThoughOverwritten => Scenario::Partition,
            Self::SnapshotWithoutPending | Self::PurgeTooMuch => Scenario::SnapshotCatchUp,
            Self::SnapshotWithoutDedup | Self::RetryWithoutDedup => Scenario::ExactlyOnce,
            Self::VoteInMemory | Self::TornTail => Scenario::PowerLoss,
            Self::ServeTheGone | Self::ForgetNoack | Self::DeadlineStartsAgain => Scenario::Blocking,
            Self::QueueWithoutBound => Scenario::Overload,
            Self::LeaderRestore => Scenario::PowerLoss,
            Self::HalfExec => Scenario::Transactions,
            Self::ExpiryByClock => Scenario::Expiry,
            Self::ForgetAGroup => Scenario::Refs,
            Self::SnapshotWithoutReleased => Scenario::Nack,
            Self::ForwardAgain => Scenario::PlainPort,
        }
    }

    /// Invariants that describe it. Anything else that fails is another bug.
    pub(crate) fn caught_by(self) -> &'static [&'static str] {
        const LOST: [&str; 7] = [
            "adds_are_kept",
            "acks_are_final",
            "nothing_invented",
            "nothing_skipped",
            "reads_are_fresh",
            "equal_state_at_equal_index",
            "linearizable",
        ];
        match self {
            Self::Fsync | Self::TornTail => &[
                "log",
                "adds_are_kept",
                "acks_are_final",
                "nothing_invented",
                "nothing_skipped",
                "reads_are_fresh",
                "equal_state_at_equal_index",
                "linearizable",
                "nothing_panics",
                "damaged_nodes_stop",
                "wait_is_on_disk",
                "log_matching",
                "one_leader_per_term",
                "delivered_once",
            ],
            Self::Boot => &["raft_group"],
            Self::ReplyBeforeCommit => &LOST,
            Self::DoneThoughOverwritten | Self::LeaderRestore => &[
                "adds_are_kept",
                "equal_state_at_equal_index",
                "log_matching",
                "nothing_invented",
                "one_leader_per_term",
            ],
            Self::ClockInApply | Self::UnorderedApply => {
                &["equal_state_at_equal_index", "pipelines_keep_order", "ids_increase"]
            }
            Self::WaitCountsSelf => &["waits_are_honest", "wait_is_on_disk"],
            Self::WaitCountsUnsynced => &["wait_is_on_disk", "waits_are_honest"],
            Self::NoReadIndex => &["reads_are_fresh", "linearizable"],
            Self::SnapshotWithoutPending => &[
                "equal_state_at_equal_index",
                "nothing_skipped",
                "refusals_did_nothing",
                "deliveries_are_counted",
            ],
            Self::SnapshotWithoutDedup => &["nothing_invented", "equal_state_at_equal_index"],
            Self::RetryWithoutDedup => &["nothing_invented"],
            Self::VoteInMemory => &["one_leader_per_term"],
            Self::ServeTheGone => &["gone_clients_get_nothing"],
            Self::ForgetNoack => &["noack_leaves_nothing"],
            Self::QueueWithoutBound => &["bounds_are_kept"],
            Self::DeadlineStartsAgain => &["answers_are_in_time"],
            Self::HalfExec => &["surface", "equal_state_at_equal_index", "transactions_are_whole"],
            Self::ExpiryByClock => &["ends_in_time"],
            Self::ForgetAGroup => &["surface"],
            Self::SnapshotWithoutReleased => &["surface", "equal_state_at_equal_index"],
            Self::ForwardAgain => &["nothing_invented", "surface", "pipelines_keep_order"],
            Self::PurgeTooMuch => &[
                "nothing_panics",
                "damaged_nodes_stop",
                "adds_are_kept",
                "replicas_converge",
                "heals_in_time",
            ],
        }
    }
}

/// Plants each bug and looks for a seed that catches it.
pub(crate) fn run(only: Option<Bug>, seeds_max: u64, jobs: usize) -> ExitCode {
    let bugs: Vec<Bug> = only.map_or_else(|| Bug::value_variants().to_vec(), |bug| vec![bug]);
    if !bugs.iter().all(|bug| bug.can_be_planted()) {
        eprintln!("bugs are compiled out of this build: use the profile ci or dev");
        return ExitCode::from(2);
    }
    println!("{:<28}{:<22}{:>6}  caught by", "bug", "scenario", "seeds");
    let mut missed = 0;
    for bug in bugs {
        let (mut tried, mut caught, mut wrong) = (0, None, BTreeSet::new());
        let end = runs::all(
            1..=seeds_max,
            jobs,
            |seed| runs::one_seed(bug.scenario(), *seed, Some(bug)),
            |_, told| {
                tried += 1;
                let broken: BTreeSet<String> =
                    told.violations.into_iter().map(|seen| seen.invariant).collect();
                caught = broken.iter().find(|name| bug.caught_by().contains(&name.as_str())).cloned();
                wrong.extend(broken);
                caught.is_none()
            },
        );
        if let Err(error) = end {
            eprintln!("cannot run a seed: {error}");
            return ExitCode::from(2);
        }
        let by = caught.unwrap_or_else(|| {
            missed += 1;
            let others: Vec<String> = wrong.into_iter().collect();
            if others.is_empty() { "NOT CAUGHT".to_owned() } else { format!("ONLY {}", others.join(", ")) }
        });
        println!("{:<28}{:<22}{tried:>6}  {by}", bug.name(), bug.scenario().name());
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
