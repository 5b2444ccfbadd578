//! Calls of the publish and subscribe family, and what PUBSUB answers of this node.

use crate::pubsub::Message;
use crate::pubsub::hub::{Hub, SubscriptionKind};
use bytes::Bytes;
use weir_stream::Reply;

/// A parsed call.
#[derive(Debug)]
pub enum PubSubCall {
    /// SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE.
    Subscribe(SubscriptionKind, Vec<Bytes>),
    /// UNSUBSCRIBE, PUNSUBSCRIBE, SUNSUBSCRIBE; no name means all.
    Unsubscribe(SubscriptionKind, Vec<Bytes>),
    /// PUBLISH and SPUBLISH.
    Publish(Message),
    /// PUBSUB.
    Tell(Question),
}

/// PUBSUB's subcommands.
#[derive(Debug)]
pub enum Question {
    /// CHANNELS and SHARDCHANNELS, with or without a pattern.
    Names(SubscriptionKind, Option<Bytes>),
    /// NUMSUB and SHARDNUMSUB.
    Listeners(SubscriptionKind, Vec<Bytes>),
    /// NUMPAT.
    Patterns,
}

impl PubSubCall {
    /// Whether the leader of the channel's shard has to be asked.
    pub fn is_routed(&self) -> bool {
        use crate::pubsub::Scope;
        matches!(
            self,
            PubSubCall::Subscribe(SubscriptionKind::ShardChannel, _)
                | PubSubCall::Publish(Message { scope: Scope::Shard, .. })
        )
    }
}

impl Question {
    /// The answer of this node.
    pub fn answer(self, hub: &Hub) -> Reply {
        match self {
            Question::Names(kind, pattern) => {
                Reply::Array(hub.names(kind, pattern.as_deref()).into_iter().map(Reply::Bulk).collect())
            }
            Question::Listeners(kind, names) => {
                let pair = |name: Bytes| {
                    let count = hub.listeners(kind, &name) as i64;
                    [Reply::Bulk(name), Reply::Int(count)]
                };
                Reply::Array(names.into_iter().flat_map(pair).collect())
            }
            Question::Patterns => Reply::Int(hub.count(SubscriptionKind::Pattern) as i64),
        }
    }
}
