//! Soft state between nodes: each tells all others, every second and on change, which shards it leads, what
//! it has heard about the others, and what its wall clock shows. The answer tells the same about the receiver.

use crate::node::Node;
use crate::shard::ShardId;
use crate::shard::stamp_clock::{Reading, StampClock};
use crate::topology::{Leadership, Topology};
use bytes::Bytes;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use weir_env::Env;
use weir_env::time::{sleep, timeout};
use weir_raft::NodeId;

/// Kind of the peer call. Permanent.
pub const KIND_ANNOUNCE: u16 = 2;

const EVERY: Duration = Duration::from_secs(1);
/// After a failed call the peer is tried again sooner, so that one lost packet does not count for long.
const RETRY: Duration = Duration::from_millis(200);
/// Changes closer together than this go out as one announcement.
const GATHER: Duration = Duration::from_millis(5);
/// Longest round trip that is taken for a measurement of the peer's clock.
const ROUND_TRIP_MS_MAX: u64 = 100;
const CALL_TIMEOUT: Duration = Duration::from_millis(700);

/// What a node says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Announcement {
    /// Its wall clock, ms since the Unix epoch.
    pub wall_ms: u64,
    /// Only the reserve of its disk is left.
    pub space_low: bool,
    /// What it believes about leaders, by shard.
    pub leaders: Vec<(ShardId, Leadership)>,
}

impl Announcement {
    /// This node's, now.
    pub fn of(env: &Env, topology: &Topology) -> Self {
        let view = topology.view();
        let space_low = view.space_low(view.me);
        let leaders = view.map.shards.iter().map(|s| (s.id, view.leadership(s.id)));
        let leaders = leaders.filter(|(_, heard)| heard.term > 0).collect();
        Announcement { wall_ms: env.clock.wall_ms(), space_low, leaders }
    }

    /// For the wire.
    pub fn encode(&self) -> Bytes {
        match postcard::to_allocvec(self) {
            Ok(bytes) => bytes.into(),
            Err(e) => unreachable!("plain data always encodes: {e}"),
        }
    }

    /// Takes in what `teller` said.
    fn learn(self, topology: &Topology, teller: NodeId) {
        topology.set_space_low(teller, self.space_low);
        for (shard, heard) in self.leaders {
            topology.observe(shard, heard, teller);
        }
    }
}

/// Answers a peer's announcement.
///
/// # Errors
/// The bytes are no announcement.
pub fn answer(
    env: &Env,
    topology: &Topology,
    clock: Option<&StampClock>,
    from: NodeId,
    payload: &[u8],
) -> Result<Bytes, String> {
    let said: Announcement = postcard::from_bytes(payload).map_err(|e| format!("bad announcement: {e}"))?;
    topology.heard_from(from);
    if let Some(clock) = clock {
        clock.heard(from, Reading::AtLeast(said.wall_ms));
    }
    said.learn(topology, from);
    Ok(Announcement::of(env, topology).encode())
}

/// Announces until the node stops. Also tells the stamp clock what the peers' clocks show.
pub async fn run(node: Arc<Node>) {
    let mut changed = node.topology.changed();
    loop {
        changed.borrow_and_update();
        let all_answered = round(&node).await;
        node.stamp_clock.everybody_asked();
        let pause = if all_answered { EVERY } else { RETRY };
        if let Ok(Ok(())) = timeout(pause, changed.changed()).await {
            sleep(GATHER).await;
        }
    }
}

async fn round(node: &Node) -> bool {
    let view = node.topology.view();
    let payload = Announcement::of(&node.env, &node.topology).encode();
    let others = view.map.nodes.iter().filter(|n| n.number != view.me).map(|n| n.number);
    let answers = join_all(others.map(|to| tell(node, to, payload.clone()))).await;
    answers.into_iter().all(|answered| answered)
}

async fn tell(node: &Node, to: NodeId, payload: Bytes) -> bool {
    let sent = node.env.clock.mono();
    let answer = node.peers.call(to, KIND_ANNOUNCE, payload, CALL_TIMEOUT).await;
    let Some(said) = answer.ok().and_then(|bytes| postcard::from_bytes::<Announcement>(&bytes).ok()) else {
        node.topology.missed(to);
        return false;
    };
    let round_trip_ms = (node.env.clock.mono() - sent).as_millis() as u64;
    // The peer's clock was read somewhere within the round trip: a slow one says little.
    node.stamp_clock.heard(
        to,
        match round_trip_ms {
            0..=ROUND_TRIP_MS_MAX => Reading::Measured(said.wall_ms + round_trip_ms / 2),
            _ => Reading::AtLeast(said.wall_ms),
        },
    );
    node.topology.heard_from(to);
    said.learn(&node.topology, to);
    true
}
