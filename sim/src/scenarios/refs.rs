//! Entries that go with or without what groups hold of them, while nodes die and are brought up to date by snapshots.

use rand::{Rng, rngs::StdRng};

use crate::plan::{Mix, Plan};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    plan.crowd.surface = rng.random_range(3..=5);
    plan.crowd.mix = Mix::References;
    if rng.random_bool(0.5) {
        plan.set("snapshot-log-bytes", rng.random_range(4..16) * 1024);
    }
    super::change_leaders(plan, rng);
}
