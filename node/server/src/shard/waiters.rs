//! Parked readers: blocked XREAD and XREADGROUP, by key, first come first served.
//!
//! A waiter's ticket is its place in the queue and stays its own for the whole wait: whoever is woken and
//! loses the race returns to the same place with the same deadline.

use super::backlog::AnswerSender;
use super::batcher::Submission;
use super::handle::{Answer, Park, Unblock};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use weir_env::planted::{Bug, planted};
use weir_env::time::Instant;
use weir_stream::{Command, GroupReady, Key, Machine, Query, Refusal, Reply, Slot, key_slot};

/// One blocked command.
pub(super) struct Waiter {
    pub(super) ticket: u64,
    pub(super) park: Park,
    pub(super) sender: AnswerSender,
    pub(super) kind: WaiterKind,
}

/// What it waits with.
pub(super) enum WaiterKind {
    /// XREAD, with `$` resolved when the call began. `follower`: parked on a replica by a READONLY connection.
    Plain { query: Query, follower: bool },
    /// XREADGROUP with `>`.
    Group(Command),
}

impl WaiterKind {
    fn keys(&self) -> impl Iterator<Item = &Key> {
        let (plain, group) = match self {
            WaiterKind::Plain { query, .. } => (query.stream_read().unwrap_or_default(), &[][..]),
            WaiterKind::Group(command) => {
                (&[][..], command.group_read().map_or(&[][..], |(read, _)| read.keys.as_slice()))
            }
        };
        plain.iter().map(|(key, _)| key).chain(group.iter().map(|(key, _)| key))
    }
    /// Key, group and age of the pending entries that it waits for too.
    fn claims(&self) -> Vec<(Key, Bytes, u64)> {
        match self {
            WaiterKind::Group(command) => match command.group_read() {
                Some((read, Some(age))) => {
                    read.keys.iter().map(|(key, _)| (key.clone(), read.group.clone(), age)).collect()
                }
                _ => Vec::new(),
            },
            WaiterKind::Plain { .. } => Vec::new(),
        }
    }
    fn on_follower(&self) -> bool {
        matches!(self, WaiterKind::Plain { follower: true, .. })
    }
}

/// What each group has for readers that claim entries of this age, or none, and that no woken reader has been counted
/// for yet.
type Supply = BTreeMap<(Bytes, Option<u64>), GroupReady>;

/// All parked readers of one shard on this node.
pub(super) struct Waiters {
    by_ticket: BTreeMap<u64, Waiter>,
    by_key: BTreeMap<Key, BTreeSet<u64>>,
    deadlines: BTreeSet<(Instant, u64)>,
    by_client: BTreeMap<u64, u64>,
    /// Readers that take over pending entries once these are old enough: key, group and age, with how many wait.
    claims: BTreeMap<(Key, Bytes, u64), usize>,
    /// Woken group readers, ready to be proposed again.
    ready: Vec<Submission>,
    most: usize,
}

impl Waiters {
    pub(super) fn new(most: usize) -> Self {
        Waiters {
            by_ticket: BTreeMap::new(),
            by_key: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            by_client: BTreeMap::new(),
            claims: BTreeMap::new(),
            ready: Vec::new(),
            most,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_ticket.len()
    }

    /// Every key somebody waits on.
    pub(super) fn keys(&self) -> BTreeSet<Bytes> {
        self.by_key.keys().cloned().collect()
    }

    /// Parks `waiter`, or ends it at once: its client is gone, its time is up, or the table is full.
    pub(super) fn park(&mut self, waiter: Waiter) {
        if waiter.sender.is_closed() {
            return;
        }
        if self.by_ticket.len() >= self.most {
            waiter.sender.send(Answer::Busy);
            return;
        }
        if waiter.park.deadline.is_some_and(|at| at <= Instant::now()) {
            return end(waiter, Reply::NilArray);
        }
        for key in waiter.kind.keys() {
            self.by_key.entry(key.clone()).or_default().insert(waiter.ticket);
        }
        if let Some(at) = waiter.park.deadline {
            self.deadlines.insert((at, waiter.ticket));
        }
        for claim in waiter.kind.claims() {
            *self.claims.entry(claim).or_default() += 1;
        }
        self.by_client.insert(waiter.park.client, waiter.ticket);
        self.by_ticket.insert(waiter.ticket, waiter);
    }

    fn remove(&mut self, ticket: u64) -> Option<Waiter> {
        let waiter = self.by_ticket.remove(&ticket)?;
        for key in waiter.kind.keys() {
            if let Some(queue) = self.by_key.get_mut(key) {
                queue.remove(&ticket);
                if queue.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        if let Some(at) = waiter.park.deadline {
            self.deadlines.remove(&(at, ticket));
        }
        for claim in waiter.kind.claims() {
            match self.claims.get_mut(&claim) {
                Some(waiting) if *waiting > 1 => *waiting -= 1,
                _ => {
                    self.claims.remove(&claim);
                }
            }
        }
        if self.by_client.get(&waiter.park.client) == Some(&ticket) {
            self.by_client.remove(&waiter.park.client);
        }
        Some(waiter)
    }

    /// The client of `ticket` went away.
    pub(super) fn forget(&mut self, ticket: u64) {
        self.remove(ticket);
    }

    /// CLIENT UNBLOCK.
    pub(super) fn unblock(&mut self, client: u64, how: Unblock) -> bool {
        let Some(waiter) = self.by_client.get(&client).copied().and_then(|ticket| self.remove(ticket)) else {
            return false;
        };
        let reply = match how {
            Unblock::Timeout => Reply::NilArray,
            Unblock::Error => {
                Reply::Error(Refusal::Text("UNBLOCKED client unblocked via CLIENT UNBLOCK".to_owned()))
            }
        };
        end(waiter, reply);
        true
    }

    /// The earliest deadline.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Answers nil to everybody whose time is up.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((at, ticket)) = self.deadlines.first().copied() {
            if at > now {
                return;
            }
            match self.remove(ticket) {
                Some(waiter) => end(waiter, Reply::NilArray),
                None => {
                    self.deadlines.pop_first();
                }
            }
        }
    }

    /// Leadership is lost: whoever waited on this node as the leader is sent elsewhere.
    pub(super) fn end_led(&mut self) {
        let led: Vec<u64> =
            self.by_ticket.iter().filter(|(_, w)| !w.kind.on_follower()).map(|(ticket, _)| *ticket).collect();
        for ticket in led {
            self.send_elsewhere(ticket);
        }
        // Woken, but not proposed again: not done either.
        for mut submission in self.ready.drain(..) {
            if let Some(sender) = submission.sender.take() {
                sender.send(Answer::Moved);
            }
        }
    }

    /// The shard no longer serves `slot`.
    pub(super) fn end_slot(&mut self, slot: Slot) {
        let gone: Vec<u64> = self
            .by_ticket
            .iter()
            .filter(|(_, w)| w.kind.keys().any(|key| key_slot(key) == slot))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in gone {
            self.send_elsewhere(ticket);
        }
    }

    fn send_elsewhere(&mut self, ticket: u64) {
        if let Some(waiter) = self.remove(ticket) {
            waiter.sender.send(Answer::Moved);
        }
    }

    /// Looks again on behalf of everybody who waits on `keys`. Plain readers are answered here; group readers
    /// that can be served move to the ready list (true: there are some). One wake takes, for each group, as
    /// many readers as there are entries, so that a burst is delivered in one commit round.
    pub(super) fn wake(&mut self, machine: &Machine, now_ms: u64, keys: &BTreeSet<Bytes>) -> bool {
        for key in keys {
            let Some(queue) = self.by_key.get(key) else { continue };
            let tickets: Vec<u64> = queue.iter().copied().collect();
            let mut supply: Supply = BTreeMap::new();
            for ticket in tickets {
                self.wake_one(machine, now_ms, key, ticket, &mut supply);
            }
        }
        !self.ready.is_empty()
    }

    /// Keys on which pending entries have become old enough for readers that wait for that, and how long it takes
    /// until there are more, in ms.
    pub(super) fn claims_due(&self, machine: &Machine, now_ms: u64) -> (BTreeSet<Bytes>, Option<u64>) {
        let (mut due, mut next) = (BTreeSet::new(), None::<u64>);
        for (key, group, age) in self.claims.keys() {
            match machine.claim_due_ms(key, group, *age) {
                Some(at) if at <= now_ms => {
                    due.insert(key.clone());
                }
                Some(at) => next = Some(next.map_or(at - now_ms, |next| next.min(at - now_ms))),
                None => {}
            }
        }
        (due, next)
    }

    fn wake_one(&mut self, machine: &Machine, now_ms: u64, key: &Key, ticket: u64, supply: &mut Supply) {
        let Some(waiter) = self.by_ticket.get(&ticket) else { return };
        match &waiter.kind {
            WaiterKind::Plain { query, .. } => {
                match machine.query(now_ms, query) {
                    // Deleted, overwritten or still nothing: a plain reader goes on waiting.
                    weir_stream::Answer::Reply(Reply::NilArray | Reply::Error(_))
                    | weir_stream::Answer::Due(_) => {}
                    weir_stream::Answer::Reply(reply) => {
                        if let Some(waiter) = self.remove(ticket) {
                            end(waiter, reply);
                        }
                    }
                }
            }
            WaiterKind::Group(command) => {
                let Some((read, claim)) = command.group_read() else { return };
                let ready = supply
                    .entry((read.group.clone(), claim))
                    .or_insert_with(|| machine.group_ready(now_ms, key, &read.group, claim));
                match ready {
                    GroupReady::Nothing | GroupReady::Entries(0) => {}
                    GroupReady::Entries(left) => {
                        // A reader whose client has gone takes nothing.
                        if self.make_ready(ticket) {
                            *left -= 1;
                        }
                    }
                    GroupReady::Gone(reply) => {
                        let reply = reply.clone();
                        if let Some(waiter) = self.remove(ticket) {
                            end(waiter, reply);
                        }
                    }
                }
            }
        }
    }

    fn make_ready(&mut self, ticket: u64) -> bool {
        let Some(waiter) = self.remove(ticket) else { return false };
        let WaiterKind::Group(command) = waiter.kind else { return false };
        if waiter.sender.is_closed() && !planted(Bug::ServeTheGone) {
            return false;
        }
        #[cfg(debug_assertions)]
        let command = super::planted::with_noack_forgotten(command);
        let park = waiter.park;
        #[cfg(debug_assertions)]
        let park = super::planted::with_its_time_again(park);
        self.ready.push(Submission {
            command: command.woken(),
            park: Some(park),
            ticket,
            sender: Some(waiter.sender),
            charge: None,
        });
        true
    }

    /// Takes the woken group readers, in the order in which they came.
    pub(super) fn take_ready(&mut self) -> Vec<Submission> {
        self.ready.sort_by_key(|submission| submission.ticket);
        std::mem::take(&mut self.ready)
    }
}

fn end(waiter: Waiter, reply: Reply) {
    waiter.sender.send(Answer::Reply { reply, index: 0 });
}
