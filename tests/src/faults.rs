//! What goes wrong during a run: a schedule drawn from the seed, and how each fault is done to a cluster.

use crate::client::slot_map;
use crate::history::Recorder;
use crate::process::{Cluster, Signal, name};
use anyhow::{Context, Result, anyhow, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// A kind of fault; each is over, and every node runs again, before its phase ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    Calm,
    /// kill -9 of the node that leads a shard; it comes back after a moment.
    KillLeader,
    /// SIGSTOP of a leader for longer than any lease, then SIGCONT.
    PauseLeader,
    /// SIGSTOP of any node for a moment, then SIGCONT.
    PauseNode,
    /// kill -9 of every node at once.
    KillAll,
    /// SIGTERM, exit 0, start, one node after the other.
    RollingRestart,
    /// kill -9 of a node, and again while it comes back.
    KillTwice,
    /// kill -9 of two nodes, so that no majority is left for a while.
    KillMajority,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Calm => "calm",
            Fault::KillLeader => "kill -9 of a leader",
            Fault::PauseLeader => "leader paused",
            Fault::PauseNode => "node paused",
            Fault::KillAll => "kill -9 of all",
            Fault::RollingRestart => "rolling restart",
            Fault::KillTwice => "kill -9 twice in a row",
            Fault::KillMajority => "kill -9 of two",
        })
    }
}

/// Faults and the least time of each phase, about `seconds` long in all. The five named first come once in every run.
pub fn schedule(seed: u64, seconds: u64) -> Vec<(Fault, Duration)> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut always =
        vec![Fault::KillLeader, Fault::PauseLeader, Fault::KillAll, Fault::RollingRestart, Fault::PauseNode];
    always.shuffle(&mut rng);
    let mut phases = vec![(Fault::Calm, Duration::from_secs(4))];
    phases.extend(always.into_iter().map(|fault| (fault, least(fault))));
    let length = |phases: &[(Fault, Duration)]| phases.iter().map(|(_, d)| d.as_secs()).sum::<u64>();
    let all = [
        Fault::Calm,
        Fault::KillLeader,
        Fault::KillLeader,
        Fault::PauseLeader,
        Fault::PauseNode,
        Fault::KillAll,
        Fault::RollingRestart,
        Fault::KillTwice,
        Fault::KillMajority,
    ];
    while length(&phases) < seconds {
        let fault = all[rng.random_range(0..all.len())];
        phases.push((fault, least(fault)));
    }
    phases
}

fn least(fault: Fault) -> Duration {
    Duration::from_secs(match fault {
        Fault::Calm => 5,
        Fault::KillLeader | Fault::PauseNode => 9,
        Fault::PauseLeader | Fault::KillMajority | Fault::KillTwice => 12,
        Fault::KillAll | Fault::RollingRestart => 13,
    })
}

/// Does the fault, undoes it, and lets the phase last at least `least`. What did not heal as it must is returned.
pub async fn carry_out(
    fault: Fault,
    least: Duration,
    cluster: &mut Cluster,
    recorder: &Recorder,
    rng: &mut StdRng,
) -> Vec<String> {
    let began = Instant::now();
    let mut troubles = Vec::new();
    if let Err(error) = strike(fault, cluster, recorder, rng).await {
        troubles.push(format!("{fault}: {error:#}"));
    }
    if let Err(error) = cluster.assert_all_run() {
        troubles.push(format!("{fault}: {error:#}"));
    }
    sleep_until(began + least).await;
    troubles
}

/// Does the fault and undoes it.
///
/// # Errors
/// A node does not behave as it must.
pub async fn strike(
    fault: Fault,
    cluster: &mut Cluster,
    recorder: &Recorder,
    rng: &mut StdRng,
) -> Result<()> {
    sleep(Duration::from_millis(rng.random_range(300..1_300))).await;
    let any = rng.random_range(0..cluster.len());
    let millis = |rng: &mut StdRng, from: u64, to: u64| Duration::from_millis(rng.random_range(from..to));
    match fault {
        Fault::Calm => Ok(()),
        Fault::KillLeader => {
            let node = a_leader(cluster, rng).await?;
            let gone = millis(rng, 500, 3_000);
            kill_for(&[node], gone, cluster, recorder).await
        }
        Fault::KillAll => {
            let all: Vec<usize> = (0..cluster.len()).collect();
            kill_for(&all, Duration::from_millis(200), cluster, recorder).await
        }
        Fault::KillMajority => {
            let others: Vec<usize> = (0..cluster.len()).filter(|&node| node != any).collect();
            let gone = millis(rng, 1_000, 4_000);
            kill_for(&others, gone, cluster, recorder).await
        }
        Fault::KillTwice => {
            let node = a_leader(cluster, rng).await?;
            cluster.kill(node).await?;
            cluster.spawn(node)?;
            sleep(millis(rng, 5, 600)).await;
            let gone = millis(rng, 10, 1_000);
            kill_for(&[node], gone, cluster, recorder).await
        }
        Fault::PauseLeader => {
            let node = a_leader(cluster, rng).await?;
            let long = millis(rng, 4_000, 7_000);
            pause_for(node, long, cluster, recorder).await
        }
        Fault::PauseNode => {
            let long = millis(rng, 300, 4_000);
            pause_for(any, long, cluster, recorder).await
        }
        Fault::RollingRestart => {
            for node in 0..cluster.len() {
                let from = recorder.now();
                let took = cluster.terminate(node).await?;
                let to = recorder.now();
                cluster.spawn(node)?;
                recorder.record_outage(node, from + u64::try_from(took.as_micros())?, to);
                cluster.wait_ready(node).await?;
                ensure!(took < Duration::from_secs(5), "{} took {took:?} to exit on SIGTERM", name(node));
            }
            Ok(())
        }
    }
}

/// kill -9 of these nodes at once; they come back together after that time.
///
/// # Errors
/// One does not run, or does not come back.
pub async fn kill_for(
    nodes: &[usize],
    gone: Duration,
    cluster: &mut Cluster,
    recorder: &Recorder,
) -> Result<()> {
    // All signals first, so that "at once" is meant.
    for &node in nodes {
        cluster.process(node)?.signal(Signal::Kill)?;
    }
    for &node in nodes {
        cluster.kill(node).await?;
    }
    let from = recorder.now();
    sleep(gone).await;
    for &node in nodes {
        recorder.record_outage(node, from, recorder.now());
        cluster.spawn(node)?;
    }
    for &node in nodes {
        cluster.wait_ready(node).await?;
    }
    Ok(())
}

async fn pause_for(node: usize, long: Duration, cluster: &mut Cluster, recorder: &Recorder) -> Result<()> {
    cluster.pause(node)?;
    let from = recorder.now();
    sleep(long).await;
    recorder.record_outage(node, from, recorder.now());
    cluster.resume(node)
}

async fn a_leader(cluster: &Cluster, rng: &mut StdRng) -> Result<usize> {
    let rows = slot_map(&cluster.addresses()).await.map_err(|e| anyhow!("no slot map: {e}"))?;
    let (_, _, address) = &rows[rng.random_range(0..rows.len())];
    cluster.node_at(address).with_context(|| format!("{address} leads, but is no node of ours"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_schedule_and_every_run_has_the_five() {
        assert_eq!(schedule(7, 60), schedule(7, 60));
        let faults: Vec<Fault> = schedule(7, 60).into_iter().map(|(fault, _)| fault).collect();
        for fault in
            [Fault::KillLeader, Fault::PauseLeader, Fault::KillAll, Fault::RollingRestart, Fault::PauseNode]
        {
            assert!(faults.contains(&fault), "{faults:?}");
        }
        assert!(schedule(7, 600).iter().map(|(_, d)| d.as_secs()).sum::<u64>() >= 600);
    }
}
