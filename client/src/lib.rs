//! Client of Weir clusters for streams; works with Redis clusters and single Redis servers too.
//!
//! ```no_run
//! use weir_client::{Client, Error};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     let client = Client::connect(["127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"]).await?;
//!     let worker = client
//!         .worker("orders", "billing", "billing-1")
//!         .run(|delivery| async move {
//!             println!("{} {:?}", delivery.entry.id, delivery.entry.get_str("number"));
//!             Ok::<(), Error>(())
//!         })
//!         .await?;
//!     let producer = client.producer("orders").open().await?;
//!     for number in 0..1000 {
//!         producer.append([("number", number.to_string())]).await?;
//!     }
//!     worker.stop().await?;
//!     Ok(())
//! }
//! ```
//!
//! goes on when a node dies, loses no entry, adds none twice, and does the work of each at least once.
//!
//! - [`Client`] finds the cluster, keeps one pipelined connection to each node, follows redirects, and tells apart
//!   what was done, what was not, and what nobody knows ([`Error::fate`]). One method for each command.
//! - [`Producer`] appends exactly once and in order.
//! - [`Worker`] runs a handler for every entry of a group, through failures of its own and of others.
//! - [`Topic`] spreads what one stream cannot carry over many, produced by key and consumed by a group whose members
//!   share the partitions.
//! - [`Client::read_many`] and [`Client::consume_many`] read streams of different shards as one.
//!
//! # Three outcomes
//!
//! A write is done, not done, or nobody can tell. The third is [`Error::Unknown`]: the answer was lost, or the server
//! itself lost its majority. Nothing in this crate repeats such a write unless a repetition is recognised by the server
//! ([`Producer`]) or harmless (reads, acknowledgements in [`Worker`]).
//!
//! # Time and memory
//!
//! Every call ends within its deadline ([`Options::timeout`]). What waits is bounded: calls of a node
//! ([`Options::in_flight_max`]), entries and bytes of a producer, entries in hand of a worker; at a bound, callers wait.
//!
//! # Tasks
//!
//! All of it runs on the current tokio runtime and reaches network, clock and randomness through [`Options::env`], so a
//! simulator can run it unchanged.
#![warn(missing_docs)]

mod call;
mod client;
mod command;
mod commands;
mod connection;
mod entry;
mod error;
mod fan_in;
mod nodes;
mod observe;
mod options;
mod producer;
mod reply;
mod slot;
mod tls;
mod topic;
mod topology;
mod worker;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use client::{Call, Client};
pub use commands::{
    Add, AddId, AutoClaimed, Claimed, ConsumerInfo, ExpireIf, GroupInfo, GroupStart, Nack, PendingEntry,
    PendingSummary, Raw, Refs, Removal, Set, StreamInfo, Transaction, Trim, XAdd, XAutoClaim, XClaim,
    XClaimIds, XPending, XRange, XRead, XReadGroup, XReadGroupClaim,
};
pub use entry::{Entry, EntryId};
pub use error::{Error, Fate, ServerError};
pub use fan_in::{ConsumeMany, ReadMany, Received};
pub use observe::Observer;
pub use options::Options;
pub use producer::{Appended, Producer, ProducerBuilder};
pub use reply::{FromValue, Streams};
pub use slot::{SLOTS, key_slot};
pub use tls::Tls;
pub use topic::{Topic, TopicConsumer, TopicConsumerBuilder, TopicProducer};
pub use weir_resp::Value;
pub use weir_tls::{Error as TlsError, Reason as TlsReason};
pub use worker::{Delivery, WorkDone, Worker, WorkerBuilder};
