//! WAIT while followers are slow, cut off, paused and dying: no number may be larger than the truth.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Cut, Fault, Loss, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    plan.crowd.waiters = rng.random_range(3..=5);
    plan.crowd.pause_ms_max = 200;
    let mut at_ms = rng.random_range(300..800);
    for _ in 0..rng.random_range(3..=5u32) {
        let shard = rng.random_range(0..plan.shards);
        let who = if rng.random_bool(0.7) { Who::Follower(shard) } else { Who::Leader(shard) };
        let ms = rng.random_range(200..1500);
        let fault = match rng.random_range(0..5u32) {
            0 | 1 => Fault::SlowDisk { who, delay_ms_max: rng.random_range(20..300), ms },
            2 => Fault::Crash { who, how: Crash::draw(rng), down_ms: ms },
            3 => Fault::Pause { who, ms },
            _ => Fault::Cut { cut: Cut::FromNodes(who), how: Loss::draw(rng), ms },
        };
        plan.strike(at_ms, fault);
        at_ms += ms + rng.random_range(200..1000);
    }
}
