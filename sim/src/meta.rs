//! The same seed twice must give the same timeline, byte for byte: else no failure could be
//! replayed. Each run is a process of its own, so nothing that a process draws at its start
//! (hash keys, addresses) goes unnoticed. With another build of the same sources as the second, nothing that a
//! compiler decides does either (the order of fields, of statics, of what is inlined).

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::{runs, scenarios::Scenario};

/// `other`: the program that makes the second runs, instead of this one.
pub(crate) fn meta(scenario: Scenario, seeds: Range<u64>, other: Option<&Path>) -> ExitCode {
    let this = match std::env::current_exe() {
        Ok(this) => this,
        Err(error) => {
            eprintln!("this program cannot be found again: {error}");
            return ExitCode::from(2);
        }
    };
    let programs = [this.clone(), other.map_or(this, PathBuf::from)];
    for seed in seeds {
        match twice(scenario, seed, &programs) {
            Ok(lines) => println!("{} seed {seed}: {lines} lines, equal both times", scenario.name()),
            Err(Difference::Found(text)) => {
                println!("seed {seed}: {text}");
                return ExitCode::from(1);
            }
            Err(Difference::NotRun(text)) => {
                eprintln!("seed {seed}: {text}");
                return ExitCode::from(2);
            }
        }
    }
    ExitCode::SUCCESS
}

/// Why two runs were not shown equal.
enum Difference {
    Found(String),
    NotRun(String),
}

fn twice(scenario: Scenario, seed: u64, programs: &[PathBuf; 2]) -> Result<usize, Difference> {
    let dir = std::env::temp_dir();
    let run = |which: &str, program: &Path| -> Result<String, String> {
        let path = dir.join(format!("weir-sim-{}-{}-{seed}-{which}", std::process::id(), scenario.name()));
        let text = timeline(program, scenario, seed, &path);
        let _ = std::fs::remove_file(&path);
        text
    };
    let first = run("a", &programs[0]).map_err(Difference::NotRun)?;
    let second = run("b", &programs[1]).map_err(Difference::NotRun)?;
    match first_difference(&first, &second) {
        None => Ok(first.lines().count()),
        Some(text) => Err(Difference::Found(text)),
    }
}

fn timeline(program: &Path, scenario: Scenario, seed: u64, path: &Path) -> Result<String, String> {
    let mut command = runs::one_seed_of(program, scenario, seed, None);
    let output: io::Result<_> = command.arg("--trace-file").arg(path).output();
    let output = output.map_err(|error| format!("cannot run: {error}"))?;
    std::fs::read_to_string(path).map_err(|error| {
        format!("no timeline ({error}); {}: {}", output.status, String::from_utf8_lossy(&output.stderr))
    })
}

/// The first line in which two timelines differ, with both versions.
fn first_difference(first: &str, second: &str) -> Option<String> {
    if first == second {
        return None;
    }
    let mut at = 0;
    let (mut a, mut b) = (first.lines(), second.lines());
    loop {
        at += 1;
        match (a.next(), b.next()) {
            (Some(a), Some(b)) if a == b => {}
            (None, None) => return Some("timelines differ in line ends only".to_owned()),
            (a, b) => {
                return Some(format!(
                    "timelines differ at line {at}\n  first:  {}\n  second: {}",
                    a.unwrap_or("(ended)"),
                    b.unwrap_or("(ended)")
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_differing_line_is_named() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert!(first_difference("a\nb\n", "a\nc\n").is_some_and(|t| t.contains("line 2")));
        assert!(first_difference("a\n", "a\nb\n").is_some_and(|t| t.contains("(ended)")));
    }
}
