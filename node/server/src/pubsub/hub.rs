//! Who listens to what on this node.

use super::inbox::Delivery;
use super::wire::Batch;
use super::{Message, Scope};
use crate::clients::Client;
use crate::command::glob;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_raft::NodeId;

/// What can be subscribed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubscriptionKind {
    /// SUBSCRIBE.
    Channel,
    /// PSUBSCRIBE.
    Pattern,
    /// SSUBSCRIBE.
    ShardChannel,
}

type Listeners = BTreeMap<Bytes, BTreeMap<u64, Arc<Client>>>;

/// The subscribers of this node. Messages are given out under one lock, so that all subscribers see one order.
#[derive(Debug, Default)]
pub struct Hub {
    listeners: Mutex<[Listeners; 3]>,
    /// Of each other node: which start of it was heard last, and its last batch.
    heard: Mutex<BTreeMap<NodeId, (u64, u64)>>,
    pub(super) outbox: super::outbox::Outbox,
}

impl Hub {
    /// Nobody listens. `start`: a number that no other start of this node has.
    pub fn new(start: u64) -> Hub {
        Hub { outbox: super::outbox::Outbox::new(start), ..Hub::default() }
    }

    /// From now on `client` gets what fits.
    pub fn subscribe(&self, kind: SubscriptionKind, name: Bytes, client: Arc<Client>) {
        self.listeners.lock()[kind as usize].entry(name).or_default().insert(client.id, client);
    }

    /// From now on the client with this number does not.
    pub fn unsubscribe(&self, kind: SubscriptionKind, name: &[u8], client: u64) {
        let mut all = self.listeners.lock();
        let of_kind = &mut all[kind as usize];
        if let Some(listeners) = of_kind.get_mut(name) {
            listeners.remove(&client);
            if listeners.is_empty() {
                of_kind.remove(name);
            }
        }
    }

    /// Gives a message to all whom it reaches here: those of the channel, then those of patterns. How many.
    pub(super) fn deliver(&self, message: &Message, give: impl Fn(&Client, Delivery)) -> usize {
        let all = self.listeners.lock();
        let (exact, patterns) = match message.scope {
            Scope::Cluster => (SubscriptionKind::Channel, Some(&all[SubscriptionKind::Pattern as usize])),
            Scope::Shard => (SubscriptionKind::ShardChannel, None),
        };
        let mut reached = 0;
        for client in all[exact as usize].get(&message.channel).into_iter().flat_map(BTreeMap::values) {
            give(client, Delivery::Message { message: message.clone(), pattern: None });
            reached += 1;
        }
        for (pattern, clients) in patterns.into_iter().flatten() {
            if glob::fits_key(pattern, &message.channel) {
                for client in clients.values() {
                    give(
                        client,
                        Delivery::Message { message: message.clone(), pattern: Some(pattern.clone()) },
                    );
                    reached += 1;
                }
            }
        }
        reached
    }

    /// Does what a batch of another node asks for, unless it or a later one was heard already: a call that was given up
    /// may still arrive, and its messages are lost rather than told out of order.
    pub(super) fn in_order(&self, from: NodeId, batch: &Batch, then: impl FnOnce()) {
        let mut heard = self.heard.lock();
        let known = heard.entry(from).or_default();
        if known.0 != batch.start {
            *known = (batch.start, 0);
        }
        if batch.number > known.1 {
            known.1 = batch.number;
            // Under the lock, so that the next batch comes after it.
            then();
        }
    }

    /// Names that somebody listens to, if they fit.
    pub fn names(&self, kind: SubscriptionKind, pattern: Option<&[u8]>) -> Vec<Bytes> {
        let all = self.listeners.lock();
        let fits = |name: &&Bytes| pattern.is_none_or(|pattern| glob::fits_key(pattern, name));
        all[kind as usize].keys().filter(fits).cloned().collect()
    }

    /// How many names somebody listens to.
    pub fn count(&self, kind: SubscriptionKind) -> usize {
        self.listeners.lock()[kind as usize].len()
    }

    /// How many clients listen to this name.
    pub fn listeners(&self, kind: SubscriptionKind, name: &[u8]) -> usize {
        self.listeners.lock()[kind as usize].get(name).map_or(0, BTreeMap::len)
    }

    /// How many clients listen to anything.
    pub fn clients(&self) -> usize {
        let all = self.listeners.lock();
        all.iter().flat_map(BTreeMap::values).flat_map(BTreeMap::keys).collect::<BTreeSet<_>>().len()
    }

    /// Bytes that wait for other nodes.
    pub fn outbox_bytes(&self) -> usize {
        self.outbox.bytes()
    }
}

/// What one connection listens to. Its own task alone changes it.
#[derive(Debug, Default)]
pub struct Subscriptions {
    names: [BTreeSet<Bytes>; 3],
    /// Of the directory of users, when the rights to all of these were last looked at.
    pub generation: u64,
}

impl Subscriptions {
    /// Adds a name; false if it was there.
    pub fn add(&mut self, kind: SubscriptionKind, name: Bytes) -> bool {
        self.names[kind as usize].insert(name)
    }

    /// Removes a name; false if it was not there.
    pub fn remove(&mut self, kind: SubscriptionKind, name: &[u8]) -> bool {
        self.names[kind as usize].remove(name)
    }

    /// All names of a kind.
    pub fn of(&self, kind: SubscriptionKind) -> &BTreeSet<Bytes> {
        &self.names[kind as usize]
    }

    /// How many names of this kind, or in all (`None`).
    pub fn count(&self, kind: Option<SubscriptionKind>) -> usize {
        match kind {
            Some(kind) => self.of(kind).len(),
            None => self.names.iter().map(BTreeSet::len).sum(),
        }
    }

    /// The number that an answer tells: shard channels are counted apart.
    pub fn told(&self, kind: SubscriptionKind) -> usize {
        match kind {
            SubscriptionKind::ShardChannel => self.of(kind).len(),
            _ => self.of(SubscriptionKind::Channel).len() + self.of(SubscriptionKind::Pattern).len(),
        }
    }

    /// Empties it.
    pub fn take_all(&mut self) -> Vec<(SubscriptionKind, Bytes)> {
        let kinds = [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::ShardChannel];
        let names = std::mem::take(&mut self.names);
        kinds
            .into_iter()
            .zip(names)
            .flat_map(|(kind, names)| names.into_iter().map(move |n| (kind, n)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(start: u64, number: u64) -> Batch {
        Batch { start, number, messages: Vec::new() }
    }

    #[test]
    fn a_batch_that_was_overtaken_or_comes_twice_is_not_told() {
        let hub = Hub::new(1);
        let told = |start, number| {
            let mut told = false;
            hub.in_order(7, &batch(start, number), || told = true);
            told
        };
        assert!(told(5, 1) && told(5, 3));
        assert!(!told(5, 2) && !told(5, 3));
        assert!(told(5, 4));
        assert!(told(6, 1), "the node was started again");
    }
}
