//! Nodes of a test: each with its own directory, log, listener and one group or more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use weir_env::{Env, OpenMode, TaskHandle};
use weir_store::{Durability, GroupId, SnapshotStore, Wal, WalOptions};

use super::disk::SlowDisk;
use super::list::ListView;
use super::net::Loopback;
use crate::{
    CallFrom, Group, GroupOptions, GroupStatus, Nonce, PeerHandler, PeerIdentity, Peers, ProposeError,
    RaftTimings, Registry, serve_peers,
};

/// How long a test waits for something that must happen. Generous: the machine may be busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
pub(super) const CLUSTER: &str = "c0ffee";
pub(super) const GROUP: GroupId = GroupId(1);

static NONCE: AtomicU64 = AtomicU64::new(1);

pub(super) fn fresh_nonce() -> u64 {
    NONCE.fetch_add(1, Ordering::Relaxed)
}

/// Answers every call with its own payload and the caller's number.
struct Echo;

#[async_trait::async_trait]
impl PeerHandler for Echo {
    async fn call(&self, from: CallFrom, kind: u16, payload: Bytes) -> Result<Bytes, String> {
        if kind == 0 {
            return Err("kind 0 means nothing".to_owned());
        }
        let text = String::from_utf8_lossy(&payload).into_owned();
        Ok(Bytes::from(format!("{} {} {kind} {text}", from.verified, from.node)))
    }
}

pub(super) struct Node {
    pub(super) id: u64,
    pub(super) peers: Peers,
    pub(super) group: Group,
    pub(super) list: ListView,
    pub(super) wal: Wal,
    stop: Option<oneshot::Sender<()>>,
    server: Option<TaskHandle>,
}

impl Node {
    pub(super) fn status(&self) -> GroupStatus {
        self.group.status().borrow().clone()
    }

    pub(super) async fn wait_status(
        &self,
        what: &str,
        condition: impl FnMut(&GroupStatus) -> bool,
    ) -> GroupStatus {
        let mut status = self.group.status();
        let waited = tokio::time::timeout(PATIENCE, status.wait_for(condition)).await;
        match waited {
            Ok(status) => status.unwrap().clone(),
            Err(_) => panic!("node {} waited in vain for {what}: {:?}", self.id, self.status()),
        }
    }

    /// Waits until the beginning of the log is gone.
    pub(super) async fn wait_purged(&self) {
        let log = self.wal.group(GROUP);
        let purged = async {
            while log.state().purged.is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let purged = tokio::time::timeout(PATIENCE, purged).await;
        assert!(purged.is_ok(), "node {} never purged its log: {:?}", self.id, self.status());
    }

    /// Proposes and answers the nonce.
    pub(super) async fn propose(&self, payload: impl Into<Bytes>) -> Result<u64, ProposeError> {
        let nonce = fresh_nonce();
        self.group.propose(Nonce(nonce), payload.into()).await?;
        Ok(nonce)
    }
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) nodes: u64,
    pub(super) timings: RaftTimings,
    pub(super) snapshot_log_bytes: u64,
    pub(super) durability: Durability,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nodes: 3,
            timings: RaftTimings::default(),
            snapshot_log_bytes: 1 << 30,
            durability: Durability::Always,
        }
    }
}

pub(super) struct Cluster {
    pub(super) nodes: BTreeMap<u64, Node>,
    pub(super) net: Loopback,
    pub(super) disks: BTreeMap<u64, SlowDisk>,
    settings: Settings,
    addrs: BTreeMap<u64, String>,
    dir: tempfile::TempDir,
}

impl Cluster {
    /// Three nodes of one group with a leader that is ready.
    pub(super) async fn start() -> Self {
        Self::start_with(Settings::default()).await
    }

    pub(super) async fn start_with(settings: Settings) -> Self {
        let mut cluster = Self {
            nodes: BTreeMap::new(),
            net: Loopback::new(Env::system().net),
            disks: (1..=9).map(|id| (id, SlowDisk::new(Env::system().disk))).collect(),
            addrs: BTreeMap::new(),
            dir: tempfile::tempdir().unwrap(),
            settings: settings.clone(),
        };
        // All addresses are known before any node starts.
        let mut listeners = BTreeMap::new();
        for id in 1..=settings.nodes {
            let listener = Env::system().net.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let addr = listener.local_addr().unwrap().to_string();
            cluster.net.place(id, addr.clone());
            cluster.addrs.insert(id, addr);
            listeners.insert(id, listener);
        }
        for (id, listener) in listeners {
            cluster.boot(id, listener, ListView::new()).await;
        }
        for node in cluster.nodes.values() {
            node.group.initialize(cluster.addrs.clone()).await.unwrap();
        }
        cluster.leader().await;
        cluster
    }

    /// Nodes other than this one.
    pub(super) fn others(&self, id: u64) -> Vec<u64> {
        self.nodes.keys().copied().filter(|other| *other != id).collect()
    }

    /// Starts one more node, a member of nothing yet.
    pub(super) async fn add_node(&mut self) -> u64 {
        let id = self.addrs.len() as u64 + 1;
        let listener = Env::system().net.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        self.net.place(id, addr.clone());
        self.addrs.insert(id, addr.clone());
        for node in self.nodes.values() {
            node.peers.set_addr(id, addr.clone());
        }
        self.boot(id, listener, ListView::new()).await;
        id
    }

    pub(super) fn dir(&self, id: u64) -> PathBuf {
        self.dir.path().join(format!("n{id}"))
    }

    pub(super) fn addr(&self, id: u64) -> String {
        self.addrs[&id].clone()
    }

    pub(super) fn env(&self, id: u64) -> Env {
        let mut env = Env::system();
        env.net = self.net.of(id);
        env.disk = Arc::new(self.disks[&id].clone());
        env
    }

    async fn boot(&mut self, id: u64, listener: Box<dyn weir_env::Listener>, list: ListView) {
        let env = self.env(id);
        let dir = self.dir(id);
        let options = WalOptions {
            segment_bytes: 1 << 20,
            durability: self.settings.durability,
            ..WalOptions::default()
        };
        let wal = Wal::open(&env, &dir.join("log"), options).await.unwrap();
        let identity = PeerIdentity { cluster_id: CLUSTER.to_owned(), node_hex: format!("{id:040x}") };
        let peers = Peers::new(env.clone(), id, identity);
        for (peer, addr) in &self.addrs {
            peers.set_addr(*peer, addr.clone());
            peers.set_node_hex(*peer, format!("{peer:040x}"));
        }
        let registry = Registry::new();
        let group = Group::start(GroupOptions {
            id: GROUP,
            me: id,
            timings: self.settings.timings,
            log: wal.group(GROUP),
            snapshots: SnapshotStore::open(&env, &dir.join("snapshots")).await.unwrap(),
            peers: peers.clone(),
            env: env.clone(),
            machine: list.machine(),
            founders: self.addrs.keys().copied().collect(),
            snapshot_log_bytes: self.settings.snapshot_log_bytes,
        })
        .await
        .unwrap();
        registry.insert(group.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = {
            let (env, peers) = (env.clone(), peers.clone());
            async move {
                let stopped = async { drop(stopped.await) };
                serve_peers(env, listener, peers, registry, Arc::new(Echo), stopped).await;
            }
        };
        let server = env.spawn.spawn("peers", Box::pin(serve));
        let node = Node { id, peers, group, list, wal, stop: Some(stop), server: Some(server) };
        self.nodes.insert(id, node);
    }

    /// Stops a node in order, keeping its directory.
    pub(super) async fn stop(&mut self, id: u64) -> ListView {
        let mut node = self.nodes.remove(&id).unwrap();
        drop(node.stop.take());
        node.server.take().unwrap().join().await;
        node.group.shutdown().await;
        node.wal.close().await.unwrap();
        node.list.clone()
    }

    /// Keeps what the node's directory holds now for [`Cluster::lose_power`].
    pub(super) fn note_disk(&self, id: u64) {
        copy_dir(&self.dir(id), &self.noted(id));
    }

    /// Ends a node without a word; its directory goes back to what was noted.
    pub(super) async fn lose_power(&mut self, id: u64) {
        let mut node = self.nodes.remove(&id).unwrap();
        drop(node.stop.take());
        node.server.take().unwrap().join().await;
        node.group.shutdown().await;
        drop(node);
        let log = self.dir(id).join("log");
        while Env::system().disk.lock_dir(&log).is_err() {
            // The writer is still at it.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let disk = Env::system().disk;
        disk.remove_dir_all(&self.dir(id)).unwrap();
        disk.rename(&self.noted(id), &self.dir(id)).unwrap();
        self.disks[&id].reboot();
    }

    fn noted(&self, id: u64) -> PathBuf {
        self.dir.path().join(format!("noted-n{id}"))
    }

    /// Starts a stopped node again from its directory.
    pub(super) async fn restart(&mut self, id: u64, list: ListView) {
        let addr = self.addrs[&id].parse().unwrap();
        let listener = loop {
            match Env::system().net.bind(addr).await {
                Ok(listener) => break listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        self.boot(id, listener, list).await;
    }

    /// Waits until one node leads, is ready and has a quorum, and all nodes that can know agree.
    pub(super) async fn leader(&self) -> &Node {
        let ids: Vec<u64> = self.nodes.keys().copied().collect();
        self.leader_among(&ids).await
    }

    /// As [`Cluster::leader`], looking at these nodes alone.
    pub(super) async fn leader_among(&self, ids: &[u64]) -> &Node {
        let search = async {
            loop {
                for id in ids {
                    let status = self.nodes[id].status();
                    let agreed = ids.iter().all(|other| {
                        let theirs = self.nodes[other].status();
                        theirs.leader == Some(*id) && theirs.term == status.term
                    });
                    if status.ready && status.quorum_alive && agreed {
                        return &self.nodes[id];
                    }
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, search).await {
            Ok(leader) => leader,
            Err(_) => {
                let seen: Vec<_> = self.nodes.values().map(Node::status).collect();
                panic!("no leader among {ids:?}: {seen:#?}");
            }
        }
    }

    /// Any follower of the current leader.
    pub(super) async fn follower(&self) -> &Node {
        let leader = self.leader().await.id;
        self.nodes.values().find(|node| node.id != leader).unwrap()
    }

    /// Waits until all nodes hold the same items, `count` of them.
    pub(super) async fn wait_items(&self, count: usize) {
        for node in self.nodes.values() {
            node.list
                .wait_for(&format!("{count} items on node {}", node.id), |state| state.items.len() >= count)
                .await;
        }
        let lists: Vec<_> = self.nodes.values().map(|node| node.list.items()).collect();
        assert!(lists.windows(2).all(|pair| pair[0] == pair[1]), "the replicas differ");
        assert_eq!(lists[0].len(), count);
    }
}

fn copy_dir(from: &Path, to: &Path) {
    let disk = Env::system().disk;
    disk.create_dir_all(to).unwrap();
    for name in disk.read_dir(from).unwrap() {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy_dir(&from, &to);
        } else if let Ok(bytes) = disk.read(&from) {
            // Files that hold nothing yet come and go meanwhile.
            disk.open(&to, OpenMode::CreateNew).unwrap().write_at(&bytes, 0).unwrap();
        }
    }
}
