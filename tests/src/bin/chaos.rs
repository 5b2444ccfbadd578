//! Rounds of faults against real processes, each node in a network namespace and on a disk of its own; after each
//! round everything that clients saw is checked.
//!
//! Exit status 0: no violation. 1: one, and its seed, round, history, logs and data are told. With `--planted` it is
//! the other way round: 0 when the bug was caught. 2: usage.

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Parser, ValueEnum};
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use weir_tests::chaos::fault::{Fault, Need, of_round};
use weir_tests::chaos::planted::{self, Planted};
use weir_tests::chaos::round::{self, Setting};
use weir_tests::chaos::sandbox;
use weir_tests::chaos::table::{self, Run};
use weir_tests::chaos::world::{Plan, World};
use weir_tests::process::weir_binary;
use weir_tests::report::print_violations;

#[derive(Parser)]
#[command(
    about = "Rounds of faults against real weir processes in network namespaces, checked from what clients saw"
)]
struct Arguments {
    /// Rounds to play, about ten seconds each.
    #[arg(long, default_value_t = 30)]
    rounds: u64,
    /// The first round: each draws its fault from the seed and its number alone.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Draws the faults and the clients' choices. Processes are not simulated: a repeated seed gives the same faults,
    /// not the same run.
    #[arg(long)]
    seed: Option<u64>,
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(3..=5))]
    nodes: u16,
    /// Only these kinds of faults.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<Fault>,
    /// XADDs a second of all producers together, at most.
    #[arg(long, default_value_t = 1500)]
    rate: u32,
    /// Plants a bug in every node; the run then succeeds when it is caught. `all`: each in turn. Needs a weir with test
    /// hooks.
    #[arg(long)]
    planted: Option<String>,
    /// Writes every round as JSON, after each.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Goes on where the run in this file ended (as --json wrote it) and writes it there; --rounds counts them all.
    #[arg(long, conflicts_with_all = ["json", "from"])]
    resume: Option<PathBuf>,
    /// The weir program; else WEIR_BIN, else the one beside this program.
    #[arg(long)]
    weir: Option<PathBuf>,
    /// Where data, logs and a failed round's history go (default: a temporary directory, removed after a clean run).
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Plain processes on the loopback address, as if namespaces were not allowed.
    #[arg(long)]
    no_sandbox: bool,
    /// This program runs inside already.
    #[arg(long, hide = true)]
    inside: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ran = match arguments.inside {
        true => play(&arguments),
        false => prepare(arguments),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Outside: finds the program, then goes inside if the machine lets us.
fn prepare(mut arguments: Arguments) -> Result<()> {
    let weir = arguments.weir.clone().map_or_else(weir_binary, Ok)?;
    let refused = if arguments.no_sandbox { Some("--no-sandbox".to_owned()) } else { sandbox::refused() };
    if let Some(why) = refused {
        println!("chaos: no partitions and no full disks: {why}");
        arguments.weir = Some(weir);
        return play(&arguments);
    }
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    // The last --weir wins only if there is one: what was found is named once.
    if arguments.weir.is_none() {
        words.extend(["--weir".into(), weir.display().to_string()]);
    }
    if arguments.planted.as_deref() == Some("all") {
        return plant_all(&words);
    }
    sandbox::enter(&words).map(|never| match never {})
}

/// Runs this program once a bug, and says how each came out.
fn plant_all(words: &[String]) -> Result<()> {
    let words: Vec<&String> =
        words.iter().filter(|word| !["--planted", "all", "--planted=all"].contains(&word.as_str())).collect();
    let mut lines = Vec::new();
    let mut missed = 0;
    for bug in planted::names() {
        println!("\n{bug}");
        let status = Command::new(std::env::current_exe()?).args(&words).args(["--planted", bug]).status()?;
        missed += usize::from(!status.success());
        lines.push(format!("{bug:<28}{}", if status.success() { "caught" } else { "MISSED" }));
    }
    println!("\n{}", lines.join("\n"));
    println!("chaos: {} passed, {missed} failed", lines.len() - missed);
    ensure!(missed == 0, "{missed} bugs were not caught");
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn play(arguments: &Arguments) -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        played = run(arguments) => played,
        _ = terminate.recv() => bail!("told to stop"),
        _ = interrupt.recv() => bail!("told to stop"),
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    let weir = arguments.weir.clone().context("--weir")?;
    let hooks = has_hooks(&weir)?;
    ensure!(
        hooks || arguments.planted.is_none(),
        "bugs are compiled out of {}: use the profile ci or dev",
        weir.display()
    );
    if !hooks {
        println!(
            "chaos: no power losses and no clocks that jump: {} has no test hooks (profiles ci and dev have)",
            weir.display()
        );
    }
    let planted = match &arguments.planted {
        Some(bug) => Some(
            planted::find(bug)
                .with_context(|| format!("--planted {bug}: one of {} or all", planted::names().join(", ")))?,
        ),
        None => None,
    };
    let kinds = kinds(arguments, hooks, planted)?;
    let (mut log, file) = open_log(arguments, &weir)?;
    let first = arguments.from.max(log.rows.last().map_or(0, |row| row.round + 1));
    let end = match arguments.resume {
        Some(_) => arguments.rounds,
        None => first + arguments.rounds,
    };
    let seed = log.seed;
    println!(
        "chaos --rounds {} --seed {seed} --from {first} --nodes {}",
        end.saturating_sub(first),
        log.nodes
    );

    let temporary = tempfile::Builder::new().prefix("weir-chaos-").tempdir()?;
    let dir = arguments.dir.clone().unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&dir)?;
    let plan = Plan {
        weir,
        dir: dir.clone(),
        nodes: log.nodes,
        sandbox: arguments.inside,
        hooks,
        seed,
        planted: arguments.planted.clone(),
    };
    let mut world = World::start(&plan).await.context("the cluster does not start")?;
    let setting = Setting { seed, rate: arguments.rate };
    let mut past = None;
    println!("{}", table::head());
    for number in first..end {
        let fault = of_round(seed, number, &kinds);
        let played = round::play(&mut world, number, fault, setting, &mut past).await;
        let mut names: Vec<&str> = Vec::new();
        let failed = match played {
            Ok(played) => {
                println!("{}", played.row.line());
                log.rows.push(played.row);
                if let Some(file) = &file {
                    std::fs::write(file, serde_json::to_vec_pretty(&log)?)
                        .with_context(|| file.display().to_string())?;
                }
                if played.violations.is_empty() {
                    continue;
                }
                print_violations(&played.violations);
                played.history.dump(&dir.join("history.jsonl"))?;
                names = played.violations.iter().map(|v| v.invariant).collect();
                names.sort_unstable();
                names.dedup();
                format!("round {number} ({fault}) violates {}", names.join(", "))
            }
            Err(error) => {
                names.push("nodes_come_back");
                format!("round {number} ({fault}): {error:#}")
            }
        };
        if let Some(planted) = planted {
            ensure!(
                names.iter().any(|name| planted.caught_by.contains(name)),
                "{} was not caught by what it breaks ({}): {failed}",
                planted.bug,
                planted.caught_by.join(", ")
            );
            println!("caught {}: {failed}", planted.bug);
            println!("chaos: 1 passed, 0 failed");
            return Ok(());
        }
        world.keep_data(&dir)?;
        if arguments.dir.is_none() {
            let _ = temporary.keep();
        }
        eprintln!("logs, data and history are kept in {}", dir.display());
        eprintln!(
            "again: chaos --seed {seed} --from {number} --rounds 1 --nodes {}{}",
            log.nodes,
            only(arguments)
        );
        println!("chaos: {} passed, 1 failed", log.rows.len().saturating_sub(1));
        bail!(failed);
    }
    println!("\n{}", log.summary());
    if let Some(planted) = planted {
        println!("chaos: 0 passed, 1 failed");
        bail!("{} was not caught in {} rounds", planted.bug, end - first);
    }
    stop(&mut world).await?;
    println!("chaos: {} passed, 0 failed", log.rows.len());
    Ok(())
}

/// Every node exits with status 0 on SIGTERM, at the end too.
async fn stop(world: &mut World) -> Result<()> {
    for node in 0..world.nodes() {
        let took = world.cluster.terminate(node).await?;
        ensure!(took < Duration::from_secs(5), "n{} took {took:?} to exit on SIGTERM", node + 1);
    }
    Ok(())
}

/// The faults that can be drawn.
fn kinds(arguments: &Arguments, hooks: bool, planted: Option<&Planted>) -> Result<Vec<Fault>> {
    let possible = |fault: &Fault| match fault.needs() {
        Need::Nothing => true,
        Need::Sandbox => arguments.inside,
        Need::Hooks => hooks,
    };
    let wanted = match planted {
        Some(planted) if arguments.faults.is_empty() => planted.faults,
        _ => &arguments.faults,
    };
    if wanted.is_empty() {
        return Ok(Fault::value_variants().iter().copied().filter(possible).collect());
    }
    match wanted.iter().find(|fault| !possible(fault)) {
        Some(fault) => bail!("{fault} is not possible here, see above"),
        None => Ok(wanted.to_vec()),
    }
}

fn only(arguments: &Arguments) -> String {
    let faults: Vec<String> = arguments.faults.iter().map(Fault::to_string).collect();
    if faults.is_empty() { String::new() } else { format!(" --faults {}", faults.join(",")) }
}

/// What was played before, and where it is written.
fn open_log(arguments: &Arguments, weir: &Path) -> Result<(Run, Option<PathBuf>)> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&std::fs::read(weir).with_context(|| weir.display().to_string())?);
    let build = format!("{:016x}", hasher.finish());
    let seed = arguments.seed.unwrap_or_else(|| rand::random_range(0..1_000_000));
    let new = Run { seed, nodes: arguments.nodes, build, rows: Vec::new() };
    let Some(path) = arguments.resume.clone() else { return Ok((new, arguments.json.clone())) };
    if !path.exists() {
        return Ok((new, Some(path)));
    }
    let shown = path.display();
    let old: Run = serde_json::from_slice(&std::fs::read(&path)?)
        .map_err(|error| anyhow!("{shown} is no file that --json or --resume wrote: {error}"))?;
    ensure!(old.build == new.build, "{shown} is about another weir program; rounds of two do not add up");
    ensure!(
        arguments.seed.is_none_or(|seed| seed == old.seed) && arguments.nodes == old.nodes,
        "{shown} has seed {} and {} nodes",
        old.seed,
        old.nodes
    );
    Ok((old, Some(path)))
}

/// Whether a weir program was built with test hooks: one without refuses to run when one is set.
fn has_hooks(weir: &Path) -> Result<bool> {
    let tried = Command::new(weir)
        .arg("config")
        .env("WEIR_TEST_DISK", "forgetful")
        .output()
        .with_context(|| format!("{} cannot be started", weir.display()))?;
    Ok(tried.status.success())
}
