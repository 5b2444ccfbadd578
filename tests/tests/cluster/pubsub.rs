//! Messages between clients of different nodes.

use std::time::Duration;
use weir_tests::client::ClusterClient;
use weir_tests::connection::{Connection, show, words};
use weir_tests::testing::{ask, ask_until, connect, key_led_by, start};

async fn next(c: &mut Connection) -> String {
    let value = tokio::time::timeout(Duration::from_secs(15), c.receive()).await.expect("a message in time");
    show(&value.expect("still open"))
}

#[tokio::test]
async fn a_message_reaches_the_clients_of_all_nodes_in_the_order_of_its_publisher() {
    const MESSAGES: usize = 1000;
    let cluster = start(3, "").await;
    let mut ears = Vec::new();
    for node in 0..3 {
        let mut c = connect(&cluster, node).await;
        assert_eq!(ask(&mut c, "PSUBSCRIBE chan:*").await, "[psubscribe, chan:*, 1]");
        ears.push(c);
    }
    let mut publishers = Vec::new();
    for node in 0..3 {
        let mut c = connect(&cluster, node).await;
        let mut bytes = Vec::new();
        for n in 0..MESSAGES {
            weir_resp::encode_command(words(&format!("PUBLISH chan:{node} {n}")), &mut bytes);
        }
        c.send_raw(&bytes).await.expect("sent");
        publishers.push(c);
    }
    for (node, c) in publishers.iter_mut().enumerate() {
        for _ in 0..MESSAGES {
            assert_eq!(next(c).await, "1", "n{}: the subscribers of this node are counted", node + 1);
        }
    }
    for c in &mut ears {
        let mut seen = [0; 3];
        for _ in 0..3 * MESSAGES {
            let message = next(c).await;
            let parts = message.trim_matches(['[', ']']).split(", ").collect::<Vec<_>>();
            let [_, "chan:*", channel, n] = parts[..] else { panic!("{message}") };
            let from: usize = channel[5..].parse().expect("a node");
            assert_eq!(n.parse::<usize>(), Ok(seen[from]), "{message}");
            seen[from] += 1;
        }
    }
    for node in 0..3 {
        let info = ask(&mut connect(&cluster, node).await, "INFO weir").await;
        assert!(info.contains("pubsub_published:1000") && info.contains("pubsub_dropped:0"), "{info}");
    }
}

#[tokio::test]
async fn a_shard_channel_is_served_by_its_leader_and_heard_on_after_a_change_of_leaders() {
    let mut cluster = start(3, "").await;
    let channel = key_led_by(&cluster, 0).await;
    let mut wrong = connect(&cluster, 1).await;
    for line in [format!("SSUBSCRIBE {channel}"), format!("SPUBLISH {channel} x")] {
        let moved = ask(&mut wrong, &line).await;
        assert!(moved.starts_with("-MOVED ") && moved.ends_with(&cluster.address(0)), "{line}: {moved}");
    }
    let mut ear = connect(&cluster, 0).await;
    assert_eq!(ask(&mut ear, &format!("SSUBSCRIBE {channel}")).await, format!("[ssubscribe, {channel}, 1]"));
    let mut c = connect(&cluster, 0).await;
    assert_eq!(ask(&mut c, &format!("SPUBLISH {channel} one")).await, "1");
    assert_eq!(next(&mut ear).await, format!("[smessage, {channel}, one]"));
    assert_eq!(ask(&mut c, &format!("PUBSUB SHARDNUMSUB {channel}")).await, format!("[{channel}, 1]"));

    // The node stands still until another leads its shard, and then hears what is published there.
    cluster.pause(0).expect("stopped");
    let mut client = ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    client
        .insist(&channel, &words(&format!("SET {channel} v")), Duration::from_secs(20))
        .await
        .expect("a leader");
    let mut heir = None;
    for node in [1, 2] {
        let mut c = connect(&cluster, node).await;
        if ask(&mut c, &format!("SPUBLISH {channel} lost")).await == "0" {
            heir = Some(c);
        }
    }
    let mut heir = heir.expect("one of them leads it");
    cluster.resume(0).expect("goes on");
    let publish = format!("SPUBLISH {channel} two");
    let heard = async {
        loop {
            // Leadership may go back to where it was placed; who listens does not notice.
            let reply = ask(&mut heir, &publish).await;
            if reply.starts_with("-MOVED") {
                ask_until(&mut connect(&cluster, 0).await, &publish, |reply| reply == "1").await;
            }
            if let Ok(message) = tokio::time::timeout(Duration::from_millis(100), ear.receive()).await {
                return show(&message.expect("still open"));
            }
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(20), heard).await.expect("a message");
    assert!(
        [format!("[smessage, {channel}, two]"), format!("[smessage, {channel}, lost]")].contains(&heard),
        "{heard}"
    );
}
