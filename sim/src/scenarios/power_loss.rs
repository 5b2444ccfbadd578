//! Machines lose power, one in the middle of its disk work or all together, again and again.

use rand::{Rng, rngs::StdRng};

use crate::{
    disk::Changes,
    faults::{Crash, Fault, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    // Batches of several sectors, which a power loss can tear.
    plan.crowd.producers = rng.random_range(3..=6);
    plan.crowd.pause_ms_max = 80;
    let mut at_ms = rng.random_range(100..1000);
    for _ in 0..rng.random_range(4..=6u32) {
        let down_ms: Vec<u64> = (0..plan.nodes).map(|_| rng.random_range(20..1000)).collect();
        let longest = down_ms.iter().copied().max().unwrap_or(0);
        if rng.random_bool(0.8) {
            // Torn in the middle of its work, and then the others lose power as well.
            let how = match Changes::draw(rng, 16) {
                (Changes::All, changes) => Crash::PowerAtChange(changes),
                (Changes::Rare, changes) => Crash::PowerAtRareChange(changes),
            };
            let who = Who::draw(rng, plan.nodes, plan.shards);
            plan.strike(at_ms, Fault::Crash { who, how, down_ms: longest });
            at_ms += rng.random_range(0..60);
        }
        plan.strike(at_ms, Fault::PowerLossOfAll { down_ms });
        // Sometimes in the middle of the elections.
        at_ms += longest
            + if rng.random_bool(0.4) { rng.random_range(0..600) } else { rng.random_range(800..2000) };
    }
}
