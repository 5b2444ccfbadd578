//! Bugs that are planted in every node of a run, to show that rounds and checks see them: which faults bring each
//! out, and which invariants may say so. Those that only a look into the nodes reveals are the simulator's.

use super::fault::Fault;

/// A bug that a run has to catch.
#[derive(Debug)]
pub struct Planted {
    /// As `WEIR_TEST_BUG` names it.
    pub bug: &'static str,
    /// What brings it out.
    pub faults: &'static [Fault],
    /// Who may catch it. Anything else that is violated is another bug.
    pub caught_by: &'static [&'static str],
}

const LOST: &[&str] =
    &["adds_are_kept", "acks_are_final", "nothing_invented", "nothing_skipped", "reads_are_fresh"];

/// All of them.
pub const ALL: &[Planted] = &[
    Planted { bug: "fsync", faults: &[Fault::PowerLoss], caught_by: LOST },
    Planted {
        bug: "reply-before-commit",
        faults: &[Fault::IsolateLeader, Fault::KillLeader],
        caught_by: LOST,
    },
    Planted {
        bug: "no-read-index",
        faults: &[Fault::IsolateLeader, Fault::PauseAndIsolate],
        caught_by: &["reads_are_fresh"],
    },
    Planted { bug: "done-though-overwritten", faults: &[Fault::IsolateLeader], caught_by: LOST },
    Planted {
        bug: "clock-in-apply",
        faults: &[Fault::KillLeader, Fault::ClocksApart],
        caught_by: &[
            "adds_are_kept",
            "nothing_invented",
            "ids_increase",
            "nothing_skipped",
            "reads_are_fresh",
        ],
    },
    Planted { bug: "unordered-apply", faults: &[Fault::KillLeader], caught_by: LOST },
    Planted { bug: "wait-counts-self", faults: &[Fault::KillMajority], caught_by: &["waits_are_honest"] },
    Planted { bug: "vote-in-memory", faults: &[Fault::PowerFlickers], caught_by: &["nodes_come_back"] },
    Planted { bug: "snapshot-without-pending", faults: &[Fault::PowerLoss], caught_by: LOST },
    Planted {
        bug: "purge-too-much",
        faults: &[Fault::PowerLoss, Fault::IsolateLeader],
        caught_by: &["nodes_come_back", "adds_are_kept", "nothing_invented"],
    },
];

/// The bug of this name.
pub fn find(bug: &str) -> Option<&'static Planted> {
    ALL.iter().find(|planted| planted.bug == bug)
}

/// All names.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|planted| planted.bug).collect()
}
