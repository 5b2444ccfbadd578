//! After the faults: everything is read back, and everything that is pending is acknowledged.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::sleep;
use weir_resp::Value;
use weir_tests::{
    client::is_passing,
    history::{Id, LastState, Outcome, What, read_entries, read_stream_entries},
    workload::{LAST_CONSUMER, pending_row},
};

use super::{GROUPS, Worker, pause_after, words};
use crate::invariants::pending_is_settled;

impl Worker {
    /// Reads each stream whole; delivers what a group had not delivered to one more consumer (written down like every
    /// delivery); then reads each group's pending list.
    pub(super) async fn read_back(&mut self) {
        for key in 0..self.stage.keys.len() {
            let name = self.stage.keys[key].clone();
            let mut state = LastState::default();
            let mut from = Id::ZERO;
            loop {
                let command = words(&["XRANGE", &name, &from.to_string(), "+", "COUNT", "500"]);
                let page = self.client.insist(&name, &command).await;
                let page = page.and_then(|reply| {
                    self.look_for_damage(&reply);
                    read_entries(&reply)
                });
                let page = self.or_violation("XRANGE", page);
                let Some(&(highest, _)) = page.last() else { break };
                from = highest.next();
                state.entries.extend(page);
            }
            for (group, named) in GROUPS.iter().enumerate() {
                self.drain(key, group as u8).await;
                let rows = self.pending(&name, named).await;
                state.pending.push(rows.iter().map(|(id, (owner, _))| (*id, *owner)).collect());
                state.deliveries.push(rows.iter().map(|(id, (_, count))| (*id, *count)).collect());
            }
            self.stage.trace.line(
                &self.name,
                format_args!(
                    "{name} holds {} entries, {} pending",
                    state.entries.len(),
                    state.pending.iter().map(BTreeMap::len).sum::<usize>()
                ),
            );
            self.stage.book.last(state);
        }
    }

    fn or_violation<T: Default>(&self, what: &str, result: Result<T, String>) -> T {
        result.unwrap_or_else(|error| {
            self.stage.book.violation("errors_are_expected", format!("{what}: {error}"));
            T::default()
        })
    }

    async fn drain(&mut self, key: usize, group: u8) {
        let own = format!("c{LAST_CONSUMER}");
        let (named, name) = (GROUPS[usize::from(group)], self.stage.keys[key].clone());
        let command = words(&["XREADGROUP", "GROUP", named, &own, "COUNT", "200", "STREAMS", &name, ">"]);
        loop {
            match self.call(key, What::Deliver { group, consumer: LAST_CONSUMER }, &command).await {
                Some(Outcome::Entries(entries)) if entries.is_empty() => return,
                // The group is gone, say; the checks complain about it.
                Some(Outcome::Refused(error)) if !is_passing(&error) => return,
                other => pause_after(other.as_ref()).await,
            }
        }
    }

    async fn pending(&mut self, name: &str, group: &str) -> BTreeMap<Id, (u16, u64)> {
        let mut pending = BTreeMap::new();
        let mut from = Id::ZERO;
        loop {
            let command = words(&["XPENDING", name, group, &from.to_string(), "+", "500"]);
            let rows = match self.client.insist(name, &command).await {
                Ok(Value::Array(rows)) => rows,
                Ok(other) => self.or_violation("XPENDING", Err(format!("{other:?}"))),
                Err(error) => self.or_violation("XPENDING", Err(error)),
            };
            if rows.is_empty() {
                return pending;
            }
            for row in &rows {
                let Some((id, owner, count)) = pending_row(row) else { continue };
                pending.insert(id, (owner, count));
                from = id.next();
            }
        }
    }

    /// Every owner of pending entries comes back once more, reads them again and acknowledges them: then nothing is
    /// pending any more.
    pub(super) async fn settle(&mut self) {
        for key in 0..self.stage.keys.len() {
            let name = self.stage.keys[key].clone();
            for group in GROUPS {
                for round in 0.. {
                    let pending = self.pending(&name, group).await;
                    if let Err(text) = pending_is_settled::check(&name, group, round, pending.len()) {
                        self.stage.book.violation(pending_is_settled::NAME, text);
                        break;
                    }
                    if pending.is_empty() {
                        break;
                    }
                    let mut owners: Vec<u16> = pending.values().map(|(owner, _)| *owner).collect();
                    owners.sort_unstable();
                    owners.dedup();
                    for owner in owners {
                        self.settle_for(&name, group, &format!("c{owner}")).await;
                    }
                }
            }
        }
        self.stage.trace.line(&self.name, "nothing is pending any more");
        sleep(Duration::from_millis(1)).await;
    }

    async fn settle_for(&mut self, name: &str, group: &str, owner: &str) {
        let command = words(&["XREADGROUP", "GROUP", group, owner, "STREAMS", name, "0"]);
        let reply = self.client.insist(name, &command).await;
        let entries = self.or_violation("XREADGROUP", reply.and_then(|reply| read_stream_entries(&reply)));
        if entries.is_empty() {
            return;
        }
        let mut command = words(&["XACK", name, group]);
        command.extend(entries.iter().map(|(id, _)| id.to_string()));
        let answer = self.client.insist(name, &command).await;
        self.or_violation("XACK", answer.map(|_| ()));
    }
}
