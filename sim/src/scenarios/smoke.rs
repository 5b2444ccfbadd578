//! Three nodes, a few clients on keys of every shard. A leader dies and comes back, then all machines lose power; maybe
//! a leader dies again, maybe a clock jumps.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Fault, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    let crash = |rng: &mut StdRng| Fault::Crash {
        who: Who::Leader(rng.random_range(0..3)),
        how: Crash::draw(rng),
        down_ms: rng.random_range(100..2500),
    };
    let mut at_ms = rng.random_range(300..1500);
    plan.strike(at_ms, crash(rng));
    // From well after the restart to before it.
    at_ms += rng.random_range(200..4000);
    let down_ms = (0..plan.nodes).map(|_| rng.random_range(50..1500)).collect();
    plan.strike(at_ms, Fault::PowerLossOfAll { down_ms });
    if rng.random_bool(0.5) {
        at_ms += rng.random_range(500..4000);
        plan.strike(at_ms, crash(rng));
    }
    if rng.random_bool(0.5) {
        let who = Who::Node(rng.random_range(0..plan.nodes));
        plan.strike(
            rng.random_range(0..=at_ms),
            Fault::ClockJump { who, skew_ms: rng.random_range(-5000..5000) },
        );
    }
}
