//! Values that end, while leaders die and wall clocks jump.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Fault, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    plan.crowd.timed = rng.random_range(3..=5);
    plan.crowd.pause_ms_max = 100;
    // The cluster goes by the majority of its clocks: one may be off by any amount, the others by what settings allow.
    let wrong = plan.seed as usize % plan.nodes;
    for _ in 0..rng.random_range(3..=6u32) {
        let at_ms = rng.random_range(200..6000);
        let (node, far) = match rng.random_bool(0.6) {
            true => (wrong, 10_000),
            false => ((wrong + rng.random_range(1..plan.nodes)) % plan.nodes, 500),
        };
        let skew_ms = rng.random_range(-far..far);
        plan.strike(at_ms, Fault::ClockJump { who: Who::Node(node), skew_ms });
    }
    super::change_leaders(plan, rng);
}
