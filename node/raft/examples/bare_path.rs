//! What the path without a server costs idle and carries busy: three nodes of four groups in this process,
//! real log and sync, loopback connections, a machine that only counts.
//!
//! `cargo run --release -p weir-raft --example bare_path [seconds]`

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, oneshot};
use weir_env::Env;
use weir_env::time::Instant;
use weir_raft::{
    CallFrom, Committed, Fate, Group, GroupOptions, Nonce, PeerHandler, PeerIdentity, Peers, RaftTimings,
    Registry, SnapshotSink, SnapshotSource, StateMachine, serve_peers,
};
use weir_store::{GroupId, LogPosition, SnapshotStore, Wal, WalOptions};

const GROUPS: u32 = 4;

type Answers = Arc<parking_lot::Mutex<BTreeMap<u64, oneshot::Sender<bool>>>>;

struct Count(Answers);

impl StateMachine for Count {
    fn apply(&mut self, batch: Vec<Committed>) {
        let mut answers = self.0.lock();
        for nonce in batch.into_iter().filter_map(|committed| committed.nonce) {
            if let Some(answer) = answers.remove(&nonce.0) {
                let _ = answer.send(true);
            }
        }
    }

    fn settle(&mut self, nonce: Nonce, _fate: Fate) {
        if let Some(answer) = self.0.lock().remove(&nonce.0) {
            let _ = answer.send(false);
        }
    }

    fn snapshot(&self) -> Box<dyn SnapshotSource> {
        Box::new(Nothing)
    }

    fn begin_restore(&mut self) -> Box<dyn SnapshotSink> {
        Box::new(Nothing)
    }

    fn finish_restore(&mut self, sink: Box<dyn SnapshotSink>, _at: LogPosition) -> Result<(), String> {
        let sink: Box<dyn Any> = sink;
        sink.downcast::<Nothing>().map(drop).map_err(|_| "another sink".to_owned())
    }
}

struct Nothing;

impl SnapshotSource for Nothing {
    fn next_chunk(&mut self, _out: &mut Vec<u8>) -> bool {
        false
    }
}

impl SnapshotSink for Nothing {
    fn chunk(&mut self, _bytes: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

struct Nobody;

#[async_trait::async_trait]
impl PeerHandler for Nobody {
    async fn call(&self, _from: CallFrom, _kind: u16, _payload: Bytes) -> Result<Bytes, String> {
        Err("nothing to ask here".to_owned())
    }
}

struct Client {
    group: Group,
    answers: Answers,
    /// Proposals go in from one task at a time.
    next: Mutex<u64>,
}

impl Client {
    async fn propose(&self, payload: Bytes) -> bool {
        let (answer, told) = oneshot::channel();
        {
            let mut next = self.next.lock().await;
            *next += 1;
            self.answers.lock().insert(*next, answer);
            if self.group.propose(Nonce(*next), payload).await.is_err() {
                return false;
            }
        }
        told.await.unwrap_or(false)
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let dir = tempfile::tempdir().unwrap();
    let env = Env::system();
    let mut listeners = Vec::new();
    let mut addrs = BTreeMap::new();
    for id in 1..=3u64 {
        let listener = env.net.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        addrs.insert(id, listener.local_addr().unwrap().to_string());
        listeners.push((id, listener));
    }
    let mut clients = Vec::new();
    for (id, listener) in listeners {
        let home = dir.path().join(id.to_string());
        let wal = Wal::open(&env, &home.join("log"), WalOptions::default()).await.unwrap();
        let identity = PeerIdentity { cluster_id: "bench".to_owned(), node_hex: id.to_string() };
        let peers = Peers::new(env.clone(), id, identity);
        let registry = Registry::new();
        for number in 0..GROUPS {
            let answers = Answers::default();
            let snapshots = home.join(format!("snapshots-{number}"));
            let group = Group::start(GroupOptions {
                id: GroupId(number),
                me: id,
                timings: RaftTimings::default(),
                log: wal.group(GroupId(number)),
                snapshots: SnapshotStore::open(&env, &snapshots).await.unwrap(),
                peers: peers.clone(),
                env: env.clone(),
                machine: Box::new(Count(answers.clone())),
                founders: BTreeSet::new(),
                snapshot_log_bytes: 64 << 20,
            })
            .await
            .unwrap();
            registry.insert(group.clone());
            clients.push(Arc::new(Client { group, answers, next: Mutex::new(0) }));
        }
        let serve =
            serve_peers(env.clone(), listener, peers, registry, Arc::new(Nobody), std::future::pending());
        env.spawn.spawn("peers", Box::pin(serve));
    }
    for client in &clients {
        client.group.initialize(addrs.clone()).await.unwrap();
    }
    for client in &clients {
        let mut status = client.group.status();
        status.wait_for(|status| status.leader.is_some()).await.unwrap();
    }
    let leader = loop {
        let ready =
            |client: &&Arc<Client>| client.group.id() == GroupId(0) && client.group.status().borrow().ready;
        if let Some(leader) = clients.iter().find(ready) {
            break leader.clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };

    let before = cpu_seconds();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    println!(
        "idle: {:.2} % of a core, {GROUPS} groups on three nodes",
        (cpu_seconds() - before) / seconds as f64 * 100.0
    );

    let payload = Bytes::from(vec![b'x'; 100]);
    for tasks in [1, 16, 64, 256, 1024] {
        let until = Instant::now() + Duration::from_secs(seconds);
        let workers: Vec<_> = (0..tasks)
            .map(|_| {
                let (leader, payload) = (leader.clone(), payload.clone());
                tokio::spawn(async move {
                    let (mut done, mut failed) = (0u64, 0u64);
                    while Instant::now() < until {
                        if leader.propose(payload.clone()).await { done += 1 } else { failed += 1 }
                    }
                    (done, failed)
                })
            })
            .collect();
        let (mut done, mut failed) = (0, 0);
        for worker in workers {
            let (more, lost) = worker.await.unwrap();
            done += more;
            failed += lost;
        }
        println!("{tasks:5} in flight: {:8.0} proposals/s, {failed} not done", done as f64 / seconds as f64);
    }

    let until = Instant::now() + Duration::from_secs(seconds);
    let mut reads = 0u64;
    while Instant::now() < until {
        leader.group.read_index().await.unwrap();
        reads += 1;
    }
    println!("read points one after the other: {:.0} /s", reads as f64 / seconds as f64);
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
