//! What this node answers its peers besides consensus.

use crate::forward::{self, KIND_FORWARD};
use crate::meta::MetaCommand;
use crate::node::Node;
use crate::pubsub::{self, KIND_PUBLISH};
use crate::shard::stamp_clock::StampClock;
use crate::topology::Topology;
use crate::{announce, bootstrap};
use bytes::Bytes;
use futures_util::future::join_all;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use weir_env::Env;
use weir_env::time::timeout;
use weir_raft::{CallFrom, Group, Nonce, PeerHandler};

/// Kind of the peer call that asks the meta leader to propose a change. Permanent.
const KIND_CHANGE_MAP: u16 = 3;
/// Kind of the peer call that is answered once the map of an epoch is there: u64, little endian. Permanent.
const KIND_HAS_MAP: u16 = 4;
/// That call takes no longer.
const HAS_MAP_MAX: Duration = Duration::from_secs(1);
const ADDRESS_RETRY: Duration = Duration::from_secs(1);

/// Has the map changed when this node was started with another `--advertise` or `--tls-port` than the map has.
pub(super) async fn tell_address(node: Arc<Node>) {
    loop {
        let map = node.topology.map();
        let Some(me) = map.node(node.number()) else { return };
        let tls_port = map.tls_ports.get(&me.number).copied().unwrap_or(0);
        let command = if me.host != node.config.advertise {
            MetaCommand::MoveNode {
                number: me.number,
                host: node.config.advertise.clone(),
                peer_host: me.peer_host.clone(),
                port: me.port,
            }
        } else if tls_port != node.config.tls_port {
            MetaCommand::SetTlsPort { number: me.number, tls_port: node.config.tls_port }
        } else {
            return;
        };
        // Tried again until the map says so, whatever became of this try.
        let _ = change_map(&node, &command).await;
        let mut changed = node.topology.changed();
        let _ = timeout(ADDRESS_RETRY, changed.changed()).await;
    }
}

/// Whether a change was handed to the meta group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handed {
    /// It was. That does not say that it will be made.
    Yes,
    /// It was not.
    No,
    /// Nobody can tell.
    Unknown,
}

/// Has the leader of the meta group propose a change. Whether it is made shows in the map alone.
pub(crate) async fn change_map(node: &Node, command: &MetaCommand) -> Handed {
    let payload = Bytes::from(command.encode());
    let leader = node.meta.status().borrow().leader;
    match leader {
        None => Handed::No,
        Some(leader) if leader == node.number() => {
            match node.meta.propose(Nonce(node.env.rng.u64()), payload).await {
                Ok(()) => Handed::Yes,
                Err(_) => Handed::No,
            }
        }
        Some(leader) => match node.peers.call(leader, KIND_CHANGE_MAP, payload, ADDRESS_RETRY).await {
            Ok(_) => Handed::Yes,
            Err(_) => Handed::Unknown,
        },
    }
}

/// Returns once every node that can be reached has the map of this epoch, or a newer one. One that takes too long is
/// not waited for.
pub(crate) async fn wait_for_map(node: &Node, epoch: u64) {
    let view = node.topology.view();
    let others = view.map.nodes.iter().map(|n| n.number).filter(|n| *n != view.me && view.reachable(*n));
    let payload = Bytes::copy_from_slice(&epoch.to_le_bytes());
    let asked = others.map(|to| node.peers.call(to, KIND_HAS_MAP, payload.clone(), HAS_MAP_MAX));
    for answer in join_all(asked).await {
        if let Err(e) = answer {
            tracing::info!(error = %e, epoch, "a node may not have the newest map yet");
        }
    }
}

/// Answers what peers ask besides consensus.
pub(super) struct Desk {
    env: Env,
    introduction: bootstrap::Introduction,
    pub(super) topology: OnceLock<Topology>,
    pub(super) meta: OnceLock<Group>,
    /// Once clients are let in.
    pub(super) node: OnceLock<Arc<Node>>,
    pub(super) clock: OnceLock<Arc<StampClock>>,
}

impl Desk {
    pub(super) fn new(env: &Env, introduction: &bootstrap::Introduction) -> Self {
        Desk {
            env: env.clone(),
            introduction: introduction.clone(),
            topology: OnceLock::new(),
            meta: OnceLock::new(),
            clock: OnceLock::new(),
            node: OnceLock::new(),
        }
    }

    async fn change_map(&self, payload: Bytes) -> Result<Bytes, String> {
        MetaCommand::decode(&payload)?;
        let meta = self.meta.get().ok_or("the meta group has not started yet")?;
        let proposed = meta.propose(Nonce(self.env.rng.u64()), payload).await;
        proposed.map(|()| Bytes::new()).map_err(|e| e.to_string())
    }
}

async fn has_map(topology: &Topology, payload: &[u8]) -> Result<Bytes, String> {
    let epoch = u64::from_le_bytes(payload.try_into().map_err(|_| "an epoch has eight bytes")?);
    let mut changed = topology.changed();
    let reached = async { while topology.map().epoch < epoch && changed.changed().await.is_ok() {} };
    let in_time = timeout(HAS_MAP_MAX, reached).await;
    in_time.map(|()| Bytes::new()).map_err(|_| "the map is older".to_owned())
}

#[async_trait::async_trait]
impl PeerHandler for Desk {
    async fn call(&self, from: CallFrom, kind: u16, payload: Bytes) -> Result<Bytes, String> {
        match (kind, self.topology.get()) {
            (bootstrap::KIND_HELLO, _) => Ok(self.introduction.answer()),
            (announce::KIND_ANNOUNCE, Some(topology)) if from.verified => {
                let clock = self.clock.get().map(|clock| &**clock);
                announce::answer(&self.env, topology, clock, from.node, &payload)
            }
            (KIND_CHANGE_MAP, _) if from.verified => self.change_map(payload).await,
            (KIND_HAS_MAP, Some(topology)) if from.verified => has_map(topology, &payload).await,
            (KIND_PUBLISH, _) if from.verified => match self.node.get() {
                Some(node) => pubsub::receive(node, from.node, payload).map(|()| Bytes::new()),
                // Nobody listens yet.
                None => Ok(Bytes::new()),
            },
            (KIND_FORWARD, _) if from.verified => match self.node.get() {
                Some(node) => forward::serve(node, &payload).await,
                None => Err("not serving yet".to_owned()),
            },
            (announce::KIND_ANNOUNCE | KIND_CHANGE_MAP | KIND_HAS_MAP | KIND_FORWARD | KIND_PUBLISH, _) => {
                Err("not a member of this cluster yet".to_owned())
            }
            (other, _) => Err(format!("unknown call {other}: a newer version of weir?")),
        }
    }
}
