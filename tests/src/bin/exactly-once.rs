//! Producers of the client library append a fixed number of entries while leaders are killed one after another; then
//! every stream is read, and each entry must be there once, in its producer's order.
//!
//! Exit status 0: none twice, none missing, none out of order.

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use weir_client::{Client, EntryId, Producer};
use weir_tests::process::{Cluster, ClusterOptions, weir_binary};

#[derive(Parser)]
#[command(about = "Exactly-once appends through failovers of three weir processes")]
struct Arguments {
    /// Appends of all producers together.
    #[arg(long, default_value_t = 1_000_000)]
    appends: u64,
    /// Leaders killed meanwhile, spread evenly over the appends.
    #[arg(long, default_value_t = 20)]
    failovers: u64,
    /// Streams; each has one producer.
    #[arg(long, default_value_t = 12)]
    streams: u64,
    /// The weir program; else WEIR_BIN, else the one beside this program.
    #[arg(long)]
    weir: Option<PathBuf>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("exactly-once: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn stream(n: u64) -> String {
    format!("exactly-once:{n}")
}

async fn run(arguments: &Arguments) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("weir-exactly-once-").tempdir()?;
    let weir = arguments.weir.clone().map_or_else(weir_binary, Ok)?;
    let options = ClusterOptions {
        weir,
        dir: dir.path().to_owned(),
        nodes: 3,
        arguments: Vec::new(),
        hosts: Vec::new(),
    };
    let mut cluster = Cluster::start(options).await?;
    let client = Client::connect(cluster.addresses()).await?;
    let each = arguments.appends.div_ceil(arguments.streams);
    let total = each * arguments.streams;
    println!(
        "{total} appends to {} streams, {} leaders killed meanwhile",
        arguments.streams, arguments.failovers
    );

    let began = Instant::now();
    let appended = Arc::new(AtomicU64::new(0));
    // How many appends of each stream may be sent: until the next leader but one has to die, and all after the last.
    // None is at its end while there are leaders to kill.
    let slices = arguments.failovers + 2;
    let share = |kills: u64| if kills == arguments.failovers { each } else { each * (kills + 2) / slices };
    let (allow, allowed) = watch::channel(share(0));
    let mut producing = Vec::new();
    for n in 0..arguments.streams {
        let producer = client.producer(stream(n)).remember(100, 2000).entries_max(1000).open().await?;
        producing.push(tokio::spawn(produce(producer, each, allowed.clone(), appended.clone())));
    }
    let mut longest = Duration::ZERO;
    for kill in 0..arguments.failovers {
        let due = total * (kill + 1) / slices;
        // A producer that failed ends the wait too, and is told of below.
        while appended.load(Ordering::Relaxed) < due && !producing.iter().any(|task| task.is_finished()) {
            sleep(Duration::from_millis(5)).await;
        }
        if producing.iter().all(|task| task.is_finished()) {
            bail!("all was over before leader {} could be killed: ask for more appends", kill + 1);
        }
        let key = stream(kill % arguments.streams);
        let leader =
            client.leader_of(&key).and_then(|at| cluster.node_at(&at)).context("no leader is known")?;
        cluster.kill(leader).await?;
        let gap = gap(&client, &key).await?;
        longest = longest.max(gap);
        allow.send_replace(share(kill + 1));
        cluster.spawn(leader)?;
        cluster.wait_ready(leader).await?;
        println!(
            "  {:>6.1} s  {:>9} appended, leader {} of {} killed, its streams took writes {:.2} s later",
            began.elapsed().as_secs_f64(),
            appended.load(Ordering::Relaxed),
            kill + 1,
            arguments.failovers,
            gap.as_secs_f64()
        );
    }
    let mut wanted = BTreeMap::new();
    for (n, task) in (0..).zip(producing) {
        wanted.insert(n, task.await?.with_context(|| stream(n))?);
    }
    let took = began.elapsed().as_secs_f64();
    for (n, ids) in &wanted {
        check(&client, *n, ids).await?;
    }
    println!(
        "{total} appends in {took:.1} s ({:.0} a second), {} failovers, longest gap {:.2} s: none twice, none missing, all in order",
        total as f64 / took,
        arguments.failovers,
        longest.as_secs_f64()
    );
    println!("exactly-once: {} passed, 0 failed", arguments.streams);
    Ok(())
}

/// Appends `0..each`; the ids that were answered.
async fn produce(
    producer: Producer,
    each: u64,
    mut allowed: watch::Receiver<u64>,
    appended: Arc<AtomicU64>,
) -> Result<Vec<EntryId>> {
    let (answers, mut waiting) = tokio::sync::mpsc::unbounded_channel();
    let sending = async {
        for n in 0..each {
            allowed.wait_for(|&allowed| n < allowed).await?;
            // Waits while too much is on its way.
            let _ = answers.send(producer.send([("n", n.to_string())]).await?);
        }
        drop(answers);
        Ok::<_, anyhow::Error>(())
    };
    let collecting = async {
        let mut ids = Vec::new();
        while let Some(answer) = waiting.recv().await {
            ids.push(answer.await?);
            appended.fetch_add(1, Ordering::Relaxed);
        }
        Ok::<_, anyhow::Error>(ids)
    };
    let ((), ids) = tokio::try_join!(sending, collecting)?;
    Ok(ids)
}

/// How long until a write to the shard of `key` is answered.
async fn gap(client: &Client, key: &str) -> Result<Duration> {
    let began = Instant::now();
    // Of the same slot, and no part of what is checked.
    let probe = format!("probe:{{{key}}}");
    while began.elapsed() < Duration::from_secs(30) {
        if client.xadd(&probe).field("a", "1").await.is_ok() {
            return Ok(began.elapsed());
        }
    }
    bail!("no write within 30 s")
}

async fn check(client: &Client, n: u64, ids: &[EntryId]) -> Result<()> {
    let key = stream(n);
    let length = client.xinfo_stream(&key).await?.length;
    ensure!(length == ids.len() as u64, "{key} has {length} entries, {} were appended", ids.len());
    let mut from = EntryId::MIN;
    let mut at = 0;
    loop {
        let page = client.xrange(&key, from, EntryId::MAX).count(5000).await?;
        let Some(last) = page.last() else { break };
        for entry in &page {
            let number = entry.get_str("n").context("an entry without its number")?;
            ensure!(number == at.to_string(), "{key}: entry {} holds {number}, not {at}", entry.id);
            ensure!(entry.id == ids[at], "{key}: {at} was answered {} and is {}", ids[at], entry.id);
            at += 1;
        }
        let Some(next) = last.id.next() else { break };
        from = next;
    }
    ensure!(at == ids.len(), "{key}: read {at} entries of {}", ids.len());
    Ok(())
}
