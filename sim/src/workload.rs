//! What the clients do: add unique values to streams and read the newest entries back, until told
//! to stop; then, with all faults over, add once more to every key and read everything.

use std::{cell::Cell, collections::BTreeSet, rc::Rc, time::Duration};

use rand::Rng;
use tokio::{task::spawn_local, time::sleep};
use weir_resp::Value;

use crate::{
    client::{Answer, Client, parse_id},
    history::{Add, End, Entry, History, Read},
    net::Grid,
    trace::{Digest, Trace},
};

/// How far the run is. The world moves it on, except for `Ready` and `Finished`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The cluster forms; one client tries each key.
    Forming,
    /// Every key was written once.
    Ready,
    /// Clients work while things go wrong.
    Work,
    /// No more faults; clients finish what they do.
    Heal,
    /// Every key was written once more; what is there is read back.
    Healed,
    /// Everything was read back.
    Finished,
}

/// All clients of a run, on one simulated host.
#[derive(Clone)]
pub(crate) struct Workload {
    pub(crate) phase: Rc<Cell<Phase>>,
    pub(crate) history: History,
    pub(crate) trace: Trace,
    pub(crate) grid: Grid,
    /// `host:port` of every node.
    pub(crate) nodes: Vec<String>,
    pub(crate) keys: Vec<String>,
    pub(crate) clients: usize,
    pub(crate) seed: u64,
}

impl Workload {
    /// The clients' whole life.
    pub(crate) async fn run(self) -> turmoil::Result {
        let mut first = Worker::new(&self, 0);
        for key in &self.keys {
            first.add_until_done(key).await;
        }
        self.trace.line("c0", "every key was written");
        self.phase.set(Phase::Ready);
        while self.phase.get() < Phase::Work {
            sleep(Duration::from_millis(1)).await;
        }
        let workers: Vec<_> =
            (1..=self.clients).map(|index| spawn_local(Worker::new(&self, index).work())).collect();
        while self.phase.get() < Phase::Heal {
            sleep(Duration::from_millis(1)).await;
        }
        for key in &self.keys {
            first.add_until_done(key).await;
        }
        self.trace.line("c0", "every key was written after the faults");
        self.phase.set(Phase::Healed);
        // A client may still wait for an answer that was lost.
        for worker in workers {
            worker.await?;
        }
        for key in &self.keys {
            first.read_all(key).await;
        }
        self.phase.set(Phase::Finished);
        Ok(())
    }
}

/// One client with its place in the run.
struct Worker {
    all: Workload,
    client: Client,
    index: usize,
    name: String,
    sent: u64,
}

impl Worker {
    fn new(all: &Workload, index: usize) -> Self {
        let seed = all.seed.wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(index as u64 + 1));
        Self {
            all: all.clone(),
            client: Client::new(all.nodes.clone(), all.grid.clone(), seed),
            index,
            name: format!("c{index}"),
            sent: 0,
        }
    }

    /// Adds and reads until the work is over.
    async fn work(mut self) {
        while self.all.phase.get() < Phase::Heal {
            let rng = self.client.rng();
            let key = self.all.keys[rng.random_range(0..self.all.keys.len())].clone();
            let patience = Duration::from_millis([300, 1000, 7000][rng.random_range(0..3)]);
            match rng.random_range(0..100u32) {
                0..2 => self.client.disconnect(),
                2..70 => {
                    self.add(&key, patience).await;
                }
                _ => {
                    let count = rng.random_range(1..20);
                    self.read(&key, count, patience).await;
                }
            }
            let pause = self.client.rng().random_range(0..40);
            sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Adds new values until one is answered.
    async fn add_until_done(&mut self, key: &str) {
        while !self.add(key, Duration::from_millis(500)).await {
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Adds one unique value; answers whether that was done.
    async fn add(&mut self, key: &str, patience: Duration) -> bool {
        self.sent += 1;
        let value = format!("{}.{}", self.name, self.sent);
        let called = self.all.trace.precise_now();
        let padding = padding_of(&value);
        let args: [&[u8]; 7] =
            [b"XADD", key.as_bytes(), b"*", b"v", value.as_bytes(), b"padding", padding.as_bytes()];
        let answer = self.client.call(key, &args, patience).await;
        let end = match answer {
            Answer::Value(value) => match value.bytes().and_then(|text| parse_id(text)) {
                Some(id) => End::Done(id),
                None => End::NotDone(format!("strange reply {value:?}")),
            },
            Answer::Refused(why) => End::NotDone(why),
            Answer::Unknown(why) => {
                self.all.trace.line(&self.name, format_args!("unknown: {why}"));
                End::Unknown
            }
        };
        self.all.trace.line(&self.name, format_args!("XADD {key} {value} > {end:?}"));
        let done = matches!(end, End::Done(_));
        let ended = self.all.trace.precise_now();
        self.all.history.add(Add { key: key.to_owned(), value, called, ended, end });
        done
    }

    async fn read(&mut self, key: &str, count: usize, patience: Duration) {
        let called = self.all.trace.precise_now();
        let count_text = count.to_string();
        let args: [&[u8]; 6] = [b"XREVRANGE", key.as_bytes(), b"+", b"-", b"COUNT", count_text.as_bytes()];
        let answer = self.client.call(key, &args, patience).await;
        let ended = self.all.trace.precise_now();
        let mut entries = match self.entries(key, &answer) {
            Ok(entries) => entries,
            Err(why) => {
                self.all.trace.line(&self.name, format_args!("XREVRANGE {key} > {why}"));
                return;
            }
        };
        entries.reverse();
        let newest = entries.last().map_or("nothing", |entry| entry.value.as_str());
        self.all
            .trace
            .line(&self.name, format_args!("XREVRANGE {key} {count} > {} up to {newest}", entries.len()));
        let key = key.to_owned();
        self.all.history.read(Read { client: self.index, key, called, ended, count, entries });
    }

    /// Reads a whole key, again and again until it is answered.
    async fn read_all(&mut self, key: &str) {
        loop {
            let args: [&[u8]; 4] = [b"XRANGE", key.as_bytes(), b"-", b"+"];
            let answer = self.client.call(key, &args, Duration::from_secs(2)).await;
            match self.entries(key, &answer) {
                Ok(entries) => {
                    self.all
                        .trace
                        .line(&self.name, format_args!("{key} holds {} entries at the end", entries.len()));
                    self.all.history.last(key, entries);
                    return;
                }
                Err(why) => self.all.trace.line(&self.name, format_args!("XRANGE {key} > {why}")),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The entries in a reply. Entries whose fields are not what was sent go to the history.
    fn entries(&self, key: &str, answer: &Answer) -> Result<Vec<Entry>, String> {
        let rows = match answer {
            Answer::Value(Value::Array(rows)) => rows,
            other => return Err(format!("{other:?}")),
        };
        let mut entries = Vec::with_capacity(rows.len());
        for row in rows {
            match entry(row) {
                Some(entry) => entries.push(entry),
                None => {
                    self.all.history.damaged(format!("{key} holds a damaged entry: {row:?}"));
                }
            }
        }
        Ok(entries)
    }
}

/// Reads one entry and checks that its fields are the ones that were sent.
fn entry(row: &Value) -> Option<Entry> {
    let Value::Array(parts) = row else { return None };
    let [id, Value::Array(fields)] = parts.as_slice() else { return None };
    let id = parse_id(id.bytes()?)?;
    let fields: Vec<&[u8]> = fields.iter().filter_map(Value::bytes).map(|b| b.as_ref()).collect();
    let [b"v", value, b"padding", padding] = fields.as_slice() else { return None };
    let value = std::str::from_utf8(value).ok()?;
    (padding_of(value).as_bytes() == *padding).then(|| Entry { id, value: value.to_owned() })
}

/// Filler that follows from the value, mostly short, now and then longer than a block of entries.
fn padding_of(value: &str) -> String {
    let mut digest = Digest::default();
    digest.add(value.as_bytes());
    let length = if digest.0.is_multiple_of(40) { 6000 } else { digest.0 % 120 } as usize;
    value.chars().cycle().take(length).collect()
}

/// Keys that cover each of `shards` equal parts of the slots, `per_shard` in each.
pub(crate) fn keys_of_every_shard(shards: u32, per_shard: usize) -> Vec<String> {
    let mut wanted: Vec<usize> = vec![per_shard; shards as usize];
    let mut keys = BTreeSet::new();
    for number in 0.. {
        let key = format!("s{number}");
        let slot = u32::from(weir_stream::key_slot(key.as_bytes()).0);
        let part = (slot * shards / u32::from(weir_stream::SLOT_COUNT)) as usize;
        if wanted[part] > 0 {
            wanted[part] -= 1;
            keys.insert(key);
        }
        if wanted.iter().all(|left| *left == 0) {
            break;
        }
    }
    keys.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_cover_every_shard() {
        let keys = keys_of_every_shard(3, 2);
        assert_eq!(keys.len(), 6);
        let mut parts: Vec<u32> =
            keys.iter().map(|key| u32::from(weir_stream::key_slot(key.as_bytes()).0) * 3 / 16384).collect();
        parts.sort_unstable();
        assert_eq!(parts, [0, 0, 1, 1, 2, 2]);
    }
}
