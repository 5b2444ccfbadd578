//! `weir-sim`: whole Weir clusters in a fake world, one seed a run.
//!
//! The nodes are the real server: real RESP, real consensus, real log files. Only the edges of the
//! process are replaced: time (`clock.rs`), the network (`net.rs`), the disk (`disk.rs`),
//! randomness and the log writer's thread (`spawn.rs`). `world.rs` builds nodes on them and can
//! kill, power off, pause and restart each. A scenario draws a plan (`plan.rs`) from its seed: how many
//! clients of which kind (`workload/`), and which faults when (`faults.rs`). `story.rs` lets it happen, `strikes.rs`
//! carries the faults out, and the checks of the process test judge what clients saw, beside `invariants/`.
//!
//! Everything in a run follows from its plan: the same seed gives the same bytes (`meta.rs` checks
//! that). One run is one process, since some libraries keep process-wide counters.
//!
//! Exit status: 0 clean, 1 something was violated, 2 the command cannot be carried out.

mod book;
mod client;
mod clock;
mod cluster;
mod coverage;
mod disk;
mod explore;
mod faults;
mod invariants;
#[cfg(test)]
mod library;
mod meta;
mod net;
mod outlook;
mod plan;
mod planted;
mod report;
mod runs;
mod scenarios;
mod shrink;
mod spawn;
mod story;
mod strikes;
mod trace;
mod workload;
mod world;

#[cfg(not(tokio_unstable))]
compile_error!(
    "build with --cfg tokio_unstable (see .cargo/config.toml): without it a seed does not fix tokio's choices"
);

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{
    invariants::nothing_panics,
    planted::Bug,
    scenarios::{Options, Scenario, Verdict},
};

/// As the server's: a run spends a good part of its time in the allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Simulated Weir clusters: run a seed, explore many, cut a failure down, prove that seeds repeat.
#[derive(Parser)]
#[command(name = "weir-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// How a run tells what happens.
#[derive(Args)]
struct Telling {
    /// Print the timeline while it happens.
    #[arg(long)]
    trace: bool,
    /// Write the timeline to this file.
    #[arg(long)]
    trace_file: Option<PathBuf>,
    /// Tell the end as one line of JSON.
    #[arg(long, hide = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// List the scenarios.
    List,
    /// Run one seed of a scenario. Exits 1 and prints what was violated if anything was.
    Run {
        /// Scenario, see `list`.
        scenario: Scenario,
        /// Which run.
        #[arg(long)]
        seed: u64,
        /// Nodes instead of what the seed draws.
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..=9))]
        nodes: Option<u16>,
        /// Seconds of work instead of what the seed draws; faults after that are left out.
        #[arg(long)]
        seconds: Option<u64>,
        /// Plant a bug that the checks have to find.
        #[arg(long = "break", value_name = "BUG")]
        bug: Option<Bug>,
        #[command(flatten)]
        telling: Telling,
    },
    /// Run many seeds; stop at the first that fails and print how to replay it.
    Explore {
        /// Scenario, see `list`, or `all`.
        #[arg(value_parser = explore::parse_scenario)]
        scenario: ScenarioOrAll,
        /// Seeds, `A..B` (B excluded) or `N` for `0..N`.
        #[arg(long, default_value = "0..100", value_parser = explore::parse_range)]
        seeds: std::ops::Range<u64>,
        /// Runs at a time; all cores by default.
        #[arg(long)]
        jobs: Option<usize>,
        /// Keep clean seeds in this file and leave out those that it holds.
        #[arg(long)]
        resume: Option<PathBuf>,
        /// Print which faults struck where; fail when one never did although it can.
        #[arg(long)]
        coverage: bool,
        /// Plant a bug: then a failing seed is what is looked for.
        #[arg(long = "break", value_name = "BUG")]
        bug: Option<Bug>,
    },
    /// Run a plan from a file, as `shrink` writes it.
    Replay {
        /// The file.
        file: PathBuf,
        #[command(flatten)]
        telling: Telling,
    },
    /// Cut a failing seed down to the fewest faults, clients and calls that still fail; write that to a file.
    Shrink {
        /// Scenario, see `list`.
        scenario: Scenario,
        /// Which run.
        #[arg(long)]
        seed: u64,
        /// The file; by default SCENARIO-SEED.json here.
        #[arg(long)]
        out: Option<PathBuf>,
        /// The planted bug of that run.
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
        /// Another build of this program, of the same sources, for the second run of each seed.
        #[arg(long, value_name = "PROGRAM")]
        other: Option<PathBuf>,
    },
    /// Plant every bug in turn; fail when one is not caught, or only by a check that says something else.
    Planted {
        /// Only this one.
        bug: Option<Bug>,
        /// Most seeds a bug may take.
        #[arg(long, default_value_t = 200)]
        seeds_max: u64,
        /// Runs at a time; all cores by default.
        #[arg(long)]
        jobs: Option<usize>,
    },
    /// List the invariants: which promise each is about, what it says, which planted bugs it catches.
    Invariants,
    /// Tell what a cluster of yours would do under faults: gaps, redeliveries, WAIT, what its disks allow.
    Report(outlook::Wanted),
    /// Measure how long a sync and a round trip take on this machine, for a report's file.
    Probe(outlook::probe::Wanted),
}

/// One scenario or, `None`, all.
type ScenarioOrAll = Option<Scenario>;

fn main() -> ExitCode {
    let jobs = |jobs: Option<usize>| jobs.unwrap_or_else(runs::cores).max(1);
    match Cli::parse().command {
        Command::Run { scenario, seed, nodes, seconds, bug, telling } => {
            run(scenario, seed, nodes, seconds, bug, &telling)
        }
        Command::Replay { file, telling } => replay(&file, &telling),
        Command::Explore { scenario, seeds, jobs: most, resume, coverage, bug } => {
            explore::explore(explore::Wanted { scenario, seeds, jobs: jobs(most), bug, resume, coverage })
        }
        Command::Shrink { scenario, seed, out, bug } => shrink::shrink(scenario, seed, bug, out),
        Command::Meta { scenario, seeds, other } => meta::meta(scenario, seeds, other.as_deref()),
        Command::Planted { bug, seeds_max, jobs: most } => planted::run(bug, seeds_max, jobs(most)),
        Command::Report(wanted) => outlook::report(&wanted),
        Command::Probe(wanted) => outlook::probe::probe(&wanted),
        Command::Invariants => {
            print!("{}", invariants::table::table());
            ExitCode::SUCCESS
        }
        Command::List => {
            for scenario in Scenario::value_variants() {
                println!("{:<20} {}", scenario.name(), scenario.about());
            }
            ExitCode::SUCCESS
        }
    }
}

fn run(
    scenario: Scenario,
    seed: u64,
    nodes: Option<u16>,
    seconds: Option<u64>,
    bug: Option<Bug>,
    telling: &Telling,
) -> ExitCode {
    if bug.is_some_and(|bug| !bug.can_be_planted()) {
        eprintln!("bugs are compiled out of this build: use the profile ci or dev");
        return ExitCode::from(2);
    }
    let options = Options { echo: telling.trace, brief: false };
    let mut replay = runs::replay_command(scenario, seed, bug);
    if nodes.is_none() && seconds.is_none() {
        end_at_a_panic(replay.clone(), telling.json);
        let verdict = scenarios::run(scenario, seed, bug, options);
        return tell(&verdict, scenario, seed, &replay, telling);
    }
    let Some(mut plan) = scenario.plan(seed) else {
        eprintln!("{} draws as it goes: it takes neither --nodes nor --seconds", scenario.name());
        return ExitCode::from(2);
    };
    plan.bug = bug;
    if let Some(nodes) = nodes {
        plan.nodes = usize::from(nodes);
        replay.push_str(&format!(" --nodes {nodes}"));
    }
    if let Some(seconds) = seconds {
        plan.work_ms = seconds * 1000;
        plan.faults.retain(|planned| planned.at_ms < seconds * 1000);
        replay.push_str(&format!(" --seconds {seconds}"));
    }
    end_at_a_panic(replay.clone(), telling.json);
    tell(&scenarios::run_plan(&plan, options), scenario, seed, &replay, telling)
}

fn replay(file: &Path, telling: &Telling) -> ExitCode {
    let read = std::fs::read_to_string(file).map_err(|error| error.to_string());
    let plan = match read.and_then(|text| plan::Plan::from_json(&text)) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            return ExitCode::from(2);
        }
    };
    if plan.bug.is_some_and(|bug| !bug.can_be_planted()) {
        eprintln!("bugs are compiled out of this build: use the profile ci or dev");
        return ExitCode::from(2);
    }
    let command = format!("weir-sim replay {} --trace", file.display());
    end_at_a_panic(command.clone(), telling.json);
    let verdict = scenarios::run_plan(&plan, Options { echo: telling.trace, brief: false });
    tell(&verdict, plan.scenario, plan.seed, &command, telling)
}

/// A panic anywhere in a node is a violation, and the end of the run: say so, and how to see it again.
fn end_at_a_panic(replay: String, json: bool) {
    std::panic::set_hook(Box::new(move |panic| {
        let text = nothing_panics::text(&panic.to_string());
        let report = format!(
            "violation: {}\n  must hold: {}\n  but: {text}\n",
            nothing_panics::NAME,
            invariants::in_words(nothing_panics::NAME)
        );
        if json {
            let seen = runs::Seen { invariant: nothing_panics::NAME.to_owned(), text };
            let told = runs::Told {
                violations: vec![seen],
                simulated_ms: 0,
                healed_ms: None,
                coverage: coverage::Coverage::default(),
                report,
            };
            println!("{}", serde_json::to_string(&told).unwrap_or_default());
        } else {
            println!("{report}{}\nreplay: {replay}", std::backtrace::Backtrace::force_capture());
        }
        std::process::exit(1);
    }));
}

fn tell(verdict: &Verdict, scenario: Scenario, seed: u64, replay: &str, telling: &Telling) -> ExitCode {
    if let Some(path) = &telling.trace_file
        && let Err(error) = save(path, verdict)
    {
        eprintln!("{}: {error}", path.display());
        return ExitCode::from(2);
    }
    if telling.json {
        println!("{}", serde_json::to_string(&runs::Told::of(verdict)).unwrap_or_default());
    } else {
        verdict.print(scenario, seed, replay);
    }
    if verdict.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Writes the timeline to a file.
fn save(path: &Path, verdict: &Verdict) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for line in &verdict.lines {
        writeln!(file, "{line}")?;
    }
    for violation in &verdict.violations {
        writeln!(file, "violation: {violation}")?;
    }
    file.flush()
}
