//! The worker's task: one loop that owns what is in hand. Everything it asks of the server runs beside it as a
//! future and comes back as an event; so do the handlers, each in a task of its own.

use super::ops::{self, Whose};
use super::{Config, Delivery, Handler, Stop, Taken, WorkDone, ids_of};
use crate::client::{Client, jittered};
use crate::error::Error;
use crate::{Entry, EntryId};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use weir_env::time::{Instant, sleep_until, timeout};
use weir_env::{BoxFuture, TaskHandle};

/// Acknowledgements sent at once.
const ACKS_MAX: usize = 1000;

pub(super) struct Runner {
    client: Client,
    config: Config,
    handler: Handler,
    stop: watch::Receiver<Stop>,
    jobs: BTreeMap<EntryId, Job>,
    running: usize,
    /// Done and not acknowledged yet.
    to_ack: BTreeSet<EntryId>,
    /// On their way to the server.
    asked: FuturesUnordered<BoxFuture<'static, Event>>,
    reading: bool,
    acking: bool,
    taking: bool,
    renewing: bool,
    /// Own pending entries may be there that are not in hand.
    recover: bool,
    ends: (mpsc::UnboundedSender<End>, mpsc::UnboundedReceiver<End>),
    /// Nothing is read or taken before this: a pause after a failure.
    quiet_until: Instant,
    failed_in_a_row: u32,
    next_claim: Instant,
    next_renewal: Instant,
    done: WorkDone,
    fatal: Option<Error>,
}

/// An entry in hand.
struct Job {
    entry: Entry,
    deliveries: u64,
    state: State,
    /// When the hold was last certainly renewed.
    held_since: Instant,
    lost: Arc<AtomicBool>,
}

enum State {
    /// Its handler has not begun.
    Ready,
    Running(TaskHandle),
    /// It failed and waits for its next try.
    Waits(Instant),
    /// The server is asked for something about it.
    Asked,
    /// It failed for good, for this reason, and has to go to the dead letters, not before this moment.
    Doomed(String, Instant),
}

/// How a handler ended.
struct End {
    id: EntryId,
    took: Duration,
    failure: Option<String>,
}

/// What came back from the server.
enum Event {
    Read(Result<Vec<Entry>, Error>),
    Took(Whose, Result<(Vec<Taken>, bool), Error>),
    Acked(Vec<EntryId>, Result<(), Error>),
    Renewed(Vec<EntryId>, Instant, Result<Vec<EntryId>, Error>),
    DeliveredAgain(EntryId, Result<Option<Entry>, Error>),
    Buried(EntryId, String, Result<(), Error>),
    GroupMade(Result<(), Error>),
}

impl Runner {
    pub(super) fn new(
        client: Client,
        config: Config,
        handler: Handler,
        stop: watch::Receiver<Stop>,
    ) -> Runner {
        let now = Instant::now();
        let next_claim = now + config.lease / 4;
        let next_renewal = now + config.lease / 3;
        Runner {
            client,
            config,
            handler,
            stop,
            jobs: BTreeMap::new(),
            running: 0,
            to_ack: BTreeSet::new(),
            asked: FuturesUnordered::new(),
            reading: false,
            acking: false,
            taking: false,
            renewing: false,
            recover: true,
            ends: mpsc::unbounded_channel(),
            quiet_until: now,
            failed_in_a_row: 0,
            next_claim,
            next_renewal,
            done: WorkDone::default(),
            fatal: None,
        }
    }

    pub(super) async fn run(mut self) -> Result<WorkDone, Error> {
        loop {
            let now = Instant::now();
            let stop = *self.stop.borrow_and_update();
            if stop == Stop::Now || self.is_out_of_time(now) {
                break;
            }
            let stopping = stop != Stop::No || self.fatal.is_some();
            self.begin(now, stopping);
            if stopping && self.is_idle() {
                break;
            }
            let wake = self.next_moment(now, stopping);
            tokio::select! {
                biased;
                changed = self.stop.changed() => {
                    if changed.is_err() {
                        // Nobody holds the worker any more, and dropping it said to stop.
                        self.stop = watch::channel(Stop::Gently).1;
                    }
                }
                Some(end) = self.ends.1.recv() => self.ended(end),
                Some(event) = self.asked.next() => self.happened(event),
                () = sleep_until(wake) => {}
            }
        }
        for job in self.jobs.values() {
            if let State::Running(task) = &job.state {
                task.abort();
            }
        }
        match self.fatal {
            Some(error) => Err(error),
            None => Ok(self.done),
        }
    }

    /// The stream may belong to someone else by now.
    fn is_out_of_time(&self, now: Instant) -> bool {
        self.config.valid_until.as_ref().is_some_and(|until| *until.borrow() <= now)
    }

    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.to_ack.is_empty() && !self.reading && !self.taking && !self.acking
    }

    /// Starts all that may start now.
    fn begin(&mut self, now: Instant, stopping: bool) {
        self.acknowledge(now);
        self.renew(now);
        self.go_on_with_jobs(now, stopping);
        if stopping || now < self.quiet_until {
            return;
        }
        let room = self.config.prefetch.saturating_sub(self.jobs.len());
        let backlog = self.to_ack.len() >= ACKS_MAX;
        if room == 0 || backlog || self.taking {
            return;
        }
        if self.recover {
            let whose = if self.config.exclusive { Whose::Idle(Duration::ZERO) } else { Whose::Own };
            self.take(whose, room);
        } else if !self.config.exclusive && now >= self.next_claim {
            self.take(Whose::Idle(self.config.lease), room);
            let lease = self.config.lease;
            self.next_claim = now + jittered(self.client.env(), lease / 2, lease / 2, 1);
        } else if !self.reading {
            self.reading = true;
            let block = match &self.config.valid_until {
                Some(until) => self.config.block.min(*until.borrow() - now),
                None => self.config.block,
            };
            let read = ops::read_new(self.client.clone(), self.config.clone(), room, block);
            self.ask(async move { Event::Read(read.await) });
        }
    }

    fn ask(&mut self, future: impl Future<Output = Event> + Send + 'static) {
        self.asked.push(Box::pin(future));
    }

    fn take(&mut self, whose: Whose, room: usize) {
        self.taking = true;
        let in_hand = self.jobs.keys().chain(&self.to_ack).copied().collect();
        let take = ops::take(self.client.clone(), self.config.clone(), whose, room, in_hand);
        self.ask(async move { Event::Took(whose, take.await) });
    }

    fn acknowledge(&mut self, now: Instant) {
        if self.acking || self.to_ack.is_empty() || now < self.quiet_until {
            return;
        }
        self.acking = true;
        let ids: Vec<EntryId> = self.to_ack.iter().take(ACKS_MAX).copied().collect();
        let ack = ops::ack(self.client.clone(), self.config.clone(), ids.clone());
        self.ask(async move { Event::Acked(ids, ack.await) });
    }

    fn renew(&mut self, now: Instant) {
        if self.renewing || now < self.next_renewal {
            return;
        }
        self.next_renewal = now + self.config.lease / 3;
        let held: Vec<(EntryId, Instant)> = self
            .jobs
            .iter()
            .filter(|(_, job)| !job.lost.load(Ordering::Acquire))
            .map(|(id, job)| (*id, job.held_since))
            .collect();
        if held.is_empty() {
            return;
        }
        self.renewing = true;
        // Entries held without renewal for long may have been claimed by others meanwhile.
        let doubtful = held.iter().any(|(_, since)| now - *since > self.config.lease * 2 / 3);
        let ids: Vec<EntryId> = held.into_iter().map(|(id, _)| id).collect();
        let renew = ops::renew(self.client.clone(), self.config.clone(), ids.clone(), doubtful);
        self.ask(async move { Event::Renewed(ids, now, renew.await) });
    }

    /// Starts handlers, next tries and burials.
    fn go_on_with_jobs(&mut self, now: Instant, stopping: bool) {
        if stopping {
            // Their turn would come too late.
            self.jobs.retain(|_, job| !matches!(job.state, State::Waits(_)));
        }
        let in_order = self.config.concurrency == 1;
        let mut starts = Vec::new();
        for (id, job) in &self.jobs {
            match &job.state {
                State::Ready if self.running + starts.len() < self.config.concurrency => starts.push(*id),
                State::Waits(until) | State::Doomed(_, until) if *until <= now => starts.push(*id),
                _ => {}
            }
            if in_order {
                break;
            }
        }
        for id in starts {
            self.go_on_with(id);
        }
    }

    fn go_on_with(&mut self, id: EntryId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        match std::mem::replace(&mut job.state, State::Asked) {
            State::Ready => self.handle(id),
            State::Waits(_) => {
                let again = ops::deliver_again(self.client.clone(), self.config.clone(), id);
                self.ask(async move { Event::DeliveredAgain(id, again.await) });
            }
            State::Doomed(reason, _) => {
                let Some(dead) = self.config.dead_letters.clone() else { return };
                let (entry, deliveries) = (job.entry.clone(), job.deliveries);
                let (client, config) = (self.client.clone(), self.config.clone());
                let bury = ops::bury(client, config, dead, entry, deliveries, reason.clone());
                self.ask(async move { Event::Buried(id, reason, bury.await) });
            }
            other => job.state = other,
        }
    }

    /// Runs the handler of an entry in a task of its own.
    fn handle(&mut self, id: EntryId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let delivery = Delivery {
            stream: self.config.stream.clone(),
            entry: job.entry.clone(),
            deliveries: job.deliveries,
            lost: job.lost.clone(),
        };
        let (handler, ends) = (self.handler.clone(), self.ends.0.clone());
        let limit = self.config.handler_timeout;
        let task = async move {
            let began = Instant::now();
            let run = AssertUnwindSafe(async move { handler(delivery).await }).catch_unwind();
            let outcome = match limit {
                None => Some(run.await),
                Some(limit) => timeout(limit, run).await.ok(),
            };
            let failure = match outcome {
                Some(Ok(Ok(()))) => None,
                Some(Ok(Err(why))) => Some(why),
                Some(Err(panic)) => Some(format!("panicked: {}", text_of(&*panic))),
                None => Some(format!("not done within {:?}", limit.unwrap_or_default())),
            };
            let _ = ends.send(End { id, took: began.elapsed(), failure });
        };
        self.running += 1;
        job.state = State::Running(self.client.env().spawn.spawn("weir-client handler", Box::pin(task)));
    }

    fn ended(&mut self, end: End) {
        let End { id, took, failure } = end;
        self.client.options().observer.handled(&self.config.stream, id, took, failure.as_deref());
        self.running -= 1;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        match failure {
            None => {
                self.jobs.remove(&id);
                self.to_ack.insert(id);
            }
            Some(why) => {
                self.done.failures += 1;
                tracing::warn!(target: "weir_client", %id, deliveries = job.deliveries, why, "a handler failed");
                if job.lost.load(Ordering::Acquire) {
                    // Someone else has it now.
                    self.jobs.remove(&id);
                } else if self.config.dead_letters.is_some() && job.deliveries >= self.config.deliveries_max {
                    job.state = State::Doomed(why, Instant::now());
                } else {
                    let (min, max) = self.config.retry;
                    let attempts = u32::try_from(job.deliveries).unwrap_or(u32::MAX);
                    let pause = jittered(self.client.env(), min, max, attempts);
                    job.state = State::Waits(Instant::now() + pause);
                }
            }
        }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Read(result) => {
                self.reading = false;
                match result {
                    Ok(entries) => {
                        self.went_well();
                        entries.into_iter().for_each(|entry| self.receive(entry, 1));
                    }
                    Err(error) => {
                        // What the lost answer delivered is pending under this name.
                        self.recover |= matches!(error, Error::Unknown { .. });
                        self.failed(&error);
                    }
                }
            }
            Event::Took(whose, result) => {
                self.taking = false;
                match result {
                    Ok((taken, more)) => {
                        self.went_well();
                        if self.recover && (whose == Whose::Own || self.config.exclusive) {
                            self.recover = more || !taken.is_empty();
                        }
                        if !taken.is_empty() {
                            self.done.claimed += taken.len() as u64;
                            self.client.options().observer.claimed(&self.config.stream, taken.len());
                            tracing::info!(target: "weir_client", ids = ?ids_of(&taken), "took over entries");
                        }
                        taken.into_iter().for_each(|(entry, deliveries)| self.receive(entry, deliveries));
                    }
                    Err(error) => {
                        self.recover |= matches!(error, Error::Unknown { .. });
                        self.failed(&error);
                    }
                }
            }
            Event::Acked(ids, result) => {
                self.acking = false;
                match result {
                    Ok(()) => {
                        self.went_well();
                        self.done.acknowledged += ids.len() as u64;
                        self.client.options().observer.acknowledged(&self.config.stream, ids.len());
                        ids.iter().for_each(|id| {
                            self.to_ack.remove(id);
                        });
                    }
                    Err(error) => {
                        self.failed(&error);
                        if self.fatal.is_some() {
                            // It will not be done any more; the entries stay pending.
                            self.to_ack.clear();
                        }
                    }
                }
            }
            Event::Renewed(ids, at, result) => {
                self.renewing = false;
                if let Ok(lost) = result {
                    for id in ids {
                        let Some(job) = self.jobs.get_mut(&id) else { continue };
                        if lost.contains(&id) {
                            tracing::warn!(target: "weir_client", %id, "lost an entry to another consumer");
                            job.lost.store(true, Ordering::Release);
                            if !matches!(job.state, State::Running(_)) {
                                self.jobs.remove(&id);
                            }
                        } else {
                            job.held_since = at;
                        }
                    }
                } else {
                    self.next_renewal = Instant::now() + self.config.lease / 12;
                }
            }
            Event::DeliveredAgain(id, result) => {
                let Some(job) = self.jobs.get_mut(&id) else { return };
                match result {
                    Ok(Some(entry)) => {
                        *job = Job { deliveries: job.deliveries + 1, ..Job::new(entry, job.deliveries) };
                    }
                    Ok(None) => {
                        self.jobs.remove(&id);
                    }
                    Err(error) => {
                        job.state = State::Waits(Instant::now() + self.config.retry.0);
                        self.failed(&error);
                    }
                }
            }
            Event::Buried(id, reason, result) => match result {
                Ok(()) => {
                    self.jobs.remove(&id);
                    self.done.dead_lettered += 1;
                    self.client.options().observer.dead_lettered(&self.config.stream, id, &reason);
                    tracing::warn!(target: "weir_client", %id, reason, "an entry went to the dead letters");
                }
                Err(error) => {
                    if let Some(job) = self.jobs.get_mut(&id) {
                        job.state = State::Doomed(reason, Instant::now() + self.config.retry.0);
                    }
                    self.failed(&error);
                    if self.fatal.is_some() {
                        self.jobs.remove(&id);
                    }
                }
            },
            Event::GroupMade(result) => {
                self.taking = false;
                match result {
                    Ok(()) => self.recover = true,
                    Err(error) => self.failed(&error),
                }
            }
        }
    }

    /// An entry was delivered to this consumer.
    fn receive(&mut self, entry: Entry, deliveries: u64) {
        let id = entry.id;
        if self.jobs.contains_key(&id) || self.to_ack.contains(&id) {
            return;
        }
        let mut job = Job::new(entry, deliveries);
        if self.config.dead_letters.is_some() && deliveries > self.config.deliveries_max {
            // Whoever had it did not live to tell.
            job.state = State::Doomed("delivered too often without success".to_owned(), Instant::now());
        }
        self.jobs.insert(id, job);
    }

    fn went_well(&mut self) {
        self.failed_in_a_row = 0;
    }

    /// Something that was asked failed: waits a while, makes the group again, or gives up.
    fn failed(&mut self, error: &Error) {
        self.failed_in_a_row += 1;
        let options = self.client.options();
        let pause =
            jittered(self.client.env(), options.backoff_min, options.backoff_max, self.failed_in_a_row);
        self.quiet_until = Instant::now() + pause;
        match error {
            Error::Server(refusal) if refusal.code() == "NOGROUP" && !self.taking => {
                tracing::warn!(target: "weir_client", "the group is gone; making it again");
                self.taking = true;
                let (client, config) = (self.client.clone(), self.config.clone());
                self.ask(async move { Event::GroupMade(ops::make_group(&client, &config).await) });
            }
            Error::Server(refusal) if refusal.code() == "NOGROUP" => {}
            Error::Unknown { .. } | Error::Unavailable { .. } | Error::Unreachable { .. } => {
                tracing::warn!(target: "weir_client", %error, "a worker's call failed");
            }
            Error::Server(refusal) if refusal.is_passing() => {
                tracing::warn!(target: "weir_client", %error, "a worker's call failed");
            }
            other => {
                tracing::error!(target: "weir_client", error = %other, "a worker ends");
                self.fatal.get_or_insert_with(|| other.clone());
            }
        }
    }

    /// When to look again without an event.
    fn next_moment(&self, now: Instant, stopping: bool) -> Instant {
        let mut next = now + self.config.lease;
        let mut sooner = |at: Instant| next = next.min(at);
        if !self.renewing {
            sooner(self.next_renewal);
        }
        let claims = !self.config.exclusive && !self.taking && !self.recover;
        if !stopping && claims && self.jobs.len() < self.config.prefetch {
            sooner(self.next_claim.max(self.quiet_until));
        }
        if self.quiet_until > now {
            sooner(self.quiet_until);
        }
        for job in self.jobs.values() {
            if let State::Waits(until) | State::Doomed(_, until) = &job.state
                && *until > now
            {
                sooner(*until);
            }
        }
        if let Some(until) = &self.config.valid_until {
            sooner(*until.borrow());
        }
        next
    }
}

impl Job {
    fn new(entry: Entry, deliveries: u64) -> Job {
        Job { entry, deliveries, state: State::Ready, held_since: Instant::now(), lost: Arc::default() }
    }
}

/// What a panic said.
fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}
