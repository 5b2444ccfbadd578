//! Everything at once, drawn at random.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Cut, Damage, Fault, Loss, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    plan.nodes = if rng.random_bool(0.15) { 5 } else { 3 };
    plan.crowd.takers = rng.random_range(0..=2);
    plan.crowd.quitters = rng.random_range(0..=3);
    plan.crowd.waiters = rng.random_range(0..=2);
    plan.crowd.pause_ms_max = rng.random_range(20..240);
    if rng.random_bool(0.5) {
        plan.set("snapshot-log-bytes", rng.random_range(8..64) * 1024);
    }
    let mut at_ms = rng.random_range(200..800);
    for _ in 0..rng.random_range(4..=8u32) {
        let fault = fault(plan, rng);
        let lasts_ms = fault.lasts_ms();
        plan.strike(at_ms, fault);
        at_ms += if rng.random_bool(0.4) { lasts_ms / 3 } else { lasts_ms } + rng.random_range(100..1200);
    }
}

fn fault(plan: &Plan, rng: &mut StdRng) -> Fault {
    let who = Who::draw(rng, plan.nodes, plan.shards);
    let shard = rng.random_range(0..plan.shards);
    let ms = rng.random_range(100..2000);
    let down_ms = (0..plan.nodes).map(|_| rng.random_range(20..1500)).collect();
    match rng.random_range(0..20u32) {
        0..5 => Fault::Crash { who, how: Crash::draw(rng), down_ms: ms },
        5 | 6 => Fault::PowerLossOfAll { down_ms },
        7 => Fault::KillAll { down_ms },
        8 | 9 => {
            let how = Loss::draw(rng);
            Fault::Cut { cut: Cut::draw(rng, how, plan.nodes, plan.shards), how, ms }
        }
        10 => Fault::Delay { delay_ms_max: rng.random_range(10..100), ms },
        11 => Fault::Pause { who, ms },
        12 => Fault::ClockJump { who, skew_ms: rng.random_range(-10_000..10_000) },
        13 => Fault::SlowDisk { who, delay_ms_max: rng.random_range(10..400), ms },
        14 => Fault::Transfer { shard },
        15 => Fault::InterruptedInstall {
            shard,
            behind_ms: ms,
            then_ms: rng.random_range(0..600),
            how: Crash::draw(rng),
            down_ms: rng.random_range(50..800),
        },
        16 => Fault::CutClients,
        17 => Fault::DiskFull { who, ms },
        18 => Fault::FailSync { who, after: rng.random_range(0..20), down_ms: ms },
        _ => match rng.random_range(0..3u32) {
            0 => Fault::Damage { who, what: Damage::FlippedBit, down_ms: ms },
            1 => Fault::Damage { who, what: Damage::CutShort, down_ms: ms },
            _ => Fault::Wipe { who, down_ms: ms },
        },
    }
}
