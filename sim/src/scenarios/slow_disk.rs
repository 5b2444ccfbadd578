//! Disks and networks are slow, up to the point where leaders look dead.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Fault, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    let mut at_ms = rng.random_range(200..800);
    for _ in 0..rng.random_range(3..=5u32) {
        let who = Who::draw(rng, plan.nodes, plan.shards);
        let ms = rng.random_range(300..2500);
        let fault = match rng.random_range(0..4u32) {
            0 => Fault::Delay { delay_ms_max: rng.random_range(20..120), ms },
            _ => Fault::SlowDisk { who, delay_ms_max: rng.random_range(10..800), ms },
        };
        plan.strike(at_ms, fault);
        if rng.random_bool(0.3) {
            let (how, down_ms) = (Crash::draw(rng), rng.random_range(50..1000));
            plan.strike(at_ms + rng.random_range(0..ms), Fault::Crash { who, how, down_ms });
        }
        at_ms += ms + rng.random_range(200..1000);
    }
}
