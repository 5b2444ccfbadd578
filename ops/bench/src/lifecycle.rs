//! What happens to a cluster as a whole: failover, idling, a restart; and `redis-benchmark`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use weir_tests::client::{ClusterClient, Fate, slot_map};
use weir_tests::connection::Connection;
use weir_tests::process::Cluster;

use crate::Plan;
use crate::load::speech::{ENTRY_BYTES, Speech};
use crate::report::{Report, median};
use crate::servers::peers::Programs;
use crate::servers::redis::redis_benchmark;
use crate::servers::target::Target;
use crate::servers::{self, Kind, Server};
use crate::usage::{Usage, resident_bytes};

/// Appends as `redis-benchmark` measures them.
pub(crate) async fn benchmark(plan: &Plan, programs: &Programs, report: &mut Report) -> Result<()> {
    for (connections, requests) in [(50, 40_000), (200, 80_000)] {
        let requests = if plan.rounds == 1 { requests / 4 } else { requests };
        for kind in [Kind::RedisAlways, Kind::Weir] {
            let server = Server::start(kind, plan, programs).await?;
            let address = server.target().await?.address_of("rb");
            let port = address.rsplit(':').next().context("a port")?;
            let name = format!("redis-benchmark -c {connections}, {}", kind.name());
            match redis_benchmark(port, kind == Kind::Weir, connections, requests) {
                Ok((per_second, p50)) => {
                    report.figure(&name, per_second, "ops/s", format!("p50 {p50:.3} ms"))
                }
                Err(error) => report.figure(&name, 0.0, "ops/s", format!("not usable: {error:#}")),
            }
        }
    }
    Ok(())
}

/// How long writers stand still when their leader is killed, and what three idle processes cost.
pub(crate) async fn failover_and_idle(
    plan: &Plan,
    report: &mut Report,
    failover: bool,
    idle: bool,
) -> Result<()> {
    let mut cluster = servers::weir(plan, &plan.dir.join("failover")).await?;
    if idle {
        sleep(Duration::from_secs(3)).await;
        let pids = pids(&mut cluster)?;
        let before = Usage::of(&pids, &plan.dir)?;
        sleep(plan.idle).await;
        let used = Usage::of(&pids, &plan.dir)?.since(&before).cpu_seconds;
        let percent = used / plan.idle.as_secs_f64() * 100.0;
        let note = format!("of one core, over {} s; target 5", plan.idle.as_secs());
        report.figure("idle CPU of three processes", percent, "%", note);
    }
    if failover {
        for end in [End::Killed, End::Terminated] {
            let mut gaps = Vec::new();
            for round in 0..plan.kills {
                let gap = write_gap(&mut cluster, round, end).await?;
                eprintln!("  {} of a leader, round {}: {gap:.3} s", end.name(), round + 1);
                gaps.push(gap);
            }
            let worst = gaps.iter().copied().fold(0.0, f64::max);
            let rounds = format!("{} rounds of {}", gaps.len(), end.name());
            report.figure(&format!("{}, median", end.figure()), median(gaps), "s", rounds);
            let note = format!("longest time a writer of that shard had no answer; target {}", end.target());
            report.figure(&format!("{}, longest", end.figure()), worst, "s", note);
        }
    }
    Ok(())
}

/// How a leader ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Killed,
    Terminated,
}

impl End {
    fn name(self) -> &'static str {
        if self == End::Killed { "kill -9" } else { "SIGTERM" }
    }
    fn figure(self) -> &'static str {
        if self == End::Killed { "failover gap" } else { "planned handover gap" }
    }
    fn target(self) -> &'static str {
        if self == End::Killed { "1.5" } else { "0.05" }
    }
}

/// Ends the leader of one shard under writers of that shard; seconds of the longest time without an answer.
async fn write_gap(cluster: &mut Cluster, round: usize, end: End) -> Result<f64> {
    let seeds = cluster.addresses();
    let key = format!("{}:{round}", end.name());
    let (stop, stopped) = watch::channel(false);
    let answers = Arc::new(Mutex::new(Vec::new()));
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (seeds, key, answers, stopped) =
                (seeds.clone(), key.clone(), answers.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut client = ClusterClient::new(&seeds, Duration::from_secs(1));
                while !*stopped.borrow() {
                    match client.attempt(&key, &["XADD", &key, "*", "a", "1"]).await {
                        Fate::Done(_) => answers.lock().expect("answers").push(Instant::now()),
                        Fate::Refused(error) if error.starts_with("MOVED") => {}
                        _ => sleep(Duration::from_millis(10)).await,
                    }
                }
            })
        })
        .collect();
    sleep(Duration::from_secs(1)).await;
    // Asked at the last moment: leaders may still be spreading after the round before.
    let address = Target::cluster(&seeds).await?.address_of(&key);
    let leader = cluster.node_at(&address).with_context(|| format!("{address} is no node of ours"))?;
    let ended = Instant::now();
    match end {
        End::Killed => cluster.kill(leader).await?,
        End::Terminated => _ = cluster.terminate(leader).await?,
    }
    sleep(Duration::from_secs(4)).await;
    stop.send_replace(true);
    for writer in writers {
        writer.await?;
    }
    cluster.spawn(leader)?;
    cluster.wait_ready(leader).await?;
    // Leaders spread again before the next round.
    sleep(Duration::from_secs(1)).await;
    let mut times = answers.lock().expect("answers").clone();
    times.sort();
    times.push(ended + Duration::from_secs(4));
    let gaps = times.windows(2).filter(|pair| pair[1] >= ended).map(|pair| (pair[1] - pair[0]).as_secs_f64());
    Ok(gaps.fold(0.0, f64::max))
}

fn pids(cluster: &mut Cluster) -> Result<Vec<u32>> {
    (0..cluster.len()).map(|node| Ok(cluster.process(node)?.pid())).collect()
}

/// Time until a cluster with much data serves again, after a clean stop and after kill -9.
pub(crate) async fn restart(plan: &Plan, report: &mut Report) -> Result<()> {
    const STREAMS: usize = 60;
    let mut cluster = servers::weir(plan, &plan.dir.join("restart")).await?;
    let seeds = cluster.addresses();
    let target = Target::cluster(&seeds).await?;
    eprintln!("  adding {} entries of {ENTRY_BYTES} B", plan.entries);
    let began = Instant::now();
    let each = plan.entries / STREAMS;
    let fills: Vec<_> = (0..STREAMS)
        .map(|n| {
            let key = format!("restart:{n}");
            tokio::spawn(fill(target.address_of(&key), key, each))
        })
        .collect();
    for fill in fills {
        fill.await??;
    }
    let per_second = (each * STREAMS) as f64 / began.elapsed().as_secs_f64();
    report.figure(
        "filling, 60 connections x 100",
        per_second,
        "ops/s",
        format!("{} entries", each * STREAMS),
    );
    let mut memory = 0.0;
    for pid in pids(&mut cluster)? {
        memory += resident_bytes(pid)? / 3.0 / f64::from(1 << 20);
    }
    report.figure("memory of a node with that", memory, "MB", "resident");

    for clean in [true, false] {
        for node in 0..cluster.len() {
            if clean { _ = cluster.terminate(node).await? } else { cluster.kill(node).await? }
        }
        let began = Instant::now();
        cluster.start_all().await?;
        let ready = began.elapsed().as_secs_f64();
        let mut client = ClusterClient::new(&seeds, Duration::from_secs(6));
        let mut entries = 0;
        for n in 0..STREAMS {
            let key = format!("restart:{n}");
            let length = client
                .insist(&key, &["XLEN", &key], Duration::from_secs(30))
                .await
                .map_err(|e| anyhow!(e))?;
            let weir_resp::Value::Int(length) = length else { continue };
            entries += usize::try_from(length)?;
        }
        let how = if clean { "SIGTERM" } else { "kill -9" };
        let note = format!("all three at once; ready after {ready:.2} s; {entries} entries there; target 5");
        report.figure(&format!("restart after {how}, serving"), began.elapsed().as_secs_f64(), "s", note);
    }
    slot_map(&seeds).await.map_err(|e| anyhow!(e))?;
    Ok(())
}

async fn fill(address: String, key: String, entries: usize) -> Result<()> {
    const PIPELINE: usize = 100;
    let mut connection = Connection::open(&address, Duration::from_secs(5)).await?;
    let (one, _) = Speech::Resp.append(&key);
    let mut left = entries;
    while left > 0 {
        let now = left.min(PIPELINE);
        connection.send_raw(&one.repeat(now)).await?;
        for _ in 0..now {
            if let weir_resp::Value::Error(text) = connection.receive().await? {
                return Err(anyhow!("{key}: {}", String::from_utf8_lossy(&text)));
            }
        }
        left -= now;
    }
    Ok(())
}
