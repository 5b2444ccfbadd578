//! Transactions and watched keys while leaders die in the middle of them.

use rand::{Rng, rngs::StdRng};

use crate::plan::{Mix, Plan};

pub(super) fn draw(plan: &mut Plan, rng: &mut StdRng) {
    plan.crowd.surface = rng.random_range(3..=5);
    plan.crowd.mix = Mix::Transactions;
    super::change_leaders(plan, rng);
}
