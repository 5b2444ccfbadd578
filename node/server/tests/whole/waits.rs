//! What WAIT, WAITAOF and FLUSHALL say, against three whole nodes in this process: numbers that are proven, and an end
//! when nothing more can be proven here.

#![expect(clippy::disallowed_types, reason = "a test may look for free ports itself")]

use bytes::BytesMut;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_env::time::{Instant, sleep, timeout};
use weir_env::{BoxStream, Env};
use weir_resp::{Value, decode_value, encode_command};
use weir_server::config::{Config, Sources};
use weir_server::run::{RunningNode, start_node};
use weir_server::shard::ShardHandle;
use weir_stream::key_slot;

/// Three nodes and six shards, so that a node leads more than one.
struct Cluster {
    nodes: Vec<RunningNode>,
    ports: Vec<u16>,
    _dir: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Cluster {
        Self::start_in("always").await
    }

    async fn start_in(durability: &str) -> Cluster {
        let env = Env::system();
        let dir = tempfile::tempdir().expect("a directory");
        let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        let mut ports = Vec::new();
        while ports.len() < 3 {
            // Peer and admin ports lie 10,000 and 20,000 above; all stay below those of outgoing connections.
            let port = 11_300 + (env.rng.u64() % 700) as u16;
            if !ports.contains(&port) && [0, 10_000, 20_000].into_iter().all(|above| free(port + above)) {
                ports.push(port);
            }
        }
        let list: Vec<String> =
            ports.iter().enumerate().map(|(i, port)| format!("n{}=127.0.0.1:{port}", i + 1)).collect();
        let starts = ports.iter().enumerate().map(|(i, port)| {
            let flags: BTreeMap<String, String> = [
                ("name", format!("n{}", i + 1)),
                ("dir", dir.path().join(i.to_string()).display().to_string()),
                ("port", port.to_string()),
                ("cluster", list.join(",")),
                ("shards", "6".to_owned()),
                ("wal-segment-bytes", "1mb".to_owned()),
                ("durability", durability.to_owned()),
                ("follower-read-staleness-ms-max", "300".to_owned()),
            ]
            .map(|(key, value)| (key.to_owned(), value))
            .into();
            let config = Config::load(&Sources { flags, ..Sources::default() }).expect("settings");
            start_node(Env::system(), config)
        });
        let nodes = futures_util::future::join_all(starts).await;
        let nodes: Vec<RunningNode> = nodes.into_iter().map(|node| node.expect("started")).collect();
        let settled = async {
            for node in &nodes {
                node.ready().await;
                while node.node().shards.led().len() != 2 {
                    sleep(Duration::from_millis(20)).await;
                }
            }
        };
        timeout(Duration::from_secs(40), settled).await.expect("two shards led by each node");
        Cluster { nodes, ports, _dir: dir }
    }

    /// A connection to the first node.
    async fn connect(&self) -> Client {
        self.connect_to(0).await
    }

    /// A connection to another node.
    async fn connect_to(&self, node: usize) -> Client {
        let net = &self.nodes[0].node().env.net;
        let stream = net.connect(&format!("127.0.0.1:{}", self.ports[node])).await.expect("connected");
        Client { stream, input: BytesMut::new() }
    }

    /// The shards that the first node leads, each with a key of it.
    fn led(&self) -> Vec<(ShardHandle, String)> {
        let node = self.nodes[0].node();
        let view = node.topology.view();
        let keys = || (0..10_000).map(|n| format!("k{n}"));
        let key_of = |shard: &ShardHandle| {
            let lies_there =
                |key: &String| view.shard_of(key_slot(key.as_bytes())).is_some_and(|s| s.id == shard.id());
            keys().find(lies_there).expect("a key of each shard")
        };
        node.shards.led().into_iter().map(|shard| (shard.clone(), key_of(&shard))).collect()
    }
}

struct Client {
    stream: BoxStream,
    input: BytesMut,
}

impl Client {
    async fn send(&mut self, line: &str) {
        let mut bytes = Vec::new();
        encode_command(line.split(' ').collect::<Vec<_>>(), &mut bytes);
        self.stream.write_all(&bytes).await.expect("sent");
    }

    async fn answer(&mut self) -> String {
        let read = async {
            loop {
                if let Some(value) = decode_value(&mut self.input).expect("a reply") {
                    return show(&value);
                }
                assert_ne!(self.stream.read_buf(&mut self.input).await.expect("open"), 0, "closed");
            }
        };
        timeout(Duration::from_secs(20), read).await.expect("an answer in time")
    }

    async fn ask(&mut self, line: &str) -> String {
        self.send(line).await;
        self.answer().await
    }

    /// Whether nothing is answered for a while.
    async fn is_kept_waiting(&mut self) -> bool {
        timeout(Duration::from_millis(300), self.stream.read_buf(&mut self.input)).await.is_err()
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        Value::Int(n) => n.to_string(),
        Value::Array(items) => format!("{:?}", items.iter().map(show).collect::<Vec<_>>()).replace('"', ""),
        value => value
            .bytes()
            .map_or_else(|| format!("{value:?}"), |text| String::from_utf8_lossy(text).into_owned()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_end_with_what_is_proven_when_leadership_is_lost() {
    let cluster = Cluster::start().await;
    let led = cluster.led();
    let (mut wait, mut sync) = (cluster.connect().await, cluster.connect().await);

    // What FLUSHALL wrote is waited for as any write is.
    assert_eq!(wait.ask("FLUSHALL").await, "OK");
    assert_eq!(wait.ask("WAIT 2 0").await, "2");
    assert_eq!(wait.ask("WAITAOF 1 2 0").await, "[1, 2]");

    // One of two shards goes elsewhere: the minimum over both cannot rise any more.
    for (_, key) in &led {
        assert_eq!(wait.ask(&format!("XADD {key} 1-1 a 1")).await, "1-1");
        assert_eq!(sync.ask(&format!("XADD {key} 2-1 a 1")).await, "2-1");
    }
    assert_eq!(sync.ask("WAITAOF 1 2 0").await, "[1, 2]");
    wait.send("WAIT 5 0").await;
    sync.send("WAITAOF 1 5 0").await;
    assert!(wait.is_kept_waiting().await && sync.is_kept_waiting().await);
    let second = cluster.nodes[1].node().number();
    led[0].0.group().transfer_leader(second).await.expect("handed over");
    assert_eq!(wait.answer().await, "2");
    assert_eq!(sync.answer().await, "[1, 2]");

    // No quorum is left: nothing more is proven here, by nobody.
    let (mut wait, mut sync) = (cluster.connect().await, cluster.connect().await);
    assert_eq!(wait.ask(&format!("XADD {} 3-1 a 1", led[1].1)).await, "3-1");
    assert_eq!(sync.ask(&format!("XADD {} 4-1 a 1", led[1].1)).await, "4-1");
    assert_eq!(sync.ask("WAITAOF 1 2 0").await, "[1, 2]");
    wait.send("WAIT 5 0").await;
    sync.send("WAITAOF 1 5 0").await;
    assert!(wait.is_kept_waiting().await && sync.is_kept_waiting().await);
    for node in &cluster.nodes[1..] {
        node.shutdown().await;
    }
    assert_eq!(wait.answer().await, "2");
    assert_eq!(sync.answer().await, "[1, 2]");
    let alone = async {
        while !cluster.nodes[0].node().shards.led().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), alone).await.expect("no shard is served any more");
    assert_eq!(wait.ask("FLUSHALL").await, "-CLUSTERDOWN The cluster is down");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_syncs_come_later_waitaof_counts_the_disks_that_have_it() {
    let cluster = Cluster::start_in("everysec").await;
    let key = &cluster.led()[0].1;
    let mut c = cluster.connect().await;
    assert_eq!(c.ask(&format!("XADD {key} 1-1 a 1")).await, "1-1");
    assert_eq!(c.ask("WAIT 2 0").await, "2");
    // All three sync within a second or so.
    assert_eq!(c.ask("WAITAOF 1 2 20000").await, "[1, 2]");
    // More than there are: the number proven, at the deadline.
    assert_eq!(c.ask("WAITAOF 0 5 100").await, "[1, 2]");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leads_nothing_does_not_pretend_to_flush() {
    let cluster = Cluster::start().await;
    let key = &cluster.led()[0].1;
    let (mut c, mut idle) = (cluster.connect().await, cluster.connect_to(2).await);
    assert_eq!(c.ask(&format!("XADD {key} 1-1 a 1")).await, "1-1");
    let first = cluster.nodes[0].node().number();
    let third = cluster.nodes[2].node();
    // Leadership is moved back to where it was placed; it is taken again until the answer comes in between.
    let refused = async {
        loop {
            for shard in third.shards.led() {
                let _ = shard.group().transfer_leader(first).await;
            }
            let answer = idle.ask("FLUSHALL").await;
            if answer != "OK" && !answer.starts_with("-CLUSTERDOWN") && !answer.starts_with("-TRYAGAIN") {
                return answer;
            }
        }
    };
    let refused = timeout(Duration::from_secs(30), refused).await.expect("it leads nothing for a moment");
    assert_eq!(refused, "-READONLY You can't write against a read only replica.");
    assert_eq!(c.ask(&format!("XLEN {key}")).await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_read_without_a_leader_is_held_once() {
    let cluster = Cluster::start().await;
    let node = cluster.nodes[0].node().clone();
    let view = node.topology.view();
    let follows = |key: &String| {
        let shard = view.shard_of(key_slot(key.as_bytes())).expect("owned");
        node.shards.get(shard.id).is_some_and(|shard| !shard.serving())
    };
    let key = (0..1000).map(|n| format!("k{n}")).find(follows).expect("a key of another leader");
    let mut c = cluster.connect().await;
    assert_eq!(c.ask("READONLY").await, "OK");
    assert_eq!(c.ask(&format!("XLEN {key}")).await, "0");
    for other in &cluster.nodes[1..] {
        other.close().await;
    }
    let down = async {
        loop {
            let began = Instant::now();
            let answer = c.ask(&format!("XLEN {key}")).await;
            if answer.starts_with("-CLUSTERDOWN") {
                return began.elapsed();
            }
        }
    };
    let held = timeout(Duration::from_secs(30), down).await.expect("the replica is too old at last");
    let hold_max = node.config.hold_max();
    assert!(held < hold_max + hold_max / 2, "held for {held:?}, {hold_max:?} is allowed");
}
