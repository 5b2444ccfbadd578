//! The cluster map and the small state machine of the meta group (Raft group 0), a replica of which runs on
//! every node. It holds what must be agreed: who the nodes are, which shards exist, where their replicas stand,
//! and the settings of the whole cluster. Who leads a shard is not here: that is soft state (`topology.rs`).

use crate::acl::directory::{UserChange, Users};
use crate::config::{ADMIN_PORT_OFFSET, Durability, PEER_PORT_OFFSET};
use crate::shard::ShardId;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use weir_raft::{Committed, Fate, NodeId, Nonce, SnapshotSink, SnapshotSource, StateMachine};
use weir_store::LogPosition;
use weir_stream::{SLOT_COUNT, Slot, SlotRange};

/// First byte of a command and of a map. A node refuses a version that it does not know. Version 2 of a map has
/// [`More`] behind what version 1 had, version 2 of a command is one that version 1 did not have; what needs no
/// version 2 is written as version 1, so that older nodes go on until users or TLS ports are there.
const VERSION: u8 = 1;
const VERSION_MORE: u8 = 2;

/// What every node knows about the cluster. `epoch` rises with every change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterMap {
    /// Version of the map; 0 = nothing agreed yet.
    pub epoch: u64,
    /// 40 hex digits.
    pub cluster_id: String,
    /// In the order of their numbers.
    pub nodes: Vec<NodeEntry>,
    /// In the order of their ids.
    pub shards: Vec<ShardEntry>,
    /// The same on every node.
    pub settings: ClusterSettings,
    /// Ports for clients that speak TLS, of nodes that have one.
    #[serde(skip)]
    pub tls_ports: BTreeMap<NodeId, u16>,
    /// Who may do what.
    #[serde(skip)]
    pub users: Arc<Users>,
}

/// What version 2 added to the map. Fields are written in this order.
#[derive(Default, PartialEq, Eq, Serialize, Deserialize)]
struct More {
    tls_ports: BTreeMap<NodeId, u16>,
    users: Users,
}

/// One node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// Number in Raft, never reused.
    pub number: NodeId,
    /// Name in the configuration.
    pub name: String,
    /// 40 hex digits, drawn on first start.
    pub id: String,
    /// Host that clients are told.
    pub host: String,
    /// Host that peers reach it at.
    pub peer_host: String,
    /// Client port.
    pub port: u16,
}

impl NodeEntry {
    /// `host:port` of its peer listener.
    pub fn peer_addr(&self) -> String {
        format!("{}:{}", self.peer_host, self.port + PEER_PORT_OFFSET)
    }
    /// Port of its admin listener.
    pub fn admin_port(&self) -> u16 {
        self.port + ADMIN_PORT_OFFSET
    }
}

/// One shard of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardEntry {
    /// Its number.
    pub id: ShardId,
    /// 40 hex digits, for clients (CLUSTER MYSHARDID).
    pub hex: String,
    /// Slots it owns, as far as routing knows; the shard's own log is the authority.
    pub slots: Vec<SlotRange>,
    /// Nodes that hold a replica. The first is the preferred leader.
    pub replicas: Vec<NodeId>,
}

/// Settings of the whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSettings {
    /// When a write is answered.
    pub durability: Durability,
    /// Default for new shards.
    pub stream_node_max_entries: u32,
    /// Default for new shards.
    pub stream_node_max_bytes: u32,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        ClusterSettings {
            durability: Durability::Always,
            stream_node_max_entries: 100,
            stream_node_max_bytes: 4096,
        }
    }
}

impl ClusterMap {
    /// The node with this number.
    pub fn node(&self, number: NodeId) -> Option<&NodeEntry> {
        self.nodes.iter().find(|n| n.number == number)
    }
    /// The node with this 40-digit id.
    pub fn node_by_id(&self, id: &[u8]) -> Option<&NodeEntry> {
        self.nodes.iter().find(|n| n.id.as_bytes().eq_ignore_ascii_case(id))
    }
    /// Port of a node for clients that speak TLS, or for those that do not. A node without the one shows the other.
    pub fn client_port(&self, node: &NodeEntry, tls: bool) -> u16 {
        let tls_port = self.tls_ports.get(&node.number).copied();
        tls_port.filter(|_| tls).unwrap_or(node.port)
    }
    /// The shard with this number.
    pub fn shard(&self, id: ShardId) -> Option<&ShardEntry> {
        self.shards.iter().find(|s| s.id == id)
    }
    /// The shard that owns `slot`. Linear in the shards: `Topology` keeps a table.
    pub fn shard_of(&self, slot: Slot) -> Option<&ShardEntry> {
        self.shards.iter().find(|s| s.slots.iter().any(|r| r.contains(slot)))
    }
}

/// The shards of a new cluster: slots split evenly, replicas on neighbouring nodes, one preferred leader each.
///
/// `nodes` are numbers in order; `hexes` gives each shard its 40 digits.
pub fn initial_shards(nodes: &[NodeId], replicas: u32, hexes: Vec<String>) -> Vec<ShardEntry> {
    let ranges = split_slots(hexes.len() as u32);
    let copies = (replicas as usize).min(nodes.len());
    hexes
        .into_iter()
        .zip(ranges)
        .enumerate()
        .map(|(i, (hex, range))| ShardEntry {
            id: ShardId(i as u32),
            hex,
            slots: vec![range],
            replicas: (0..copies).map(|k| nodes[(i + k) % nodes.len()]).collect(),
        })
        .collect()
}

/// All slots in `shards` runs whose lengths differ by at most one.
pub fn split_slots(shards: u32) -> Vec<SlotRange> {
    let bound = |i: u32| (u64::from(i) * u64::from(SLOT_COUNT) / u64::from(shards.max(1))) as u16;
    (0..shards).map(|i| SlotRange { first: Slot(bound(i)), last: Slot(bound(i + 1) - 1) }).collect()
}

/// A change of the map. Positions of the variants are permanent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetaCommand {
    /// The first map. Does nothing once there is one: several nodes may propose it.
    Bootstrap(ClusterMap),
    /// A node is reached elsewhere from now on.
    MoveNode {
        /// Which.
        number: NodeId,
        /// New host for clients.
        host: String,
        /// New host for peers.
        peer_host: String,
        /// New client port.
        port: u16,
    },
    /// Where a node speaks TLS with clients; 0 = nowhere.
    SetTlsPort {
        /// Which.
        number: NodeId,
        /// The port.
        tls_port: u16,
    },
    /// Other users.
    ChangeUsers(UserChange),
}

impl MetaCommand {
    /// For the log.
    pub fn encode(&self) -> Vec<u8> {
        let version = match self {
            MetaCommand::Bootstrap(_) | MetaCommand::MoveNode { .. } => VERSION,
            MetaCommand::SetTlsPort { .. } | MetaCommand::ChangeUsers(_) => VERSION_MORE,
        };
        encode(version, self)
    }

    /// From the log.
    ///
    /// # Errors
    /// Another version, or bytes that are no command.
    pub fn decode(bytes: &[u8]) -> Result<MetaCommand, String> {
        let (_, body) = versioned(bytes)?;
        postcard::from_bytes(body).map_err(unreadable)
    }
}

/// A map as bytes, for the cache beside the identity.
pub fn encode_map(map: &ClusterMap) -> Vec<u8> {
    let more = More { tls_ports: map.tls_ports.clone(), users: Users::clone(&map.users) };
    match more == More::default() {
        true => encode(VERSION, map),
        false => encode(VERSION_MORE, &(map, more)),
    }
}

/// The reverse of [`encode_map`].
///
/// # Errors
/// Another version, or bytes that are no map.
pub fn decode_map(bytes: &[u8]) -> Result<ClusterMap, String> {
    let (version, body) = versioned(bytes)?;
    let (mut map, rest) = postcard::take_from_bytes::<ClusterMap>(body).map_err(unreadable)?;
    if version == VERSION_MORE {
        let more: More = postcard::from_bytes(rest).map_err(unreadable)?;
        (map.tls_ports, map.users) = (more.tls_ports, Arc::new(more.users));
    }
    Ok(map)
}

fn encode<T: Serialize>(version: u8, value: &T) -> Vec<u8> {
    let mut bytes = vec![version];
    match postcard::to_allocvec(value) {
        Ok(body) => bytes.extend_from_slice(&body),
        Err(e) => unreachable!("plain data always encodes: {e}"),
    }
    bytes
}

fn versioned(bytes: &[u8]) -> Result<(u8, &[u8]), String> {
    match bytes.split_first() {
        Some((&version @ (VERSION | VERSION_MORE), body)) => Ok((version, body)),
        Some((other, _)) => Err(format!(
            "cluster map has format version {other}, this build reads {VERSION_MORE}: upgrade this node"
        )),
        None => Err("cluster map is empty".to_owned()),
    }
}

fn unreadable(error: postcard::Error) -> String {
    format!("cluster map is unreadable: {error}")
}

/// Applies the meta log. Publishes every new map.
pub struct MetaMachine {
    map: Arc<ClusterMap>,
    published: watch::Sender<Arc<ClusterMap>>,
}

impl MetaMachine {
    /// An empty map, published through `published`.
    pub fn new(published: watch::Sender<Arc<ClusterMap>>) -> Self {
        MetaMachine { map: Arc::default(), published }
    }

    fn change(&mut self, command: MetaCommand) {
        let mut map = ClusterMap::clone(&self.map);
        match command {
            MetaCommand::Bootstrap(first) if map.epoch == 0 => {
                map = first;
                map.epoch = 1;
            }
            MetaCommand::Bootstrap(_) => return,
            MetaCommand::MoveNode { number, host, peer_host, port } => {
                let Some(node) = map.nodes.iter_mut().find(|n| n.number == number) else { return };
                (node.host, node.peer_host, node.port) = (host, peer_host, port);
                map.epoch += 1;
            }
            MetaCommand::SetTlsPort { number, tls_port } => {
                match tls_port {
                    0 => map.tls_ports.remove(&number),
                    port => map.tls_ports.insert(number, port),
                };
                map.epoch += 1;
            }
            MetaCommand::ChangeUsers(change) => {
                if !Arc::make_mut(&mut map.users).change(change) {
                    return;
                }
                map.epoch += 1;
            }
        }
        self.publish(map);
    }

    fn publish(&mut self, map: ClusterMap) {
        self.map = Arc::new(map);
        let newest = self.map.clone();
        // After a restart the cached map may be ahead of what has been applied again.
        self.published.send_if_modified(|shown| {
            let newer = newest.epoch > shown.epoch || newest.cluster_id != shown.cluster_id;
            if newer {
                *shown = newest;
            }
            newer
        });
    }
}

impl StateMachine for MetaMachine {
    fn apply(&mut self, batch: Vec<Committed>) {
        for committed in batch {
            let Some(payload) = committed.payload else { continue };
            match MetaCommand::decode(&payload) {
                Ok(command) => self.change(command),
                // Going on would make this replica differ from the others.
                Err(e) => panic!("meta log at {:?}: {e}", committed.position),
            }
        }
    }

    fn settle(&mut self, _nonce: Nonce, _fate: Fate) {}

    fn snapshot(&self) -> Box<dyn SnapshotSource> {
        Box::new(MetaSnapshot(Some(encode_map(&self.map))))
    }

    fn begin_restore(&mut self) -> Box<dyn SnapshotSink> {
        Box::new(MetaSink(Vec::new()))
    }

    fn finish_restore(&mut self, sink: Box<dyn SnapshotSink>, _at: LogPosition) -> Result<(), String> {
        let sink: Box<dyn Any> = sink;
        let sink = sink.downcast::<MetaSink>().map_err(|_| "not a sink of the meta group".to_owned())?;
        let map = decode_map(&sink.0)?;
        self.publish(map);
        Ok(())
    }
}

struct MetaSnapshot(Option<Vec<u8>>);

impl SnapshotSource for MetaSnapshot {
    fn next_chunk(&mut self, out: &mut Vec<u8>) -> bool {
        if let Some(bytes) = self.0.take() {
            out.extend_from_slice(&bytes);
        }
        false
    }
}

struct MetaSink(Vec<u8>);

impl SnapshotSink for MetaSink {
    fn chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::user::User;

    fn map() -> ClusterMap {
        let node = |number: NodeId| NodeEntry {
            number,
            name: format!("n{number}"),
            id: format!("{number:040x}"),
            host: "h".into(),
            peer_host: "h".into(),
            port: 7000 + number as u16,
        };
        ClusterMap {
            epoch: 0,
            cluster_id: "c".repeat(40),
            nodes: vec![node(1), node(2), node(3)],
            shards: initial_shards(&[1, 2, 3], 3, vec!["a".repeat(40), "b".repeat(40), "d".repeat(40)]),
            ..ClusterMap::default()
        }
    }

    fn commit(index: u64, command: &MetaCommand) -> Committed {
        Committed {
            position: LogPosition { term: 1, index },
            payload: Some(command.encode().into()),
            nonce: None,
        }
    }

    #[test]
    fn every_slot_has_one_shard_and_sizes_differ_by_at_most_one() {
        for shards in [1, 2, 3, 5, 7, 16, 1000] {
            let ranges = split_slots(shards);
            let sizes: Vec<u16> = ranges.iter().map(|r| r.last.0 - r.first.0 + 1).collect();
            assert_eq!(sizes.iter().map(|s| u32::from(*s)).sum::<u32>(), u32::from(SLOT_COUNT));
            assert!(ranges.windows(2).all(|w| w[0].last.0 + 1 == w[1].first.0));
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }
        assert_eq!(split_slots(3)[0], SlotRange { first: Slot(0), last: Slot(5460) });
    }

    #[test]
    fn preferred_leaders_are_spread_over_the_nodes() {
        let hexes = (0..5).map(|i| format!("{i:040x}")).collect();
        let shards = initial_shards(&[1, 2, 3, 4], 3, hexes);
        let first: Vec<NodeId> = shards.iter().map(|s| s.replicas[0]).collect();
        assert_eq!(first, [1, 2, 3, 4, 1]);
        assert_eq!(shards[3].replicas, [4, 1, 2]);
    }

    #[test]
    fn the_first_map_is_applied_once_and_survives_a_snapshot() {
        let (sender, receiver) = watch::channel(Arc::default());
        let mut machine = MetaMachine::new(sender);
        let mut second = map();
        second.cluster_id = "d".repeat(40);
        machine.apply(vec![
            commit(1, &MetaCommand::Bootstrap(map())),
            commit(2, &MetaCommand::Bootstrap(second)),
            commit(
                3,
                &MetaCommand::MoveNode { number: 2, host: "other".into(), peer_host: "h".into(), port: 9 },
            ),
        ]);
        let shown = receiver.borrow().clone();
        assert_eq!((shown.epoch, shown.cluster_id.as_str()), (2, "c".repeat(40).as_str()));
        assert_eq!(shown.node(2).unwrap().host, "other");

        let (mut bytes, mut source) = (Vec::new(), machine.snapshot());
        while source.next_chunk(&mut bytes) {}
        let (sender, receiver) = watch::channel(Arc::default());
        let mut restored = MetaMachine::new(sender);
        let mut sink = restored.begin_restore();
        let (head, tail) = bytes.split_at(7);
        sink.chunk(head).unwrap();
        sink.chunk(tail).unwrap();
        restored.finish_restore(sink, LogPosition { term: 1, index: 3 }).unwrap();
        assert_eq!(*receiver.borrow(), shown);
    }

    #[test]
    fn users_and_tls_ports_survive_a_snapshot_and_need_version_two() {
        let plain = map();
        assert_eq!(encode_map(&plain)[0], VERSION, "older nodes read what has nothing new");
        assert_eq!(decode_map(&encode_map(&plain)), Ok(plain));

        let (sender, receiver) = watch::channel(Arc::default());
        let mut machine = MetaMachine::new(sender);
        let user = User::new().with_rules(&[b"on", b">secret", b"~a*", b"+@read"]).unwrap();
        let put = vec![(b"alice".to_vec(), user)];
        let change = |id, base| UserChange { id, base, put: put.clone(), remove: Vec::new() };
        machine.apply(vec![
            commit(1, &MetaCommand::Bootstrap(map())),
            commit(2, &MetaCommand::SetTlsPort { number: 2, tls_port: 7102 }),
            commit(3, &MetaCommand::ChangeUsers(change(7, 0))),
            commit(4, &MetaCommand::ChangeUsers(change(8, 0))),
        ]);
        let shown = receiver.borrow().clone();
        assert_eq!(
            (shown.epoch, shown.users.version()),
            (3, 1),
            "the second change was made from an old state"
        );
        assert_eq!(shown.client_port(shown.node(2).unwrap(), true), 7102);
        assert_eq!(shown.client_port(shown.node(1).unwrap(), true), 7001);
        let bytes = encode_map(&shown);
        assert_eq!(bytes[0], VERSION_MORE);
        assert_eq!(decode_map(&bytes).as_ref(), Ok(&*shown));
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let mut bytes = MetaCommand::Bootstrap(map()).encode();
        bytes[0] = 9;
        assert!(MetaCommand::decode(&bytes).unwrap_err().contains("format version 9, this build reads 2"));
    }
}
