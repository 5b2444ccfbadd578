//! Client of Weir clusters for streams; works with Redis clusters and single Redis servers too.
//!
//! - [`Client`] finds the cluster, keeps one pipelined connection to each node, follows redirects, and tells apart
//!   what was done, what was not, and what nobody knows ([`Error::fate`]). One method for each command.
//! - [`Producer`] appends exactly once and in order.
//! - [`Worker`] runs a handler for every entry of a group, through failures of its own and of others.
//! - [`Client::read_many`] and [`Client::consume_many`] read streams of different shards as one.
//! - [`Topic`] spreads what one stream cannot carry over many, produced by key and consumed by a group whose members
//!   share the partitions.
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
mod topic;
mod topology;
mod worker;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use client::{Call, Client};
pub use commands::{
    Add, AddId, AutoClaimed, ConsumerInfo, ExpireIf, GroupInfo, GroupStart, PendingEntry, PendingSummary,
    Raw, Set, StreamInfo, Transaction, Trim, XAdd, XAutoClaim, XClaim, XClaimIds, XPending, XRange, XRead,
    XReadGroup,
};
pub use entry::{Entry, EntryId};
pub use error::{Error, Fate, ServerError};
pub use fan_in::{ConsumeMany, ReadMany, Received};
pub use observe::Observer;
pub use options::Options;
pub use producer::{Appended, Producer, ProducerBuilder};
pub use reply::{FromValue, Streams};
pub use slot::{SLOTS, key_slot};
pub use topic::{Topic, TopicConsumer, TopicConsumerBuilder, TopicProducer};
pub use weir_resp::Value;
pub use worker::{Delivery, WorkDone, Worker, WorkerBuilder};
