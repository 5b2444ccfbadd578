//! XADD, then WAIT on the same connection. The moment it is answered, the disks of the other nodes are looked at.

use rand::Rng;
use weir_tests::history::{Outcome, What};

use super::{Worker, mark_of, pause_after, words};
use crate::invariants::wait_is_on_disk;

pub(super) async fn run(mut me: Worker) {
    while me.again().await {
        let key = me.pick_key();
        let written = me.stage.book.now();
        let added = me.add(key).await;
        pause_after(added.as_ref().map(|(_, outcome)| outcome)).await;
        let Some((token, Outcome::Added(_))) = added else { continue };
        let Some(leader) = me.client.leader_of(&me.stage.keys[key]) else { continue };
        let wanted = me.client.rng().random_range(0..=3u32);
        let limit_ms = me.client.rng().random_range(1..300u32);
        let command = words(&["WAIT", &wanted.to_string(), &limit_ms.to_string()]);
        let started = me.stage.book.now();
        // The connection that answered is still there, or this call learns that it is not: WAIT never speaks of another.
        let fate = me.client.attempt_at(&leader, &command).await;
        let outcome = me.write_down(key, started, What::Wait { wanted, written }, &command, fate);
        if let Some(Outcome::Count(count)) = outcome {
            // Who leads is not known behind a plain port.
            let plain = me.client.is_plain();
            let others = me.stage.nodes.iter().filter(|(address, _)| plain || *address != leader);
            let mark = mark_of(token);
            let holders = others.filter(|(_, disk)| disk.holds_stably(mark.as_bytes())).count();
            // A shard has three replicas, on as many nodes.
            let others = me.stage.nodes.len().min(3) - 1;
            let holders = holders.min(others);
            if let Err(text) = wait_is_on_disk::check(&me.stage.keys[key], token, count, holders) {
                me.stage.book.violation(wait_is_on_disk::NAME, text);
            }
        }
    }
}
