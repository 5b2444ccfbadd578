//! Measures three `weir` processes beside their peers and beside the machine's own limit, in one run on one machine,
//! in rounds that take turns, and prints tables.

mod compare;
mod complexity;
mod floor;
mod ideal;
mod lifecycle;
mod load;
mod report;
mod servers;
mod targets;
mod usage;

use anyhow::{Context, Result};
use clap::Parser;
use servers::Kind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(
    about = "Numbers of three weir processes beside their peers, in the same run",
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    /// Shorter and fewer rounds: to see that it works, not to quote.
    #[arg(long)]
    quick: bool,
    /// Writes all numbers as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measures complexity also with ten million entries and a million pending ones (minutes, some GB of memory).
    #[arg(long)]
    large: bool,
    /// Only these, comma-separated.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Chapter>,
    /// Compare only with these, comma-separated.
    #[arg(long, value_delimiter = ',')]
    against: Vec<Kind>,
    /// Only these loads, comma-separated, as CONNECTIONSxPIPELINE: 1x1, 50x1, 200x1, 50x16.
    #[arg(long, value_delimiter = ',', value_parser = load::Load::parse)]
    loads: Vec<load::Load>,
    /// Where both servers keep their data: a directory on the disk to be measured.
    #[arg(long, default_value = "target/bench-data")]
    dir: PathBuf,
    /// The weir program (default: the one beside this program).
    #[arg(long)]
    weir: Option<PathBuf>,
    /// The redis-server program.
    #[arg(long, default_value = "redis-server")]
    redis: String,
    /// Seconds of one round.
    #[arg(long)]
    seconds: Option<u64>,
    /// Rounds of each row.
    #[arg(long)]
    rounds: Option<usize>,
    /// Further arguments of `weir start`.
    #[arg(last = true)]
    node_arguments: Vec<String>,
}

#[derive(clap::Subcommand)]
enum Part {
    /// One of three processes that do nothing but append, sync and answer.
    #[command(hide = true)]
    Ideal(ideal::Ideal),
}

/// A group of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Chapter {
    /// What the machine's disk and network allow.
    Floor,
    /// Appends under several loads.
    Appends,
    /// Reads, deliveries, acknowledgements.
    Reads,
    /// Appends as redis-benchmark sees them.
    RedisBenchmark,
    /// How long writers stand still when a leader is killed, or told to stop.
    Failover,
    /// What three idle nodes cost.
    Idle,
    /// How long a restart takes.
    Restart,
    /// What each stream command costs on small and large streams.
    Complexity,
}

/// What to measure, and how long.
#[derive(Debug)]
struct Plan {
    round: Duration,
    rounds: usize,
    kills: usize,
    idle: Duration,
    entries: usize,
    loads: Vec<load::Load>,
    against: Vec<Kind>,
    dir: PathBuf,
    weir: PathBuf,
    node_arguments: Vec<String>,
}

// The load generator is one thread, so that it costs both servers the same.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    let done = match arguments.part.take() {
        Some(Part::Ideal(ideal)) => ideal.run().await,
        None => run(&arguments).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    let wanted = |chapter| arguments.only.is_empty() || arguments.only.contains(&chapter);
    let quick = arguments.quick;
    std::fs::create_dir_all(&arguments.dir)?;
    let data = tempfile::tempdir_in(arguments.dir.canonicalize()?)?;
    let plan = Plan {
        round: Duration::from_secs(arguments.seconds.unwrap_or(if quick { 1 } else { 4 })),
        rounds: arguments.rounds.unwrap_or(if quick { 1 } else { 5 }),
        kills: if quick { 2 } else { 10 },
        idle: Duration::from_secs(if quick { 5 } else { 20 }),
        entries: if quick { 100_000 } else { 1_000_000 },
        loads: if arguments.loads.is_empty() { load::LOADS.to_vec() } else { arguments.loads.clone() },
        dir: data.path().to_owned(),
        weir: arguments.weir.clone().map_or_else(weir_tests::process::weir_binary, Ok)?,
        against: arguments.against.clone(),
        node_arguments: arguments.node_arguments.clone(),
    };
    let programs = servers::peers::Programs::find(&arguments.redis);
    let mut report = report::Report::new();
    if wanted(Chapter::Floor) {
        floor::measure(&plan, &mut report)?;
    }
    if wanted(Chapter::Appends) {
        compare::appends(&plan, &programs, &mut report).await?;
    }
    if wanted(Chapter::Reads) {
        compare::reads(&plan, &programs, &mut report).await?;
    }
    if wanted(Chapter::RedisBenchmark) {
        lifecycle::benchmark(&plan, &programs, &mut report).await?;
    }
    let (failover, idle) = (wanted(Chapter::Failover), wanted(Chapter::Idle));
    if failover || idle {
        lifecycle::failover_and_idle(&plan, &mut report, failover, idle).await?;
    }
    if wanted(Chapter::Restart) {
        lifecycle::restart(&plan, &mut report).await?;
    }
    if wanted(Chapter::Complexity) {
        complexity::measure(&plan, &programs, &mut report, arguments.large).await?;
    }
    report.floor_of_one_connection();
    print!("{report}");
    if let Some(path) = &arguments.json {
        std::fs::write(path, report.json()).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
