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

/// Seeds that a kept plan gets to show its bug.
const SEEDS_MAX: u64 = 40;

/// Each file of `sim/regressions` is a plan, cut down. Without its bug it is clean. With it, if it has one, it is not for
/// its seed or one of those behind it (any change of the server shifts what a seed does): so the plan still reaches what
/// it was kept for.
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
            plan["bug"] = bug.clone();
            let first = plan["seed"].as_u64().expect("a seed");
            let broken = (first..first + SEEDS_MAX).any(|seed| {
                plan["seed"] = seed.into();
                std::fs::write(&fixed, plan.to_string()).expect("written");
                weir_sim(&["replay", &fixed.to_string_lossy()]).status.code() == Some(1)
            });
            assert!(broken, "{} with {bug}: no seed of {SEEDS_MAX} shows it", path.display());
        }
    }
}

/// A shape as small as it can be, with one leader that dies.
const SMALL: &str = r#"
runs = 1
seconds = 2
[cluster]
nodes = [{ name = "n1", zone = "a" }, { name = "n2", zone = "a" }, { name = "n3", zone = "b" }]
shards = 1
[network]
rtt-ms = 1
[disk]
p50-ms = 0.5
p99-ms = 2
[load]
producers = 1
rate = 20
consumers = 1
streams = 1
wait-ms = [5]
[[fault]]
at-s = 0.5
kind = "kill"
leader-of = 0
for-s = 0.5
"#;

#[test]
fn a_report_tells_of_gaps_and_writes_a_page() {
    let (shape, page) = (scratch("small.toml"), scratch("small.html"));
    std::fs::write(&shape, SMALL).expect("written");
    let told = weir_sim(&["report", &shape.to_string_lossy(), "--html", &page.to_string_lossy()]);
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&told.stderr));
    assert!(text.contains("leader of shard 0: process killed, 0.5 s       1"), "{text}");
    assert!(text.contains("0 unknown, 0 failed") && text.contains("WAIT limit"), "{text}");
    assert!(std::fs::read_to_string(&page).expect("a page").contains("<svg"));
}

#[test]
fn a_file_that_cannot_be_is_refused_with_its_line() {
    for (from, to, wanted) in [
        ("rtt-ms = 1", "rtt-ms = -1", "line 8: rtt-ms = -1"),
        ("consumers = 1", "consumer = 1", "line 15: unknown field `consumer`"),
        ("leader-of = 0", "leader-of = 3", "line 21: leader-of = 3"),
    ] {
        let path = scratch("wrong.toml");
        std::fs::write(&path, SMALL.replacen(from, to, 1)).expect("written");
        let told = weir_sim(&["report", &path.to_string_lossy()]);
        let text = String::from_utf8_lossy(&told.stderr).into_owned();
        assert_eq!(told.status.code(), Some(2), "{text}");
        assert!(text.contains(wanted), "{to}: {text}");
    }
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions/wait-beside-a-wiped-disk.json");
    let plan = std::fs::read_to_string(kept).expect("a plan");
    let path = scratch("of-another-format.json");
    std::fs::write(&path, plan.replacen("\"format\": 1", "\"format\": 99", 1)).expect("written");
    let told = weir_sim(&["replay", &path.to_string_lossy()]);
    assert_eq!(told.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&told.stderr).contains("line 2: a plan of format 99"));
}

#[test]
fn a_probe_prints_what_a_file_takes() {
    let told = weir_sim(&["probe", "--seconds", "1", "--dir", env!("CARGO_TARGET_TMPDIR"), "--json"]);
    assert_eq!(told.status.code(), Some(0));
    let figures: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
    for what in ["fdatasync", "loopback"] {
        assert!(figures[what]["p50_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{figures}");
    }
}
