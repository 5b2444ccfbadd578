//! Many consumers take, acknowledge and claim while nodes die alone and together.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Fault, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    plan.crowd.consumers = rng.random_range(5..=8);
    plan.crowd.readers = 0;
    let mut at_ms = rng.random_range(500..1500);
    for _ in 0..rng.random_range(2..=4u32) {
        let ms = rng.random_range(100..1500);
        let down_ms = (0..plan.nodes).map(|_| rng.random_range(50..1200)).collect();
        let fault = match rng.random_range(0..5u32) {
            0 => Fault::KillAll { down_ms },
            1 => Fault::PowerLossOfAll { down_ms },
            _ => {
                let who = Who::draw(rng, plan.nodes, plan.shards);
                Fault::Crash { who, how: Crash::draw(rng), down_ms: ms }
            }
        };
        plan.strike(at_ms, fault);
        at_ms += ms + rng.random_range(300..1500);
    }
}
