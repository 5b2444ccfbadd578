//! One round: clients work, a fault strikes, everything heals, and what clients saw is checked, by the same invariants
//! as everywhere.
//!
//! Each round has streams of its own, and keeps them for one more round: they are read back and checked a second time
//! when the next fault has passed over them, and only then deleted. So a run needs room for two rounds, however long
//! it is.

use super::fault::{self, Fault};
use super::table::Row;
use super::world::World;
use crate::check::{self, Violation};
use crate::client::ClusterClient;
use crate::history::{Disturbance, History, Op, Outcome, What};
use crate::report::longest_gap;
use crate::workload::{self, Clients, Crowd, Stage};
use anyhow::{Context, Result, anyhow, bail};
use rand::Rng;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long after the end of the faults every slot must take writes. Ten times the longest election timeout is what
/// the nodes need; the rest is for a machine that has other work, and for connections that back off.
pub const HEAL_WITHIN: Duration = Duration::from_secs(15);
/// After that a run is given up.
const HEAL_MAX: Duration = Duration::from_secs(60);

/// What does not change from round to round.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Draws everything.
    pub seed: u64,
    /// XADDs a second of all producers together, at most.
    pub rate: u32,
}

/// A round whose streams are still there.
#[derive(Debug)]
pub struct Past {
    number: u64,
    stage: Arc<Stage>,
    history: History,
}

/// What came of a round.
#[derive(Debug)]
pub struct Played {
    /// Its line in the table.
    pub row: Row,
    /// What was violated in it.
    pub violations: Vec<Violation>,
    /// What clients saw. If an earlier round's streams broke, that round's.
    pub history: History,
}

/// Plays a round. `past` is the round before, and becomes this one.
///
/// # Errors
/// The cluster does not serve any more, so that nothing can be checked.
pub async fn play(
    world: &mut World,
    number: u64,
    fault: Fault,
    setting: Setting,
    past: &mut Option<Past>,
) -> Result<Played> {
    let began = Instant::now();
    let mut rng = fault::rng_of(setting.seed, number);
    let crowd = Crowd {
        keys_per_shard: 4,
        producers: 10,
        consumers: 6,
        readers: 4,
        waiters: 2,
        stubborn: world.nodes(),
        rate: setting.rate,
    };
    let prefix = format!("chaos:{}:{number}", setting.seed);
    let addresses = world.cluster.addresses();
    let stage = Stage::set_over(addresses, &world.shards, &prefix, &crowd, rng.random())
        .await
        .context("the workload cannot begin")?;
    world.choose_disks(&mut rng);
    let clients = Clients::start(&stage, &crowd);
    let from = stage.recorder.now();
    sleep(Duration::from_millis(rng.random_range(300..900))).await;

    let struck = stage.recorder.now();
    let mut troubles = Vec::new();
    let done = fault::strike(fault, world, &stage.recorder, &mut rng).await;
    let what = done.unwrap_or_else(|error| {
        troubles.push(format!("{error:#}"));
        String::new()
    });
    let healing = Instant::now();
    match world.heal().await {
        Ok(ended) => troubles.extend(ended),
        Err(error) => bail!("{error:#} {}", troubles.join("; ")),
    }
    every_slot_takes_adds(&stage).await?;
    let heal = healing.elapsed();
    if heal > HEAL_WITHIN {
        troubles.push(format!("all slots took writes only {heal:?} after the end of the fault"));
    }
    let healed = stage.recorder.now();
    sleep(Duration::from_millis(rng.random_range(500..1_000))).await;
    let to = stage.recorder.now();
    clients.stop().await?;
    let last = workload::read_back(&stage).await.context("reading everything back")?;

    let (ops, outages, _) = stage.recorder.take();
    let mut history = workload::history(&stage, ops, outages, last);
    if fault != Fault::Calm {
        history.disturbances.push(Disturbance { from: struck, to: healed });
    }
    history.expected_errors = fault.errors().iter().map(|&error| error.to_owned()).collect();
    let mut violations = check::check(&history);
    violations.extend(troubles.into_iter().map(|text| Violation {
        invariant: "nodes_come_back",
        at: struck,
        text,
    }));

    let mut broken = None;
    if let Some(mut before) = past.take() {
        let again = check_again(&mut before).await?;
        if !again.is_empty() {
            violations.extend(again);
            broken = Some(before.history);
        }
    }
    let row = Row {
        round: number,
        fault: fault.to_string(),
        what,
        seconds: began.elapsed().as_secs_f64(),
        answered: count(&history, |op| matches!(op.outcome, Outcome::Added(_))),
        unknown: count(&history, |op| {
            matches!((&op.what, &op.outcome), (What::Add { .. }, Outcome::Unknown(_)))
        }),
        gap_ms: longest_gap(from, to, &history, &stage.shards) / 1000,
        heal_ms: u64::try_from(heal.as_millis())?,
        redeliveries: history.ops.iter().map(claimed).sum(),
        violations: violations.len(),
    };
    let shown = broken.unwrap_or_else(|| history.clone());
    *past = Some(Past { number, stage, history });
    Ok(Played { row, violations, history: shown })
}

/// Waits until there is leadership, and room on disk, for an XADD beside every stream.
async fn every_slot_takes_adds(stage: &Stage) -> Result<()> {
    let mut client = ClusterClient::new(&stage.seeds, Duration::from_secs(6));
    let deadline = Instant::now() + HEAL_MAX;
    for key in &stage.keys {
        let probe = probe(key);
        let command = ["XADD", &probe, "MAXLEN", "1", "*", "a", "1"];
        // A node that ran out of disk looks every few seconds whether there is room again.
        while let Err(error) = client.insist(&probe, &command, HEAL_MAX).await {
            if !error.starts_with("OOM") || Instant::now() > deadline {
                bail!("the cluster does not heal: {error}");
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// A key of the same slot as a stream.
fn probe(key: &str) -> String {
    format!("{{{key}}}")
}

/// Reads the streams of an earlier round back once more, checks them again, and deletes them.
async fn check_again(past: &mut Past) -> Result<Vec<Violation>> {
    let again = format!("the streams of round {}, a round later", past.number);
    past.history.last = workload::read_back(&past.stage).await.with_context(|| again.clone())?;
    let (ops, ..) = past.stage.recorder.take();
    past.history.ops.extend(ops);
    let mut violations = check::check(&past.history);
    for violation in &mut violations {
        violation.text = format!("{again}: {}", violation.text);
    }
    let mut client = ClusterClient::new(&past.stage.seeds, Duration::from_secs(6));
    for key in &past.stage.keys {
        let deleted = client.insist(key, &["DEL", key, &probe(key)], HEAL_MAX).await;
        deleted.map_err(|error| anyhow!("DEL {key}: {error}"))?;
    }
    Ok(violations)
}

fn count(history: &History, wanted: fn(&Op) -> bool) -> usize {
    history.ops.iter().filter(|op| wanted(op)).count()
}

/// Entries that a claim took from one consumer and gave to another.
fn claimed(op: &Op) -> usize {
    match (&op.what, &op.outcome) {
        (What::Claim { .. }, Outcome::Entries(entries)) => entries.len(),
        _ => 0,
    }
}
