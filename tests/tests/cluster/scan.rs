//! SCAN over the nodes of a cluster, and over a change of leaders.

use std::collections::BTreeSet;
use std::time::Duration;
use weir_resp::Value;
use weir_tests::client::ClusterClient;
use weir_tests::connection::{Connection, show, words};
use weir_tests::testing::{ask_until, ask_value, connect, start};

const WITHIN: Duration = Duration::from_secs(20);

/// One call: the keys, and the cursor to go on with.
async fn scan(c: &mut Connection, cursor: &str) -> (Vec<String>, String) {
    let Value::Array(answer) = ask_value(c, &format!("SCAN {cursor} COUNT 20")).await else {
        panic!("no answer")
    };
    let Value::Array(keys) = &answer[1] else { panic!("no keys") };
    (keys.iter().map(show).collect(), show(&answer[0]))
}

#[tokio::test]
async fn the_nodes_share_the_keys_and_a_cursor_goes_on_at_the_next_leader() {
    let mut cluster = start(3, "").await;
    let mut client = ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    let all: BTreeSet<String> = (0..300).map(|n| format!("key{n}")).collect();
    for key in &all {
        client.insist(key, &words(&format!("SET {key} v")), WITHIN).await.expect("set");
    }
    // Each key on one node, each node with a share.
    let mut found = Vec::new();
    for node in 0..3 {
        let mut c = connect(&cluster, node).await;
        let before = found.len();
        let mut cursor = "0".to_owned();
        loop {
            let (keys, next) = scan(&mut c, &cursor).await;
            found.extend(keys);
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
        assert!(found.len() > before, "n{} leads nothing", node + 1);
    }
    assert_eq!(found.len(), all.len());
    assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), all);
    // The first half from the node that dies, the other from the one that leads its shard next.
    let mut c = connect(&cluster, 0).await;
    let mut led: BTreeSet<String> = BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let (keys, next) = scan(&mut c, &cursor).await;
        led.extend(keys);
        cursor = next;
        if cursor == "0" {
            break;
        }
    }
    let (mut seen, mut cursor) = scan(&mut c, "0").await;
    cluster.kill(0).await.expect("killed");
    let probe = led.last().expect("a key").clone();
    let mut nodes = [connect(&cluster, 1).await, connect(&cluster, 2).await];
    client.insist(&probe, &words(&format!("GET {probe}")), WITHIN).await.expect("a leader");
    let mut heir = None;
    for (at, node) in nodes.iter_mut().enumerate() {
        if ask_until(node, &format!("GET {probe}"), |reply| !reply.starts_with("-CLUSTERDOWN")).await == "v" {
            heir = Some(at);
        }
    }
    let heir = &mut nodes[heir.expect("a node that leads it")];
    while cursor != "0" {
        let (keys, next) = scan(heir, &cursor).await;
        seen.extend(keys);
        cursor = next;
    }
    let seen: BTreeSet<String> = seen.into_iter().filter(|key| led.contains(key)).collect();
    assert_eq!(seen, led);
}
