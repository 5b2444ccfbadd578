//! Messages between clients, beside Raft: at most once, kept nowhere.
//!
//! A message goes to the subscribers of this node at once ([`hub`]) and to those of the others over the peer
//! connections ([`outbox`]); a subscriber's messages wait in its [`inbox`] until its connection sends them. What finds
//! a buffer full is dropped and counted. What one connection publishes to one channel arrives in its order, gaps apart.

pub mod hub;
pub mod inbox;
pub mod outbox;
mod wire;

use crate::node::Node;
use crate::session::Session;
use bytes::Bytes;
use std::sync::Arc;
use weir_raft::NodeId;
use weir_stream::key_slot;

pub(crate) use wire::KIND_PUBLISH;

/// The two worlds of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// PUBLISH, SUBSCRIBE and PSUBSCRIBE: all nodes.
    Cluster,
    /// SPUBLISH and SSUBSCRIBE: the nodes with a replica of the channel's shard.
    Shard,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who may hear it.
    pub scope: Scope,
    /// Where it was published.
    pub channel: Bytes,
    /// What was published.
    pub payload: Bytes,
}

/// Gives a message to the subscribers of this node and sends it to the others. Answers how many got it here, as in a
/// Redis cluster.
pub fn publish(node: &Arc<Node>, message: &Message) -> usize {
    let here = deliver(node, message);
    let view = node.topology.view();
    let reached: Vec<NodeId> = match message.scope {
        Scope::Cluster => view.map.nodes.iter().map(|n| n.number).collect(),
        Scope::Shard => view.shard_of(key_slot(&message.channel)).map_or(Vec::new(), |s| s.replicas.clone()),
    };
    for to in reached.into_iter().filter(|to| *to != view.me) {
        outbox::send(node, to, message.clone(), view.reachable(to));
    }
    node.metrics.pubsub_published.inc();
    here
}

/// Takes what another node's clients published.
///
/// # Errors
/// The bytes are no messages.
pub(crate) fn receive(node: &Node, from: NodeId, payload: Bytes) -> Result<(), String> {
    let batch = wire::decode(payload)?;
    node.pubsub.in_order(from, &batch, || {
        for message in &batch.messages {
            deliver(node, message);
        }
    });
    Ok(())
}

fn deliver(node: &Node, message: &Message) -> usize {
    let max = node.settings.pubsub_output_buffer_limit.size();
    node.pubsub.deliver(message, |client, delivery| {
        if !client.deliver(delivery, max) {
            node.metrics.pubsub_disconnected.inc();
        }
    })
}

/// Ends all subscriptions of a connection.
pub fn forget(node: &Node, session: &mut Session) {
    let id = session.client.id;
    for (kind, channel) in session.subscriptions.take_all() {
        node.pubsub.unsubscribe(kind, &channel, id);
    }
    session.show_subscriptions();
}
