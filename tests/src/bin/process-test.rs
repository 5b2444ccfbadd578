//! Three processes, many clients, faults; then everything that clients saw is checked.
//!
//! Exit status 0: no violation. Otherwise the history and the nodes' logs and data are kept and their place printed.

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use rand::{SeedableRng, rngs::StdRng};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use weir_tests::check::{self, Violation};
use weir_tests::faults::{self, Fault};
use weir_tests::history::{Disturbance, History, Outcome, What};
use weir_tests::process::{Cluster, ClusterOptions, weir_binary};
use weir_tests::report::{self, Phase};
use weir_tests::workload::{self, Clients, Crowd, Stage};

#[derive(Parser)]
#[command(about = "Faults against three weir processes, checked from what clients saw")]
struct Arguments {
    /// About how long faults go on; every kind comes at least once (about 60 s).
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Draws the faults and the clients' choices. Processes are not simulated: a repeated seed gives the same faults,
    /// not the same run.
    #[arg(long)]
    seed: Option<u64>,
    /// XADDs a second of all producers together, at most.
    #[arg(long, default_value_t = 2000)]
    rate: u32,
    /// The weir program; else WEIR_BIN, else the one beside this program.
    #[arg(long)]
    weir: Option<PathBuf>,
    /// Where data, logs and a failed run's history go (default: a temporary directory, removed after a clean run).
    #[arg(long)]
    dir: Option<PathBuf>,
    /// No faults and no processes: the workload against nodes that run already, as host:port,host:port,...
    #[arg(long, value_delimiter = ',')]
    attach: Vec<String>,
    /// Writes the history, one JSON line a call, also after a clean run.
    #[arg(long)]
    history: Option<PathBuf>,
    /// Further arguments of `weir start`.
    #[arg(last = true)]
    node_arguments: Vec<String>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    match try_main(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("process-test: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn try_main(arguments: &Arguments) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(|| rand::random_range(0..1_000_000));
    println!("process-test --seconds {} --seed {seed}", arguments.seconds);
    let temporary = tempfile::Builder::new().prefix("weir-process-test-").tempdir()?;
    let dir = arguments.dir.clone().unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&dir)?;

    let outcome = run(arguments, seed, &dir).await;
    let failed = match outcome {
        Ok(true) => return Ok(()),
        Ok(false) => anyhow!("invariants were violated"),
        Err(error) => error,
    };
    if arguments.dir.is_none() {
        let kept = temporary.keep();
        eprintln!("logs, data and history are kept in {}", kept.display());
    }
    eprintln!("run again: process-test --seconds {} --seed {seed}", arguments.seconds);
    Err(failed)
}

/// Whether nothing was violated.
async fn run(arguments: &Arguments, seed: u64, dir: &std::path::Path) -> Result<bool> {
    let mut cluster = match arguments.attach.as_slice() {
        [] => {
            let weir = arguments.weir.clone().map_or_else(weir_binary, Ok)?;
            let options = ClusterOptions {
                weir,
                dir: dir.to_owned(),
                nodes: 3,
                arguments: arguments.node_arguments.clone(),
                hosts: Vec::new(),
            };
            Some(Cluster::start(options).await?)
        }
        _ => None,
    };
    let seeds = cluster.as_ref().map_or_else(|| arguments.attach.clone(), Cluster::addresses);
    let crowd = Crowd {
        keys_per_shard: 6,
        producers: 16,
        consumers: 12,
        readers: 4,
        waiters: 4,
        stubborn: 0,
        rate: arguments.rate,
    };
    let stage = Stage::set(seeds, &crowd, seed).await.context("the workload cannot begin")?;
    println!("{} streams over {} shards, {crowd:?}", stage.keys.len(), stage.shard_count);

    let clients = Clients::start(&stage, &crowd);
    let mut rng = StdRng::seed_from_u64(seed);
    let mut phases = Vec::new();
    let mut troubles: Vec<Violation> = Vec::new();
    let plan = match cluster {
        Some(_) => faults::schedule(seed, arguments.seconds),
        None => vec![(Fault::Calm, Duration::from_secs(arguments.seconds))],
    };
    for (fault, least) in plan {
        let from = stage.recorder.now();
        match &mut cluster {
            Some(cluster) => {
                for text in faults::carry_out(fault, least, cluster, &stage.recorder, &mut rng).await {
                    eprintln!("trouble: {text}");
                    troubles.push(Violation { invariant: "nodes_come_back", at: from, text });
                }
                // A phase begins with all nodes; what did not come back is started once more.
                cluster.start_all().await.context("the cluster does not heal")?;
            }
            None => sleep(least).await,
        }
        phases.push(Phase { fault, from, to: stage.recorder.now() });
        println!("  {:>6.1} s  {fault} is over", stage.recorder.now() as f64 / 1e6);
    }
    let heal_from = Instant::now();
    workload::every_stream_answers(&stage, Duration::from_secs(30)).await?;
    println!("  every stream takes writes {:.2} s after the last phase", heal_from.elapsed().as_secs_f64());
    clients.stop().await?;
    let last = workload::read_back(&stage).await.context("reading everything back")?;

    let (ops, outages, unreachable) = stage.recorder.take();
    let mut history = workload::history(&stage, ops, outages, last);
    history.disturbances = phases
        .iter()
        .filter(|phase| phase.fault != Fault::Calm)
        .map(|phase| Disturbance { from: phase.from, to: phase.to })
        .collect();
    let mut violations = check::check(&history);
    violations.extend(troubles);
    if let Some(path) =
        arguments.history.clone().or_else(|| (!violations.is_empty()).then(|| dir.join("history.jsonl")))
    {
        history.dump(&path).with_context(|| path.display().to_string())?;
    }
    println!("\n{}", report::table(&phases, &history, &stage.shards, &unreachable, &violations));
    println!("{}", summary(&history));
    let broken = report::print_violations(&violations);
    println!("process-test: {} passed, {broken} failed", check::ALL.len() + 1 - broken);
    if let Some(cluster) = &mut cluster {
        for node in 0..cluster.len() {
            cluster.terminate(node).await?;
        }
    }
    Ok(violations.is_empty())
}

fn summary(history: &History) -> String {
    let count = |wanted: fn(&What) -> bool| {
        history
            .ops
            .iter()
            .filter(|op| wanted(&op.what) && !matches!(op.outcome, Outcome::Refused(_) | Outcome::Unknown(_)))
            .count()
    };
    let delivered: usize = history
        .ops
        .iter()
        .map(|op| match (&op.what, &op.outcome) {
            (What::Deliver { .. }, Outcome::Entries(entries)) => entries.len(),
            _ => 0,
        })
        .sum();
    format!(
        "answered: {} XADD, {delivered} deliveries, {} XACK, {} reads, {} WAIT; at the end {} entries, {} pending",
        count(|w| matches!(w, What::Add { .. })),
        count(|w| matches!(w, What::Ack { .. })),
        count(|w| matches!(w, What::Read { .. })),
        count(|w| matches!(w, What::Wait { .. })),
        history.last.iter().map(|last| last.entries.len()).sum::<usize>(),
        history
            .last
            .iter()
            .flat_map(|last| &last.pending)
            .map(std::collections::BTreeMap::len)
            .sum::<usize>(),
    )
}
