//! Measures three `weir` processes beside one `redis-server --appendfsync always`, in one run on one machine, in
//! rounds that take turns, and prints a table.

mod floor;
mod load;
mod redis;
mod report;
mod rows;
mod target;

use anyhow::{Context, Result};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(about = "Numbers of three weir processes beside one redis-server, in the same run")]
struct Arguments {
    /// Shorter and fewer rounds: to see that it works, not to quote.
    #[arg(long)]
    quick: bool,
    /// Writes all numbers as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these parts, comma-separated: floor, throughput, redis-benchmark, failover, idle, restart.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
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

/// What to measure, and how long.
#[derive(Debug)]
struct Plan {
    round: Duration,
    rounds: usize,
    kills: usize,
    idle: Duration,
    entries: usize,
    loads: Vec<load::Load>,
    dir: PathBuf,
    weir: PathBuf,
    redis: String,
    node_arguments: Vec<String>,
}

// The load generator is one thread, so that it costs both servers the same.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    let wanted = |part: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == part);
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
        redis: arguments.redis.clone(),
        node_arguments: arguments.node_arguments.clone(),
    };
    let mut report = report::Report::new();
    if wanted("floor") {
        floor::measure(&plan, &mut report)?;
    }
    if wanted("throughput") || wanted("redis-benchmark") {
        rows::measure(&plan, &mut report, wanted("throughput"), wanted("redis-benchmark")).await?;
    }
    if wanted("failover") || wanted("idle") {
        rows::failover_and_idle(&plan, &mut report, wanted("failover"), wanted("idle")).await?;
    }
    if wanted("restart") {
        rows::restart(&plan, &mut report).await?;
    }
    print!("{report}");
    if let Some(path) = &arguments.json {
        std::fs::write(path, report.json()).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
