//! Many seeds, a process each, several at a time.

use std::{
    collections::BTreeMap,
    io::Write,
    ops::Range,
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use clap::ValueEnum;

use crate::{
    Bug,
    scenarios::{Scenario, Verdict},
};

/// Time between two lines about how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(15);

/// `A..B` or `N`.
pub(crate) fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    let range = match text.split_once("..") {
        Some((first, end)) => number(first)?..number(end.trim_start_matches('='))?,
        None => 0..number(text)?,
    };
    if range.is_empty() { Err(format!("no seed in {text}")) } else { Ok(range) }
}

/// The command that runs the seed again.
pub(crate) fn replay_command(scenario: Scenario, seed: u64, bug: Option<Bug>) -> String {
    let bug = bug.and_then(|bug| bug.to_possible_value());
    let bug = bug.map_or_else(String::new, |bug| format!(" --break {}", bug.get_name()));
    format!("cargo run --release --bin weir-sim -- run {} --seed {seed}{bug} --trace", scenario.name())
}

/// Writes the timeline to a file.
pub(crate) fn save(path: &Path, verdict: &Verdict) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    for line in &verdict.lines {
        writeln!(file, "{line}")?;
    }
    for violation in &verdict.violations {
        writeln!(file, "violation: {violation}")?;
    }
    Ok(())
}

/// This program again, set to run one seed.
pub(crate) fn one_seed(scenario: Scenario, seed: u64, bug: Option<Bug>) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", scenario.name(), "--seed", &seed.to_string()]);
    if let Some(bug) = bug.and_then(|bug| bug.to_possible_value()) {
        command.args(["--break", bug.get_name()]);
    }
    Ok(command)
}

pub(crate) fn explore(
    scenario: Scenario,
    seeds: Range<u64>,
    jobs: Option<usize>,
    bug: Option<Bug>,
) -> ExitCode {
    let jobs = jobs
        .or_else(|| std::thread::available_parallelism().ok().map(std::num::NonZero::get))
        .unwrap_or(1)
        .max(1);
    let total = seeds.end - seeds.start;
    let started = Instant::now();
    let mut printed = started;
    let mut left = seeds.clone();
    let mut running: BTreeMap<u64, Child> = BTreeMap::new();
    let mut done = 0u64;
    loop {
        while running.len() < jobs
            && let Some(seed) = left.next()
        {
            let child = one_seed(scenario, seed, bug)
                .and_then(|mut command| command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
            match child {
                Ok(child) => running.insert(seed, child),
                Err(error) => {
                    eprintln!("cannot start a run: {error}");
                    return ExitCode::from(2);
                }
            };
        }
        if running.is_empty() {
            break;
        }
        let finished: Vec<u64> = running
            .iter_mut()
            .filter_map(|(seed, child)| matches!(child.try_wait(), Ok(Some(_))).then_some(*seed))
            .collect();
        for seed in finished {
            let Some(child) = running.remove(&seed) else { continue };
            match child.wait_with_output() {
                Ok(output) if output.status.success() => done += 1,
                Ok(output) => {
                    println!("seed {seed} failed ({})", output.status);
                    print!("{}", String::from_utf8_lossy(&output.stdout));
                    let errors = String::from_utf8_lossy(&output.stderr);
                    let tail: Vec<&str> = errors.lines().rev().take(30).collect();
                    for line in tail.iter().rev() {
                        println!("{line}");
                    }
                    println!("replay: {}", replay_command(scenario, seed, bug));
                    for (_, mut other) in running {
                        let _ = other.kill();
                        let _ = other.wait();
                    }
                    return ExitCode::from(1);
                }
                Err(error) => {
                    eprintln!("seed {seed}: {error}");
                    return ExitCode::from(2);
                }
            }
        }
        if printed.elapsed() >= PROGRESS_EVERY {
            printed = Instant::now();
            println!("{done} of {total} seeds clean, {:.2} seeds/s", rate(done, started));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    println!("{done} seeds clean, {:.2} seeds/s with {jobs} at a time", rate(done, started));
    ExitCode::SUCCESS
}

fn rate(done: u64, started: Instant) -> f64 {
    done as f64 / started.elapsed().as_secs_f64().max(1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_half_open_and_never_empty() {
        assert_eq!(parse_range("3..5"), Ok(3..5));
        assert_eq!(parse_range("4"), Ok(0..4));
        assert!(parse_range("5..5").is_err());
        assert!(parse_range("x").is_err());
    }
}
