//! From a slot to whoever may answer for it: a local shard, or a redirect.
//!
//! While a shard has no live leader (a leader that no quorum answers is none) its commands are held, unproposed,
//! for up to two elections, four of the longest election timeouts. How many may be held, and how many bytes of them, is bounded.

use crate::node::Node;
use crate::shard::ShardHandle;
use weir_env::time::{Instant, timeout_at};
use weir_raft::NodeId;
use weir_stream::Slot;

/// What a command wants to do with a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Change it.
    Write,
    /// Read it, linearizably.
    Read,
    /// Read it from any replica (after READONLY).
    FollowerRead,
}

/// Where else to go, or why not now. None of these did anything; all are safe to retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redirect {
    /// The leader is there.
    Moved {
        /// The leader.
        node: NodeId,
        /// Of the command's keys.
        slot: Slot,
        /// Host of the leader.
        host: String,
        /// Its client port.
        port: u16,
        /// Its port for clients that speak TLS.
        tls_port: u16,
    },
    /// The command's keys lie in different slots.
    CrossSlot,
    /// Leadership is changing hands here; ask again.
    TryAgain,
    /// Nobody serves the slot now. With the text after `CLUSTERDOWN `.
    ClusterDown(&'static str),
}

impl Redirect {
    /// The error line that a client sees, with its prefix.
    pub fn line(&self, tls: bool) -> String {
        match self {
            Redirect::Moved { slot, host, tls_port, .. } if tls => {
                format!("MOVED {} {host}:{tls_port}", slot.0)
            }
            other => other.to_string(),
        }
    }
}

impl std::fmt::Display for Redirect {
    /// The error line that a client sees which does not speak TLS, with its prefix.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Redirect::Moved { slot, host, port, .. } => write!(f, "MOVED {} {host}:{port}", slot.0),
            Redirect::CrossSlot => f.write_str("CROSSSLOT Keys in request don't hash to the same slot"),
            Redirect::TryAgain => f.write_str("TRYAGAIN Leadership of the slot is changing, try again"),
            Redirect::ClusterDown(why) => write!(f, "CLUSTERDOWN {why}"),
        }
    }
}

/// No leader within the time that a command is held.
pub(crate) const NO_LEADER: Redirect = Redirect::ClusterDown("The cluster is down");
/// Too many commands wait for a leader already.
pub(crate) const TOO_MANY_HELD: Redirect =
    Redirect::ClusterDown("The cluster is down: too many commands wait for a leader");
/// The map has no owner for the slot.
pub(crate) const NOT_SERVED: Redirect = Redirect::ClusterDown("Hash slot not served");

impl Node {
    /// Finds who answers for `slot`. Returns at once when this node does or when the leader is known; else
    /// holds the caller until then, `until` at the longest ([`crate::config::Config::hold_max`] after the command
    /// came). `bytes` of it count against `held-bytes-max` while it is held.
    ///
    /// # Errors
    /// The redirect to answer with. Nothing was done.
    pub async fn route(
        &self,
        slot: Slot,
        access: Access,
        bytes: usize,
        until: Instant,
    ) -> Result<ShardHandle, Redirect> {
        match self.route_now(slot, access) {
            Some(route) => route,
            None => Box::pin(self.hold(slot, access, bytes, until)).await,
        }
    }

    /// Where to send a command that was not done here. Never back to this node: if it serves the slot (again)
    /// by now, the answer is `TRYAGAIN`. Held as [`Node::route`] does.
    pub async fn redirect(&self, slot: Slot, until: Instant) -> Redirect {
        match self.route(slot, Access::Write, 0, until).await {
            Ok(_) => Redirect::TryAgain,
            Err(redirect) => redirect,
        }
    }

    /// The answer if it is known without waiting.
    pub fn route_now(&self, slot: Slot, access: Access) -> Option<Result<ShardHandle, Redirect>> {
        let view = self.topology.view();
        let Some(shard) = view.shard_of(slot) else {
            // Before the map is known everything waits; a slot without owner in a known map does not.
            return (view.map.epoch > 0).then_some(Err(NOT_SERVED));
        };
        if let Some(local) = self.shards.get(shard.id)
            && (local.serving() || access == Access::FollowerRead)
        {
            return Some(Ok(local));
        }
        let leader = view.live_leader(shard.id).filter(|leader| leader.number != view.me)?;
        Some(Err(Redirect::Moved {
            node: leader.number,
            slot,
            host: leader.host.clone(),
            port: leader.port,
            tls_port: view.map.client_port(leader, true),
        }))
    }

    async fn hold(
        &self,
        slot: Slot,
        access: Access,
        bytes: usize,
        until: Instant,
    ) -> Result<ShardHandle, Redirect> {
        let Some(_place) = self.held.enter(bytes) else {
            self.metrics.cluster_down.inc();
            return Err(TOO_MANY_HELD);
        };
        let mut changed = self.topology.changed();
        loop {
            changed.borrow_and_update();
            if let Some(route) = self.route_now(slot, access) {
                return route;
            }
            if !matches!(timeout_at(until, changed.changed()).await, Ok(Ok(()))) {
                self.metrics.cluster_down.inc();
                return Err(NO_LEADER);
            }
        }
    }
}

/// Counts what is held, against its bounds.
#[derive(Debug)]
pub struct Held {
    now: parking_lot::Mutex<(usize, usize)>,
    commands_max: usize,
    bytes_max: usize,
}

/// A place among the held commands; given back when dropped.
#[derive(Debug)]
pub struct HeldPlace<'a> {
    held: &'a Held,
    bytes: usize,
}

impl Held {
    /// Bounds: `held-commands-max` and `held-bytes-max`.
    pub fn new(commands_max: usize, bytes_max: usize) -> Self {
        Held { now: parking_lot::Mutex::new((0, 0)), commands_max, bytes_max }
    }

    /// A place, unless a bound is reached.
    pub fn enter(&self, bytes: usize) -> Option<HeldPlace<'_>> {
        let mut now = self.now.lock();
        if now.0 >= self.commands_max || now.1 + bytes > self.bytes_max {
            return None;
        }
        *now = (now.0 + 1, now.1 + bytes);
        Some(HeldPlace { held: self, bytes })
    }

    /// Number held now.
    pub fn commands(&self) -> usize {
        self.now.lock().0
    }
}

impl Drop for HeldPlace<'_> {
    fn drop(&mut self) {
        let mut now = self.held.now.lock();
        *now = (now.0 - 1, now.1 - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_spell_what_clients_expect() {
        let moved = Redirect::Moved {
            node: 2,
            slot: Slot(866),
            host: "127.0.0.1".into(),
            port: 7002,
            tls_port: 7102,
        };
        assert_eq!(moved.to_string(), "MOVED 866 127.0.0.1:7002");
        assert_eq!(moved.line(true), "MOVED 866 127.0.0.1:7102");
        assert_eq!(Redirect::CrossSlot.to_string(), "CROSSSLOT Keys in request don't hash to the same slot");
        assert_eq!(NO_LEADER.to_string(), "CLUSTERDOWN The cluster is down");
    }

    #[test]
    fn held_commands_are_bounded_by_count_and_bytes_and_places_come_back() {
        let held = Held::new(2, 100);
        let first = held.enter(60);
        assert!(first.is_some());
        assert!(held.enter(60).is_none());
        let _second = held.enter(40);
        assert!(held.enter(0).is_none());
        drop(first);
        assert!(held.enter(60).is_some());
    }
}
