//! A member of a group that shares a topic.
//!
//! Who owns a partition is who has its entry pending in the `owners` stream. One command, a read of one's own pending
//! entries, says which those are, starts their idle time anew, and shows that the member lives; it cannot take
//! anything from others. A partition that nobody renewed for the lease can be claimed, and so can one that was given
//! back: it is handed to a consumer that does not exist, as idle as can be.
//!
//! Members decide alone, from the same list of living members: each aims at its even share, gives back what it has
//! more, after finishing what is in hand there, and claims what it has less.

use super::Topic;
use crate::EntryId;
use crate::client::Client;
use crate::command::Cmd;
use crate::commands::{GroupStart, millis};
use crate::error::Error;
use crate::reply::Streams;
use crate::worker::{Delivery, Handler, WorkDone, Worker, WorkerBuilder};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use weir_env::time::{Instant, sleep, timeout};

/// Who has a partition that was given back.
const NOBODY: &[u8] = b":nobody";
/// How idle a partition is that was given back.
const FREE: Duration = Duration::from_secs(100 * 24 * 3600);

/// Settings of a [`TopicConsumer`]: see [`Topic::consumer`].
#[must_use = "a consumer is started by `run`"]
pub struct TopicConsumerBuilder {
    topic: Topic,
    group: Bytes,
    member: Bytes,
    start: GroupStart,
    lease: Duration,
    configure: Arc<dyn Fn(WorkerBuilder) -> WorkerBuilder + Send + Sync>,
}

impl TopicConsumerBuilder {
    pub(super) fn new(topic: Topic, group: &[u8], member: &[u8]) -> TopicConsumerBuilder {
        TopicConsumerBuilder {
            topic,
            group: Bytes::copy_from_slice(group),
            member: Bytes::copy_from_slice(member),
            start: GroupStart::First,
            lease: Duration::from_secs(10),
            configure: Arc::new(|worker| worker),
        }
    }

    /// Where the group starts in a partition if it has to be created. Default: with the first entry.
    pub fn start(mut self, start: GroupStart) -> Self {
        self.start = start;
        self
    }

    /// How long partitions stay with a member that is not heard of. Default 10 s, at least 1 s. A member that cannot
    /// renew for 0.7 of it lets go by itself. All members of a group must agree.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_secs(1));
        self
    }

    /// Settings of the worker of each partition: handler timeout, deliveries, dead letters, concurrency (more than one
    /// gives up the order within the partition). Its lease and start are those of the consumer.
    pub fn workers(
        mut self,
        configure: impl Fn(WorkerBuilder) -> WorkerBuilder + Send + Sync + 'static,
    ) -> Self {
        self.configure = Arc::new(configure);
        self
    }

    /// Joins the group and works on the partitions that become this member's.
    ///
    /// Within a partition, the handler runs for one entry after the other. When a member joins or leaves, partitions
    /// move one by one, each after what was in hand is finished and acknowledged; nothing is delivered twice for it.
    /// When a member dies, its partitions move after the lease, and entries it had in hand are delivered again.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty or reserved name; what creating a group can meet.
    pub async fn run<F, R, E>(self, handler: F) -> Result<TopicConsumer, Error>
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        if self.member.is_empty() || self.member == NOBODY {
            return Err(Error::Invalid("this is no name for a member".into()));
        }
        let client = self.topic.client.clone();
        let owners = self.topic.owners();
        let create = Cmd::write("XGROUP CREATE").key(&owners).arg(&self.group).arg("0").idempotent();
        match client.call::<()>(create).await {
            Err(Error::Server(error)) if error.code() == "BUSYGROUP" => {}
            Err(Error::Unknown { why }) if why.contains("BUSYGROUP") => {}
            other => other?,
        }
        let handler: Handler = Arc::new(move |delivery| {
            let run = handler(delivery);
            Box::pin(async move { run.await.map_err(|error| error.to_string()) })
        });
        let owned = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopping) = watch::channel(false);
        let (ended, end) = oneshot::channel();
        let (valid, valid_until) = watch::channel(Instant::now());
        let env = client.env().clone();
        let member = Member {
            client,
            owners,
            settings: self,
            handler,
            partitions: BTreeMap::new(),
            leaving: BTreeMap::new(),
            valid,
            valid_until,
            shown: owned.clone(),
            done: WorkDone::default(),
            fatal: None,
        };
        let task = async move {
            let _ = ended.send(member.run(stopping).await);
        };
        env.spawn.spawn("weir-client topic member", Box::pin(task));
        Ok(TopicConsumer { owned, stop, end })
    }
}

/// A member of a group at work. Dropping it makes it leave in the background, as [`TopicConsumer::stop`] does.
#[derive(Debug)]
pub struct TopicConsumer {
    owned: Arc<Mutex<Vec<u32>>>,
    stop: watch::Sender<bool>,
    end: oneshot::Receiver<Result<WorkDone, Error>>,
}

impl TopicConsumer {
    /// The partitions it works on now, in order.
    pub fn owned(&self) -> Vec<u32> {
        self.owned.lock().clone()
    }

    /// Finishes what is in hand, gives its partitions to the others, and leaves the group.
    ///
    /// # Errors
    /// What ended a worker by itself before, as [`Worker::stop`] tells.
    pub async fn stop(mut self) -> Result<WorkDone, Error> {
        self.stop.send_replace(true);
        (&mut self.end).await.unwrap_or(Err(Error::Closed))
    }
}

impl Drop for TopicConsumer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

struct Member {
    client: Client,
    owners: String,
    settings: TopicConsumerBuilder,
    handler: Handler,
    /// Owned and worked on.
    partitions: BTreeMap<u32, Worker>,
    /// Being finished, to be given back then.
    leaving: BTreeMap<u32, oneshot::Receiver<Result<WorkDone, Error>>>,
    /// Until when what is owned is certainly owned.
    valid: watch::Sender<Instant>,
    valid_until: watch::Receiver<Instant>,
    shown: Arc<Mutex<Vec<u32>>>,
    done: WorkDone,
    fatal: Option<Error>,
}

impl Member {
    async fn run(mut self, mut stopping: watch::Receiver<bool>) -> Result<WorkDone, Error> {
        let beat = self.settings.lease / 5;
        let has_left = loop {
            let stop = *stopping.borrow_and_update();
            let owns_nothing = match self.beat(stop).await {
                Ok(owns_nothing) => owns_nothing,
                Err(error) => {
                    tracing::warn!(target: "weir_client", %error, "a topic member's heartbeat failed");
                    if !error.is_passing() && !matches!(error, Error::Unknown { .. }) {
                        self.fatal.get_or_insert(error);
                    }
                    self.forget_what_is_out_of_time();
                    false
                }
            };
            self.show();
            let over = stop || self.fatal.is_some();
            if over && self.partitions.is_empty() && self.leaving.is_empty() {
                let out_of_time = *self.valid_until.borrow() <= Instant::now();
                if owns_nothing || out_of_time {
                    break owns_nothing;
                }
            }
            // Sooner while partitions are on their way out, so that others need not wait for long.
            let pause = if over || !self.leaving.is_empty() { beat / 10 } else { beat };
            if stop {
                sleep(pause).await;
            } else {
                let _ = timeout(pause, stopping.changed()).await;
            }
        };
        if has_left {
            // Its pending entries would go with it; it has just been seen to have none.
            let leave = Cmd::write("XGROUP DELCONSUMER").key(&self.owners).arg(&self.settings.group);
            let left = self.client.call::<u64>(leave.arg(&self.settings.member)).await;
            tracing::debug!(target: "weir_client", ?left, "a member left");
        }
        match self.fatal {
            Some(error) => Err(error),
            None => Ok(self.done),
        }
    }

    /// Renews, learns what is owned, and moves towards the even share. Answers whether nothing was owned.
    async fn beat(&mut self, stopping: bool) -> Result<bool, Error> {
        let owned = self.renew().await?;
        self.drop_what_is_not_owned(&owned);
        self.settle_leaving(&owned).await?;
        if stopping || self.fatal.is_some() {
            for partition in &owned {
                if !self.leaving.contains_key(partition) {
                    self.begin_leaving(*partition);
                }
            }
            return Ok(owned.is_empty());
        }
        let owns_nothing = owned.is_empty();
        let mut owned: Vec<u32> = owned.into_iter().filter(|p| !self.leaving.contains_key(p)).collect();
        let share = self.share().await?;
        while owned.len() > share {
            if let Some(partition) = owned.pop() {
                self.begin_leaving(partition);
            }
        }
        if owned.len() < share {
            owned.extend(self.claim(share - owned.len()).await?);
        }
        for partition in owned {
            self.work_on(partition).await?;
        }
        Ok(owns_nothing)
    }

    /// Reads its own pending entries: what it owns, all renewed.
    async fn renew(&mut self) -> Result<Vec<u32>, Error> {
        let began = Instant::now();
        let (group, member) = (&self.settings.group, &self.settings.member);
        let cmd = Cmd::write("XREADGROUP").arg("GROUP").arg(group).arg(member).arg("STREAMS");
        let cmd = cmd.key(&self.owners).arg("0").idempotent();
        let entries = self.client.call::<Streams>(cmd).timeout(self.settings.lease / 2).await?.into_only();
        // Others count the lease from when the server did this, which is later than `began`.
        self.valid.send_replace(began + self.settings.lease * 7 / 10);
        Ok(entries.iter().filter_map(|entry| partition_at(entry.id)).collect())
    }

    /// How many partitions this member should have.
    async fn share(&self) -> Result<usize, Error> {
        let consumers = self.client.xinfo_consumers(&self.owners, &self.settings.group).await?;
        let mut living: Vec<&Bytes> = consumers
            .iter()
            .filter(|c| c.name != NOBODY && (c.idle < self.settings.lease || c.name == self.settings.member))
            .map(|consumer| &consumer.name)
            .collect();
        living.sort_unstable();
        let all = self.settings.topic.partitions as usize;
        let place = living.iter().position(|name| **name == self.settings.member).unwrap_or(0);
        Ok(all / living.len().max(1) + usize::from(place < all % living.len().max(1)))
    }

    /// Takes up to `count` partitions that nobody has.
    async fn claim(&self, count: usize) -> Result<Vec<u32>, Error> {
        let (group, member, lease) = (&self.settings.group, &self.settings.member, self.settings.lease);
        let new = self.client.xreadgroup(group, member).new_of(&self.owners).count(count as u64).await?;
        let mut claimed: Vec<EntryId> = new.into_only().into_iter().map(|entry| entry.id).collect();
        if claimed.len() < count {
            let all = u64::from(self.settings.topic.partitions);
            let idle = self.client.xpending_entries(&self.owners, group, all).idle(lease).await?;
            let mut free: Vec<EntryId> = idle.into_iter().map(|row| row.id).collect();
            // Members that look at the same moment should not all want the same.
            for i in (1..free.len()).rev() {
                free.swap(i, usize::try_from(self.client.env().rng.u64() % (i as u64 + 1)).unwrap_or(0));
            }
            free.truncate(count - claimed.len());
            if !free.is_empty() {
                claimed.extend(self.client.xclaim(&self.owners, group, member, lease, free).just_id().await?);
            }
        }
        Ok(claimed.into_iter().filter_map(partition_at).collect())
    }

    async fn work_on(&mut self, partition: u32) -> Result<(), Error> {
        if self.partitions.contains_key(&partition) {
            return Ok(());
        }
        let stream = self.settings.topic.stream_of(partition);
        let builder = self.client.worker(stream, &self.settings.group, &self.settings.member).prefetch(16);
        let mut builder =
            (self.settings.configure)(builder).start(self.settings.start).lease(self.settings.lease);
        builder.config.exclusive = true;
        builder.config.valid_until = Some(self.valid_until.clone());
        let worker = builder.run_boxed(self.handler.clone()).await?;
        self.partitions.insert(partition, worker);
        self.client.options().observer.partition_gained(&self.settings.topic.name, partition);
        tracing::info!(target: "weir_client", topic = %self.settings.topic.name, partition, "owns a partition");
        Ok(())
    }

    /// Has the worker finish what is in hand.
    fn begin_leaving(&mut self, partition: u32) {
        let (done, left) = oneshot::channel();
        let Some(worker) = self.partitions.remove(&partition) else {
            // Owned and not worked on yet.
            let _ = done.send(Ok(WorkDone::default()));
            self.leaving.insert(partition, left);
            return;
        };
        let stop = async move {
            let _ = done.send(worker.stop().await);
        };
        self.client.env().spawn.spawn("weir-client partition end", Box::pin(stop));
        self.leaving.insert(partition, left);
    }

    /// Gives back partitions whose workers have finished.
    async fn settle_leaving(&mut self, owned: &[u32]) -> Result<(), Error> {
        let mut finished = Vec::new();
        for (partition, left) in &mut self.leaving {
            match left.try_recv() {
                Ok(end) => finished.push((*partition, end)),
                Err(oneshot::error::TryRecvError::Closed) => finished.push((*partition, Err(Error::Closed))),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
        }
        for (partition, end) in finished {
            self.note(end);
            if owned.contains(&partition) {
                let (group, id) = (&self.settings.group, place_of(partition));
                let free = Cmd::write("XCLAIM").key(&self.owners).arg(group).arg(NOBODY).int(0).id(id);
                let free = free.arg("IDLE").int(millis(FREE)).arg("JUSTID");
                // Not repeated when the answer is lost: someone may have claimed it by then.
                match self.client.call::<Vec<EntryId>>(free).await {
                    Ok(_) | Err(Error::Unknown { .. }) => {}
                    Err(error) => {
                        let (done, left) = oneshot::channel();
                        let _ = done.send(Ok(WorkDone::default()));
                        self.leaving.insert(partition, left);
                        return Err(error);
                    }
                }
            }
            self.leaving.remove(&partition);
            self.client.options().observer.partition_lost(&self.settings.topic.name, partition, true);
            tracing::info!(target: "weir_client", topic = %self.settings.topic.name, partition, "gave a partition up");
        }
        Ok(())
    }

    /// Ends what others own by now, and notices workers that ended by themselves.
    fn drop_what_is_not_owned(&mut self, owned: &[u32]) {
        let mut gone = Vec::new();
        for (partition, worker) in &mut self.partitions {
            let ended = worker.try_end();
            if ended.is_some() || !owned.contains(partition) {
                gone.push((*partition, ended));
            }
        }
        for (partition, ended) in gone {
            if let (Some(worker), false) = (self.partitions.remove(&partition), ended.is_some()) {
                worker.abort_now();
            }
            self.client.options().observer.partition_lost(&self.settings.topic.name, partition, false);
            tracing::warn!(target: "weir_client", topic = %self.settings.topic.name, partition, "lost a partition");
            if let Some(end) = ended {
                self.note(end);
            }
        }
    }

    /// The workers have ended by themselves when what they own became uncertain.
    fn forget_what_is_out_of_time(&mut self) {
        if *self.valid_until.borrow() <= Instant::now() {
            self.drop_what_is_not_owned(&[]);
            self.leaving.clear();
        }
    }

    fn note(&mut self, end: Result<WorkDone, Error>) {
        match end {
            Ok(done) => {
                self.done.acknowledged += done.acknowledged;
                self.done.failures += done.failures;
                self.done.dead_lettered += done.dead_lettered;
                self.done.claimed += done.claimed;
            }
            Err(Error::Closed) => {}
            Err(error) => {
                self.fatal.get_or_insert(error);
            }
        }
    }

    fn show(&self) {
        *self.shown.lock() = self.partitions.keys().copied().collect();
    }
}

/// The entry of a partition in the stream of owners.
fn place_of(partition: u32) -> EntryId {
    EntryId::new(u64::from(partition) + 1, 0)
}

fn partition_at(id: EntryId) -> Option<u32> {
    u32::try_from(id.ms.checked_sub(1)?).ok()
}
