//! Parked readers of all kinds while their leaders die, stand still or hand over, and while they themselves go away.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Fault, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    plan.crowd.takers = 3;
    plan.crowd.quitters = rng.random_range(3..=5);
    plan.crowd.producers = 2;
    plan.crowd.pause_ms_max = 240;
    let mut at_ms = rng.random_range(1500..3500);
    for _ in 0..rng.random_range(1..=3u32) {
        let who = Who::draw(rng, plan.nodes, plan.shards);
        let ms = rng.random_range(200..1500);
        let fault = match rng.random_range(0..4u32) {
            0 => Fault::Crash { who, how: Crash::draw(rng), down_ms: ms },
            1 => Fault::Pause { who, ms },
            2 => Fault::Transfer { shard: rng.random_range(0..plan.shards) },
            _ => Fault::CutClients,
        };
        plan.strike(at_ms, fault);
        at_ms += ms + rng.random_range(2500..4000);
    }
}
