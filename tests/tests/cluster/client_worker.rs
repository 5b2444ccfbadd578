//! The client's worker against three processes: failures of handlers, of workers and of nodes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use weir_client::{Client, Delivery, EntryId};
use weir_tests::testing::{TestCluster, key_led_by, start};

const WITHIN: Duration = Duration::from_secs(30);

async fn connect(cluster: &TestCluster) -> Client {
    Client::connect(cluster.addresses()).await.expect("connected")
}

async fn add(client: &Client, key: &str, numbers: std::ops::Range<usize>) {
    let producer = client.producer(key).open().await.expect("a producer");
    let mut sent = Vec::new();
    for n in numbers {
        sent.push(producer.send([("n", n.to_string())]).await.expect("sent"));
    }
    for appended in sent {
        appended.await.expect("appended");
    }
}

async fn until(what: &str, reached: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + WITHIN;
    while !reached().await {
        assert!(Instant::now() < deadline, "{what}: not within {WITHIN:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// How often each number was handled.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<usize, usize>>>);

impl Seen {
    fn note(&self, delivery: &Delivery) {
        let n = delivery.entry.get_str("n").expect("a number").parse().expect("a number");
        *self.0.lock().expect("unbroken").entry(n).or_default() += 1;
    }

    fn count(&self) -> usize {
        self.0.lock().expect("unbroken").len()
    }
}

async fn pending(client: &Client, key: &str) -> u64 {
    client.xpending(key, "g").await.expect("a group").count
}

#[tokio::test]
async fn what_a_dead_worker_held_is_done_by_another_and_nothing_twice_without_need() {
    let cluster = start(3, "").await;
    let client = connect(&cluster).await;
    add(&client, "s", 0..300).await;
    let seen = Seen::default();
    let begun = Arc::new(AtomicUsize::new(0));
    let lease = Duration::from_secs(1);
    let (seen_by_one, begun_by_one) = (seen.clone(), begun.clone());
    let one = client
        .worker("s", "g", "one")
        .concurrency(8)
        .lease(lease)
        .run(move |delivery| {
            let (seen, begun) = (seen_by_one.clone(), begun_by_one.clone());
            async move {
                // It dies with eight entries in hand.
                if begun.fetch_add(1, Ordering::SeqCst) >= 40 {
                    std::future::pending::<()>().await;
                }
                seen.note(&delivery);
                Ok::<(), String>(())
            }
        })
        .await
        .expect("at work");
    until("the first worker hangs", async || begun.load(Ordering::SeqCst) == 48).await;
    until("what it did is acknowledged", async || pending(&client, "s").await == 8).await;
    // It still renews its hold: nobody else may have them.
    let seen_by_two = seen.clone();
    let two = client.worker("s", "g", "two").concurrency(8).lease(lease).run(move |delivery| {
        seen_by_two.note(&delivery);
        std::future::ready(Ok::<(), String>(()))
    });
    let two = two.await.expect("at work");
    until("the second worker does the rest", async || seen.count() == 292).await;
    sleep(lease * 2).await;
    assert_eq!((seen.count(), pending(&client, "s").await), (292, 8), "a held entry was taken");
    let done = one.abort().await.expect("aborted");
    assert_eq!(done.acknowledged, 40);
    until("the second worker takes over", async || pending(&client, "s").await == 0).await;
    let done = two.stop().await.expect("stopped");
    assert_eq!((done.acknowledged, done.claimed, done.failures), (260, 8, 0));
    let seen = seen.0.lock().expect("unbroken").clone();
    assert!(seen.len() == 300 && seen.values().all(|times| *times == 1), "{seen:?}");
}

#[tokio::test]
async fn a_restarted_worker_goes_on_at_once_with_what_it_had() {
    let cluster = start(3, "").await;
    let client = connect(&cluster).await;
    add(&client, "s", 0..10).await;
    let lease = Duration::from_secs(600);
    let hangs = |_: Delivery| std::future::pending::<Result<(), String>>();
    let first = client.worker("s", "g", "one").concurrency(4).lease(lease).run(hangs).await.expect("at work");
    until("four are in hand", async || pending(&client, "s").await == 4).await;
    first.abort().await.expect("aborted");
    let order = Arc::new(Mutex::new(Vec::new()));
    let noted = order.clone();
    let second = client.worker("s", "g", "one").lease(lease).run(move |delivery| {
        let n = delivery.entry.get_str("n").expect("a number").to_owned();
        noted.lock().expect("unbroken").push((n, delivery.deliveries));
        std::future::ready(Ok::<(), String>(()))
    });
    let second = second.await.expect("at work");
    until("all is done", async || order.lock().expect("unbroken").len() == 10).await;
    let done = second.stop().await.expect("stopped");
    assert_eq!((done.acknowledged, done.claimed), (10, 4));
    let wanted: Vec<_> = (0..10).map(|n| (n.to_string(), if n < 4 { 2 } else { 1 })).collect();
    assert_eq!(*order.lock().expect("unbroken"), wanted);
}

#[tokio::test]
async fn errors_panics_and_timeouts_are_retried_and_end_in_the_dead_letters() {
    let cluster = start(3, "").await;
    let client = connect(&cluster).await;
    add(&client, "s", 0..20).await;
    let tries = Seen::default();
    let noted = tries.clone();
    let worker = client
        .worker("s", "g", "one")
        .concurrency(4)
        .handler_timeout(Duration::from_millis(200))
        .deliveries_max(3)
        .retry(Duration::from_millis(20), Duration::from_millis(50))
        .run(move |delivery| {
            noted.note(&delivery);
            async move {
                match delivery.entry.get_str("n") {
                    Some("3") => Err("three is bad".to_owned()),
                    Some("5") => panic!("five is worse"),
                    Some("7") => std::future::pending().await,
                    // Good at the second try.
                    Some("9") if delivery.deliveries == 1 => Err("not yet".to_owned()),
                    _ => Ok(()),
                }
            }
        })
        .await
        .expect("at work");
    let dead = "{s}:dead";
    until("three are dead", async || client.xlen(dead).await == Ok(3)).await;
    until("nothing is pending", async || pending(&client, "s").await == 0).await;
    let done = worker.stop().await.expect("stopped");
    assert_eq!((done.acknowledged, done.failures, done.dead_lettered), (17, 10, 3));
    let mut letters = client.xrange(dead, EntryId::MIN, EntryId::MAX).await.expect("read");
    letters.sort_by_key(|letter| letter.get_str("n").map(str::to_owned));
    let reasons: Vec<_> = letters
        .iter()
        .map(|l| (l.get_str("n"), l.get_str("dead-deliveries"), l.get_str("dead-reason")))
        .collect();
    assert_eq!(
        reasons,
        [
            (Some("3"), Some("3"), Some("three is bad")),
            (Some("5"), Some("3"), Some("panicked: five is worse")),
            (Some("7"), Some("3"), Some("not done within 200ms")),
        ]
    );
    let tries = tries.0.lock().expect("unbroken");
    assert_eq!((tries[&3], tries[&5], tries[&7], tries[&9], tries[&1]), (3, 3, 3, 2, 1));
}

#[tokio::test]
async fn dead_letters_are_bounded() {
    let cluster = start(3, "").await;
    let client = connect(&cluster).await;
    add(&client, "s", 0..200).await;
    let tried = Arc::new(AtomicUsize::new(0));
    let counted = tried.clone();
    let worker = client
        .worker("s", "g", "one")
        .concurrency(16)
        .deliveries_max(1)
        .dead_letters_max(60)
        .run(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Err("never") }
        })
        .await
        .expect("at work");
    until("all are tried", async || tried.load(Ordering::SeqCst) == 200).await;
    let done = worker.stop().await.expect("stopped");
    assert_eq!((done.dead_lettered, pending(&client, "s").await), (200, 0));
    let kept = client.xlen("{s}:dead").await.expect("a length");
    assert!((60..190).contains(&kept), "{kept} letters");
}

#[tokio::test]
async fn a_stop_finishes_what_is_in_hand_and_leaves_the_rest() {
    let cluster = start(3, "").await;
    let client = connect(&cluster).await;
    add(&client, "s", 0..20).await;
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = begun.clone();
    let worker = client.worker("s", "g", "one").concurrency(4).run(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {
            sleep(Duration::from_millis(700)).await;
            Ok::<(), String>(())
        }
    });
    let worker = worker.await.expect("at work");
    until("four have begun", async || begun.load(Ordering::SeqCst) == 4).await;
    let done = worker.stop().await.expect("stopped");
    assert_eq!((done.acknowledged, begun.load(Ordering::SeqCst)), (4, 4));
    assert_eq!(pending(&client, "s").await, 0);
    assert_eq!(client.xinfo_groups("s").await.expect("groups")[0].lag, Some(16));
}

#[tokio::test]
async fn workers_go_on_when_the_leader_dies() {
    let mut cluster = start(3, "").await;
    let client = connect(&cluster).await;
    let key = key_led_by(&cluster, 0).await;
    let seen = Seen::default();
    let mut workers = Vec::new();
    for name in ["one", "two"] {
        let seen = seen.clone();
        let worker =
            client.worker(&key, "g", name).concurrency(4).lease(Duration::from_secs(2)).run(move |d| {
                seen.note(&d);
                async {
                    sleep(Duration::from_millis(5)).await;
                    Ok::<(), String>(())
                }
            });
        workers.push(worker.await.expect("at work"));
    }
    let adding = tokio::spawn({
        let (client, key) = (client.clone(), key.clone());
        async move { add(&client, &key, 0..1500).await }
    });
    until("work is under way", async || seen.count() > 100).await;
    cluster.kill(0).await.expect("killed");
    adding.await.expect("all added");
    until("all is done", async || seen.count() == 1500).await;
    until("nothing is pending", async || pending(&client, &key).await == 0).await;
    let mut acknowledged = 0;
    for worker in workers {
        acknowledged += worker.stop().await.expect("stopped").acknowledged;
    }
    assert!(acknowledged >= 1500, "{acknowledged}");
    assert_eq!(client.xlen(&key).await, Ok(1500));
}
