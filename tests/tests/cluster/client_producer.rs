//! Exactly-once appends through the client library while leaders die.

use std::time::Duration;
use weir_client::{Client, EntryId};
use weir_tests::testing::{key_led_by, start};

const ENTRIES: usize = 4000;

#[tokio::test]
async fn entries_are_there_once_and_in_order_although_leaders_die_meanwhile() {
    let mut cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let client = Client::connect(cluster.addresses()).await.expect("connected");
    let producer = client.producer(&key).entries_max(500).open().await.expect("a producer");
    let producing = tokio::spawn(async move {
        let mut sent = Vec::new();
        for n in 0..ENTRIES {
            sent.push(producer.send([("n", n.to_string())]).await.expect("sent"));
            if n % 20 == 0 {
                // So that the faults below come while entries are on their way.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let mut ids = Vec::new();
        for appended in sent {
            ids.push(appended.await.expect("appended"));
        }
        ids
    });
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let leader = client.leader_of(&key).and_then(|at| cluster.node_at(&at)).expect("a leader");
        cluster.kill(leader).await.expect("killed");
        tokio::time::sleep(Duration::from_millis(1500)).await;
        cluster.spawn(leader).expect("started");
        cluster.wait_ready(leader).await.expect("ready");
    }
    let ids = producing.await.expect("all appended");
    let entries = client.xrange(&key, EntryId::MIN, EntryId::MAX).await.expect("read");
    let numbers: Vec<&str> = entries.iter().map(|e| e.get_str("n").expect("a number")).collect();
    let wanted: Vec<String> = (0..ENTRIES).map(|n| n.to_string()).collect();
    assert_eq!(numbers, wanted);
    assert_eq!(entries.iter().map(|e| e.id).collect::<Vec<_>>(), ids);
}

#[tokio::test]
async fn a_producer_can_say_how_much_its_stream_remembers() {
    let cluster = start(3, "").await;
    let client = Client::connect(cluster.addresses()).await.expect("connected");
    for _ in 0..2 {
        let producer = client.producer("s").remember(300, 5000).open().await.expect("a producer");
        producer.append([("n", "1")]).await.expect("appended");
    }
    let info = client.xinfo_stream("s").await.expect("it is there");
    assert_eq!((info.length, info.groups), (2, 0));
    assert_eq!((info.idmp_duration, info.idmp_maxsize), (Some(Duration::from_secs(300)), Some(5000)));
    let short = client.producer("s").remember(2, 100).open().await;
    assert!(matches!(short, Err(weir_client::Error::Invalid(_))), "{short:?}");
}
