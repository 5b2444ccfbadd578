//! What this node answers its peers besides consensus.

use crate::meta::MetaCommand;
use crate::node::Node;
use crate::topology::Topology;
use crate::{announce, bootstrap};
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use weir_env::Env;
use weir_env::time::timeout;
use weir_raft::{CallFrom, Group, Nonce, PeerHandler};

/// Kind of the peer call that asks the meta leader to propose a change. Permanent.
const KIND_CHANGE_MAP: u16 = 3;
const ADDRESS_RETRY: Duration = Duration::from_secs(1);

/// Has the map changed when this node was started with another `--advertise` than it was founded with.
pub(super) async fn tell_address(node: Arc<Node>) {
    loop {
        let map = node.topology.map();
        let Some(me) = map.node(node.number()).filter(|me| me.host != node.config.advertise) else { return };
        let command = MetaCommand::MoveNode {
            number: me.number,
            host: node.config.advertise.clone(),
            peer_host: me.peer_host.clone(),
            port: me.port,
        };
        let payload = Bytes::from(command.encode());
        let leader = node.meta.status().borrow().leader;
        // Tried again until the map says so, whatever became of this try.
        if leader == Some(node.number()) {
            let _ = node.meta.propose(Nonce(node.env.rng.u64()), payload).await;
        } else if let Some(leader) = leader {
            let _ = node.peers.call(leader, KIND_CHANGE_MAP, payload, ADDRESS_RETRY).await;
        }
        let mut changed = node.topology.changed();
        let _ = timeout(ADDRESS_RETRY, changed.changed()).await;
    }
}

/// Answers what peers ask besides consensus.
pub(super) struct Desk {
    env: Env,
    introduction: bootstrap::Introduction,
    pub(super) topology: OnceLock<Topology>,
    pub(super) meta: OnceLock<Group>,
}

impl Desk {
    pub(super) fn new(env: &Env, introduction: &bootstrap::Introduction) -> Self {
        let (topology, meta) = (OnceLock::new(), OnceLock::new());
        Desk { env: env.clone(), introduction: introduction.clone(), topology, meta }
    }

    async fn change_map(&self, payload: Bytes) -> Result<Bytes, String> {
        MetaCommand::decode(&payload)?;
        let meta = self.meta.get().ok_or("the meta group has not started yet")?;
        let proposed = meta.propose(Nonce(self.env.rng.u64()), payload).await;
        proposed.map(|()| Bytes::new()).map_err(|e| e.to_string())
    }
}

#[async_trait::async_trait]
impl PeerHandler for Desk {
    async fn call(&self, from: CallFrom, kind: u16, payload: Bytes) -> Result<Bytes, String> {
        match (kind, self.topology.get()) {
            (bootstrap::KIND_HELLO, _) => Ok(self.introduction.answer()),
            (announce::KIND_ANNOUNCE, Some(topology)) if from.verified => {
                announce::answer(&self.env, topology, from.node, &payload)
            }
            (KIND_CHANGE_MAP, _) if from.verified => self.change_map(payload).await,
            (announce::KIND_ANNOUNCE | KIND_CHANGE_MAP, _) => {
                Err("not a member of this cluster yet".to_owned())
            }
            (other, _) => Err(format!("unknown call {other}: a newer version of weir?")),
        }
    }
}
