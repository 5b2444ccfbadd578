//! Values that end, while leaders die and wall clocks jump.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Fault, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    plan.crowd.timed = rng.random_range(3..=5);
    plan.crowd.pause_ms_max = 40;
    for _ in 0..rng.random_range(3..=6u32) {
        let who = Who::draw(rng, plan.nodes, plan.shards);
        // A node that starts anew and leads has only its wall clock to go by: clocks differ by less than the check allows.
        let skew_ms = rng.random_range(-500..500);
        plan.strike(rng.random_range(200..6000), Fault::ClockJump { who, skew_ms });
    }
    super::change_leaders(plan, rng);
}
