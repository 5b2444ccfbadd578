//! The file's clients: producers and consumers of the client library, and clients that look at WAIT, at gaps and at the
//! bound. Those of a zone share a host.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{
    task::spawn_local,
    time::{Instant, sleep, sleep_until},
};
use weir_client::{Fate, Options, Producer};
use weir_env::Env;
use weir_resp::Value;
use weir_tests::client::Fate as Answer;

use super::shape::Checked;
use crate::{client::Client, disk::medium::lock, net::Grid};

/// Clients for each shard that write again and again, to see gaps.
const PROBES: usize = 2;
const PROBE_EVERY: Duration = Duration::from_millis(10);
/// Pause between two looks at WAIT with one limit.
const WAIT_EVERY: Duration = Duration::from_millis(40);
/// An append that is not answered within this has failed.
const APPEND_MAX: Duration = Duration::from_secs(20);
const GROUP: &str = "workers";

/// How far the run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Forming,
    /// So many writers at once.
    Bound,
    /// Between two such numbers.
    Pause,
    Load,
    /// No more is added; consumers work off what is there.
    Rest,
    Over,
}

/// What the clients of all zones write down.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Answered appends: when, and how long it took.
    pub(crate) appends: Vec<(Duration, Duration)>,
    /// What they appended, and what was handled.
    pub(crate) appended: BTreeSet<u64>,
    pub(crate) handled: BTreeSet<u64>,
    pub(crate) deliveries: u64,
    pub(crate) unknown: u64,
    pub(crate) failed: u64,
    pub(crate) waits: BTreeMap<u64, Vec<u64>>,
    /// When writes were answered, by shard.
    pub(crate) probes: BTreeMap<u32, Vec<Duration>>,
    /// How long writes took when many were made at once.
    pub(crate) bound: Vec<Duration>,
    numbers: u64,
}

/// What all clients share.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) phase: Rc<Cell<Phase>>,
    /// Hosts whose clients are ready.
    pub(crate) ready: Rc<Cell<usize>>,
    /// Writers at once, of all hosts.
    pub(crate) at_once: Rc<Cell<usize>>,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    pub(crate) nodes: Vec<String>,
    pub(crate) grid: Grid,
    pub(crate) shape: Rc<Checked>,
    /// One key of each shard, for gaps.
    pub(crate) probed: Rc<Vec<String>>,
    pub(crate) streams: Rc<Vec<String>>,
    pub(crate) seed: u64,
}

/// The shard of a key in a fresh cluster.
pub(crate) fn shard_of(key: &str, shards: u32) -> u32 {
    u32::from(weir_stream::key_slot(key.as_bytes()).0) * shards / u32::from(weir_stream::SLOT_COUNT)
}

fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

impl Stage {
    /// The clients of one host, the `part`th of `parts`.
    pub(crate) async fn run(self, env: Env, part: usize, parts: usize) -> turmoil::Result {
        let mut first = self.client(part, 0);
        for key in self.probed.iter().chain(self.streams.iter()) {
            // Until the cluster has formed.
            while first.insist(key, &words(&["XLEN", key])).await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        }
        let options = Options::default().env(env).timeout(APPEND_MAX).attempt_timeout(Duration::from_secs(1));
        let client = weir_client::Client::connect_with(self.nodes.clone(), options).await?;
        let mine = |number: &usize| number % parts == part;
        let mut workers = Vec::new();
        for number in (0..self.shape.consumers).filter(mine) {
            for stream in self.share(number, self.shape.consumers) {
                workers.push(self.consumer(&client, &stream, number).await?);
            }
        }
        for number in (0..self.shape.producers).filter(mine) {
            let mut producers = Vec::new();
            for stream in self.share(number, self.shape.producers) {
                producers.push(client.producer(&stream).open().await?);
            }
            spawn_local(self.clone().produce(producers, number));
        }
        // Shards are watched from everywhere, by whoever is first in order.
        for (number, key) in
            (0..self.probed.len() * PROBES).filter(mine).map(|n| (n, &self.probed[n / PROBES]))
        {
            spawn_local(self.clone().probe(self.client(part, 100 + number), key.clone()));
        }
        for (number, limit_ms) in self.shape.wait_ms.iter().enumerate() {
            if mine(&number) {
                // WAIT speaks of all that its connection wrote, so each shard has connections of its own.
                let clients = (0..self.probed.len())
                    .map(|shard| self.client(part, 1000 + number * self.probed.len() + shard))
                    .collect();
                spawn_local(self.clone().wait(clients, *limit_ms));
            }
        }
        let most = self.shape.writers_at_once.iter().copied().max().unwrap_or(0);
        for number in (0..most).filter(mine) {
            spawn_local(self.clone().write(self.client(part, 10_000 + number), number));
        }
        self.ready.set(self.ready.get() + 1);
        self.reach(Phase::Over).await;
        for worker in workers {
            // The run is over; nobody waits for what is in hand.
            let _ = worker.abort().await;
        }
        Ok(())
    }

    fn client(&self, part: usize, number: usize) -> Client {
        let seed = self.seed ^ ((part as u64) << 32 | number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut client = Client::new(self.nodes.clone(), self.grid.clone(), seed);
        client.patience = self.shape.answer;
        client.never_stray();
        client
    }

    /// The streams of the `number`th of `all`: every stream is somebody's, everybody has a stream.
    fn share(&self, number: usize, all: usize) -> Vec<String> {
        let streams = self.streams.len();
        if streams <= all {
            return vec![self.streams[number % streams].clone()];
        }
        (0..streams)
            .filter(|stream| stream % all == number)
            .map(|stream| self.streams[stream].clone())
            .collect()
    }

    async fn reach(&self, phase: Phase) {
        while self.phase.get() < phase {
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn consumer(
        &self,
        client: &weir_client::Client,
        stream: &str,
        number: usize,
    ) -> Result<weir_client::Worker, weir_client::Error> {
        let (ledger, work) = (self.ledger.clone(), self.shape.work);
        let worker = client.worker(stream, GROUP, format!("c{number}")).lease(self.shape.lease);
        worker
            .run(move |delivery| {
                let ledger = ledger.clone();
                async move {
                    let number = delivery.entry.get_str("n").and_then(|n| n.parse().ok()).unwrap_or(0);
                    lock(&ledger).deliveries += 1;
                    sleep(work).await;
                    lock(&ledger).handled.insert(number);
                    Ok::<(), String>(())
                }
            })
            .await
    }

    /// Appends at its part of the rate, whether or not what went before was answered.
    async fn produce(self, producers: Vec<Producer>, number: usize) {
        self.reach(Phase::Load).await;
        let every = Duration::from_secs_f64(self.shape.producers as f64 / self.shape.rate);
        // Not all at the same moment.
        let mut next = Instant::now() + every.mul_f64(number as f64 / self.shape.producers as f64);
        let filler = "x".repeat(self.shape.entry_bytes);
        for turn in 0.. {
            sleep_until(next).await;
            if self.phase.get() > Phase::Load {
                return;
            }
            let n = {
                let mut ledger = lock(&self.ledger);
                ledger.numbers += 1;
                ledger.numbers
            };
            let began = now();
            let producer = &producers[turn % producers.len()];
            match producer.send([("n", n.to_string().as_str()), ("filler", &filler)]).await {
                Ok(appended) => {
                    let ledger = self.ledger.clone();
                    spawn_local(async move {
                        let end = appended.await;
                        let mut ledger = lock(&ledger);
                        match end {
                            Ok(_) => {
                                ledger.appends.push((now(), now() - began));
                                ledger.appended.insert(n);
                            }
                            Err(error) if error.fate() == Fate::Unknown => ledger.unknown += 1,
                            Err(_) => ledger.failed += 1,
                        }
                    });
                }
                Err(_) => lock(&self.ledger).failed += 1,
            }
            next += every;
        }
    }

    /// Writes again and again and notes when it was answered.
    async fn probe(self, mut client: Client, key: String) {
        let shard = shard_of(&key, self.shape.shards);
        let command = words(&["XADD", &key, "MAXLEN", "~", "1000", "*", "a", "1"]);
        self.reach(Phase::Load).await;
        while self.phase.get() == Phase::Load {
            match client.attempt(&key, &command).await {
                Answer::Done(_) => lock(&self.ledger).probes.entry(shard).or_default().push(now()),
                Answer::Refused(error) if error.starts_with("MOVED") => continue,
                _ => {}
            }
            sleep(PROBE_EVERY).await;
        }
    }

    /// Adds, then asks WAIT how many other copies there are.
    async fn wait(self, mut clients: Vec<Client>, limit_ms: u64) {
        let others = self.shape.nodes.len().min(3) - 1;
        lock(&self.ledger).waits.insert(limit_ms, vec![0; others + 1]);
        self.reach(Phase::Load).await;
        let mut rng = StdRng::seed_from_u64(self.seed ^ limit_ms);
        while self.phase.get() == Phase::Load {
            let shard = rng.random_range(0..self.probed.len());
            let (key, client) = (self.probed[shard].clone(), &mut clients[shard]);
            let added =
                client.attempt(&key, &words(&["XADD", &key, "MAXLEN", "~", "1000", "*", "a", "1"])).await;
            if let (Answer::Done(_), Some(leader)) = (added, client.leader_of(&key)) {
                let command = words(&["WAIT", &others.to_string(), &limit_ms.to_string()]);
                if let Answer::Done(Value::Int(count)) = client.attempt_at(&leader, &command).await {
                    let mut ledger = lock(&self.ledger);
                    let counts = ledger.waits.entry(limit_ms).or_default();
                    if let Some(count) = usize::try_from(count).ok().and_then(|count| counts.get_mut(count)) {
                        *count += 1;
                    }
                }
            }
            sleep(WAIT_EVERY).await;
        }
    }

    /// One of the writers at once.
    async fn write(self, mut client: Client, number: usize) {
        let mut rng = StdRng::seed_from_u64(self.seed ^ number as u64);
        let filler = "x".repeat(self.shape.entry_bytes);
        let key = format!("bound-{number}-{}", rng.random::<u32>());
        let command = words(&["XADD", &key, "MAXLEN", "~", "1000", "*", "filler", &filler]);
        while self.phase.get() < Phase::Load {
            if self.phase.get() != Phase::Bound || number >= self.at_once.get() {
                sleep(Duration::from_millis(1)).await;
                continue;
            }
            let began = now();
            if let Answer::Done(_) = client.attempt(&key, &command).await {
                lock(&self.ledger).bound.push(now() - began);
            }
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
