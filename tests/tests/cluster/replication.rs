//! One shard on three nodes: what a follower may answer, what waits for a majority, and what the next leader knows.

use std::time::{Duration, Instant};
use weir_resp::Value;
use weir_tests::client::ClusterClient;
use weir_tests::connection::{Connection, show, words};
use weir_tests::slots::slot_of;
use weir_tests::testing::{TestCluster, ask, ask_until, connect, key_led_by, metric, script, start};

const WITHIN: Duration = Duration::from_secs(20);

/// Lines at whoever leads `key`, which stands for each `KEY`; the last reply.
async fn insist(client: &mut ClusterClient, key: &str, lines: &str) -> Value {
    let mut last = Value::Null;
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let line = line.replace("KEY", key);
        let reply = client.insist(key, &words(&line), WITHIN).await;
        last = reply.unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    last
}

/// A client of the nodes that are left when `node` is gone.
fn client_without(cluster: &TestCluster, node: usize) -> ClusterClient {
    let others: Vec<String> = (0..cluster.len()).filter(|n| *n != node).map(|n| cluster.address(n)).collect();
    ClusterClient::new(&others, Duration::from_secs(6))
}

/// Everything about a stream but idle times, which pass: entries, counters, groups, consumers, pending lists. The
/// first two are answered by followers too.
const ALL_VIEWS: [&str; 4] =
    ["XINFO STREAM KEY FULL COUNT 0", "XRANGE KEY - +", "XINFO GROUPS KEY", "XPENDING KEY g"];

/// A stream with deletions and trims behind it, a group that claimed and acknowledged, one that read without pending.
const HISTORY: &str = "
    XADD KEY 1-0 n 1
    XADD KEY 2-0 n 2
    XADD KEY 3-0 n 3 other field
    XADD KEY 4-0 n 4
    XADD KEY 5-0 n 5
    XADD KEY 6-0 n 6
    XADD KEY 7-0 n 7
    XGROUP CREATE KEY g 0
    XGROUP CREATE KEY unread 0
    XREADGROUP GROUP g one COUNT 3 STREAMS KEY >
    XREADGROUP GROUP g two COUNT 2 STREAMS KEY >
    XREADGROUP GROUP unread u NOACK COUNT 4 STREAMS KEY >
    XGROUP CREATECONSUMER KEY g Two
    XACK KEY g 2-0
    XCLAIM KEY g two 0 3-0
    XDEL KEY 6-0 4-0
    XTRIM KEY MINID 2-0
";

#[tokio::test]
async fn followers_and_the_next_leader_tell_the_same_as_the_one_that_died() {
    let mut cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let mut client = ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    insist(&mut client, &key, HISTORY).await;
    let mut before = Vec::new();
    for view in ALL_VIEWS {
        before.push(show(&insist(&mut client, &key, view).await));
    }
    let idle = |rows: &Value| {
        let Value::Array(rows) = rows else { panic!("{rows:?}") };
        let of_row = |row: &Value| match row {
            Value::Array(row) => show(&row[2]).parse().expect("milliseconds"),
            other => panic!("{other:?}"),
        };
        rows.iter().map(of_row).collect::<Vec<u64>>()
    };
    let idle_before = idle(&insist(&mut client, &key, "XPENDING KEY g - + 10").await);
    assert_eq!(idle_before.len(), 4);
    for node in 1..3 {
        let mut follower = connect(&cluster, node).await;
        assert_eq!(ask(&mut follower, "READONLY").await, "OK");
        for (view, wanted) in ALL_VIEWS.iter().zip(&before).take(2) {
            ask_until(&mut follower, &view.replace("KEY", &key), |reply| reply == wanted).await;
        }
    }
    cluster.kill(0).await.expect("killed");
    let mut client = client_without(&cluster, 0);
    for (view, wanted) in ALL_VIEWS.iter().zip(&before) {
        assert_eq!(show(&insist(&mut client, &key, view).await), *wanted, "{view}");
    }
    let idle_after = idle(&insist(&mut client, &key, "XPENDING KEY g - + 10").await);
    assert!(
        idle_after.len() == 4 && idle_before.iter().zip(&idle_after).all(|(before, after)| after >= before),
        "idle times began anew: {idle_before:?}, then {idle_after:?}"
    );
    // What was read without becoming pending does not come again.
    let next = insist(&mut client, &key, "XREADGROUP GROUP unread u STREAMS KEY >").await;
    assert_eq!(show(&next), format!("[[{key}, [[5-0, [n, 5]], [7-0, [n, 7]]]]]"));
}

#[tokio::test]
async fn a_consumer_goes_on_at_the_new_leader_with_its_own_entries_first() {
    let mut cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let mut client = ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    let lines = "
        XGROUP CREATE KEY g $ MKSTREAM
        XADD KEY 1-0 n 1
        XADD KEY 2-0 n 2
        XADD KEY 3-0 n 3
        XADD KEY 4-0 n 4
        XREADGROUP GROUP g w1 COUNT 3 STREAMS KEY >
        XACK KEY g 2-0
    ";
    insist(&mut client, &key, lines).await;
    cluster.kill(0).await.expect("killed");
    let mut client = client_without(&cluster, 0);
    let own = insist(&mut client, &key, "XREADGROUP GROUP g w1 STREAMS KEY 0").await;
    assert_eq!(show(&own), format!("[[{key}, [[1-0, [n, 1]], [3-0, [n, 3]]]]]"));
    assert_eq!(show(&insist(&mut client, &key, "XACK KEY g 1-0 2-0").await), "1");
    // It never comes back; another takes over what it left.
    let taken = insist(&mut client, &key, "XAUTOCLAIM KEY g w2 0 0").await;
    assert_eq!(show(&taken), "[0-0, [[3-0, [n, 3]]], []]");
    let new = insist(&mut client, &key, "XREADGROUP GROUP g w2 STREAMS KEY >").await;
    assert_eq!(show(&new), format!("[[{key}, [[4-0, [n, 4]]]]]"));
    assert_eq!(show(&insist(&mut client, &key, "XACK KEY g 3-0 4-0").await), "2");
    assert_eq!(show(&insist(&mut client, &key, "XPENDING KEY g").await), "[0, nil, nil, nil]");
}

#[tokio::test]
async fn a_follower_answers_reads_after_readonly_and_sends_the_rest_to_the_leader() {
    let cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let mut client = ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    insist(&mut client, &key, HISTORY).await;
    let moved = format!("-MOVED {} {}", slot_of(key.as_bytes()), cluster.address(0));
    let reads =
        ["XLEN KEY", "XRANGE KEY - +", "XREVRANGE KEY + -", "XREAD STREAMS KEY 0", "XINFO STREAM KEY FULL"];
    // Pending lists belong to the leader, the looks at them too.
    let not_here = [
        "XADD KEY * n 1",
        "XREADGROUP GROUP g one STREAMS KEY >",
        "XREADGROUP GROUP g one STREAMS KEY 0",
        "XACK KEY g 1-0",
        "XCLAIM KEY g one 0 1-0",
        "XAUTOCLAIM KEY g one 0 0",
        "XPENDING KEY g - + 10",
        "XINFO GROUPS KEY",
        "XINFO CONSUMERS KEY g",
        "XGROUP DESTROY KEY g",
        "XTRIM KEY MAXLEN 0",
        "XDEL KEY 2-0",
    ];
    for node in 1..3 {
        let mut c = connect(&cluster, node).await;
        for line in reads.iter().chain(&not_here) {
            assert_eq!(ask(&mut c, &line.replace("KEY", &key)).await, moved, "{line}");
        }
        assert_eq!(ask(&mut c, "READONLY").await, "OK");
        ask_until(&mut c, &format!("XLEN {key}"), |length| length == "4").await;
        for line in reads {
            let reply = ask(&mut c, &line.replace("KEY", &key)).await;
            assert!(!reply.starts_with('-') && reply != "[]", "{line}: {reply}");
        }
        for line in not_here {
            assert_eq!(ask(&mut c, &line.replace("KEY", &key)).await, moved, "{line}");
        }
        assert_eq!(ask(&mut c, "READWRITE").await, "OK");
        assert_eq!(ask(&mut c, &format!("XLEN {key}")).await, moved);
    }
    assert_eq!(show(&insist(&mut client, &key, "XLEN KEY").await), "4");
}

#[tokio::test]
async fn nothing_is_delivered_and_nobody_is_woken_before_a_majority_has_it() {
    let mut cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let mut c = connect(&cluster, 0).await;
    assert_eq!(ask(&mut c, &format!("XADD {key} 1-0 n 1")).await, "1-0");
    assert_eq!(ask(&mut c, &format!("XGROUP CREATE {key} g 0")).await, "OK");
    let mut parked = connect(&cluster, 0).await;
    parked.send(&words(&format!("XREAD BLOCK 0 STREAMS {key} $"))).await.expect("sent");
    ask_until(&mut c, "INFO clients", |info| info.contains("blocked_clients:1")).await;
    cluster.pause(1).expect("stopped");
    cluster.pause(2).expect("stopped");
    let mut member = connect(&cluster, 0).await;
    member.send(&words(&format!("XREADGROUP GROUP g m STREAMS {key} >"))).await.expect("sent");
    let added = c.call(&words(&format!("XADD {key} 2-0 n 2")), WITHIN).await.expect("an answer");
    let delivered =
        tokio::time::timeout(WITHIN, member.receive()).await.expect("in time").expect("an answer");
    for answer in [show(&added), show(&delivered)] {
        assert!(answer.starts_with("-UNKNOWN") || answer.starts_with("-CLUSTERDOWN"), "{answer}");
    }
    // The parked reader may have been sent away; it was not shown the entry.
    if let Ok(answer) = tokio::time::timeout(Duration::from_millis(1), parked.receive()).await {
        let answer = answer.map_or_else(|closed| format!("-closed: {closed}"), |reply| show(&reply));
        assert!(answer.starts_with('-'), "{answer}");
    }
    cluster.resume(1).expect("goes on");
    cluster.resume(2).expect("goes on");
    // Whatever became of both: the entry is delivered to one member, once.
    let mut client = ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    insist(&mut client, &key, "XREADGROUP GROUP g other COUNT 1 STREAMS KEY >").await;
    let rows = show(&insist(&mut client, &key, "XPENDING KEY g 1-0 1-0 10").await);
    assert!(
        rows.starts_with("[[1-0, ") && rows.ends_with(", 1]]") && rows.matches("1-0").count() == 1,
        "{rows}"
    );
}

#[tokio::test]
async fn names_of_groups_and_consumers_have_no_part_in_the_slot() {
    let cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let mut c = connect(&cluster, 0).await;
    for node in 0..3 {
        let elsewhere = key_led_by(&cluster, node).await;
        for name in [elsewhere.clone(), format!("{{{elsewhere}}}"), format!("g{{{elsewhere}}}{node}")] {
            let text = format!(
                "
                XGROUP CREATE {key} {name} 0 MKSTREAM             => OK
                XGROUP CREATECONSUMER {key} {name} {elsewhere}    => 1
                XREADGROUP GROUP {name} {elsewhere} STREAMS {key} 0 => [[{key}, []]]
                XPENDING {key} {name}                             => [0, nil, nil, nil]
                XGROUP DESTROY {key} {name}                       => 1
                "
            );
            script(&mut c, &text).await;
        }
    }
}

#[tokio::test]
async fn a_follower_that_is_behind_is_seen_in_the_metrics_of_the_leader() {
    let mut cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let mut c = connect(&cluster, 0).await;
    assert_eq!(ask(&mut c, &format!("XADD {key} 1-0 n 1")).await, "1-0");
    cluster.pause(2).expect("stopped");
    let mut n = 1;
    lag_until(&cluster, &mut c, &key, &mut n, |entries, ms| entries >= 5.0 && ms >= 100.0).await;
    cluster.resume(2).expect("goes on");
    lag_until(&cluster, &mut c, &key, &mut n, |entries, ms| entries <= 1.0 && ms < 100.0).await;
}

/// Adds entries until the lag of n3 (entries, milliseconds), as the leader of `key` tells it, is as wanted.
async fn lag_until(
    cluster: &TestCluster,
    c: &mut Connection,
    key: &str,
    n: &mut u64,
    wanted: impl Fn(f64, f64) -> bool,
) {
    let deadline = Instant::now() + WITHIN;
    let shard = shard_led_by_first(cluster).await;
    loop {
        *n += 1;
        assert_eq!(ask(c, &format!("XADD {key} {n}-0 n {n}")).await, format!("{n}-0"));
        let labels = [shard.as_str(), "n3"];
        let entries = metric(cluster, 0, "weir_raft_follower_lag_entries", &labels).await.expect("entries");
        let ms = metric(cluster, 0, "weir_raft_follower_lag_ms", &labels).await.expect("milliseconds");
        if wanted(entries, ms) {
            return;
        }
        assert!(Instant::now() < deadline, "n3 lacks {entries} entries and {ms} ms");
    }
}

/// Number of the shard that the first node leads.
async fn shard_led_by_first(cluster: &TestCluster) -> String {
    for shard in ["0", "1", "2"] {
        if metric(cluster, 0, "weir_raft_is_leader", &[shard]).await == Some(1.0) {
            return shard.to_owned();
        }
    }
    panic!("n1 leads nothing")
}
