//! What must hold beyond what clients saw, one file a property. What clients saw is judged by the checks of the process
//! test (`weir_tests::check`), on the same history.

pub(crate) mod damaged_nodes_stop;
pub(crate) mod equal_state_at_equal_index;
pub(crate) mod linearizable;
pub(crate) mod log_matching;
pub(crate) mod one_leader_per_term;
pub(crate) mod one_owner_per_slot;
pub(crate) mod wait_is_on_disk;

/// A panic ends the run.
pub(crate) const NOTHING_PANICS: &str = "nothing_panics";

/// What the properties say that only the simulator sees, by name.
pub(crate) const WORDS: [(&str, &str); 14] = [
    (one_leader_per_term::NAME, "at most one node leads a group in a term"),
    (equal_state_at_equal_index::NAME, "replicas that applied the same index have the same state"),
    (log_matching::NAME, "two logs that hold the same index in the same term hold the same entry there"),
    (one_owner_per_slot::NAME, "at most one shard owns a slot, in the state of whoever leads it"),
    (
        wait_is_on_disk::NAME,
        "a WAIT that answers k finds the write on the disks of k other nodes at that moment",
    ),
    (linearizable::NAME, "some order of the calls, within their times, explains every answer"),
    (
        damaged_nodes_stop::NAME,
        "a node whose files are damaged says so and stays out, and no other node stops",
    ),
    ("nodes_come_back", "a node that died starts again and goes on"),
    (NOTHING_PANICS, "no task of a node panics"),
    ("heals_in_time", "after the faults every shard serves within ten election timeouts"),
    ("replicas_converge", "after the faults all replicas reach the same index"),
    ("pending_is_settled", "what is pending can be read again by its owner and acknowledged"),
    ("log", "the log gives back what was synced, in order, or says that it is damaged"),
    ("raft_group", "a group applies one sequence everywhere and tells every proposal's fate"),
];

/// An invariant in words.
pub(crate) fn in_words(name: &str) -> &'static str {
    let shared = weir_tests::check::ALL.iter().find(|invariant| invariant.name == name).map(|i| i.words);
    let own = || WORDS.iter().find(|(known, _)| *known == name).map(|(_, words)| *words);
    shared.or_else(own).unwrap_or("")
}
