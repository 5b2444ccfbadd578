//! Followers fall behind until only a snapshot helps, and die while they install it; leaders die while they take one.

use rand::{Rng, rngs::StdRng};

use crate::{
    faults::{Crash, Fault, Who},
    plan::Plan,
};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    plan.crowd.producers = 5;
    plan.crowd.pause_ms_max = 180;
    plan.keys_per_shard = 1;
    // Snapshots come often, and little log is kept behind them.
    plan.set("snapshot-log-bytes", rng.random_range(8..24) * 1024);
    let mut at_ms = rng.random_range(300..1000);
    for _ in 0..rng.random_range(2..=3u32) {
        let shard = rng.random_range(0..plan.shards);
        let behind_ms = rng.random_range(800..2500);
        let then_ms = rng.random_range(0..1200);
        let down_ms = rng.random_range(50..800);
        plan.strike(
            at_ms,
            Fault::InterruptedInstall { shard, behind_ms, then_ms, how: Crash::draw(rng), down_ms },
        );
        if rng.random_bool(0.5) {
            let at_ms = at_ms + behind_ms + rng.random_range(0..600);
            let how = Crash::draw(rng);
            plan.strike(
                at_ms,
                Fault::Crash { who: Who::Leader(shard), how, down_ms: rng.random_range(50..800) },
            );
        }
        at_ms += behind_ms + then_ms + down_ms + rng.random_range(500..1500);
    }
}
