//! `weir-sim`: whole Weir clusters in a fake world, one seed a run.
//!
//! The nodes are the real server: real RESP, real consensus, real log files. Only the edges of the
//! process are replaced: time (`clock.rs`), the network (`net.rs`), the disk (`disk.rs`),
//! randomness and the log writer's thread (`spawn.rs`). `world.rs` builds nodes on them and can
//! kill, power off and restart each; `scenarios/` say what happens to whom; `history.rs` records
//! what clients saw and `invariants/` judge it.
//!
//! Everything in a run follows from its seed: the same seed gives the same bytes (`meta.rs` checks
//! that). One run is one process, since some libraries keep process-wide counters.

mod client;
mod clock;
mod cluster;
mod disk;
mod explore;
mod faults;
mod history;
mod invariants;
mod meta;
mod net;
mod scenarios;
mod spawn;
mod trace;
mod workload;
mod world;

#[cfg(not(tokio_unstable))]
compile_error!(
    "build with --cfg tokio_unstable (see .cargo/config.toml): without it a seed does not fix tokio's choices"
);

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::scenarios::Scenario;

/// Simulated Weir clusters: run a seed, explore many, prove that seeds repeat.
#[derive(Parser)]
#[command(name = "weir-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run one seed of a scenario. Exits 1 and prints what was violated if anything was.
    Run {
        /// Scenario, see `list`.
        scenario: Scenario,
        /// Which run.
        #[arg(long)]
        seed: u64,
        /// Print the timeline while it happens.
        #[arg(long)]
        trace: bool,
        /// Write the timeline to this file.
        #[arg(long)]
        trace_file: Option<std::path::PathBuf>,
        /// Plant a bug that the scenario has to find.
        #[arg(long = "break", value_name = "BUG")]
        bug: Option<Bug>,
    },
    /// Run many seeds; stop at the first that fails and print how to replay it.
    Explore {
        /// Scenario, see `list`.
        scenario: Scenario,
        /// Seeds, `A..B` (B excluded) or `N` for `0..N`.
        #[arg(long, default_value = "0..100", value_parser = explore::parse_range)]
        seeds: std::ops::Range<u64>,
        /// Runs at a time; all cores by default.
        #[arg(long)]
        jobs: Option<usize>,
        /// Plant a bug: then a failing seed is what is looked for.
        #[arg(long = "break", value_name = "BUG")]
        bug: Option<Bug>,
    },
    /// Run each seed twice and compare the timelines byte for byte.
    Meta {
        /// Scenario, see `list`.
        #[arg(long, default_value = "smoke")]
        scenario: Scenario,
        /// Seeds, `A..B` (B excluded) or `N` for `0..N`.
        #[arg(long, default_value = "0..3", value_parser = explore::parse_range)]
        seeds: std::ops::Range<u64>,
    },
    /// List the scenarios.
    List,
}

/// Bugs that can be planted, to show that the checks see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bug {
    /// The disk answers every sync at once and carries nothing over.
    Fsync,
    /// Nodes do not learn that power failed.
    Boot,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run { scenario, seed, trace, trace_file, bug } => {
            let verdict =
                scenarios::run(scenario, seed, scenarios::Options { echo: trace, bug, brief: false });
            if let Some(path) = trace_file
                && let Err(error) = explore::save(&path, &verdict)
            {
                eprintln!("{}: {error}", path.display());
                return ExitCode::from(2);
            }
            verdict.print(scenario, seed, bug);
            if verdict.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Command::Explore { scenario, seeds, jobs, bug } => explore::explore(scenario, seeds, jobs, bug),
        Command::Meta { scenario, seeds } => meta::meta(scenario, seeds),
        Command::List => {
            for scenario in Scenario::value_variants() {
                println!("{:<10} {}", scenario.name(), scenario.about());
            }
            ExitCode::SUCCESS
        }
    }
}
