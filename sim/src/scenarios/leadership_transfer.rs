//! Leadership is handed over again and again, and somebody dies in the middle of it.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Cut, Fault, Loss, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    let mut at_ms = rng.random_range(200..800);
    for _ in 0..rng.random_range(5..=9u32) {
        let shard = rng.random_range(0..plan.shards);
        plan.strike(at_ms, Fault::Transfer { shard });
        let soon = at_ms + rng.random_range(0..120);
        match rng.random_range(0..6u32) {
            0 => {
                let (how, down_ms) = (Crash::draw(rng), rng.random_range(50..1000));
                plan.strike(
                    soon,
                    Fault::Crash { who: Who::draw(rng, plan.nodes, plan.shards), how, down_ms },
                );
            }
            1 => {
                let cut = Cut::FromNodes(Who::Leader(shard));
                plan.strike(soon, Fault::Cut { cut, how: Loss::draw(rng), ms: rng.random_range(100..1200) });
            }
            _ => {}
        }
        at_ms += rng.random_range(150..1500);
    }
}
