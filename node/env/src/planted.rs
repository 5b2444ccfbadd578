//! Bugs that the simulator, and the tests of real processes, plant in a running server, to show that its checks see them.
//!
//! Builds without debug assertions, release builds among them, have none of this: [`planted`] is `false` there.

use std::sync::atomic::{AtomicU8, Ordering};

/// A bug, named by what goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A write is answered before a majority has it.
    ReplyBeforeCommit = 1,
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
    /// The log answers a sync and makes none.
    NoSync,
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
    /// Every bug by its name.
    pub const ALL: [(&str, Bug); 23] = [
        ("reply-before-commit", Bug::ReplyBeforeCommit),
        ("clock-in-apply", Bug::ClockInApply),
        ("unordered-apply", Bug::UnorderedApply),
        ("wait-counts-self", Bug::WaitCountsSelf),
        ("wait-counts-unsynced", Bug::WaitCountsUnsynced),
        ("no-read-index", Bug::NoReadIndex),
        ("snapshot-without-pending", Bug::SnapshotWithoutPending),
        ("snapshot-without-dedup", Bug::SnapshotWithoutDedup),
        ("vote-in-memory", Bug::VoteInMemory),
        ("torn-tail", Bug::TornTail),
        ("serve-the-gone", Bug::ServeTheGone),
        ("leader-restore", Bug::LeaderRestore),
        ("forget-noack", Bug::ForgetNoack),
        ("purge-too-much", Bug::PurgeTooMuch),
        ("done-though-overwritten", Bug::DoneThoughOverwritten),
        ("fsync", Bug::NoSync),
        ("queue-without-bound", Bug::QueueWithoutBound),
        ("deadline-starts-again", Bug::DeadlineStartsAgain),
        ("half-exec", Bug::HalfExec),
        ("expiry-by-clock", Bug::ExpiryByClock),
        ("forget-a-group", Bug::ForgetAGroup),
        ("snapshot-without-released", Bug::SnapshotWithoutReleased),
        ("forward-again", Bug::ForwardAgain),
    ];
}

static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants `bug` in this process, or takes it out. `false` where bugs are compiled out.
pub fn plant(bug: Option<Bug>) -> bool {
    PLANTED.store(bug.map_or(0, |bug| bug as u8), Ordering::Relaxed);
    cfg!(debug_assertions)
}

/// Whether `bug` is planted.
#[inline]
pub fn planted(bug: Bug) -> bool {
    cfg!(debug_assertions) && PLANTED.load(Ordering::Relaxed) == bug as u8
}
