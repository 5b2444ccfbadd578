//! Entries that are given back, and claimed in the order of their release, while nodes die and are brought up to date
//! by snapshots.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Fault},
    plan::{Mix, Plan},
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    plan.crowd.surface = rng.random_range(3..=5);
    plan.crowd.mix = Mix::Released;
    plan.crowd.producers = 3;
    plan.crowd.pause_ms_max = 130;
    plan.set("snapshot-log-bytes", rng.random_range(4..16) * 1024);
    let behind = Fault::InterruptedInstall {
        shard: rng.random_range(0..plan.shards.min(2)),
        behind_ms: rng.random_range(600..2000),
        then_ms: rng.random_range(200..1200),
        how: Crash::draw(rng),
        down_ms: rng.random_range(50..600),
    };
    plan.strike(rng.random_range(300..900), behind);
    super::change_leaders(plan, rng);
}
