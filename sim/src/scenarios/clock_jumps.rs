//! Wall clocks jump forward and back on one node or several, also right before a node starts to lead.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Fault, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    // The cluster goes by the majority of its clocks, and what it remembers of idempotent adds lasts 100 s: only one clock
    // may be off by more.
    let wrong = Who::Node(plan.seed as usize % plan.nodes);
    let mut at_ms = rng.random_range(100..800);
    for _ in 0..rng.random_range(4..=8u32) {
        let (who, far) = match rng.random_bool(0.2) {
            true => (wrong, 86_400_000),
            false => (Who::draw(rng, plan.nodes, plan.shards), 8_000),
        };
        let skew_ms = rng.random_range(-far..far);
        plan.strike(at_ms, Fault::ClockJump { who, skew_ms });
        if rng.random_bool(0.4) {
            let who = Who::Leader(rng.random_range(0..plan.shards));
            let (how, down_ms) = (Crash::draw(rng), rng.random_range(50..1000));
            plan.strike(at_ms + rng.random_range(0..300), Fault::Crash { who, how, down_ms });
        }
        at_ms += rng.random_range(200..1500);
    }
}
