//! Working on the entries of a group: a [`Worker`] reads, runs a handler for each entry, and acknowledges.

mod ops;
mod runner;

use crate::client::Client;
use crate::commands::GroupStart;
use crate::error::Error;
use crate::slot::{hash_tag, key_slot};
use crate::{Entry, EntryId};
use bytes::Bytes;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use weir_env::BoxFuture;
use weir_env::time::Instant;

/// An entry handed to a handler.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The stream it is from.
    pub stream: Bytes,
    /// The entry.
    pub entry: Entry,
    /// How often it was delivered, this time included, to whomever.
    pub deliveries: u64,
    lost: Arc<AtomicBool>,
}

impl Delivery {
    /// Whether this worker still holds the entry, as far as it knows. It loses one when it cannot renew its hold for
    /// longer than the lease, because the process or the network stood still, and another consumer took the entry.
    pub fn is_ours(&self) -> bool {
        !self.lost.load(Ordering::Acquire)
    }
}

pub(crate) type Handler = Arc<dyn Fn(Delivery) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Settings of a [`Worker`]: see [`Client::worker`].
#[derive(Debug, Clone)]
#[must_use = "a worker is started by `run`"]
pub struct WorkerBuilder {
    pub(crate) client: Client,
    pub(crate) config: Config,
}

#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) stream: Bytes,
    pub(crate) group: Bytes,
    pub(crate) consumer: Bytes,
    pub(crate) start: GroupStart,
    pub(crate) concurrency: usize,
    pub(crate) prefetch: usize,
    pub(crate) lease: Duration,
    pub(crate) block: Duration,
    pub(crate) handler_timeout: Option<Duration>,
    pub(crate) deliveries_max: u64,
    pub(crate) dead_letters: Option<Bytes>,
    pub(crate) dead_letters_max: u64,
    pub(crate) retry: (Duration, Duration),
    /// Nobody else works on this stream: whatever is pending is taken over at once.
    pub(crate) exclusive: bool,
    /// Nothing is begun after this moment; it is moved on as long as the stream is ours.
    pub(crate) valid_until: Option<watch::Receiver<Instant>>,
}

impl Client {
    /// A worker that runs a handler for every entry of a group, and acknowledges those that succeeded.
    ///
    /// `consumer` is the worker's name in the group. After a restart under the same name it goes on at once with what
    /// it had not finished; under another name, those entries are taken over when their lease is over.
    ///
    /// ```no_run
    /// # async fn example(client: weir_client::Client) -> Result<(), weir_client::Error> {
    /// use std::time::Duration;
    /// let worker = client
    ///     .worker("orders", "billing", "billing-1")
    ///     .concurrency(16)
    ///     .deliveries_max(5)
    ///     .run(|delivery| async move {
    ///         match delivery.entry.get_str("item") {
    ///             Some(item) => Ok(println!("{item}")),
    ///             None => Err("an order without an item"),
    ///         }
    ///     })
    ///     .await?;
    /// tokio::time::sleep(Duration::from_secs(60)).await;
    /// let done = worker.stop().await?;
    /// println!("{} entries", done.acknowledged);
    /// # Ok(())
    /// # }
    /// ```
    pub fn worker(
        &self,
        stream: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
    ) -> WorkerBuilder {
        let stream = Bytes::copy_from_slice(stream.as_ref());
        WorkerBuilder {
            client: self.clone(),
            config: Config {
                dead_letters: Some(dead_letters_of(&stream)),
                stream,
                group: Bytes::copy_from_slice(group.as_ref()),
                consumer: Bytes::copy_from_slice(consumer.as_ref()),
                start: GroupStart::First,
                concurrency: 1,
                prefetch: 0,
                lease: Duration::from_secs(30),
                block: Duration::from_secs(1),
                handler_timeout: None,
                deliveries_max: 10,
                dead_letters_max: 100_000,
                retry: (Duration::from_millis(200), Duration::from_secs(30)),
                exclusive: false,
                valid_until: None,
            },
        }
    }
}

/// `{orders}:dead` for `orders`, `{a}b:dead` for `{a}b`: in the slot of the stream.
fn dead_letters_of(stream: &[u8]) -> Bytes {
    if hash_tag(stream).len() == stream.len() {
        [b"{", stream, b"}:dead"].concat().into()
    } else {
        [stream, b":dead"].concat().into()
    }
}

impl WorkerBuilder {
    /// Where the group starts if it has to be created. Default: with the first entry.
    pub fn start(mut self, start: GroupStart) -> Self {
        self.config.start = start;
        self
    }

    /// Handlers that run at once. Default 1, which keeps the order of ids, a failing entry holding up those behind it.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.config.concurrency = handlers.max(1);
        self
    }

    /// Entries held in all, those whose handler has not begun included. Default: as many as handlers run.
    pub fn prefetch(mut self, entries: usize) -> Self {
        self.config.prefetch = entries;
        self
    }

    /// How long an entry stays with a consumer that is not heard of. A living worker renews its hold each third of
    /// it, however long a handler takes; entries of a dead one are taken over after it. Default 30 s. All workers of
    /// a group should agree.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease.max(Duration::from_millis(100));
        self
    }

    /// How long a read waits at the server for new entries; a stop takes up to this long. Default 1 s.
    pub fn block(mut self, time: Duration) -> Self {
        self.config.block = time.max(Duration::from_millis(1));
        self
    }

    /// A handler that runs longer has failed; it is dropped at its next await. Default: no limit.
    pub fn handler_timeout(mut self, timeout: Duration) -> Self {
        self.config.handler_timeout = Some(timeout);
        self
    }

    /// After this many deliveries without success an entry goes to the dead-letter stream. Default 10. Every delivery
    /// counts: failures, panics, timeouts, and lives of workers that ended in between.
    pub fn deliveries_max(mut self, deliveries: u64) -> Self {
        self.config.deliveries_max = deliveries.max(1);
        self
    }

    /// Where entries go that do not succeed; must be in the slot of the stream. Default: the stream's name followed
    /// by `:dead`, in braces where needed (`{orders}:dead`). They keep their fields and get `dead-stream`,
    /// `dead-group`, `dead-id`, `dead-deliveries` and `dead-reason`.
    pub fn dead_letters(mut self, stream: impl AsRef<[u8]>) -> Self {
        self.config.dead_letters = Some(Bytes::copy_from_slice(stream.as_ref()));
        self
    }

    /// Entries that the dead-letter stream keeps, or somewhat more: older ones are trimmed, so that a handler that fails
    /// for everything does not fill the memory. Default 100,000; `u64::MAX` keeps all.
    pub fn dead_letters_max(mut self, entries: u64) -> Self {
        self.config.dead_letters_max = entries;
        self
    }

    /// Entries that do not succeed are tried for ever.
    pub fn no_dead_letters(mut self) -> Self {
        self.config.dead_letters = None;
        self
    }

    /// Pauses before an entry is tried again: doubled from `min` to `max`, each shortened by a random part of up to
    /// a half. Default 200 ms to 30 s.
    pub fn retry(mut self, min: Duration, max: Duration) -> Self {
        self.config.retry = (min, max.max(min));
        self
    }

    /// Creates the group if it is missing, takes up what this consumer left pending, and starts to work.
    ///
    /// The handler runs as a task of its own for each entry. `Ok` acknowledges the entry; `Err`, a panic and a
    /// timeout are failures: the entry stays with this worker and is tried again after a pause. Delivery is at least
    /// once: an entry may come again when a worker died, or stood still for longer than the lease, after it had done
    /// the work and before that was acknowledged.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the dead-letter stream is in another slot; what creating a group can meet.
    pub async fn run<F, R, E>(self, handler: F) -> Result<Worker, Error>
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        let handler: Handler = Arc::new(move |delivery| {
            let run = handler(delivery);
            Box::pin(async move { run.await.map_err(|error| error.to_string()) })
        });
        self.run_boxed(handler).await
    }

    pub(crate) async fn run_boxed(mut self, handler: Handler) -> Result<Worker, Error> {
        let config = &mut self.config;
        if config.dead_letters.as_ref().is_some_and(|dead| key_slot(dead) != key_slot(&config.stream)) {
            return Err(Error::Invalid("the dead-letter stream is in another slot than the stream".into()));
        }
        config.prefetch = config.prefetch.max(config.concurrency);
        ops::make_group(&self.client, config).await?;
        let (stop, stopping) = watch::channel(Stop::No);
        let (ended, end) = oneshot::channel();
        let env = self.client.env().clone();
        let runner = runner::Runner::new(self.client, self.config, handler, stopping);
        let task = async move {
            let _ = ended.send(runner.run().await);
        };
        env.spawn.spawn("weir-client worker", Box::pin(task));
        Ok(Worker { stop, end })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    No,
    /// Finish what is in hand.
    Gently,
    /// Drop everything.
    Now,
}

/// A worker at work. Dropping it stops it gently in the background.
#[derive(Debug)]
pub struct Worker {
    stop: watch::Sender<Stop>,
    end: oneshot::Receiver<Result<WorkDone, Error>>,
}

/// What a worker has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkDone {
    /// Entries that succeeded and were acknowledged.
    pub acknowledged: u64,
    /// Handlers that failed, panicked or took too long.
    pub failures: u64,
    /// Entries moved to the dead-letter stream.
    pub dead_lettered: u64,
    /// Entries taken over from other consumers or from an earlier life.
    pub claimed: u64,
}

impl Worker {
    /// Takes nothing new, finishes and acknowledges what is in hand, and ends. An entry that waits for another try
    /// stays pending, for this consumer's next life or for others after the lease. While no server answers, this
    /// waits; [`Worker::stop_within`] does not.
    ///
    /// # Errors
    /// What made the worker end by itself before: [`Error::Auth`], or a refusal that does not pass (`WRONGTYPE`).
    pub async fn stop(mut self) -> Result<WorkDone, Error> {
        self.stop.send_replace(Stop::Gently);
        (&mut self.end).await.unwrap_or(Err(Error::Closed))
    }

    /// As [`Worker::stop`], but handlers that have not ended after `time` are dropped and their entries stay pending.
    ///
    /// # Errors
    /// As [`Worker::stop`].
    pub async fn stop_within(mut self, time: Duration) -> Result<WorkDone, Error> {
        self.stop.send_replace(Stop::Gently);
        if let Ok(end) = weir_env::time::timeout(time, &mut self.end).await {
            return end.unwrap_or(Err(Error::Closed));
        }
        self.abort().await
    }

    /// Drops handlers where they are and acknowledges nothing more.
    ///
    /// # Errors
    /// As [`Worker::stop`].
    pub async fn abort(mut self) -> Result<WorkDone, Error> {
        self.stop.send_replace(Stop::Now);
        (&mut self.end).await.unwrap_or(Err(Error::Closed))
    }

    /// How it ended, if it did.
    pub(crate) fn try_end(&mut self) -> Option<Result<WorkDone, Error>> {
        match self.end.try_recv() {
            Ok(end) => Some(end),
            Err(oneshot::error::TryRecvError::Closed) => Some(Err(Error::Closed)),
            Err(oneshot::error::TryRecvError::Empty) => None,
        }
    }

    /// As [`Worker::abort`], without waiting.
    pub(crate) fn abort_now(self) {
        self.stop.send_replace(Stop::Now);
    }

    /// Waits until the worker ends by itself, which only an error makes it do.
    ///
    /// # Errors
    /// As [`Worker::stop`].
    pub async fn ended(&mut self) -> Result<WorkDone, Error> {
        (&mut self.end).await.unwrap_or(Err(Error::Closed))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.send_if_modified(|stop| {
            let first = *stop == Stop::No;
            if first {
                *stop = Stop::Gently;
            }
            first
        });
    }
}

/// An entry with the number of its deliveries.
pub(crate) type Taken = (Entry, u64);

/// The ids of what was taken.
pub(crate) fn ids_of(taken: &[Taken]) -> Vec<EntryId> {
    taken.iter().map(|(entry, _)| entry.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_are_in_the_slot_of_their_stream() {
        for (stream, dead) in [("orders", "{orders}:dead"), ("{a}b", "{a}b:dead"), ("a{}b", "{a{}b}:dead")] {
            assert_eq!(dead_letters_of(stream.as_bytes()), dead);
        }
        for stream in ["orders", "{a}b", "x{y}z"] {
            assert_eq!(key_slot(dead_letters_of(stream.as_bytes())), key_slot(stream));
        }
    }
}
