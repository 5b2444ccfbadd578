//! What must hold beyond what clients saw, one file a property. What clients saw is judged by the checks of the process
//! test (`weir_tests::check`), on the same history. `table.rs` lists both.

pub(crate) mod bounds_are_kept;
pub(crate) mod damaged_nodes_stop;
pub(crate) mod ends_in_time;
pub(crate) mod equal_state_at_equal_index;
pub(crate) mod heals_in_time;
pub(crate) mod linearizable;
pub(crate) mod log_matching;
pub(crate) mod nothing_panics;
pub(crate) mod one_leader_per_term;
pub(crate) mod one_owner_per_slot;
pub(crate) mod pending_is_settled;
pub(crate) mod replicas_converge;
pub(crate) mod search;
pub(crate) mod shards_serve_soon;
pub(crate) mod surface;
pub(crate) mod table;
pub(crate) mod wait_is_on_disk;
pub(crate) mod watermarks_keep_order;

/// Of the story of one log, and of the stories of Raft groups over a toy state: they judge by a model of their own.
pub(crate) const LOG: &str = "log";
pub(crate) const RAFT_GROUP: &str = "raft_group";

/// What the properties say that only the simulator sees, by name.
pub(crate) const WORDS: [(&str, &str); 18] = [
    (one_leader_per_term::NAME, "at most one node leads a group in a term"),
    (equal_state_at_equal_index::NAME, "replicas that applied the same index have the same state"),
    (log_matching::NAME, "two logs that hold the same index in the same term hold the same entry there"),
    (one_owner_per_slot::NAME, "at most one shard owns a slot, in the state of whoever leads it"),
    (
        wait_is_on_disk::NAME,
        "a WAIT that answers k finds the write on the disks of k other nodes at that moment",
    ),
    (linearizable::NAME, "some order of the calls, within their times, explains every answer"),
    (surface::NAME, "some order of transactions, deletions and releases explains every answer"),
    (ends_in_time::NAME, "a value that was set to end is there until then, gone after, and never comes back"),
    (
        damaged_nodes_stop::NAME,
        "a node whose files are damaged says so and stays out, and no other node stops",
    ),
    (
        watermarks_keep_order::NAME,
        "a snapshot covers what was applied, a majority has on disk what was applied, and nothing goes back",
    ),
    (bounds_are_kept::NAME, "what can grow stays within its named bound"),
    (nothing_panics::NAME, "no task of a node panics"),
    (heals_in_time::NAME, "after the faults every key is written again within ten election timeouts"),
    (
        shards_serve_soon::NAME,
        "after the faults a shard with a majority of its replicas serves within two election timeouts",
    ),
    (replicas_converge::NAME, "after the faults all replicas reach the same index"),
    (pending_is_settled::NAME, "what is pending can be read again by its owner and acknowledged"),
    (LOG, "the log gives back what was synced, in order, or says that it is damaged"),
    (RAFT_GROUP, "a group applies one sequence everywhere and tells every proposal's fate"),
];

/// An invariant in words.
pub(crate) fn in_words(name: &str) -> &'static str {
    let shared = weir_tests::check::ALL.iter().find(|invariant| invariant.name == name).map(|i| i.words);
    let own = || WORDS.iter().find(|(known, _)| *known == name).map(|(_, words)| *words);
    shared.or_else(own).unwrap_or("")
}
