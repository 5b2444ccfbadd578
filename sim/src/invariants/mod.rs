//! What must hold, one file a property. Each answers the violations it found, as sentences.

pub(crate) mod equal_state_at_equal_index;
pub(crate) mod ids_increase;
pub(crate) mod linearizable_reads;
pub(crate) mod no_acked_entry_lost;
pub(crate) mod one_leader_per_term;
pub(crate) mod refused_means_absent;

use crate::history::Frozen;

/// All checks that need only what clients saw.
pub(crate) fn of_history(history: &Frozen) -> Vec<String> {
    let mut found = history.damaged.clone();
    found.extend(no_acked_entry_lost::check(history));
    found.extend(refused_means_absent::check(history));
    found.extend(ids_increase::check(history));
    found.extend(linearizable_reads::check(history));
    found
}
