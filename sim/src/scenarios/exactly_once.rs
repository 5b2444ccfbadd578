//! Idempotent adds, repeated until they are answered, while leaders die, snapshots are taken and answers are lost.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Cut, Fault, Loss, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    plan.crowd.repeaters = 5;
    plan.crowd.producers = 1;
    plan.crowd.pause_ms_max = 150;
    plan.set("snapshot-log-bytes", rng.random_range(8..24) * 1024);
    let mut at_ms = rng.random_range(300..1000);
    for _ in 0..rng.random_range(4..=6u32) {
        let who = Who::draw(rng, plan.nodes, plan.shards);
        let ms = rng.random_range(100..1500);
        let down_ms = (0..plan.nodes).map(|_| rng.random_range(20..800)).collect();
        let fault = match rng.random_range(0..6u32) {
            0 => Fault::KillAll { down_ms },
            1 => Fault::PowerLossOfAll { down_ms },
            2 => Fault::Cut { cut: Cut::FromClients(who), how: Loss::Lost, ms },
            3 => Fault::CutClients,
            _ => Fault::Crash { who, how: Crash::draw(rng), down_ms: ms },
        };
        plan.strike(at_ms, fault);
        at_ms += ms + rng.random_range(100..800);
    }
}
