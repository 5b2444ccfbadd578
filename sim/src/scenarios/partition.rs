//! Links are cut: a node from everybody, from the other nodes alone, in one direction, between two nodes only. Messages
//! wait until the cut is over, or are lost with their connections.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Cut, Fault, Loss, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    plan.crowd.readers = 4;
    if rng.random_bool(0.2) {
        plan.nodes = 5;
    }
    let mut at_ms = rng.random_range(300..1000);
    for _ in 0..rng.random_range(3..=5u32) {
        let how = Loss::draw(rng);
        let ms = rng.random_range(150..3000);
        let fault = match rng.random_range(0..6u32) {
            // The case that stale reads live on: a leader that stands still while another is elected.
            0 => Fault::Pause { who: Who::Leader(rng.random_range(0..plan.shards)), ms },
            1 => Fault::Cut { cut: Cut::FromNodes(Who::Leader(rng.random_range(0..plan.shards))), how, ms },
            2 => Fault::Delay { delay_ms_max: rng.random_range(20..150), ms },
            _ => Fault::Cut { cut: Cut::draw(rng, how, plan.nodes, plan.shards), how, ms },
        };
        plan.strike(at_ms, fault);
        // Cuts may overlap.
        at_ms += if rng.random_bool(0.3) { ms / 2 } else { ms + rng.random_range(300..1500) };
    }
}
