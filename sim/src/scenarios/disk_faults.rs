//! Disks fail: one node's files are damaged or gone for good, and syncs fail and disks fill up on the others.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Damage, Fault, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    let mut at_ms = rng.random_range(500..1500);
    for _ in 0..rng.random_range(2..=4u32) {
        let who = Who::draw(rng, plan.nodes, plan.shards);
        let ms = rng.random_range(200..1500);
        let fault = match rng.random_range(0..8u32) {
            0 | 1 => Fault::Damage { who, what: Damage::FlippedBit, down_ms: ms },
            2 => Fault::Damage { who, what: Damage::CutShort, down_ms: ms },
            3 => Fault::Wipe { who, down_ms: ms },
            4 | 5 => Fault::DiskFull { who, ms: ms * 2 },
            _ => Fault::FailSync { who, after: rng.random_range(0..20), down_ms: ms },
        };
        plan.strike(at_ms, fault);
        at_ms += ms * 2 + rng.random_range(800..1800);
    }
}
