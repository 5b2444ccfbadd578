//! The command as people call it, and the runs that once showed something.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn weir_sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir-sim")).args(arguments).output().expect("weir-sim runs")
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn what_cannot_be_carried_out_is_2() {
    for wrong in [
        &["run", "nothing", "--seed", "1"][..],
        &["run", "smoke"],
        &["replay", "/no/such/file"],
        &["explore", "smoke", "--seeds", "5..5"],
        &["run", "wal", "--seed", "1", "--nodes", "3"],
    ] {
        assert_eq!(weir_sim(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// In processes of their own: the order in which a dying process lets its tasks go follows from counters that all runs
/// of a process share.
#[test]
fn a_seed_repeats_itself_in_every_byte() {
    let repeated = weir_sim(&["meta", "--scenario", "smoke", "--seeds", "2..3"]);
    assert_eq!(repeated.status.code(), Some(0), "{}", String::from_utf8_lossy(&repeated.stdout));
}

#[test]
fn a_clean_run_is_0_and_a_violation_is_1_with_a_report_and_the_command_that_runs_it_again() {
    assert_eq!(weir_sim(&["run", "wal", "--seed", "1"]).status.code(), Some(0));
    let failed = (1..=20)
        .map(|seed| weir_sim(&["run", "wal", "--seed", &seed.to_string(), "--break", "fsync"]))
        .find(|output| output.status.code() == Some(1))
        .expect("a log that does not sync is seen");
    let told = String::from_utf8_lossy(&failed.stdout).into_owned();
    assert!(
        told.contains("must hold: ") && told.contains("replay: ") && told.contains("--break fsync"),
        "{told}"
    );
}

/// Each file of `sim/regressions` is a plan, cut down. Without its bug it is clean. With it, if it has one, it is not:
/// so the run still reaches what it was kept for.
#[test]
fn kept_runs_show_what_they_were_kept_for() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    for file in std::fs::read_dir(kept).expect("sim/regressions") {
        let path = file.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("a plan");
        let mut plan: serde_json::Value = serde_json::from_str(&text).expect("a plan");
        let bug = plan["bug"].take();
        let fixed = scratch(&path.file_name().expect("a name").to_string_lossy());
        std::fs::write(&fixed, plan.to_string()).expect("written");
        let clean = weir_sim(&["replay", &fixed.to_string_lossy()]);
        assert_eq!(
            clean.status.code(),
            Some(0),
            "{}: {}",
            path.display(),
            String::from_utf8_lossy(&clean.stdout)
        );
        if !bug.is_null() && cfg!(debug_assertions) {
            let broken = weir_sim(&["replay", &path.to_string_lossy()]);
            assert_eq!(broken.status.code(), Some(1), "{} with {bug}", path.display());
        }
    }
}
