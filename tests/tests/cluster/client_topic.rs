//! A topic whose members come, leave and die.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use weir_client::{Client, Error, Topic, TopicConsumer};
use weir_tests::testing::start;

const PARTITIONS: u32 = 8;
const KEYS: usize = 40;
const LEASE: Duration = Duration::from_secs(2);
/// Not over while a busy machine lets the test stand still: then a move would not be a planned one.
const LONG: Duration = Duration::from_secs(60);

/// What was handled, by key, in the order in which handlers ended.
#[derive(Clone, Default)]
struct Handled(Arc<Mutex<BTreeMap<String, Vec<usize>>>>);

impl Handled {
    fn count(&self) -> usize {
        self.0.lock().expect("unbroken").values().map(Vec::len).sum()
    }
}

async fn join(topic: &Topic, name: &str, lease: Duration, handled: &Handled) -> TopicConsumer {
    let handled = handled.clone();
    let consumer = topic.consumer("g", name).lease(lease).run(move |delivery| {
        let handled = handled.clone();
        async move {
            sleep(Duration::from_millis(2)).await;
            let key = delivery.entry.get_str("key").expect("a key").to_owned();
            let n = delivery.entry.get_str("n").expect("a number").parse().expect("a number");
            handled.0.lock().expect("unbroken").entry(key).or_default().push(n);
            Ok::<(), String>(())
        }
    });
    consumer.await.expect("joined")
}

async fn until(what: &str, reached: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !reached() {
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn partitions_follow_their_members_and_no_entry_is_handled_twice_or_out_of_order_on_a_planned_move() {
    let cluster = start(3, "").await;
    let client = Client::connect(cluster.addresses()).await.expect("connected");
    let topic = client.topic("t", PARTITIONS).await.expect("a topic");
    let other = client.topic("t", PARTITIONS + 1).await;
    assert!(matches!(other, Err(Error::Invalid(_))), "{other:?}");
    let handled = Handled::default();
    let producing = tokio::spawn({
        let producer = topic.producer();
        async move {
            let mut sent = Vec::new();
            for n in 0..2000 {
                let key = format!("key-{}", n % KEYS);
                let entry = [("key", key.clone()), ("n", n.to_string())];
                sent.push(producer.send(&key, entry).await.expect("sent"));
                if n % 10 == 0 {
                    sleep(Duration::from_millis(20)).await;
                }
            }
            for appended in sent {
                appended.await.expect("appended");
            }
        }
    });
    let one = join(&topic, "one", LONG, &handled).await;
    until("the only member has all", || one.owned().len() == PARTITIONS as usize).await;
    let two = join(&topic, "two", LONG, &handled).await;
    until("two share", || one.owned().len() == 4 && two.owned().len() == 4).await;
    let three = join(&topic, "three", LONG, &handled).await;
    let all = [&one, &two, &three];
    let owned = || {
        let mut owned: Vec<u32> = all.iter().flat_map(|member| member.owned()).collect();
        owned.sort_unstable();
        owned
    };
    let evenly = || all.iter().all(|member| (2..=3).contains(&member.owned().len()));
    until("three share", || evenly() && owned() == (0..PARTITIONS).collect::<Vec<_>>()).await;
    two.stop().await.expect("left");
    until("two share again", || one.owned().len() == 4 && three.owned().len() == 4).await;
    producing.await.expect("all appended");
    until("all is handled", || handled.count() >= 2000).await;
    let mut acknowledged = 0;
    for member in [one, three] {
        acknowledged += member.stop().await.expect("left").acknowledged;
    }
    assert!(acknowledged <= 2000);
    let handled = handled.0.lock().expect("unbroken");
    assert_eq!(handled.len(), KEYS);
    for (key, numbers) in handled.iter() {
        let first: usize = key.trim_start_matches("key-").parse().expect("a number");
        let wanted: Vec<usize> = (first..2000).step_by(KEYS).collect();
        assert_eq!(*numbers, wanted, "{key}");
    }
}

#[tokio::test]
async fn the_partitions_of_a_dead_member_move_after_its_lease() {
    let cluster = start(3, "").await;
    let client = Client::connect(cluster.addresses()).await.expect("connected");
    let topic = client.topic("t", PARTITIONS).await.expect("a topic");
    let handled = Handled::default();
    // Its runtime ends with everything on it, as a killed process would.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let addresses = cluster.addresses();
    let noted = handled.clone();
    let dying = runtime.spawn(async move {
        let client = Client::connect(addresses).await.expect("connected");
        let topic = client.topic("t", PARTITIONS).await.expect("a topic");
        join(&topic, "dying", LEASE, &noted).await
    });
    let dying = dying.await.expect("joined");
    until("the only member has all", || dying.owned().len() == PARTITIONS as usize).await;
    let living = join(&topic, "living", LEASE, &handled).await;
    until("two share", || living.owned().len() == 4 && dying.owned().len() == 4).await;
    runtime.shutdown_background();
    let died = Instant::now();
    until("the living one has all", || living.owned().len() == PARTITIONS as usize).await;
    assert!(died.elapsed() >= LEASE / 2, "{:?}", died.elapsed());
    let producer = topic.producer();
    for n in 0..100 {
        let key = format!("key-{n}");
        producer.append(&key, [("key", key.clone()), ("n", n.to_string())]).await.expect("appended");
    }
    until("all is handled", || handled.count() == 100).await;
    living.stop().await.expect("left");
}
