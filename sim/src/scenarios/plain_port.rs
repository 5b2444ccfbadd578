//! Clients that know no cluster ask any node, which forwards to whoever leads, while leaders die, stand still, are cut
//! off and hand over.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Cut, Fault, Loss, Who},
    plan::{Mix, Plan},
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    // With five, a node may hold nothing of a shard that it forwards to.
    plan.nodes = if rng.random_bool(0.3) { 5 } else { 3 };
    plan.crowd.plain = true;
    plan.crowd.producers = rng.random_range(2..=4);
    plan.crowd.quitters = rng.random_range(0..=2);
    plan.crowd.surface = rng.random_range(0..=2);
    plan.crowd.mix = Mix::Transactions;
    plan.crowd.pause_ms_max = rng.random_range(10..100);
    let mut at_ms = rng.random_range(200..800);
    for _ in 0..rng.random_range(4..=7u32) {
        let shard = rng.random_range(0..plan.shards);
        let ms = rng.random_range(100..1500);
        let fault = match rng.random_range(0..10u32) {
            0..4 => Fault::Crash { who: Who::Leader(shard), how: Crash::draw(rng), down_ms: ms },
            4 => Fault::Crash {
                who: Who::draw(rng, plan.nodes, plan.shards),
                how: Crash::draw(rng),
                down_ms: ms,
            },
            5 | 6 => Fault::Transfer { shard },
            7 => Fault::Pause { who: Who::Leader(shard), ms },
            _ => {
                let how = Loss::draw(rng);
                Fault::Cut { cut: Cut::draw(rng, how, plan.nodes, plan.shards), how, ms }
            }
        };
        let lasts_ms = fault.lasts_ms();
        plan.strike(at_ms, fault);
        at_ms += lasts_ms / 2 + rng.random_range(200..1200);
    }
}
