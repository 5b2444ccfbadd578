//! Leaders and followers die at any point of their work, one after the other and sometimes two at once.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Fault, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    let mut at_ms = rng.random_range(100..800);
    for _ in 0..rng.random_range(3..=6u32) {
        let who = Who::draw(rng, plan.nodes, plan.shards);
        let down_ms = rng.random_range(50..2000);
        plan.strike(at_ms, Fault::Crash { who, how: Crash::draw(rng), down_ms });
        // Sometimes before the last one is back.
        at_ms += if rng.random_bool(0.3) {
            rng.random_range(0..400)
        } else {
            down_ms + rng.random_range(200..1500)
        };
    }
}
