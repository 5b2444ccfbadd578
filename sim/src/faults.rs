//! What goes wrong and when, drawn from the seed before the run so that it can be read first.

use std::time::Duration;

use rand::{Rng, rngs::StdRng};

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The leader of a shard dies and comes back.
    CrashLeader { shard: u32, how: Crash, down_ms: u64 },
    /// All machines lose power together; each comes back on its own.
    PowerLossOfAll { down_ms: Vec<u64> },
    /// A node's wall clock jumps to this far from the true time.
    ClockJump { node: usize, skew_ms: i64 },
}

/// The way a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// Between two steps.
    Kill,
    /// In the middle of its disk work, after some more changes.
    KillAtChange(u64),
    /// With the machine's power, between two steps.
    Power,
    /// With the machine's power, in the middle of its disk work.
    PowerAtChange(u64),
}

/// A fault and the time after the start of the work at which it strikes.
pub(crate) type Scheduled = (Duration, Fault);

/// The smoke story: a leader crash, a power loss of all, maybe a leader crash again, and maybe a
/// clock that jumps at some moment.
pub(crate) fn smoke_schedule(rng: &mut StdRng, nodes: usize, shards: u32) -> Vec<Scheduled> {
    let mut at_ms = 0;
    let mut schedule = Vec::new();
    let crash = |rng: &mut StdRng| Fault::CrashLeader {
        shard: rng.random_range(0..shards),
        how: crash(rng),
        down_ms: rng.random_range(100..2500),
    };
    at_ms += rng.random_range(300..1500);
    schedule.push((at_ms, crash(rng)));
    // From well after the restart to before it.
    at_ms += rng.random_range(200..4000);
    let down_ms = (0..nodes).map(|_| rng.random_range(50..1500)).collect();
    schedule.push((at_ms, Fault::PowerLossOfAll { down_ms }));
    if rng.random_bool(0.5) {
        at_ms += rng.random_range(500..4000);
        schedule.push((at_ms, crash(rng)));
    }
    if rng.random_bool(0.5) {
        let skew_ms = rng.random_range(-5000..5000);
        let jump = Fault::ClockJump { node: rng.random_range(0..nodes), skew_ms };
        schedule.push((rng.random_range(0..=at_ms), jump));
        schedule.sort_by_key(|(at_ms, _)| *at_ms);
    }
    schedule.into_iter().map(|(at_ms, fault)| (Duration::from_millis(at_ms), fault)).collect()
}

fn crash(rng: &mut StdRng) -> Crash {
    match rng.random_range(0..4u32) {
        0 => Crash::Kill,
        1 => Crash::KillAtChange(rng.random_range(0..12)),
        2 => Crash::Power,
        _ => Crash::PowerAtChange(rng.random_range(0..12)),
    }
}
