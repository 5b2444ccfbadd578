//! A member of a group: takes new entries, acknowledges most, now and then looks at its own pending list or claims
//! what others left behind.

use rand::Rng;
use weir_tests::history::{Id, Outcome, What};

use super::{GROUPS, Worker, pause_after, words};

/// An entry may be claimed after this long, in milliseconds.
const IDLE_MS: &str = "700";

pub(super) async fn run(mut me: Worker, group: u8) {
    let consumer = me.consumer();
    let own = me.name.clone();
    let named = GROUPS[usize::from(group)];
    // What it saw pending and may ask for by id.
    let mut seen: Vec<(usize, Id)> = Vec::new();
    while me.again().await {
        let key = me.pick_key();
        let name = me.stage.keys[key].clone();
        let draw = me.client.rng().random_range(0..20u32);
        let (what, command) = match draw {
            0 | 1 => (
                What::Pending { group, consumer },
                words(&["XREADGROUP", "GROUP", named, &own, "COUNT", "20", "STREAMS", &name, "0"]),
            ),
            2 | 3 => (
                What::Claim { group, consumer },
                words(&["XAUTOCLAIM", &name, named, &own, IDLE_MS, "0-0", "COUNT", "20"]),
            ),
            4 if seen.iter().any(|(of, _)| *of == key) => {
                let mut command = words(&["XCLAIM", &name, named, &own, IDLE_MS]);
                command
                    .extend(seen.iter().filter(|(of, _)| *of == key).take(5).map(|(_, id)| id.to_string()));
                (What::Claim { group, consumer }, command)
            }
            5..11 => {
                let block = me.client.rng().random_range(1..300).to_string();
                let command = [
                    "XREADGROUP",
                    "GROUP",
                    named,
                    &own,
                    "COUNT",
                    "20",
                    "BLOCK",
                    &block,
                    "STREAMS",
                    &name,
                    ">",
                ];
                (What::Deliver { group, consumer }, words(&command))
            }
            _ => (
                What::Deliver { group, consumer },
                words(&["XREADGROUP", "GROUP", named, &own, "COUNT", "50", "STREAMS", &name, ">"]),
            ),
        };
        let outcome = me.call(key, what, &command).await;
        pause_after(outcome.as_ref()).await;
        if let Some(Outcome::Entries(entries)) = outcome {
            let ids: Vec<Id> = entries.into_iter().map(|(id, _)| id).collect();
            seen.extend(ids.iter().map(|id| (key, *id)));
            let extra = seen.len().saturating_sub(20);
            seen.drain(..extra);
            me.acknowledge(key, group, ids).await;
        }
    }
}

impl Worker {
    /// Acknowledges most of `ids`, in a few calls, repeating what is not answered.
    pub(super) async fn acknowledge(&mut self, key: usize, group: u8, mut ids: Vec<Id>) {
        // Some are left pending, so that pending lists have something to lose.
        let rng = self.client.rng();
        ids.retain(|_| rng.random_ratio(5, 6));
        while !ids.is_empty() {
            let some = ids.split_off(ids.len() - self.client.rng().random_range(1..=ids.len().min(8)));
            let mut command = words(&["XACK", &self.stage.keys[key], GROUPS[usize::from(group)]]);
            command.extend(some.iter().map(Id::to_string));
            for _ in 0..3 {
                let outcome = self.call(key, What::Ack { group, ids: some.clone() }, &command).await;
                if matches!(outcome, Some(Outcome::Count(_))) {
                    break;
                }
                pause_after(outcome.as_ref()).await;
            }
        }
    }
}
