//! Topics: a fixed number of streams that together carry what one stream cannot, spread over the shards.

mod member;

use crate::EntryId;
use crate::client::Client;
use crate::command::Cmd;
use crate::commands::Add;
use crate::error::Error;
use crate::producer::{Appended, Producer, ProducerBuilder};
use crate::slot::key_slot;
use std::sync::Arc;
use tokio::sync::OnceCell;

pub use member::{TopicConsumer, TopicConsumerBuilder};

/// Partitions of one topic at most.
const PARTITIONS_MAX: u32 = 1024;

/// A number of streams under one name. Entries with the same key go to the same partition, and keep their order.
///
/// Partition `p` of `orders` is the stream `{orders/p}`. Beside them, `{orders}:partitions` holds their number, and
/// `{orders}:owners` has one entry for each, whose pending entries say who consumes which partition.
#[derive(Debug, Clone)]
pub struct Topic {
    client: Client,
    name: Arc<str>,
    partitions: u32,
}

impl Client {
    /// Opens a topic, and creates it with this many partitions (1 to 1024) if it is missing. The number cannot change
    /// later, since it decides where a key goes.
    ///
    /// ```no_run
    /// # async fn example(client: weir_client::Client) -> Result<(), weir_client::Error> {
    /// let topic = client.topic("orders", 12).await?;
    /// let producer = topic.producer();
    /// producer.append("customer-7", [("item", "tea")]).await?;
    ///
    /// let consumer = topic
    ///     .consumer("billing", "host-1")
    ///     .run(|delivery| async move { Ok::<(), String>(println!("{:?}", delivery.entry)) })
    ///     .await?;
    /// consumer.stop().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name has braces, or if the topic exists with another number of partitions.
    pub async fn topic(&self, name: &str, partitions: u32) -> Result<Topic, Error> {
        if name.is_empty() || name.contains(['{', '}']) || !(1..=PARTITIONS_MAX).contains(&partitions) {
            return Err(Error::Invalid(format!(
                "a topic has a name without braces and 1 to {PARTITIONS_MAX} partitions"
            )));
        }
        let topic = Topic { client: self.clone(), name: name.into(), partitions };
        let number = format!("{{{name}}}:partitions");
        let set = Cmd::write("SET").key(&number).int(partitions).arg("NX").idempotent();
        self.call::<Option<()>>(set).await?;
        let found = self.get(&number).await?.unwrap_or_default();
        if found != partitions.to_string() {
            let found = String::from_utf8_lossy(&found).into_owned();
            return Err(Error::Invalid(format!("{name} has {found} partitions, not {partitions}")));
        }
        let owners = topic.owners();
        let last = match self.xrevrange(&owners, EntryId::MAX, EntryId::MIN).count(1).await?.first() {
            Some(entry) => entry.id.ms,
            None => 0,
        };
        for place in last + 1..=u64::from(partitions) {
            let add =
                Cmd::write("XADD").key(&owners).id(EntryId::new(place, 0)).arg("partition").int(place - 1);
            match self.call::<EntryId>(add).await {
                Ok(_) => {}
                // Someone else, or an attempt of ours without an answer, added it before.
                Err(Error::Server(error)) if error.message().contains("equal or smaller") => {}
                Err(error) => return Err(error),
            }
        }
        Ok(topic)
    }
}

impl Topic {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of partitions.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// The partition of a key, `0..partitions`: the key's hash slot modulo their number.
    pub fn partition_of(&self, key: impl AsRef<[u8]>) -> u32 {
        u32::from(key_slot(key)) % self.partitions
    }

    /// The stream of a partition.
    pub fn stream_of(&self, partition: u32) -> String {
        format!("{{{}/{partition}}}", self.name)
    }

    pub(super) fn owners(&self) -> String {
        format!("{{{}}}:owners", self.name)
    }

    /// Appends to the topic, each entry exactly once and in order of its key's partition.
    pub fn producer(&self) -> TopicProducer {
        self.producer_with(|builder| builder)
    }

    /// As [`Topic::producer`], with the settings that `configure` makes for the producer of each partition.
    pub fn producer_with(
        &self,
        configure: impl Fn(ProducerBuilder) -> ProducerBuilder + Send + Sync + 'static,
    ) -> TopicProducer {
        let partitions = (0..self.partitions).map(|_| OnceCell::new()).collect();
        TopicProducer {
            topic: self.clone(),
            configure: Arc::new(configure),
            partitions: Arc::new(partitions),
        }
    }

    /// A member of a group that shares the topic's partitions among its members. `member` is its name, which no other
    /// living member may have.
    pub fn consumer(&self, group: impl AsRef<[u8]>, member: impl AsRef<[u8]>) -> TopicConsumerBuilder {
        TopicConsumerBuilder::new(self.clone(), group.as_ref(), member.as_ref())
    }
}

/// Appends to a topic: see [`Topic::producer`]. Clones share what it is made of.
#[derive(Clone)]
pub struct TopicProducer {
    topic: Topic,
    configure: Arc<dyn Fn(ProducerBuilder) -> ProducerBuilder + Send + Sync>,
    partitions: Arc<Vec<OnceCell<Producer>>>,
}

impl TopicProducer {
    /// Puts an entry into the queue of its key's partition: see [`Producer::send`].
    ///
    /// # Errors
    /// As [`Producer::send`], and [`ProducerBuilder::open`] when it is the first of its partition.
    pub async fn send(&self, key: impl AsRef<[u8]>, entry: impl Into<Add>) -> Result<Appended, Error> {
        let partition = self.topic.partition_of(key);
        let open = || {
            let stream = self.topic.stream_of(partition);
            (self.configure)(self.topic.client.producer(stream)).open()
        };
        self.partitions[partition as usize].get_or_try_init(open).await?.send(entry).await
    }

    /// [`TopicProducer::send`] and its outcome in one.
    ///
    /// # Errors
    /// As [`TopicProducer::send`] and [`Appended`].
    pub async fn append(&self, key: impl AsRef<[u8]>, entry: impl Into<Add>) -> Result<EntryId, Error> {
        self.send(key, entry).await?.await
    }
}

impl std::fmt::Debug for TopicProducer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicProducer").field("topic", &self.topic.name).finish_non_exhaustive()
    }
}
