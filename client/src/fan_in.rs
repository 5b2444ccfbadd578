//! Many streams as one: of different slots, led by different nodes.
//!
//! Streams of one slot are read together, each slot by a task of its own; what they read meets in one bounded queue.
//! Order is kept within each stream, and there is none between streams.

use crate::client::{Client, jittered};
use crate::commands::GroupStart;
use crate::error::Error;
use crate::reply::Streams;
use crate::slot::key_slot;
use crate::{Entry, EntryId};
use bytes::Bytes;
use futures_util::Stream;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// Entries read and not taken yet.
const QUEUE: usize = 1024;
/// Entries asked for at once, of each stream.
const COUNT: u64 = 128;
/// How long a read waits at the server.
const BLOCK: Duration = Duration::from_secs(2);

/// Entries of many streams: see [`Client::read_many`]. Also a [`Stream`]. Dropping it ends the reads.
#[derive(Debug)]
pub struct ReadMany {
    queue: mpsc::Receiver<Result<(Bytes, Entry), Error>>,
}

/// Deliveries of many streams: see [`Client::consume_many`]. Also a [`Stream`]. Dropping it ends the reads; what was
/// delivered and not acknowledged stays pending.
#[derive(Debug)]
pub struct ConsumeMany {
    queue: mpsc::Receiver<Result<Received, Error>>,
}

/// An entry delivered by [`Client::consume_many`].
#[derive(Debug, Clone)]
pub struct Received {
    /// The stream it is from.
    pub stream: Bytes,
    /// The entry.
    pub entry: Entry,
    client: Client,
    group: Bytes,
}

impl Received {
    /// Acknowledges it, again and again until that is answered or [`crate::Options::timeout`] is over.
    ///
    /// # Errors
    /// [`Error::Unknown`] or [`Error::Unavailable`] then; doing it again is harmless.
    pub async fn ack(&self) -> Result<(), Error> {
        let cmd = crate::command::Cmd::write("XACK").key(&self.stream).arg(&self.group).id(self.entry.id);
        self.client.call(cmd.idempotent()).await
    }
}

impl Client {
    /// Follows streams of any slots: entries from where each is to start, then those that are added. It goes on
    /// through failovers without gaps and without repetitions.
    ///
    /// ```no_run
    /// # async fn example(client: weir_client::Client) -> Result<(), weir_client::Error> {
    /// use weir_client::GroupStart;
    /// let mut entries = client.read_many([("orders", GroupStart::First), ("payments", GroupStart::New)]).await?;
    /// while let Some((stream, entry)) = entries.next().await? {
    ///     println!("{stream:?} {entry:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What asking for the end of a stream can meet. Later ones come in order with the entries, and are the last of
    /// their slot's streams: only what does not pass (`WRONGTYPE`, [`Error::Auth`]) ends a read.
    pub async fn read_many<K: AsRef<[u8]>>(
        &self,
        streams: impl IntoIterator<Item = (K, GroupStart)>,
    ) -> Result<ReadMany, Error> {
        let mut slots: BTreeMap<u16, Vec<(Bytes, EntryId)>> = BTreeMap::new();
        for (key, start) in streams {
            let key = Bytes::copy_from_slice(key.as_ref());
            let after = match start {
                GroupStart::First => EntryId::MIN,
                GroupStart::After(id) => id,
                GroupStart::New => match self.xinfo_stream(&key).await {
                    Ok(info) => info.last_id,
                    Err(Error::Server(error)) if error.message() == "no such key" => EntryId::MIN,
                    Err(error) => return Err(error),
                },
            };
            slots.entry(key_slot(&key)).or_default().push((key, after));
        }
        let (into, queue) = mpsc::channel(QUEUE);
        for streams in slots.into_values() {
            let follow = follow(self.clone(), streams, into.clone());
            self.env().spawn.spawn("weir-client reader", Box::pin(follow));
        }
        Ok(ReadMany { queue })
    }

    /// Reads streams of any slots as one consumer of a group, which is created where it is missing. What the
    /// consumer left pending in an earlier life comes first. Each entry is to be acknowledged by [`Received::ack`].
    /// At most 1024 wait undelivered. For retries, leases and dead letters see [`Client::worker`].
    ///
    /// ```no_run
    /// # async fn example(client: weir_client::Client) -> Result<(), weir_client::Error> {
    /// let mut received = client.consume_many("billing", "host-1", ["orders", "payments"]).await?;
    /// while let Some(received) = received.next().await? {
    ///     println!("{:?} {:?}", received.stream, received.entry);
    ///     received.ack().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What creating a group can meet; later ones as for [`Client::read_many`].
    pub async fn consume_many<K: AsRef<[u8]>>(
        &self,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
        streams: impl IntoIterator<Item = K>,
    ) -> Result<ConsumeMany, Error> {
        let (group, consumer) = (group.as_ref(), consumer.as_ref());
        let mut slots: BTreeMap<u16, BTreeMap<Bytes, EntryId>> = BTreeMap::new();
        for key in streams {
            let key = Bytes::copy_from_slice(key.as_ref());
            match self.xgroup_create(&key, group, GroupStart::First).await {
                Err(Error::Server(error)) if error.code() == "BUSYGROUP" => {}
                other => other?,
            }
            slots.entry(key_slot(&key)).or_default().insert(key, EntryId::MIN);
        }
        let (into, queue) = mpsc::channel(QUEUE);
        for streams in slots.into_values() {
            let reader = GroupReader {
                client: self.clone(),
                group: Bytes::copy_from_slice(group),
                consumer: Bytes::copy_from_slice(consumer),
                streams,
                into: into.clone(),
            };
            self.env().spawn.spawn("weir-client group reader", Box::pin(reader.run()));
        }
        Ok(ConsumeMany { queue })
    }
}

/// Whether a read goes on after this error.
fn passes(error: &Error) -> bool {
    error.is_passing() || matches!(error, Error::Unknown { .. })
}

/// Waits after a failure, longer each time.
async fn pause(client: &Client, failures: &mut u32, error: &Error) {
    *failures += 1;
    tracing::warn!(target: "weir_client", %error, "a read failed");
    let options = client.options();
    let pause = jittered(client.env(), options.backoff_min, options.backoff_max, *failures);
    weir_env::time::sleep(pause).await;
}

/// Follows streams of one slot.
async fn follow(
    client: Client,
    mut streams: Vec<(Bytes, EntryId)>,
    into: mpsc::Sender<Result<(Bytes, Entry), Error>>,
) {
    let mut failures = 0;
    loop {
        let read = streams.iter().fold(client.xread(), |read, (key, after)| read.after(key, *after));
        let read = tokio::select! {
            biased;
            () = into.closed() => return,
            read = read.count(COUNT).block(BLOCK).into_future() => read,
        };
        match read {
            Ok(read) => {
                failures = 0;
                for (key, entry) in read.into_entries() {
                    if let Some((_, after)) = streams.iter_mut().find(|(stream, _)| *stream == key) {
                        *after = entry.id;
                    }
                    if into.send(Ok((key, entry))).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) if passes(&error) => pause(&client, &mut failures, &error).await,
            Err(error) => {
                let _ = into.send(Err(error)).await;
                return;
            }
        }
    }
}

/// Reads streams of one slot as a consumer.
struct GroupReader {
    client: Client,
    group: Bytes,
    consumer: Bytes,
    /// With the highest id that was handed on: what is pending above it was not.
    streams: BTreeMap<Bytes, EntryId>,
    into: mpsc::Sender<Result<Received, Error>>,
}

impl GroupReader {
    async fn run(mut self) {
        let mut failures = 0;
        let mut recover = true;
        loop {
            let read = if recover { self.pending().await } else { self.new_entries().await };
            let Some(read) = read else { return };
            match read {
                Ok(read) => {
                    failures = 0;
                    if recover && read.is_empty() {
                        recover = false;
                    }
                    for (stream, entry) in read.into_entries() {
                        self.streams.insert(stream.clone(), entry.id);
                        let (client, group) = (self.client.clone(), self.group.clone());
                        // One without fields has left the stream; it is acknowledged here.
                        let gone = entry.fields.is_empty();
                        let received = Received { stream, entry, client, group };
                        if gone {
                            let _ = received.ack().await;
                        } else if self.into.send(Ok(received)).await.is_err() {
                            return;
                        }
                    }
                }
                Err(error) if passes(&error) => {
                    // What a lost answer delivered is pending above what was handed on.
                    recover = true;
                    pause(&self.client, &mut failures, &error).await;
                }
                Err(error) => {
                    let _ = self.into.send(Err(error)).await;
                    return;
                }
            }
        }
    }

    /// Own pending entries that were not handed on; `None` when nobody listens any more.
    async fn pending(&self) -> Option<Result<Streams, Error>> {
        let read = self.client.xreadgroup(&self.group, &self.consumer);
        let read = self.streams.iter().fold(read, |read, (key, after)| read.pending_after(key, *after));
        self.unless_closed(read.count(COUNT).into_future()).await
    }

    async fn new_entries(&self) -> Option<Result<Streams, Error>> {
        let read = self.client.xreadgroup(&self.group, &self.consumer);
        let read = self.streams.keys().fold(read, |read, key| read.new_of(key));
        self.unless_closed(read.count(COUNT).block(BLOCK).timeout(Duration::from_secs(3)).into_future()).await
    }

    async fn unless_closed<T>(&self, read: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.into.closed() => None,
            read = read => Some(read),
        }
    }
}

impl ReadMany {
    /// The next entry with its stream. `None` only when every read has ended with an error.
    ///
    /// # Errors
    /// What ended the reads of one slot; the others go on.
    pub async fn next(&mut self) -> Result<Option<(Bytes, Entry)>, Error> {
        self.queue.recv().await.transpose()
    }
}

impl Stream for ReadMany {
    type Item = Result<(Bytes, Entry), Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.queue.poll_recv(cx)
    }
}

impl ConsumeMany {
    /// The next delivery. `None` only when every read has ended with an error.
    ///
    /// # Errors
    /// What ended the reads of one slot; the others go on.
    pub async fn next(&mut self) -> Result<Option<Received>, Error> {
        self.queue.recv().await.transpose()
    }
}

impl Stream for ConsumeMany {
    type Item = Result<Received, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.queue.poll_recv(cx)
    }
}
