//! Appending exactly once, in order.
//!
//! A task takes what waits, as one batch, and sends it as one transaction of `XADD ... IDMP`; the next batch goes out
//! when this one is settled. A batch is one entry of the shard's log, so it is there as a whole or not at all, and
//! sending it again can neither double an entry nor put it behind a later one. One batch on its way at a time is
//! what keeps the order; gathering while it is on its way is what makes it fast.

use crate::call::Limits;
use crate::client::Client;
use crate::command::{Cmd, Repeat, Unit};
use crate::commands::{Add, Trim};
use crate::connection::NotAfter;
use crate::error::{Error, ServerError};
use crate::reply::FromValue;
use crate::{EntryId, StreamInfo};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use weir_env::time::Instant;
use weir_resp::Value;

/// What a stream remembers unless told otherwise: 100 ids of each producer, for 100 s.
const DEFAULT_MEMORY: (Duration, u64) = (Duration::from_secs(100), 100);
/// Shorter memories leave no time for a retry: a server may hold a command for a while before it runs it.
const DURATION_MIN: Duration = Duration::from_secs(4);

/// Settings of a [`Producer`]: see [`Client::producer`].
#[derive(Debug, Clone)]
#[must_use = "a producer is made by `open`"]
pub struct ProducerBuilder {
    client: Client,
    stream: Vec<u8>,
    id: Option<Vec<u8>>,
    memory: Option<(u64, u64)>,
    entries_max: usize,
    bytes_max: usize,
    batch_bytes_max: usize,
    timeout: Option<Duration>,
    trim: Option<Trim>,
}

impl Client {
    /// A producer that appends to one stream, each entry exactly once and in the order of the calls, through lost
    /// connections and failovers. Needs a server that knows `XADD ... IDMP`.
    ///
    /// ```no_run
    /// # async fn example(client: weir_client::Client) -> Result<(), weir_client::Error> {
    /// let producer = client.producer("orders").open().await?;
    /// // Waits for its turn only when too much is on its way already.
    /// let first = producer.send([("item", "tea")]).await?;
    /// let second = producer.send([("item", "milk")]).await?;
    /// assert!(first.await? < second.await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn producer(&self, stream: impl AsRef<[u8]>) -> ProducerBuilder {
        ProducerBuilder {
            client: self.clone(),
            stream: stream.as_ref().to_vec(),
            id: None,
            memory: None,
            entries_max: 10_000,
            bytes_max: 64 * 1024 * 1024,
            batch_bytes_max: 512 * 1024,
            timeout: None,
            trim: None,
        }
    }
}

impl ProducerBuilder {
    /// The producer's name at the server. Without one it gets a random name, and only its own repetitions are
    /// recognised. With a lasting name and [`Producer::send_as`], so are those of an earlier life of the program. Two
    /// producers of one stream must not share a name at the same time: each would push the other's ids out.
    pub fn id(mut self, id: impl AsRef<[u8]>) -> Self {
        self.id = Some(id.as_ref().to_vec());
        self
    }

    /// Has the stream remember ids for `duration_s` seconds (1 to 86400) and `maxsize` of them for each producer
    /// (1 to 10000), if it does not already; creates the stream if it is missing. A change forgets what was
    /// remembered of all producers, so all producers of a stream should ask for the same.
    pub fn remember(mut self, duration_s: u64, maxsize: u64) -> Self {
        self.memory = Some((duration_s, maxsize));
        self
    }

    /// Entries that may wait or be on their way before [`Producer::send`] waits. Default 10000.
    pub fn entries_max(mut self, entries: usize) -> Self {
        self.entries_max = entries.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Bytes that may wait or be on their way before [`Producer::send`] waits. Default 64 MiB. A larger entry goes
    /// alone.
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes.clamp(1, u32::MAX as usize);
        self
    }

    /// Bytes of a batch, about. Default 512 KiB.
    pub fn batch_bytes_max(mut self, bytes: usize) -> Self {
        self.batch_bytes_max = bytes.max(1);
        self
    }

    /// How long an append is tried, from its first attempt. Default 30 s; never more than half of the time for which
    /// the stream remembers ids.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Trims the stream with every append.
    pub fn trim(mut self, to: Trim) -> Self {
        self.trim = Some(to);
        self
    }

    /// Asks the stream how long and how much it remembers, and starts the producer.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the server does not know idempotent appends; [`Error::Invalid`] if the stream
    /// remembers for less than 4 s; what any call can meet.
    pub async fn open(self) -> Result<Producer, Error> {
        let memory = self.client.memory(&self.stream, self.memory).await?;
        if memory.0 < DURATION_MIN {
            return Err(Error::Invalid(format!(
                "the stream remembers appends for {:?}; {DURATION_MIN:?} is the least to retry within",
                memory.0
            )));
        }
        let env = self.client.env().clone();
        let instance = format!("{:016x}", env.rng.u64());
        // A lasting name sees ids of earlier lives, so the ones made here must differ.
        let (id, prefix) = match self.id {
            Some(id) => (id, format!("{instance}:")),
            None => (instance.into_bytes(), String::new()),
        };
        let half = memory.0 / 2;
        let (queue, waiting) = mpsc::unbounded_channel();
        let task = Task {
            client: self.client,
            stream: self.stream.clone(),
            id,
            entries_max: usize::try_from((memory.1.saturating_sub(1) / 2).max(1)).unwrap_or(usize::MAX),
            bytes_max: self.batch_bytes_max,
            window: self.timeout.unwrap_or(Duration::from_secs(30)).min(half),
            trim: self.trim,
            waiting,
            left_over: None,
        };
        env.spawn.spawn("weir-client producer", Box::pin(task.run()));
        Ok(Producer {
            shared: Arc::new(Shared {
                prefix,
                next: AtomicU64::new(0),
                entries: Arc::new(Semaphore::new(self.entries_max)),
                bytes: Arc::new(Semaphore::new(self.bytes_max)),
                bytes_max: self.bytes_max,
                queue,
            }),
        })
    }
}

impl Client {
    /// How long and how much a stream remembers; changed to `wanted` first.
    async fn memory(&self, stream: &[u8], wanted: Option<(u64, u64)>) -> Result<(Duration, u64), Error> {
        let told = |info: &StreamInfo| Some((info.idmp_duration?, info.idmp_maxsize?));
        let now = match self.xinfo_stream(stream).await {
            Ok(info) => Some(told(&info).ok_or_else(|| Error::Unsupported("XADD with IDMP".to_owned()))?),
            Err(Error::Server(error)) if error.message() == "no such key" => None,
            Err(error) => return Err(error),
        };
        let Some((duration_s, maxsize)) = wanted else { return Ok(now.unwrap_or(DEFAULT_MEMORY)) };
        let wanted = (Duration::from_secs(duration_s), maxsize);
        if now == Some(wanted) {
            return Ok(wanted);
        }
        let set = Cmd::write("XCFGSET").key(stream).arg("IDMP-DURATION").int(duration_s);
        let set = set.arg("IDMP-MAXSIZE").int(maxsize).idempotent();
        // Only a group can create a stream without an entry; this one goes at once.
        const MAKER: &str = "weir-client:making-the-stream";
        let make = Cmd::write("XGROUP CREATE").key(stream).arg(MAKER).arg("0").arg("MKSTREAM").idempotent();
        let unmake = Cmd::write("XGROUP DESTROY").key(stream).arg(MAKER).idempotent();
        let unit = Unit::transaction("XCFGSET", [&make, &unmake, &set]);
        match self.run(&unit, self.options().timeout).await?.pop() {
            Some(Value::Array(replies)) if replies.len() == 3 => match &replies[2] {
                Value::Error(text) => Err(Error::Server(ServerError::new(text))),
                _ => Ok(wanted),
            },
            other => Err(Error::unexpected("XCFGSET", &other.unwrap_or(Value::Null))),
        }
    }
}

/// Appends to one stream, each entry exactly once and in order. Clones append to the same stream as the same
/// producer. Made by [`Client::producer`].
///
/// # How it keeps its promise
///
/// Each append carries the producer's id and an id of its own, which the stream remembers for a while and up to a
/// number. An append whose answer was lost is sent again with the same id; if it had been done, the server answers the
/// entry of the first time. The producer stays well within what the stream remembers: fewer than half of the
/// remembered number are ever undecided, and nothing is sent again after half of the remembered time, even if the
/// process was stopped in between. Where it would have to go beyond that, the append fails with [`Error::Unknown`].
///
/// # What breaks it
///
/// Deleting the stream, or changing its memory (XCFGSET) while an append is undecided, makes the server forget. So
/// does a network that delivers bytes of a broken connection after more than the other half of the time.
///
/// When the last clone is dropped, what was sent is still finished in the background.
#[derive(Debug, Clone)]
pub struct Producer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    prefix: String,
    next: AtomicU64,
    entries: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    bytes_max: usize,
    queue: mpsc::UnboundedSender<Waiting>,
}

/// An entry on its way.
#[derive(Debug)]
struct Waiting {
    add: Add,
    id: Vec<u8>,
    done: oneshot::Sender<Result<EntryId, Error>>,
    _room: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

impl Producer {
    /// Puts an entry into the queue. Returns once there is room, with what tells the entry's id; entries are appended
    /// in the order in which these calls return. Dropped before it returns, nothing is appended.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an entry without fields; [`Error::Closed`] if the producer's task is gone (the runtime
    /// ends).
    pub async fn send(&self, entry: impl Into<Add>) -> Result<Appended, Error> {
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}{number}", self.shared.prefix);
        self.send_as(id, entry).await
    }

    /// As [`Producer::send`], under an id of the caller's (an offset, the number of an order): also an earlier life
    /// of the program, with the same [`ProducerBuilder::id`], may have appended it, as long ago as the stream remembers.
    ///
    /// # Errors
    /// As [`Producer::send`]; [`Error::Invalid`] also for an empty id.
    pub async fn send_as(&self, id: impl AsRef<[u8]>, entry: impl Into<Add>) -> Result<Appended, Error> {
        let (id, add) = (id.as_ref().to_vec(), entry.into());
        if id.is_empty() || add.fields.is_empty() {
            return Err(Error::Invalid("an entry to append needs an id and at least one field".to_owned()));
        }
        let bytes = add.fields.len().min(self.shared.bytes_max);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let closed = |_| Error::Closed;
        let entries = self.shared.entries.clone().acquire_owned().await.map_err(closed)?;
        let bytes = self.shared.bytes.clone().acquire_many_owned(bytes).await.map_err(closed)?;
        let (done, appended) = oneshot::channel();
        let waiting = Waiting { add, id, done, _room: (entries, bytes) };
        self.shared.queue.send(waiting).map_err(|_| Error::Closed)?;
        Ok(Appended(appended))
    }

    /// [`Producer::send`] and its outcome in one: appends an entry and answers its id.
    ///
    /// # Errors
    /// As [`Producer::send`] and [`Appended`].
    pub async fn append(&self, entry: impl Into<Add>) -> Result<EntryId, Error> {
        self.send(entry).await?.await
    }
}

/// What became of an entry: its id, once it is on disk at a majority. Dropping it does not take the entry back.
///
/// # Errors
/// [`Error::Unknown`]: it may have been appended, and the time in which that can be found out is over. Entries sent
/// after it may be appended all the same. [`Error::Server`], [`Error::Unavailable`] and others: it was not appended.
#[derive(Debug)]
pub struct Appended(oneshot::Receiver<Result<EntryId, Error>>);

impl Future for Appended {
    type Output = Result<EntryId, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let lost = |_| Err(Error::unknown("the producer's task is gone"));
        Pin::new(&mut self.0).poll(cx).map(|outcome| outcome.unwrap_or_else(lost))
    }
}

struct Task {
    client: Client,
    stream: Vec<u8>,
    id: Vec<u8>,
    entries_max: usize,
    bytes_max: usize,
    window: Duration,
    trim: Option<Trim>,
    waiting: mpsc::UnboundedReceiver<Waiting>,
    /// Taken from the queue, too large for the batch.
    left_over: Option<Waiting>,
}

impl Task {
    async fn run(mut self) {
        loop {
            let first = match self.left_over.take() {
                Some(first) => first,
                None => match self.waiting.recv().await {
                    Some(first) => first,
                    None => return,
                },
            };
            let batch = self.gather(first);
            let began = Instant::now();
            let outcomes = self.append(&batch).await;
            let count = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
            self.client.options().observer.appended(&self.stream, count, began.elapsed());
            for (waiting, outcome) in batch.into_iter().zip(outcomes) {
                let _ = waiting.done.send(outcome);
            }
        }
    }

    fn gather(&mut self, first: Waiting) -> Vec<Waiting> {
        let mut bytes = first.add.fields.len();
        let mut batch = vec![first];
        while batch.len() < self.entries_max {
            let Ok(next) = self.waiting.try_recv() else { break };
            bytes += next.add.fields.len();
            if bytes > self.bytes_max {
                self.left_over = Some(next);
                break;
            }
            batch.push(next);
        }
        batch
    }

    /// Appends a batch; the outcome of each entry.
    async fn append(&self, batch: &[Waiting]) -> Vec<Result<EntryId, Error>> {
        let cmds: Vec<Cmd> = batch.iter().map(|waiting| self.cmd(waiting)).collect();
        let unit = match cmds.as_slice() {
            [only] => only.unit(),
            several => Unit::transaction("XADD", several),
        };
        debug_assert_eq!(unit.repeat, Repeat::Idempotent);
        let limits = Limits {
            deadline: Instant::now() + self.window,
            not_after: Some(NotAfter::within(&*self.client.env().clock, self.window)),
        };
        let reply = match self.client.inner.run(&unit, limits).await {
            Ok(mut values) => values.pop().unwrap_or(Value::Null),
            Err(error) => return batch.iter().map(|_| Err(error.clone())).collect(),
        };
        let outcome = |value| match value {
            Value::Error(text) => Err(Error::Server(ServerError::new(&text))),
            value => EntryId::from_value(value).map_err(|got| Error::unexpected("XADD", &got)),
        };
        match reply {
            only if batch.len() == 1 => vec![outcome(only)],
            Value::Array(values) if values.len() == batch.len() => values.into_iter().map(outcome).collect(),
            other => batch.iter().map(|_| Err(Error::unexpected("EXEC", &other))).collect(),
        }
    }

    fn cmd(&self, waiting: &Waiting) -> Cmd {
        let mut add = waiting.add.clone();
        add.idmp = Some((self.id.clone(), waiting.id.clone()));
        add.trim = add.trim.or(self.trim);
        add.cmd(&self.stream).idempotent()
    }
}
