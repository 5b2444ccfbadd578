//! Many streams of different shards read as one, through a failover.

use std::collections::BTreeMap;
use std::time::Duration;
use weir_client::{Client, GroupStart};
use weir_tests::testing::{key_led_by, start};

const EACH: usize = 300;

#[tokio::test]
async fn streams_of_all_shards_come_in_their_order_once_although_a_leader_dies() {
    let mut cluster = start(3, "").await;
    let client = Client::connect(cluster.addresses()).await.expect("connected");
    let mut keys = Vec::new();
    for node in 0..3 {
        let key = key_led_by(&cluster, node).await;
        keys.extend([format!("{{{key}}}:a"), format!("{{{key}}}:b")]);
    }
    let starts = keys.iter().map(|key| (key, GroupStart::New));
    let mut entries = client.read_many(starts).await.expect("reading");
    let mut deliveries = client.consume_many("g", "c", &keys).await.expect("consuming");
    let adding: Vec<_> = keys
        .iter()
        .map(|key| {
            let (client, key) = (client.clone(), key.clone());
            tokio::spawn(async move {
                let producer = client.producer(key).open().await.expect("a producer");
                for n in 0..EACH {
                    producer.append([("n", n.to_string())]).await.expect("appended");
                }
            })
        })
        .collect();
    let wanted: Vec<String> = (0..EACH).map(|n| n.to_string()).collect();
    let (mut read, mut consumed) = (BTreeMap::new(), BTreeMap::new());
    let both = async {
        for n in 0..EACH * keys.len() {
            if n == 200 {
                cluster.kill(0).await.expect("killed");
            }
            let (key, entry) = entries.next().await.expect("no error").expect("no end");
            let n = entry.get_str("n").expect("a number").to_owned();
            read.entry(key).or_insert_with(Vec::new).push(n);
            let received = deliveries.next().await.expect("no error").expect("no end");
            let n = received.entry.get_str("n").expect("a number").to_owned();
            consumed.entry(received.stream.clone()).or_insert_with(Vec::new).push(n);
            received.ack().await.expect("acknowledged");
        }
    };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("in time");
    for adding in adding {
        adding.await.expect("all added");
    }
    for key in &keys {
        assert_eq!(read[key.as_bytes()], wanted, "read {key}");
        assert_eq!(consumed[key.as_bytes()], wanted, "consumed {key}");
        assert_eq!(client.xpending(key, "g").await.expect("a group").count, 0);
    }
}

#[tokio::test]
async fn what_an_earlier_life_left_pending_comes_first_and_a_wrong_type_ends_one_read_alone() {
    let cluster = start(3, "").await;
    let client = Client::connect(cluster.addresses()).await.expect("connected");
    for n in 0..5 {
        client.xadd("s").field("n", n.to_string()).await.expect("added");
    }
    let mut first = client.consume_many("g", "c", ["s"]).await.expect("consuming");
    for _ in 0..2 {
        first.next().await.expect("no error").expect("no end").ack().await.expect("acknowledged");
    }
    drop(first);
    client.xadd("s").field("n", "5").await.expect("added");
    let mut second = client.consume_many("g", "c", ["s"]).await.expect("consuming");
    for n in 2..6 {
        let received = second.next().await.expect("no error").expect("no end");
        assert_eq!(received.entry.get_str("n"), Some(n.to_string().as_str()));
    }
    client.set("text", "v").await.expect("set");
    let starts = [("text", GroupStart::First), ("s", GroupStart::First)];
    let mut entries = client.read_many(starts).await.expect("reading");
    let (mut errors, mut read) = (0, 0);
    while errors < 1 || read < 6 {
        match entries.next().await {
            Ok(entry) => {
                assert_eq!(entry.expect("no end").0, "s");
                read += 1;
            }
            Err(error) => {
                assert_eq!(error.server().map(|e| e.code()), Some("WRONGTYPE"));
                errors += 1;
            }
        }
    }
}
