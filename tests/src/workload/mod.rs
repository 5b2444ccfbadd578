//! Ordinary clients, each a task with connections of its own, writing down every call.

mod consumer;
mod producer;
mod reader;
mod stubborn;
mod waiter;

use crate::client::{ClusterClient, Fate, is_passing, slot_map};
use crate::history::{
    History, Id, LastState, Op, Outcome, Recorder, Token, What, read_entries, read_stream_entries,
};
use crate::slots::slot_of;
use anyhow::{Context, Result, anyhow};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use weir_resp::Value;

/// Consumer groups of every stream.
pub const GROUPS: [&str; 2] = ["g0", "g1"];

/// How many clients of each kind.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// Streams a shard.
    pub keys_per_shard: usize,
    /// XADD in a loop.
    pub producers: usize,
    /// XREADGROUP and XACK in a loop, spread over the groups.
    pub consumers: usize,
    /// XRANGE, XREVRANGE, XREAD BLOCK and follower reads in a loop.
    pub readers: usize,
    /// XADD and WAIT in a loop.
    pub waiters: usize,
    /// All of the above at one node each, whatever it answers; as many as nodes, or 0.
    pub stubborn: usize,
    /// XADDs a second of all producers together, at most.
    pub rate: u32,
}

/// What all clients of a run share.
#[derive(Debug)]
pub struct Stage {
    /// Names of the streams.
    pub keys: Vec<String>,
    /// For each stream the shard (by number of the slot range's leader at the start).
    pub shards: Vec<usize>,
    /// Number of shards.
    pub shard_count: usize,
    /// Addresses of the nodes.
    pub seeds: Vec<String>,
    /// Where calls are written down.
    pub recorder: Recorder,
    tokens: AtomicU64,
    seed: u64,
}

impl Stage {
    /// Chooses streams so that every shard has some, and creates them with their groups.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn set(seeds: Vec<String>, crowd: &Crowd, seed: u64) -> Result<Arc<Stage>> {
        let rows = slot_map(&seeds).await.map_err(|e| anyhow!("no slot map: {e}"))?;
        Stage::set_over(seeds, &rows, &format!("work:{seed}"), crowd, seed).await
    }

    /// As [`Stage::set`], with a slot map that may be old (shards keep their slots) and names that begin with `prefix`.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn set_over(
        seeds: Vec<String>,
        rows: &[(u16, u16, String)],
        prefix: &str,
        crowd: &Crowd,
        seed: u64,
    ) -> Result<Arc<Stage>> {
        let mut leaders: Vec<&String> = rows.iter().map(|(_, _, leader)| leader).collect();
        leaders.sort();
        leaders.dedup();
        let mut keys = Vec::new();
        let mut shards = Vec::new();
        let mut missing = vec![crowd.keys_per_shard; leaders.len()];
        for n in 0..100_000 {
            let key = format!("{prefix}:{n}");
            let slot = slot_of(key.as_bytes());
            let row = rows.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
            let (_, _, leader) = row.with_context(|| format!("nobody leads slot {slot}"))?;
            let shard = leaders.binary_search(&leader).expect("a leader of the list");
            if missing[shard] > 0 {
                missing[shard] -= 1;
                keys.push(key);
                shards.push(shard);
            }
            if missing.iter().all(|&n| n == 0) {
                break;
            }
        }
        let shard_count = leaders.len();
        let recorder = Recorder::default();
        let stage = Stage { keys, shards, shard_count, seeds, recorder, tokens: AtomicU64::new(1), seed };
        let mut client = ClusterClient::new(&stage.seeds, Duration::from_secs(6));
        for key in &stage.keys {
            for group in GROUPS {
                let command = ["XGROUP", "CREATE", key, group, "0", "MKSTREAM"];
                client.insist(key, &command, Duration::from_secs(20)).await.map_err(|e| anyhow!(e))?;
            }
        }
        Ok(Arc::new(stage))
    }

    fn token(&self) -> Token {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    fn rng(&self, client: u32) -> StdRng {
        StdRng::seed_from_u64(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(client)))
    }

    /// Makes a call and writes it down; `None` when nothing was sent.
    async fn call(
        &self,
        client: &mut ClusterClient,
        number: u32,
        key: usize,
        what: What,
        command: &[String],
    ) -> Option<Outcome> {
        let started = self.recorder.now();
        let fate = client.attempt(&self.keys[key], command).await;
        self.write_down(number, key, started, time_limit(command), what, fate)
    }

    fn write_down(
        &self,
        number: u32,
        key: usize,
        started: u64,
        limit: u64,
        what: What,
        fate: Fate,
    ) -> Option<Outcome> {
        let outcome = match fate {
            Fate::Unreachable => {
                self.recorder.record_unreachable();
                return None;
            }
            Fate::Refused(error) => Outcome::Refused(error),
            Fate::Unknown(error) => Outcome::Unknown(error),
            // A reply of a wrong shape is a refusal in nobody's dictionary; the checker will complain.
            Fate::Done(reply) => read_outcome(&what, &reply)
                .unwrap_or_else(|error| Outcome::Refused(format!("BADREPLY {error}"))),
        };
        self.recorder.record(Op {
            client: number,
            key: u16::try_from(key).expect("few keys"),
            started,
            ended: self.recorder.now(),
            limit,
            what,
            outcome: outcome.clone(),
        });
        Some(outcome)
    }
}

/// The time that a command gives the server, in microseconds: BLOCK's or WAIT's; 0: none.
pub fn time_limit(command: &[String]) -> u64 {
    let ms = match command.first().map(String::as_str) {
        Some("WAIT") => command.get(2),
        _ => command.iter().position(|word| word == "BLOCK").and_then(|at| command.get(at + 1)),
    };
    ms.and_then(|ms| ms.parse::<u64>().ok()).map_or(0, |ms| ms * 1000)
}

/// What a reply that is no error says about the call.
///
/// # Errors
/// A reply of another shape.
pub fn read_outcome(what: &What, reply: &Value) -> Result<Outcome, String> {
    match what {
        What::Add { .. } => {
            let id = reply
                .bytes()
                .and_then(|b| std::str::from_utf8(b).ok())
                .ok_or_else(|| format!("{reply:?}"))?;
            Ok(Outcome::Added(id.parse()?))
        }
        What::AddAll { .. } => match reply {
            Value::Array(ids) => {
                let id = |id: &Value| std::str::from_utf8(id.bytes()?).ok()?.parse().ok();
                let ids: Option<Vec<Id>> = ids.iter().map(id).collect();
                ids.map(Outcome::AddedAll).ok_or_else(|| format!("{reply:?}"))
            }
            other => Err(format!("{other:?}")),
        },
        What::Deliver { .. } | What::Take { .. } | What::Pending { .. } => {
            read_stream_entries(reply).map(Outcome::Entries)
        }
        What::Claim { .. } => match reply {
            // XAUTOCLAIM wraps what XCLAIM answers bare.
            Value::Array(parts)
                if matches!(parts.as_slice(), [Value::Bulk(_), Value::Array(_), Value::Array(_)]) =>
            {
                read_entries(&parts[1]).map(Outcome::Entries)
            }
            other => read_entries(other).map(Outcome::Entries),
        },
        What::Read { .. } => match reply {
            // XREAD wraps the entries once more than XRANGE.
            Value::Array(rows) if matches!(rows.first(), Some(Value::Array(one)) if matches!(one.get(1), Some(Value::Array(e)) if matches!(e.first(), Some(Value::Array(_))))) => {
                read_stream_entries(reply).map(Outcome::Entries)
            }
            other => read_entries(other).map(Outcome::Entries),
        },
        What::Ack { .. } | What::Wait { .. } => match reply {
            Value::Int(n) => u64::try_from(*n).map(Outcome::Count).map_err(|e| e.to_string()),
            other => Err(format!("{other:?}")),
        },
    }
}

fn line(words: &[&str]) -> Vec<String> {
    words.iter().map(|&w| w.to_owned()).collect()
}

fn add_line(key: &str, token: Token, padding: usize) -> Vec<String> {
    line(&["XADD", key, "*", "t", &token.to_string(), "pad", &"x".repeat(padding)])
}

/// How long a client waits after a call that was not answered.
async fn pause_after(outcome: Option<&Outcome>) {
    let ms = match outcome {
        Some(Outcome::Refused(error)) if error.starts_with("MOVED") => 2,
        Some(Outcome::Refused(_) | Outcome::Unknown(_)) | None => 20,
        Some(_) => return,
    };
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// The clients of a run, until they are told to go home.
#[derive(Debug)]
pub struct Clients {
    stop: watch::Sender<bool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Clients {
    /// Starts them.
    pub fn start(stage: &Arc<Stage>, crowd: &Crowd) -> Clients {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = Vec::new();
        let mut number = 0;
        let mut next = || {
            number += 1;
            number
        };
        let pace =
            Duration::from_secs(1) * u32::try_from(crowd.producers.max(1)).expect("few") / crowd.rate.max(1);
        for _ in 0..crowd.producers {
            tasks.push(tokio::spawn(producer::run(stage.clone(), next(), pace, stopped.clone())));
        }
        for n in 0..crowd.consumers {
            let group = u8::try_from(n % GROUPS.len()).expect("few groups");
            tasks.push(tokio::spawn(consumer::run(stage.clone(), next(), group, stopped.clone())));
        }
        for n in 0..crowd.readers {
            tasks.push(tokio::spawn(reader::run(stage.clone(), next(), n % 2 == 1, stopped.clone())));
        }
        for _ in 0..crowd.waiters {
            tasks.push(tokio::spawn(waiter::run(stage.clone(), next(), stopped.clone())));
        }
        for address in stage.seeds.iter().take(crowd.stubborn) {
            tasks.push(tokio::spawn(stubborn::run(stage.clone(), next(), address.clone(), stopped.clone())));
        }
        Clients { stop, tasks }
    }

    /// Lets each finish its call and waits for all.
    ///
    /// # Errors
    /// A client panicked.
    pub async fn stop(self) -> Result<()> {
        self.stop.send_replace(true);
        for task in self.tasks {
            task.await.context("a client panicked")?;
        }
        Ok(())
    }
}

/// Reads everything back once the faults are over: each stream whole; what a group had not delivered is delivered to
/// one more consumer (written down like every delivery); then each group's pending list.
///
/// # Errors
/// Something is not answered within a minute.
pub async fn read_back(stage: &Stage) -> Result<Vec<LastState>> {
    let within = Duration::from_secs(60);
    let mut client = ClusterClient::new(&stage.seeds, Duration::from_secs(6));
    let mut last = Vec::new();
    for (number, key) in stage.keys.iter().enumerate() {
        let mut state = LastState::default();
        let mut from = Id::ZERO;
        loop {
            let command = line(&["XRANGE", key, &from.to_string(), "+", "COUNT", "1000"]);
            let page = client.insist(key, &command, within).await.map_err(|e| anyhow!(e))?;
            let page = read_entries(&page).map_err(|e| anyhow!(e))?;
            let Some(&(highest, _)) = page.last() else { break };
            from = highest.next();
            state.entries.extend(page);
        }
        for (group, name) in GROUPS.iter().enumerate() {
            drain(stage, &mut client, number, group).await?;
            let (owners, counts) = pending_of(&mut client, key, name).await?;
            state.pending.push(owners);
            state.deliveries.push(counts);
        }
        last.push(state);
    }
    Ok(last)
}

/// Waits until every stream takes writes.
///
/// # Errors
/// One does not `within` that time.
pub async fn every_stream_answers(stage: &Stage, within: Duration) -> Result<()> {
    let mut client = ClusterClient::new(&stage.seeds, Duration::from_secs(6));
    for key in &stage.keys {
        // Answers like a write and changes nothing.
        let command = ["XACK", key, "g0", "0-1"];
        if let Err(error) = client.insist(key, &command, within).await {
            return Err(anyhow!("the cluster does not heal: {error}"));
        }
    }
    Ok(())
}

/// Number of the consumer that [`read_back`] uses.
pub const LAST_CONSUMER: u16 = u16::MAX;

async fn drain(stage: &Stage, client: &mut ClusterClient, key: usize, group: usize) -> Result<()> {
    let consumer = format!("c{LAST_CONSUMER}");
    let command = line(&[
        "XREADGROUP",
        "GROUP",
        GROUPS[group],
        &consumer,
        "COUNT",
        "500",
        "STREAMS",
        &stage.keys[key],
        ">",
    ]);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let what = What::Deliver { group: u8::try_from(group)?, consumer: LAST_CONSUMER };
        match stage.call(client, 0, key, what, &command).await {
            Some(Outcome::Entries(entries)) if entries.is_empty() => return Ok(()),
            Some(Outcome::Entries(_)) => {}
            // The group is gone, say; the checker complains about it.
            Some(Outcome::Refused(error)) if !is_passing(&error) => return Ok(()),
            other if tokio::time::Instant::now() > deadline => {
                return Err(anyhow!("{} {}: {other:?}", stage.keys[key], GROUPS[group]));
            }
            other => pause_after(other.as_ref()).await,
        }
    }
}

/// Owner and number of deliveries of every pending entry.
type Owned = (BTreeMap<Id, u16>, BTreeMap<Id, u64>);

async fn pending_of(client: &mut ClusterClient, key: &str, group: &str) -> Result<Owned> {
    let (mut pending, mut counts) = Owned::default();
    let mut from = Id::ZERO;
    loop {
        let command = line(&["XPENDING", key, group, &from.to_string(), "+", "1000"]);
        let reply = match client.insist(key, &command, Duration::from_secs(60)).await {
            Err(error) if error.starts_with("NOGROUP") => return Ok((pending, counts)),
            other => other.map_err(|e| anyhow!(e))?,
        };
        let Value::Array(rows) = &reply else { return Err(anyhow!("XPENDING {key}: {reply:?}")) };
        if rows.is_empty() {
            return Ok((pending, counts));
        }
        for row in rows {
            let (id, owner, count) = pending_row(row).with_context(|| format!("XPENDING {key}: {row:?}"))?;
            pending.insert(id, owner);
            counts.insert(id, count);
            from = id.next();
        }
    }
}

/// A row of XPENDING's long form: id, owner, deliveries. Consumers are named `c` and a number.
pub fn pending_row(row: &Value) -> Option<(Id, u16, u64)> {
    let Value::Array(row) = row else { return None };
    let text = |at: usize| std::str::from_utf8(row.get(at)?.bytes()?).ok();
    let Value::Int(count) = row.get(3)? else { return None };
    Some((text(0)?.parse().ok()?, text(1)?.strip_prefix('c')?.parse().ok()?, u64::try_from(*count).ok()?))
}

/// Puts a run together for the checker.
pub fn history(
    stage: &Stage,
    ops: Vec<Op>,
    outages: Vec<crate::history::Outage>,
    last: Vec<LastState>,
) -> History {
    History {
        keys: stage.keys.clone(),
        groups: GROUPS.iter().map(|g| (*g).to_owned()).collect(),
        nodes: stage.seeds.len(),
        ops,
        outages,
        disturbances: Vec::new(),
        expected_errors: Vec::new(),
        // Clients and nodes share a machine with whatever else runs there.
        late_max: 2_000_000,
        wait_late_max: 2_000_000,
        last,
    }
}

fn pick(rng: &mut StdRng, stage: &Stage) -> usize {
    rng.random_range(0..stage.keys.len())
}
