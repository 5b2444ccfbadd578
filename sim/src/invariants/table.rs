//! All invariants in one table: which promise each is about, what it says, and which planted bugs show that it can
//! fail. Those that no bug is planted for are shown by a history or state made by hand, in the tests of their files.

use clap::ValueEnum;

use super::{WORDS, in_words};
use crate::planted::Bug;

/// Which promise an invariant is about. `-`: about the whole, not one of the promises.
const PROMISES: [(&str, &str); 34] = [
    ("adds_are_kept", "P1"),
    ("nothing_invented", "P1"),
    ("acks_are_final", "P2"),
    ("nothing_skipped", "P2"),
    ("deliveries_are_counted", "P2"),
    ("pending_is_settled", "P2"),
    ("delivered_once", "P3"),
    ("gone_clients_get_nothing", "P3"),
    ("noack_leaves_nothing", "P3"),
    ("ids_increase", "P4"),
    ("pipelines_keep_order", "P4"),
    ("refusals_did_nothing", "P5"),
    ("errors_are_expected", "P5"),
    ("transactions_are_whole", "P5"),
    ("reads_are_fresh", "P6"),
    ("linearizable", "P6"),
    ("surface", "P6"),
    ("ends_in_time", "P1"),
    ("wait_is_on_disk", "P7"),
    ("waits_are_honest", "P7"),
    ("answers_are_in_time", "P7"),
    ("one_owner_per_slot", "P8"),
    ("heals_in_time", "P9"),
    ("shards_serve_soon", "P9"),
    ("replicas_converge", "P9"),
    ("equal_state_at_equal_index", "P10"),
    ("damaged_nodes_stop", "P11"),
    ("bounds_are_kept", "P12"),
    ("one_leader_per_term", "Raft"),
    ("log_matching", "Raft"),
    ("watermarks_keep_order", "Raft"),
    ("raft_group", "Raft"),
    ("log", "disk"),
    ("nothing_panics", "-"),
];

/// The planted bugs that an invariant may be the one to catch.
fn bugs(name: &str) -> Vec<String> {
    let catches = |bug: &&Bug| bug.caught_by().contains(&name);
    Bug::value_variants().iter().filter(catches).map(|bug| bug.name()).collect()
}

/// The table, for people.
pub(crate) fn table() -> String {
    let mut out = format!("{:<28}{:<6}{}\n", "invariant", "about", "what must hold, and what it can catch");
    for (name, promise) in PROMISES {
        let by = match bugs(name).as_slice() {
            [] => "a case made by hand, in its tests".to_owned(),
            some => some.join(", "),
        };
        out.push_str(&format!("{name:<28}{promise:<6}{}\n{:34}{by}\n", in_words(name), ""));
    }
    let shared = weir_tests::check::ALL.len();
    out.push_str(&format!(
        "{} invariants: {shared} of what clients see, shared with the process test, {} of the simulator\n",
        PROMISES.len(),
        WORDS.len()
    ));
    out
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;

    /// Files of invariants: name and text.
    fn files() -> Vec<(String, String)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut all = Vec::new();
        for dir in [root.join("src/invariants"), root.join("../tests/src/check")] {
            for file in std::fs::read_dir(&dir).unwrap() {
                let path = file.unwrap().path();
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                if !["mod", "table", "search"].contains(&name.as_str()) {
                    all.push((name, std::fs::read_to_string(&path).unwrap()));
                }
            }
        }
        all
    }

    #[test]
    fn every_invariant_is_in_the_table_with_its_words_and_every_promise_has_one() {
        let listed: BTreeSet<&str> = PROMISES.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed.len(), PROMISES.len());
        let own = WORDS.iter().map(|(name, _)| *name);
        let known: BTreeSet<&str> = weir_tests::check::ALL.iter().map(|i| i.name).chain(own).collect();
        assert_eq!(listed, known);
        assert!(PROMISES.iter().all(|(name, _)| !in_words(name).is_empty()));
        let promises: BTreeSet<&str> = PROMISES.iter().map(|(_, promise)| *promise).collect();
        for number in 1..=12 {
            assert!(promises.contains(format!("P{number}").as_str()), "P{number}");
        }
        for name in Bug::value_variants().iter().flat_map(|bug| bug.caught_by()) {
            assert!(listed.contains(name), "{name} is no invariant");
        }
    }

    /// By convention a test that shows an invariant broken is called "... is seen" or "... are seen".
    #[test]
    fn every_invariant_has_a_file_of_its_own_that_shows_it_broken() {
        let files = files();
        let names: BTreeSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let mut expected: BTreeSet<&str> = PROMISES.iter().map(|(name, _)| *name).collect();
        // These two stories judge by a model; the tests of `scenarios` break it with a planted bug.
        for story in [super::super::LOG, super::super::RAFT_GROUP] {
            assert!(!bugs(story).is_empty(), "{story}");
            expected.remove(story);
        }
        assert_eq!(names, expected);
        for (name, text) in &files {
            let tests = text.split("#[cfg(test)]").nth(1).unwrap_or_default();
            assert!(tests.contains("_seen"), "{name}: no test shows it broken");
        }
    }
}
