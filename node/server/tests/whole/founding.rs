//! Real nodes in this process: founding a cluster, stopping and coming back, and what must be refused.

#![expect(clippy::disallowed_types, reason = "a test may look for free ports itself")]

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use weir_env::Env;
use weir_env::time::{sleep, timeout};
use weir_server::config::{Config, Sources};
use weir_server::run::{RunningNode, start_node};

/// A client port whose peer and admin ports are free too.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let base = 10_000 + (std::process::id() % 700) as u16 * 15;
        let port = base + NEXT.fetch_add(1, Ordering::Relaxed);
        if [0, 10_000, 20_000].into_iter().all(|offset| free(port + offset)) {
            return port;
        }
    }
}

struct Place {
    dir: tempfile::TempDir,
    ports: Vec<u16>,
}

impl Place {
    fn new() -> Self {
        Place { dir: tempfile::tempdir().unwrap(), ports: (0..3).map(|_| free_port()).collect() }
    }

    fn config(&self, number: usize, more: &[(&str, &str)]) -> Config {
        let list: Vec<String> =
            self.ports.iter().enumerate().map(|(i, port)| format!("n{}=127.0.0.1:{port}", i + 1)).collect();
        let mut flags: std::collections::BTreeMap<String, String> = [
            ("name", format!("n{number}")),
            ("dir", self.path(number).display().to_string()),
            ("port", self.ports[number - 1].to_string()),
            ("cluster", list.join(",")),
            ("wal-segment-bytes", "1mb".to_owned()),
        ]
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v))
        .collect();
        flags.extend(more.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        Config::load(&Sources { flags, ..Sources::default() }).unwrap()
    }

    fn path(&self, number: usize) -> std::path::PathBuf {
        self.dir.path().join(format!("n{number}"))
    }

    async fn start(&self, number: usize) -> RunningNode {
        start_node(Env::system(), self.config(number, &[])).await.unwrap()
    }

    async fn refused(&self, number: usize, more: &[(&str, &str)]) -> String {
        let started =
            timeout(Duration::from_secs(60), start_node(Env::system(), self.config(number, more))).await;
        let text = started.expect("a refusal comes soon").err().expect("must be refused").to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    }

    async fn start_all(&self) -> Vec<RunningNode> {
        let nodes = [1, 2, 3].map(|n| self.start(n));
        let nodes = futures_util::future::join_all(nodes).await;
        for node in &nodes {
            timeout(Duration::from_secs(60), node.ready()).await.expect("every slot is served");
        }
        nodes
    }
}

/// Leaders of the shards by number, once each node leads one.
async fn spread(nodes: &[RunningNode]) {
    let all_led = async {
        loop {
            let view = nodes[0].node().topology.view();
            let leaders: BTreeSet<_> =
                view.map.shards.iter().filter_map(|s| view.live_leader(s.id)).map(|n| n.number).collect();
            if leaders.len() == 3 {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60), all_led).await.expect("one leader a node");
}

fn wipe(dir: &Path) {
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_found_a_cluster_come_back_and_refuse_a_wiped_one() {
    let place = Place::new();
    let nodes = place.start_all().await;
    spread(&nodes).await;
    let maps: Vec<_> = nodes.iter().map(|n| n.node().topology.map()).collect();
    assert!(maps.windows(2).all(|w| w[0] == w[1]));
    assert_eq!(maps[0].cluster_id.len(), 40);
    let ids: Vec<String> = nodes.iter().map(|n| n.node().identity.id.clone()).collect();

    // One leaves in order: what it led is led by another at once, and comes back to it later.
    nodes[1].shutdown().await;
    assert_eq!(nodes[1].stopped().await, Ok(()));
    let served = async {
        while !nodes[0].node().topology.view().all_served() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(30), served).await.expect("the others serve everything");
    drop(nodes);
    // The first and third go on running in this process; a second life of n2 joins them.
    let again = place.start(2).await;
    timeout(Duration::from_secs(30), again.ready()).await.expect("it is back");
    assert_eq!(again.node().identity.id, ids[1]);
    spread(std::slice::from_ref(&again)).await;
    again.shutdown().await;
    drop(again);

    let elsewhere = start_node(Env::system(), place.config(2, &[("advertise", "localhost")])).await.unwrap();
    let told = async {
        while maps[0].node(2).map(|n| &n.host) == elsewhere.node().topology.map().node(2).map(|n| &n.host) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(30), told).await.expect("the map takes the new address");
    elsewhere.shutdown().await;
    drop(elsewhere);

    let text = place.refused(2, &[("durability", "os")]).await;
    assert!(text.contains("--durability os disagrees with the cluster"), "{text}");
    wipe(&place.path(2));
    let text = place.refused(2, &[]).await;
    assert!(text.starts_with("n2 lost its data and cannot rejoin as n2"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_different_lists_do_not_found_anything() {
    let place = Place::new();
    let other = format!("n1=127.0.0.1:{},n2=127.0.0.1:{}", place.ports[0], place.ports[1]);
    let wrong = [("cluster", other.as_str())];
    let (first, second) = tokio::join!(place.refused(1, &[]), place.refused(2, &wrong));
    for text in [first, second] {
        assert!(text.contains("were started with different --cluster lists"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_stays_taken_is_named() {
    let place = Place::new();
    let _taken = TcpListener::bind(("127.0.0.1", place.ports[0] + 10_000)).unwrap();
    let text = place.refused(1, &[]).await;
    assert!(text.contains(&format!("peer port 127.0.0.1:{} is taken", place.ports[0] + 10_000)), "{text}");
}
