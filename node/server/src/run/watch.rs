//! Tasks that watch the parts of a running node and tell the others.

use super::Stop;
use crate::node::Node;
use crate::shard::ShardHandle;
use crate::topology::Leadership;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_env::Env;
use weir_env::time::timeout;
use weir_raft::Group;
use weir_store::Wal;

/// A leader that does not serve yet is looked at this often.
const NOT_YET_SERVING: Duration = Duration::from_millis(10);

/// A log that failed ends the node: nothing it says afterwards could be kept.
pub(super) fn wal(env: &Env, wal: &Wal, stop: &Arc<Stop>) {
    let (mut failed, told) = (wal.failed(), stop.clone());
    stop.run(env, "log failures", async move {
        if let Ok(error) = failed.wait_for(Option::is_some).await
            && let Some(error) = &*error
        {
            told.fail(format!("the log failed, this node stops: {error}"));
        }
    });
}

/// A group that stopped by itself has lost its storage or its senses; the node says so and stops (P11).
pub(super) fn group(env: &Env, stop: &Arc<Stop>, group: Group, what: &'static str) {
    let told = stop.clone();
    stop.run(env, "group failures", async move {
        let mut status = group.status();
        let stopped = status.wait_for(|s| s.stopped.is_some()).await.ok().and_then(|s| s.stopped.clone());
        if let Some(why) = stopped
            && !*told.closing.borrow()
        {
            told.fail(format!("{what} (Raft group {}) stopped, this node stops: {why}", group.id().0));
        }
    });
}

/// Tells the topology who leads a shard and whether this node, if it does, serves.
pub(super) async fn leadership(node: Arc<Node>, shard: ShardHandle) {
    let mut status = shard.group().status();
    let metrics = node.metrics.shard(shard.id());
    let (mut term, mut led, mut served) = (0, false, false);
    let mut saved = status.borrow().snapshot;
    loop {
        let (now, leader, leads, last, snapshot) = {
            let now = status.borrow_and_update();
            (now.term, now.leader, now.is_leader, now.last_index, now.snapshot)
        };
        if snapshot > saved {
            saved = snapshot;
            node.observe.saves.note(node.env.clock.wall_ms());
        }
        metrics.progress.note(node.env.clock.mono(), last);
        if now != term {
            term = now;
            metrics.elections.inc();
        }
        let serves = leads && shard.serving() && shard.machine(|m| !m.owned_ranges().is_empty());
        if (leads, serves) != (led, served) {
            let state = match (leads, serves) {
                (true, true) => "this node leads and serves",
                (true, false) => "this node leads, and does not serve yet or has lost its majority",
                _ => "this node no longer leads",
            };
            tracing::info!(node = node.identity.name, shard = shard.id().0, term, "{state}");
            (led, served) = (leads, serves);
        }
        let heard = Leadership { term, leader, serving: leads.then_some(serves) };
        node.topology.observe(shard.id(), heard, node.number());
        let changed = if leads && !serves {
            timeout(NOT_YET_SERVING, status.changed()).await.unwrap_or(Ok(()))
        } else {
            status.changed().await
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Tells the topology, and through it the others, when this node's disk is down to its reserve.
pub(super) async fn space(node: Arc<Node>) {
    let mut low = node.wal.space_low();
    loop {
        let now = *low.borrow_and_update();
        if now != node.topology.view().space_low(node.number()) {
            match now {
                true => tracing::warn!("the disk is full but for its reserve: writes that add are refused"),
                false => tracing::info!("the disk has room again"),
            }
            node.topology.set_space_low(node.number(), now);
        }
        if low.changed().await.is_err() {
            return;
        }
    }
}

pub(super) async fn ready(node: Arc<Node>) {
    let mut changed = node.topology.changed();
    loop {
        changed.borrow_and_update();
        if node.topology.view().all_served() {
            node.ready.store(true, Ordering::Relaxed);
            node.topology.touch();
            return;
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}

/// Ends the connections of users that are gone, and lets those that wait look whether they still may.
pub(super) async fn users(node: Arc<Node>) {
    let mut changed = node.topology.changed();
    let mut seen = node.acl.generation();
    loop {
        let now = node.acl.generation();
        if now != seen {
            seen = now;
            node.clients.users_changed(&node.acl);
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}
