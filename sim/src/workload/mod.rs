//! What the clients do. All of them live on one simulated host; each has connections of its own and writes down every
//! call in the history format of the process test, so that the same checks judge both.

mod consumer;
mod producer;
mod quitter;
mod reader;
mod repeater;
mod scratcher;
mod surface;
mod taker;
mod the_end;
mod timed;
mod waiter;

use std::{cell::Cell, collections::BTreeSet, rc::Rc, time::Duration};

use rand::Rng;
use tokio::{task::spawn_local, time::sleep};
use weir_resp::Value;
use weir_tests::{
    client::{Fate, is_passing},
    history::{Op, Outcome, What},
    workload::{read_outcome, time_limit},
};

use crate::{
    book::Book,
    client::Client,
    disk::SimDisk,
    net::Grid,
    plan::Crowd,
    trace::{Digest, Trace},
};

/// Consumer groups of every stream. Readers of the last one never acknowledge.
pub(crate) const GROUPS: [&str; 3] = ["g0", "g1", "g2"];
/// The group that is read with NOACK alone.
const NOACK_GROUP: u8 = 2;

/// How far the run is. The world moves it on, except for `Ready`, `Healed` and `Finished`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The cluster forms; one client makes the streams.
    Forming,
    /// Every stream has its groups and was written once.
    Ready,
    /// Clients work while things go wrong.
    Work,
    /// No more faults; clients finish what they do.
    Heal,
    /// Every key was written once more; what is there is read back.
    Healed,
    /// Everything was read back and acknowledged.
    Finished,
}

/// What all clients of a run share.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) phase: Rc<Cell<Phase>>,
    pub(crate) book: Book,
    pub(crate) trace: Trace,
    pub(crate) grid: Grid,
    /// `host:port` of every node, and its disk.
    pub(crate) nodes: Vec<(String, SimDisk)>,
    pub(crate) keys: Vec<String>,
    /// Keys that are deleted and made again.
    pub(crate) scratch: Vec<String>,
    /// Hash tags of pairs of a stream and a counter.
    pub(crate) surface: Vec<String>,
    /// Keys that end, one for each client that sets one.
    pub(crate) timed: Vec<String>,
    pub(crate) crowd: Crowd,
    pub(crate) calls_max: Option<u64>,
    /// The planted bug that is in the clients, if that one is planted.
    pub(crate) repeat_plainly: bool,
    /// Moves when all clients' connections break.
    pub(crate) cuts: Rc<Cell<u64>>,
    pub(crate) seed: u64,
}

impl Stage {
    /// The clients' whole life.
    pub(crate) async fn run(self) -> turmoil::Result {
        let mut first = Worker::new(&self, 0);
        first.client.patience = Duration::from_millis(600);
        first.make_streams().await;
        first.make_surface().await;
        self.trace.line("c0", "every key has its groups and was written");
        self.phase.set(Phase::Ready);
        while self.phase.get() < Phase::Work {
            sleep(Duration::from_millis(1)).await;
        }
        let workers = self.start();
        while self.phase.get() < Phase::Heal {
            sleep(Duration::from_millis(1)).await;
        }
        for key in 0..self.keys.len() {
            first.add_until_done(key).await;
        }
        self.trace.line("c0", "every key was written after the faults");
        self.phase.set(Phase::Healed);
        // A client may still wait for an answer that was lost.
        for worker in workers {
            worker.await?;
        }
        first.read_back().await;
        first.settle().await;
        self.phase.set(Phase::Finished);
        Ok(())
    }

    fn start(&self) -> Vec<tokio::task::JoinHandle<()>> {
        let crowd = self.crowd;
        let mut workers = Vec::new();
        let mut next = 0;
        let mut worker = || {
            next += 1;
            Worker::new(self, next)
        };
        for _ in 0..crowd.producers {
            workers.push(spawn_local(producer::run(worker())));
        }
        for _ in 0..crowd.repeaters {
            workers.push(spawn_local(repeater::run(worker())));
        }
        for number in 0..crowd.consumers {
            workers.push(spawn_local(consumer::run(worker(), (number % 2) as u8)));
        }
        for _ in 0..crowd.takers {
            workers.push(spawn_local(taker::run(worker())));
        }
        for _ in 0..crowd.quitters {
            workers.push(spawn_local(quitter::run(worker())));
        }
        for number in 0..crowd.readers {
            workers.push(spawn_local(reader::run(worker(), number % 2 == 1)));
        }
        for _ in 0..crowd.waiters {
            workers.push(spawn_local(waiter::run(worker())));
        }
        for _ in 0..crowd.scratchers {
            workers.push(spawn_local(scratcher::run(worker())));
        }
        for _ in 0..crowd.surface {
            workers.push(spawn_local(surface::run(worker(), crowd.mix)));
        }
        for own in 0..crowd.timed {
            workers.push(spawn_local(timed::run(worker(), own)));
        }
        workers
    }
}

/// One client with its place in the run.
struct Worker {
    stage: Stage,
    client: Client,
    number: u32,
    name: String,
    cuts_seen: u64,
}

impl Worker {
    fn new(stage: &Stage, number: u32) -> Self {
        let seed = stage.seed.wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(u64::from(number) + 1));
        let nodes = stage.nodes.iter().map(|(address, _)| address.clone()).collect();
        let mut client = Client::new(nodes, stage.grid.clone(), seed);
        if stage.crowd.plain {
            client.set_plain();
        }
        Self { stage: stage.clone(), client, number, name: format!("c{number}"), cuts_seen: stage.cuts.get() }
    }

    /// Its number as a consumer.
    fn consumer(&self) -> u16 {
        u16::try_from(self.number).unwrap_or(u16::MAX)
    }

    /// Waits a little; false when the work is over. A run that is cut down makes no more calls at some point.
    async fn again(&mut self) -> bool {
        let pause = self.client.rng().random_range(0..=self.stage.crowd.pause_ms_max);
        sleep(Duration::from_millis(pause)).await;
        while self.stage.phase.get() < Phase::Heal
            && self.stage.calls_max.is_some_and(|most| self.stage.book.calls() >= most)
        {
            sleep(Duration::from_millis(5)).await;
        }
        let cuts = self.stage.cuts.get();
        if std::mem::replace(&mut self.cuts_seen, cuts) != cuts || self.client.rng().random_ratio(1, 60) {
            self.client.disconnect();
        }
        self.stage.phase.get() < Phase::Heal
    }

    fn pick_key(&mut self) -> usize {
        self.client.rng().random_range(0..self.stage.keys.len())
    }

    /// Makes a call and writes it down; `None` when nothing was sent.
    async fn call(&mut self, key: usize, what: What, command: &[String]) -> Option<Outcome> {
        let started = self.stage.book.now();
        let name = self.stage.keys[key].clone();
        let fate = self.client.attempt(&name, command).await;
        self.write_down(key, started, what, command, fate)
    }

    fn write_down(
        &self,
        key: usize,
        started: u64,
        what: What,
        command: &[String],
        fate: Fate,
    ) -> Option<Outcome> {
        let outcome = self.outcome(&what, fate)?;
        self.write(key, started, what, command, outcome.clone());
        Some(outcome)
    }

    /// What a fate means for a call; `None` when nothing was sent.
    fn outcome(&self, what: &What, fate: Fate) -> Option<Outcome> {
        match fate {
            Fate::Unreachable => None,
            Fate::Refused(error) => {
                if self.client.is_plain() && error.starts_with("MOVED") {
                    let text = format!("{} was sent elsewhere at a plain port: {error}", self.name);
                    self.stage.book.violation("errors_are_expected", text);
                }
                Some(Outcome::Refused(error))
            }
            Fate::Unknown(error) => Some(Outcome::Unknown(error)),
            Fate::Done(reply) => {
                self.look_for_damage(&reply);
                // A reply of a wrong shape is a refusal in nobody's dictionary; the checks will complain.
                let outcome = read_outcome(what, &reply);
                Some(outcome.unwrap_or_else(|error| Outcome::Refused(format!("BADREPLY {error}"))))
            }
        }
    }

    fn write(&self, key: usize, started: u64, what: What, command: &[String], outcome: Outcome) {
        let ended = self.stage.book.now();
        self.stage.trace.line(&self.name, format_args!("{} > {}", shortened(command), show(&outcome)));
        let limit = time_limit(command);
        let key = u16::try_from(key).unwrap_or(u16::MAX);
        self.stage.book.write(Op { client: self.number, key, started, ended, limit, what, outcome });
    }

    /// Entries carry filler that follows from their token; whatever else is found in them is damage.
    fn look_for_damage(&self, reply: &Value) {
        let Value::Array(items) = reply else { return };
        let texts: Vec<&[u8]> = items.iter().filter_map(Value::bytes).map(AsRef::as_ref).collect();
        if let [b"t", token, rest @ ..] = texts.as_slice() {
            let token = std::str::from_utf8(token).ok().and_then(|token| token.parse().ok());
            let sound = token.is_some_and(|token: u64| {
                let fields = fields_of(token);
                rest.len() == 4
                    && rest.iter().zip(&fields[2..]).all(|(found, sent)| *found == sent.as_bytes())
            });
            if !sound {
                self.stage.book.violation("nothing_invented", format!("a damaged entry was read: {reply:?}"));
            }
            return;
        }
        for item in items {
            self.look_for_damage(item);
        }
    }

    async fn add(&mut self, key: usize) -> Option<(u64, Outcome)> {
        let token = self.stage.book.token();
        let command = add_command(&self.stage.keys[key], token);
        Some((token, self.call(key, What::Add { token }, &command).await?))
    }

    async fn add_until_done(&mut self, key: usize) {
        while !matches!(self.add(key).await, Some((_, Outcome::Added(_)))) {
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn make_streams(&mut self) {
        for key in 0..self.stage.keys.len() {
            let name = self.stage.keys[key].clone();
            for group in GROUPS {
                let command = words(&["XGROUP", "CREATE", &name, group, "0", "MKSTREAM"]);
                // An earlier attempt of unknown end may have made it.
                if let Err(error) = self.client.insist(&name, &command).await
                    && !error.starts_with("BUSYGROUP")
                {
                    self.stage.book.violation("errors_are_expected", format!("XGROUP CREATE: {error}"));
                }
            }
            self.add_until_done(key).await;
        }
    }
}

/// A pause that grows with how bad the last answer was.
async fn pause_after(outcome: Option<&Outcome>) {
    let ms = match outcome {
        Some(Outcome::Refused(error)) if error.starts_with("MOVED") => 1,
        Some(Outcome::Refused(error)) if !is_passing(error) => 5,
        Some(Outcome::Refused(_) | Outcome::Unknown(_)) | None => 15,
        Some(_) => return,
    };
    sleep(Duration::from_millis(ms)).await;
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The fields of the entry that carries `token`.
fn fields_of(token: u64) -> [String; 6] {
    let filler = filler_of(token);
    ["t".to_owned(), token.to_string(), "mark".to_owned(), mark_of(token), "filler".to_owned(), filler]
}

/// Bytes that stand in a log or snapshot only where the entry with `token` does.
fn mark_of(token: u64) -> String {
    format!("~{token}~")
}

fn add_command(key: &str, token: u64) -> Vec<String> {
    let mut command = words(&["XADD", key, "*"]);
    command.extend(fields_of(token));
    command
}

/// Filler that follows from the token, mostly short, now and then longer than a block of entries.
fn filler_of(token: u64) -> String {
    let mut digest = Digest::default();
    digest.add(&token.to_le_bytes());
    let length = if digest.0.is_multiple_of(16) { 500 + digest.0 % 5500 } else { digest.0 % 120 } as usize;
    format!("{token}.").chars().cycle().take(length).collect()
}

/// A command without filler.
fn shortened(command: &[String]) -> String {
    let shown = match command.first().map(String::as_str) {
        Some("XADD") => command.get(..5).unwrap_or(command),
        _ => command,
    };
    shown.join(" ")
}

/// An outcome on one line.
fn show(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Added(id) => id.to_string(),
        Outcome::AddedAll(ids) => ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        Outcome::Entries(entries) => match entries.as_slice() {
            [] => "nothing".to_owned(),
            [(id, _)] => id.to_string(),
            [(first, _), .., (last, _)] => format!("{} entries, {first} to {last}", entries.len()),
        },
        Outcome::Count(count) => count.to_string(),
        Outcome::Refused(error) => format!("-{error}"),
        Outcome::Unknown(why) => format!("unknown: {why}"),
        Outcome::Cut => "gone".to_owned(),
    }
}

/// Keys that cover each of `shards` equal parts of the slots, `per_shard` in each.
pub(crate) fn keys_of_every_shard(prefix: &str, shards: u32, per_shard: usize) -> Vec<String> {
    let mut wanted: Vec<usize> = vec![per_shard; shards as usize];
    let mut keys = BTreeSet::new();
    for number in 0.. {
        let key = format!("{prefix}{number}");
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
        let keys = keys_of_every_shard("s", 3, 2);
        assert_eq!(keys.len(), 6);
        let mut parts: Vec<u32> =
            keys.iter().map(|key| u32::from(weir_stream::key_slot(key.as_bytes()).0) * 3 / 16384).collect();
        parts.sort_unstable();
        assert_eq!(parts, [0, 0, 1, 1, 2, 2]);
    }
}
