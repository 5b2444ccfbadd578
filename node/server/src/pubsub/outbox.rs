//! Messages that wait for another node: one queue a peer, sent in batches, one call at a time so that order is kept.
//! A call that fails is not repeated, since its messages may have arrived.

use super::Message;
use super::wire::{self, Batch, KIND_PUBLISH};
use crate::node::Node;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use weir_raft::NodeId;

/// A batch takes messages until it has as many bytes.
const BATCH_BYTES: usize = 1 << 20;
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// What a message counts for beyond its bytes.
const OVERHEAD_BYTES: usize = 128;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    start: u64,
    queues: Mutex<BTreeMap<NodeId, Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Message>,
    bytes: usize,
    /// A task is sending; it goes on until nothing waits.
    sending: bool,
    last_batch: u64,
}

impl Outbox {
    pub(super) fn new(start: u64) -> Outbox {
        Outbox { start, queues: Mutex::default() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.queues.lock().values().map(|queue| queue.bytes).sum()
    }

    /// Takes what goes out next; `None` ends the sending.
    fn next(&self, to: NodeId) -> Option<Batch> {
        let mut queues = self.queues.lock();
        let queue = queues.get_mut(&to)?;
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES
            && let Some(message) = queue.waiting.pop_front()
        {
            bytes += bytes_of(&message);
            messages.push(message);
        }
        if messages.is_empty() {
            queue.sending = false;
            queue.waiting = VecDeque::new();
            return None;
        }
        queue.bytes -= bytes;
        queue.last_batch += 1;
        Some(Batch { start: self.start, number: queue.last_batch, messages })
    }
}

fn bytes_of(message: &Message) -> usize {
    OVERHEAD_BYTES + message.channel.len() + message.payload.len()
}

/// Queues a message for a peer; dropped if the peer does not answer or too much waits for it.
pub(super) fn send(node: &Arc<Node>, to: NodeId, message: Message, reachable: bool) {
    let mut queues = node.pubsub.outbox.queues.lock();
    let queue = queues.entry(to).or_default();
    let bytes = queue.bytes + bytes_of(&message);
    if !reachable || bytes > node.settings.pubsub_peer_buffer_limit.size() && !queue.waiting.is_empty() {
        return node.metrics.pubsub_dropped.inc();
    }
    queue.bytes = bytes;
    queue.waiting.push_back(message);
    if !std::mem::replace(&mut queue.sending, true) {
        node.env.spawn.spawn("publish", Box::pin(send_all(node.clone(), to)));
    }
}

async fn send_all(node: Arc<Node>, to: NodeId) {
    while let Some(batch) = node.pubsub.outbox.next(to) {
        let payload = wire::encode(&batch);
        if let Err(error) = node.peers.call(to, KIND_PUBLISH, payload, CALL_TIMEOUT).await {
            tracing::debug!(to, %error, messages = batch.messages.len(), "messages to a node may be lost");
            node.metrics.pubsub_dropped.add(batch.messages.len() as u64);
        }
    }
}
