//! What a connection listens to: commands that change it, and the sending of what arrived.

use super::Connection;
use super::in_flight::Place;
use crate::command::pubsub::PubSubCall;
use crate::command::table::Row;
use crate::command::{error, reply};
use crate::pubsub::hub::SubscriptionKind;
use crate::pubsub::{self, Message};
use crate::route::{Access, NO_LEADER};
use bytes::Bytes;
use weir_resp::Proto;
use weir_stream::{Reply, Slot};

impl Connection {
    /// In version 2 of the protocol a client that listens cannot tell answers from messages, so that only these are
    /// allowed.
    pub(super) fn may_while_listening(&self, row: &Row) -> Result<(), Reply> {
        const ALLOWED: [&str; 9] = [
            "ping",
            "subscribe",
            "ssubscribe",
            "psubscribe",
            "unsubscribe",
            "sunsubscribe",
            "punsubscribe",
            "quit",
            "reset",
        ];
        let listens = self.session.proto == Proto::Resp2 && self.session.subscriptions.count(None) > 0;
        if !listens || ALLOWED.contains(&row.name) {
            return Ok(());
        }
        Err(error(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
             context",
            row.name
        )))
    }

    /// Runs a call of the family. All calls before it are answered.
    pub(super) fn pubsub(&mut self, row: &'static Row, call: PubSubCall, slot: Option<Slot>) {
        let reply = match self.shard_is_here(&call, slot) {
            Ok(()) => match call {
                PubSubCall::Subscribe(kind, names) => self.subscribe(kind, names),
                PubSubCall::Unsubscribe(kind, names) => self.unsubscribe(kind, names),
                PubSubCall::Publish(message) => Reply::Int(pubsub::publish(&self.node, &message) as i64),
                PubSubCall::Tell(question) => question.answer(&self.node.pubsub),
            },
            Err(redirect) => redirect,
        };
        self.answer(row.name, reply);
    }

    /// A PUBLISH of a transaction: when the rest is done, and only if it is.
    pub(super) fn publish_after(&self, message: Message) -> Place {
        let node = self.node.clone();
        Place::Then(Box::new(move || Reply::Int(pubsub::publish(&node, &message) as i64)))
    }

    /// Sends a client to the leader of a shard channel. Who listens stays when the leader changes: messages reach all
    /// replicas of the shard.
    fn shard_is_here(&self, call: &PubSubCall, slot: Option<Slot>) -> Result<(), Reply> {
        let (Some(slot), true) = (slot, call.is_routed()) else { return Ok(()) };
        if self.lane.is_some() {
            return self.shard_is_heard(call, slot);
        }
        match self.node.route_now(slot, Access::Write) {
            Some(Ok(_)) => Ok(()),
            Some(Err(redirect)) => Err(super::in_flight::redirected(&redirect, &self.session.client)),
            None => {
                let view = self.node.topology.view();
                match view.shard_of(slot).is_some_and(|shard| shard.replicas.contains(&view.me)) {
                    true => Ok(()),
                    false => Err(error(NO_LEADER.to_string())),
                }
            }
        }
    }

    /// A client of the plain port is sent nowhere: any node publishes to all replicas of the shard, and each of these
    /// hears what is published.
    fn shard_is_heard(&self, call: &PubSubCall, slot: Slot) -> Result<(), Reply> {
        let view = self.node.topology.view();
        let heard = view.shard_of(slot).is_some_and(|shard| shard.replicas.contains(&view.me));
        match heard || matches!(call, PubSubCall::Publish(_)) {
            true => Ok(()),
            false => Err(error("ERR this node has no replica of the channel's shard, use SUBSCRIBE")),
        }
    }

    fn subscribe(&mut self, kind: SubscriptionKind, names: Vec<Bytes>) -> Reply {
        let max = self.node.settings.subscriptions_max.size();
        if self.session.subscriptions.count(None) + names.len() > max {
            return error("ERR too many subscriptions (subscriptions-max)");
        }
        let mut answers = Vec::with_capacity(names.len());
        for name in names {
            if self.session.subscriptions.add(kind, name.clone()) {
                self.node.pubsub.subscribe(kind, name.clone(), self.session.client.clone());
            }
            answers.push(self.told("subscribe", kind, Reply::Bulk(name)));
        }
        self.session.show_subscriptions();
        Reply::Many(answers)
    }

    fn unsubscribe(&mut self, kind: SubscriptionKind, names: Vec<Bytes>) -> Reply {
        let names = match names.is_empty() {
            true => self.session.subscriptions.of(kind).iter().cloned().collect(),
            false => names,
        };
        if names.is_empty() {
            return Reply::Many(vec![self.told("unsubscribe", kind, Reply::NilBulk)]);
        }
        let mut told = Vec::with_capacity(names.len());
        for name in names {
            if self.session.subscriptions.remove(kind, &name) {
                self.node.pubsub.unsubscribe(kind, &name, self.session.client.id);
            }
            told.push(self.told("unsubscribe", kind, Reply::Bulk(name)));
        }
        self.session.show_subscriptions();
        // What arrived before comes before the word that nothing more will.
        let mut answers = Vec::new();
        while let Some(delivery) = self.session.client.inbox.take() {
            answers.push(delivery.reply());
        }
        answers.append(&mut told);
        Reply::Many(answers)
    }

    fn told(&self, verb: &str, kind: SubscriptionKind, name: Reply) -> Reply {
        let prefix = match kind {
            SubscriptionKind::Channel => "",
            SubscriptionKind::Pattern => "p",
            SubscriptionKind::ShardChannel => "s",
        };
        let count = self.session.subscriptions.told(kind) as i64;
        Reply::Push(vec![Reply::Bulk(format!("{prefix}{verb}").into()), name, Reply::Int(count)])
    }

    /// PING of a client that listens in version 2 is answered like a message.
    pub(super) fn pong(&self, text: Option<&Bytes>) -> Option<Reply> {
        let listens = self.session.proto == Proto::Resp2 && self.session.subscriptions.count(None) > 0;
        listens.then(|| {
            let text = text.cloned().unwrap_or_default();
            Reply::Array(vec![Reply::Bulk(Bytes::from_static(b"pong")), Reply::Bulk(text)])
        })
    }

    /// Sends messages that arrived, but none before the word that it is listened to, which is among the answers that
    /// are ready.
    pub(super) fn send_messages(&mut self) -> bool {
        if self.in_flight.front().is_some_and(|call| call.is_ready()) {
            return false;
        }
        let mut any = false;
        while self.unsent() < super::OUTPUT_PAUSE_BYTES
            && let Some(delivery) = self.session.client.inbox.take()
        {
            reply::encode(&delivery.reply(), self.session.proto, &mut self.output);
            any = true;
        }
        any
    }

    /// Whether the user may still hear all that is listened to; looked at when users were changed.
    pub(super) fn may_still_listen(&mut self) -> bool {
        let now = self.node.acl.generation();
        if self.session.subscriptions.generation == now {
            return true;
        }
        self.session.subscriptions.generation = now;
        let Some(user) = self.node.acl.get(&self.session.user.name) else { return true };
        let may = |kind| {
            let is_pattern = kind == SubscriptionKind::Pattern;
            self.session.subscriptions.of(kind).iter().all(|name| user.may_hear(name, is_pattern))
        };
        may(SubscriptionKind::Channel)
            && may(SubscriptionKind::Pattern)
            && may(SubscriptionKind::ShardChannel)
    }
}
