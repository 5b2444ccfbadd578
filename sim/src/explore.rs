//! Many seeds of one scenario or of all, several at a time; stops at the first that fails.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{IsTerminal, Write},
    ops::Range,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::ValueEnum;

use crate::{
    coverage::Coverage,
    planted::Bug,
    runs::{self, Told},
    scenarios::Scenario,
};

/// Time between two lines about how far it is, where nobody looks at a bar.
const PROGRESS_EVERY: Duration = Duration::from_secs(15);
const BAR: usize = 30;

/// What to explore.
pub(crate) struct Wanted {
    /// `None`: all.
    pub(crate) scenario: Option<Scenario>,
    pub(crate) seeds: Range<u64>,
    pub(crate) jobs: usize,
    pub(crate) bug: Option<Bug>,
    /// Where clean seeds are kept, so that a later call goes on behind them.
    pub(crate) resume: Option<PathBuf>,
    /// Print the table of coverage and fail on an empty cell.
    pub(crate) coverage: bool,
}

/// `A..B` or `N`.
pub(crate) fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    let range = match text.split_once("..") {
        Some((first, end)) => number(first)?..number(end.trim_start_matches('='))?,
        None => 0..number(text)?,
    };
    if range.is_empty() { Err(format!("no seed in {text}")) } else { Ok(range) }
}

/// A scenario's name, or `all`.
pub(crate) fn parse_scenario(text: &str) -> Result<Option<Scenario>, String> {
    if text == "all" {
        return Ok(None);
    }
    Scenario::from_str(text, false)
        .map(Some)
        .map_err(|_| format!("no scenario {text:?}, see `weir-sim list`"))
}

pub(crate) fn explore(wanted: Wanted) -> ExitCode {
    let clean = match &wanted.resume {
        Some(path) => read_clean(path),
        None => BTreeSet::new(),
    };
    let mut keep = match wanted.resume.as_deref().map(append).transpose() {
        Ok(file) => file,
        Err(error) => {
            eprintln!("cannot write to {:?}: {error}", wanted.resume);
            return ExitCode::from(2);
        }
    };
    let scenarios: Vec<Scenario> =
        wanted.scenario.map_or_else(|| Scenario::value_variants().to_vec(), |one| vec![one]);
    let work: Vec<(Scenario, u64)> = wanted
        .seeds
        .clone()
        .flat_map(|seed| scenarios.iter().map(move |scenario| (*scenario, seed)))
        .filter(|(scenario, seed)| !clean.contains(&line_of(*scenario, *seed)))
        .collect();
    let mut progress = Progress::new(work.len());
    let mut coverage = Coverage::default();
    let mut failed = false;
    let end = runs::all(
        work,
        wanted.jobs,
        |(scenario, seed)| runs::one_seed(*scenario, *seed, wanted.bug),
        |(scenario, seed), told| {
            coverage.add(&told.coverage);
            if told.violations.is_empty() {
                if let Some(file) = &mut keep {
                    let _ = writeln!(file, "{}", line_of(*scenario, *seed));
                }
                progress.clean(&told);
                return true;
            }
            progress.end();
            println!("{} seed {seed} failed", scenario.name());
            print!("{}", told.report);
            println!("replay: {}", runs::replay_command(*scenario, *seed, wanted.bug));
            failed = true;
            false
        },
    );
    if let Err(error) = end {
        eprintln!("cannot run a seed: {error}");
        return ExitCode::from(2);
    }
    if failed {
        return ExitCode::from(1);
    }
    progress.end();
    println!("{}", progress.summary(wanted.jobs));
    if wanted.coverage {
        println!("\n{}", coverage.table());
        let missing = coverage.missing();
        if !missing.is_empty() {
            println!("never happened, although it can: {}", missing.join("; "));
            return ExitCode::from(1);
        }
    }
    ExitCode::SUCCESS
}

fn line_of(scenario: Scenario, seed: u64) -> String {
    format!("{} {seed}", scenario.name())
}

fn read_clean(path: &Path) -> BTreeSet<String> {
    // A file that is not there yet holds nothing.
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn append(path: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).open(path)
}

struct Progress {
    total: usize,
    done: usize,
    simulated_ms: u64,
    healed_ms: Vec<u64>,
    started: Instant,
    printed: Instant,
    bar: bool,
}

impl Progress {
    fn new(total: usize) -> Self {
        let now = Instant::now();
        Self {
            total,
            done: 0,
            simulated_ms: 0,
            healed_ms: Vec::new(),
            started: now,
            printed: now,
            bar: std::io::stderr().is_terminal(),
        }
    }

    fn clean(&mut self, told: &Told) {
        self.done += 1;
        self.simulated_ms += told.simulated_ms;
        self.healed_ms.extend(told.healed_ms);
        if self.bar {
            let full = BAR * self.done / self.total.max(1);
            eprint!("\r[{}{}] {}", "#".repeat(full), "-".repeat(BAR - full), self.line());
        } else if self.printed.elapsed() >= PROGRESS_EVERY {
            self.printed = Instant::now();
            println!("{}", self.line());
        }
    }

    fn line(&self) -> String {
        format!("{} of {} seeds clean, {:.2} seeds/s", self.done, self.total, self.rate())
    }

    fn end(&self) {
        if self.bar && self.done > 0 {
            eprintln!();
        }
    }

    fn rate(&self) -> f64 {
        self.done as f64 / self.started.elapsed().as_secs_f64().max(1e-6)
    }

    fn summary(&self, jobs: usize) -> String {
        let simulated = self.simulated_ms as f64 / 1000.0;
        let wall = self.started.elapsed().as_secs_f64().max(1e-6);
        let mut text = format!("{} seeds clean, {:.2} seeds/s with {jobs} at a time", self.done, self.rate());
        match runs::cpu_of_children().filter(|cpu| *cpu > 0.0) {
            Some(cpu) => {
                text.push_str(&format!("; {:.0} simulated seconds a second of one core", simulated / cpu))
            }
            None => text.push_str(&format!("; {:.0} simulated seconds a second", simulated / wall)),
        }
        let mut healed = self.healed_ms.clone();
        healed.sort_unstable();
        if let (Some(p50), Some(p99)) =
            (healed.get(healed.len() / 2), healed.get((healed.len() * 99).div_ceil(100).saturating_sub(1)))
        {
            text.push_str(&format!(
                "; every key written again {p50} ms after the faults (median), {p99} ms (p99)"
            ));
        }
        text
    }
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

    #[test]
    fn a_scenario_is_known_by_name_and_all_is_all() {
        assert_eq!(parse_scenario("all"), Ok(None));
        assert_eq!(parse_scenario("power_loss"), Ok(Some(Scenario::PowerLoss)));
        assert!(parse_scenario("none").is_err());
    }
}
