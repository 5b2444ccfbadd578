//! What can go wrong, as data that a seed draws and a file keeps.

use std::fmt;

use rand::{Rng, rngs::StdRng};
use serde::{Deserialize, Serialize};

use crate::disk::Changes;

/// One thing that goes wrong. Times are milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fault {
    /// A process or machine dies and comes back.
    Crash { who: Who, how: Crash, down_ms: u64 },
    /// All machines lose power together; each comes back on its own.
    PowerLossOfAll { down_ms: Vec<u64> },
    /// All processes die together.
    KillAll { down_ms: Vec<u64> },
    /// A node dies, and a file of its is damaged before it comes back. It may have to stay out.
    Damage { who: Who, what: Damage, down_ms: u64 },
    /// A node dies and comes back with an empty disk. It has to stay out.
    Wipe { who: Who, down_ms: u64 },
    /// The disk is full for a while.
    DiskFull { who: Who, ms: u64 },
    /// After some more syncs one fails; the node has to stop, and is started again.
    FailSync { who: Who, after: u64, down_ms: u64 },
    /// Every disk step takes up to this long.
    SlowDisk { who: Who, delay_ms_max: u64, ms: u64 },
    /// Links are cut for a while.
    Cut { cut: Cut, how: Loss, ms: u64 },
    /// Messages take up to this long.
    Delay { delay_ms_max: u64, ms: u64 },
    /// A node stands still, as under SIGSTOP.
    Pause { who: Who, ms: u64 },
    /// A node's wall clock jumps to this far from the true time.
    ClockJump { who: Who, skew_ms: i64 },
    /// Leadership of a shard is handed to another node.
    Transfer { shard: u32 },
    /// A follower is cut off until it needs a snapshot, and dies while it installs one.
    InterruptedInstall { shard: u32, behind_ms: u64, then_ms: u64, how: Crash, down_ms: u64 },
    /// All connections of clients break.
    CutClients,
}

/// Which node. A leader is looked up when the fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Who {
    Leader(u32),
    Follower(u32),
    Node(usize),
}

/// The way a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Crash {
    /// Between two steps.
    Kill,
    /// In the middle of its disk work, after some more changes.
    KillAtChange(u64),
    /// The same, but after some more of the [rare ones](crate::disk::Changes::Rare).
    KillAtRareChange(u64),
    /// With the machine's power, between two steps.
    Power,
    /// With the machine's power, in the middle of its disk work.
    PowerAtChange(u64),
    /// The same, but after some more of the [rare ones](crate::disk::Changes::Rare).
    PowerAtRareChange(u64),
}

/// What happens to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Damage {
    FlippedBit,
    CutShort,
}

/// Which links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cut {
    /// A node from everybody.
    Isolated(Who),
    /// A node from the other nodes; clients still reach it.
    FromNodes(Who),
    /// What a node sends to other nodes is lost.
    Mute(Who),
    /// What other nodes send to a node is lost.
    Deaf(Who),
    /// Two nodes from each other; both still see the third.
    Bridge(usize, usize),
    /// A node from the clients.
    FromClients(Who),
}

/// What a cut does to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Loss {
    /// They are delivered when the cut is over, as by a network that resends. Both directions.
    Held,
    /// They are gone, and with them the connections that they belonged to.
    Lost,
}

impl Fault {
    /// Time until it is over, apart from a node that stays out.
    pub(crate) fn lasts_ms(&self) -> u64 {
        match self {
            Self::Crash { how, down_ms, .. } => how.waits_ms() + down_ms,
            Self::Damage { down_ms, .. } | Self::Wipe { down_ms, .. } => *down_ms,
            Self::FailSync { down_ms, .. } => *down_ms + 500,
            Self::PowerLossOfAll { down_ms } | Self::KillAll { down_ms } => {
                down_ms.iter().copied().max().unwrap_or(0)
            }
            Self::DiskFull { ms, .. }
            | Self::SlowDisk { ms, .. }
            | Self::Cut { ms, .. }
            | Self::Delay { ms, .. }
            | Self::Pause { ms, .. } => *ms,
            Self::InterruptedInstall { behind_ms, then_ms, how, down_ms, .. } => {
                behind_ms + then_ms + how.waits_ms() + down_ms
            }
            Self::ClockJump { .. } | Self::Transfer { .. } | Self::CutClients => 0,
        }
    }

    /// Its row in the table of coverage.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Crash { who, how, .. } => format!("{} {}", how.name(), who.role()),
            Self::PowerLossOfAll { .. } => "power loss of all".to_owned(),
            Self::KillAll { .. } => "kill all".to_owned(),
            Self::Damage { what: Damage::FlippedBit, .. } => "flipped bit".to_owned(),
            Self::Damage { what: Damage::CutShort, .. } => "file cut short".to_owned(),
            Self::Wipe { .. } => "wiped disk".to_owned(),
            Self::DiskFull { .. } => "disk full".to_owned(),
            Self::FailSync { .. } => "failed sync".to_owned(),
            Self::SlowDisk { .. } => "slow disk".to_owned(),
            Self::Cut { cut, how, .. } => format!("{} ({})", cut.name(), how.name()),
            Self::Delay { .. } => "delay".to_owned(),
            Self::Pause { who, .. } => format!("pause {}", who.role()),
            Self::ClockJump { skew_ms, .. } if *skew_ms < 0 => "clock back".to_owned(),
            Self::ClockJump { .. } => "clock forward".to_owned(),
            Self::Transfer { .. } => "transfer".to_owned(),
            Self::InterruptedInstall { .. } => "install cut".to_owned(),
            Self::CutClients => "clients cut".to_owned(),
        }
    }
}

impl Who {
    fn role(self) -> &'static str {
        match self {
            Self::Leader(_) => "leader",
            Self::Follower(_) => "follower",
            Self::Node(_) => "node",
        }
    }

    /// A leader mostly, or a follower, or any node.
    pub(crate) fn draw(rng: &mut StdRng, nodes: usize, shards: u32) -> Self {
        match rng.random_range(0..10u32) {
            0..6 => Self::Leader(rng.random_range(0..shards)),
            6..9 => Self::Follower(rng.random_range(0..shards)),
            _ => Self::Node(rng.random_range(0..nodes)),
        }
    }
}

impl Crash {
    pub(crate) fn draw(rng: &mut StdRng) -> Self {
        match (rng.random_range(0..6u32), Changes::draw(rng, 16)) {
            (0, _) => Self::Kill,
            (1, _) => Self::Power,
            (2 | 3, (Changes::All, changes)) => Self::KillAtChange(changes),
            (2 | 3, (Changes::Rare, changes)) => Self::KillAtRareChange(changes),
            (_, (Changes::All, changes)) => Self::PowerAtChange(changes),
            (_, (Changes::Rare, changes)) => Self::PowerAtRareChange(changes),
        }
    }

    /// Whether it dies between two steps, and not when its disk comes to something.
    pub(crate) fn is_at_once(self) -> bool {
        matches!(self, Self::Kill | Self::Power)
    }

    /// How long a node may take to come to the change that it dies at, beyond the time that it is down.
    pub(crate) fn waits_ms(self) -> u64 {
        match self {
            Self::KillAtRareChange(_) | Self::PowerAtRareChange(_) => 2000,
            _ => 0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kill | Self::KillAtChange(_) | Self::KillAtRareChange(_) => "kill",
            Self::Power | Self::PowerAtChange(_) | Self::PowerAtRareChange(_) => "power off",
        }
    }
}

impl Cut {
    fn name(self) -> &'static str {
        match self {
            Self::Isolated(_) => "isolated",
            Self::FromNodes(_) => "cut from nodes",
            Self::Mute(_) => "mute",
            Self::Deaf(_) => "deaf",
            Self::Bridge(..) => "bridge",
            Self::FromClients(_) => "cut from clients",
        }
    }

    /// Any cut; those of one direction only where messages are lost.
    pub(crate) fn draw(rng: &mut StdRng, how: Loss, nodes: usize, shards: u32) -> Self {
        let who = Who::draw(rng, nodes, shards);
        let first = rng.random_range(0..nodes);
        let second = (first + rng.random_range(1..nodes)) % nodes;
        match (rng.random_range(0..6u32), how) {
            (0, _) => Self::Isolated(who),
            (1, _) => Self::Bridge(first, second),
            (2, _) => Self::FromClients(who),
            (3, Loss::Lost) => Self::Mute(who),
            (4, Loss::Lost) => Self::Deaf(who),
            _ => Self::FromNodes(who),
        }
    }
}

impl Loss {
    fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Lost => "lost",
        }
    }

    pub(crate) fn draw(rng: &mut StdRng) -> Self {
        if rng.random_bool(0.5) { Self::Held } else { Self::Lost }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
