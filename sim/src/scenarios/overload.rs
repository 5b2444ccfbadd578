//! Far more clients than the bounds allow, on slow disks: whoever is turned away is told so, and nothing is lost.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Fault, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    plan.crowd.producers = 10;
    plan.crowd.takers = 4;
    plan.crowd.quitters = 2;
    plan.crowd.pause_ms_max = 320;
    plan.set("queue-commands-max", rng.random_range(2..8));
    plan.set("blocked-clients-max", 2);
    plan.set("batch-commands-max", rng.random_range(2..8));
    plan.set("batches-in-flight-max", rng.random_range(1..4));
    let mut at_ms = rng.random_range(200..600);
    for _ in 0..2 {
        let who = Who::draw(rng, plan.nodes, plan.shards);
        let ms = rng.random_range(300..1000);
        plan.strike(at_ms, Fault::SlowDisk { who, delay_ms_max: rng.random_range(20..80), ms });
        if rng.random_bool(0.5) {
            let (how, down_ms) = (Crash::draw(rng), rng.random_range(50..500));
            plan.strike(at_ms + rng.random_range(0..ms), Fault::Crash { who, how, down_ms });
        }
        at_ms += ms + rng.random_range(100..300);
    }
}
