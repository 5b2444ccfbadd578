//! What can happen to a cluster, one file a story.

mod raft;
mod smoke;
mod wal;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::Bug;

/// A story to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Three nodes: a leader dies, then all lose power; nothing answered may be lost.
    Smoke,
    /// Three Raft groups over a toy state under kills, power losses and cuts.
    Raft,
    /// The same where a power loss takes what was confirmed: one machine at a time loses power.
    Power,
    /// One log under kills, power losses and disk faults.
    Wal,
}

impl Scenario {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Raft => "raft",
            Self::Power => "power",
            Self::Wal => "wal",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Smoke => {
                "clients add and read keys of every shard over a leader crash and a power loss of all"
            }
            Self::Raft => "three replicas of a toy state: kills, power losses, isolation",
            Self::Power => "the same in modes everysec and os, where one machine at a time loses power",
            Self::Wal => "one log, many groups: kills, power losses, failed syncs, flipped bits",
        }
    }
}

/// How to run a story.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// Print the timeline while it happens.
    pub(crate) echo: bool,
    /// A bug to plant.
    pub(crate) bug: Option<Bug>,
    /// Fewer faults, for tests of unoptimized builds.
    pub(crate) brief: bool,
}

/// What came of a run.
pub(crate) struct Verdict {
    /// Empty when all was well.
    pub(crate) violations: Vec<String>,
    /// The timeline.
    pub(crate) lines: Vec<String>,
    /// Digest of the timeline.
    pub(crate) digest: u64,
    /// Simulated time that passed.
    pub(crate) simulated: Duration,
    /// Real time that it took. Not part of the timeline.
    pub(crate) real: Duration,
    /// One line of figures.
    pub(crate) summary: String,
}

impl Verdict {
    pub(crate) fn print(&self, scenario: Scenario, seed: u64, bug: Option<Bug>) {
        for violation in &self.violations {
            println!("violation: {violation}");
        }
        println!(
            "{} seed {seed}: {}; {}; digest {:016x}; {:.1} simulated s",
            scenario.name(),
            if self.violations.is_empty() { "clean" } else { "VIOLATED" },
            self.summary,
            self.digest,
            self.simulated.as_secs_f64(),
        );
        // Not on stdout: the same seed prints the same bytes there.
        if std::io::stderr().is_terminal() {
            let (simulated, real) = (self.simulated.as_secs_f64(), self.real.as_secs_f64());
            eprintln!("in {real:.2} s, {:.0} simulated seconds a second", simulated / real.max(1e-6));
        }
        if !self.violations.is_empty() {
            println!("replay: {}", crate::explore::replay_command(scenario, seed, bug));
        }
    }
}

/// Runs one seed on the calling thread.
pub(crate) fn run(scenario: Scenario, seed: u64, options: Options) -> Verdict {
    let started = Instant::now();
    let mut verdict = match scenario {
        Scenario::Smoke => smoke::run(seed, options),
        Scenario::Raft => raft::run(seed, options, false),
        Scenario::Power => raft::run(seed, options, true),
        Scenario::Wal => wal::run(seed, options),
    };
    verdict.real = started.elapsed();
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(scenario: Scenario, seed: u64, bug: Option<Bug>) -> Vec<String> {
        run(scenario, seed, Options { echo: false, bug, brief: true }).violations
    }

    #[test]
    fn a_cluster_survives_a_leader_crash_and_a_power_loss_of_all() {
        assert_eq!(violations(Scenario::Smoke, 1, None), Vec::<String>::new());
    }

    #[test]
    fn a_cluster_that_does_not_sync_is_caught_within_five_seeds() {
        let caught = (1..=5).any(|seed| !violations(Scenario::Smoke, seed, Some(Bug::Fsync)).is_empty());
        assert!(caught);
    }

    #[test]
    fn a_log_survives_kills_power_losses_and_damage() {
        for seed in 1..=5 {
            assert_eq!(violations(Scenario::Wal, seed, None), Vec::<String>::new(), "seed {seed}");
        }
    }

    #[test]
    fn a_log_that_does_not_sync_is_caught_within_five_seeds() {
        let caught = (1..=5).any(|seed| !violations(Scenario::Wal, seed, Some(Bug::Fsync)).is_empty());
        assert!(caught);
    }

    #[test]
    fn replicas_agree_over_crashes_and_isolation() {
        assert_eq!(violations(Scenario::Raft, 1, None), Vec::<String>::new());
    }

    #[test]
    fn replicas_agree_where_a_power_loss_takes_what_was_confirmed() {
        for seed in 1..=4 {
            assert_eq!(violations(Scenario::Power, seed, None), Vec::<String>::new(), "seed {seed}");
        }
    }

    #[test]
    fn replicas_that_do_not_learn_of_a_power_loss_are_caught_within_ten_seeds() {
        let caught = (1..=10).any(|seed| !violations(Scenario::Power, seed, Some(Bug::Boot)).is_empty());
        assert!(caught);
    }

    #[test]
    fn a_seed_repeats_itself_in_every_byte() {
        let timeline = || run(Scenario::Smoke, 2, Options::default()).lines;
        // A thread each: some libraries keep per-thread random state.
        let run_alone = || std::thread::spawn(timeline).join().unwrap_or_default();
        let first = run_alone();
        assert!(!first.is_empty());
        assert_eq!(first, run_alone());
    }
}
