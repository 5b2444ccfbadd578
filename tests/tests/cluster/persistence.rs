//! What is on disk: everything after a restart, no more than a bound, and the modes of durability.

use std::path::Path;
use std::time::Duration;
use weir_tests::connection::show;
use weir_tests::testing::{TestCluster, ask, ask_until, ask_value, connect, http_get, metric_in, start};

/// XINFO STREAM FULL without what passes with time: idle and seen times.
async fn state_of(cluster: &TestCluster, key: &str) -> String {
    let mut client = weir_tests::client::ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    let within = Duration::from_secs(20);
    let full =
        client.insist(key, &["XINFO", "STREAM", key, "FULL", "COUNT", "0"], within).await.expect("answered");
    let groups = client.insist(key, &["XINFO", "GROUPS", key], within).await.expect("answered");
    format!("{} {}", show(&full), show(&groups))
}

#[tokio::test]
async fn streams_groups_and_pending_lists_survive_kill_9_of_all() {
    let mut cluster = start(3, "--snapshot-log-bytes 100000 --wal-segment-bytes 262144").await;
    let mut client = weir_tests::client::ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    let within = Duration::from_secs(20);
    let mut run = async |key: &str, line: &str| {
        let words = weir_tests::connection::words(line);
        client.insist(key, &words, within).await.unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    let keys = ["a", "b", "c", "d", "e"];
    for key in keys {
        for n in 1..=300 {
            run(key, &format!("XADD {key} {n}-0 n {n} text {}", "t".repeat(1 + n % 90))).await;
        }
        run(key, &format!("XGROUP CREATE {key} g 0")).await;
        run(key, &format!("XGROUP CREATE {key} later $")).await;
        run(key, &format!("XREADGROUP GROUP g one COUNT 40 STREAMS {key} >")).await;
        run(key, &format!("XREADGROUP GROUP g two COUNT 40 STREAMS {key} >")).await;
        run(key, &format!("XACK {key} g 1-0 3-0 50-0")).await;
        run(key, &format!("XCLAIM {key} g three 0 5-0 6-0")).await;
        run(key, &format!("XDEL {key} 5-0 299-0")).await;
        run(key, &format!("XTRIM {key} MINID 20-0")).await;
        run(key, &format!("XGROUP CREATECONSUMER {key} later idle")).await;
    }
    let mut before = Vec::new();
    for key in keys {
        before.push(state_of(&cluster, key).await);
    }
    for round in 0..3 {
        for node in 0..3 {
            if round == 1 {
                _ = cluster.terminate(node).await.expect("exit 0")
            } else {
                cluster.kill(node).await.expect("killed")
            }
        }
        cluster.start_all().await.expect("back again");
        for (key, before) in keys.iter().zip(&before) {
            assert_eq!(state_of(&cluster, key).await, *before, "round {round}");
        }
    }
}

#[tokio::test]
async fn the_log_is_dropped_behind_snapshots() {
    let cluster = start(1, "--snapshot-log-bytes 1000000 --wal-segment-bytes 1048576").await;
    let mut c = connect(&cluster, 0).await;
    let line = format!("XADD s MAXLEN 10 * f {}\r\n", "x".repeat(1000));
    for _ in 0..60 {
        c.send_raw(line.repeat(500).as_bytes()).await.expect("sent");
        for _ in 0..500 {
            let reply = show(&c.receive().await.expect("an id"));
            assert!(!reply.starts_with('-'), "{reply}");
        }
    }
    // 30 MB were written; a few segments, their reserve and snapshots remain.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(15);
    loop {
        let used = disk_usage(&cluster.data(0));
        if used < 12 << 20 {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{used} bytes on disk");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(ask(&mut c, "XLEN s").await, "10");
}

fn disk_usage(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => disk_usage(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

#[tokio::test]
async fn each_durability_serves_survives_kill_9_and_says_what_it_may_lose() {
    for mode in ["always", "everysec", "os"] {
        let mut cluster = start(3, &format!("--durability {mode}")).await;
        let mut client = weir_tests::client::ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
        let within = Duration::from_secs(20);
        for n in 0..20 {
            let key = format!("k{n}");
            client.insist(&key, &["XADD", &key, "*", "a", "1"], within).await.expect("added");
        }
        let mut c = connect(&cluster, 0).await;
        let info = ask(&mut c, "INFO persistence").await;
        assert!(info.contains(mode), "INFO persistence does not name {mode}:\n{info}");
        let info = ask(&mut c, "INFO weir").await;
        let loss = info.lines().find_map(|line| line.strip_prefix("durability_can_lose:"));
        let says = match mode {
            "always" => "nothing answered",
            "everysec" => "last second",
            _ => "not synced",
        };
        assert!(loss.is_some_and(|loss| loss.contains(says)), "{mode}: {loss:?}");
        cluster.kill(0).await.expect("killed");
        cluster.kill(1).await.expect("killed");
        cluster.start_all().await.expect("back again");
        for n in 0..20 {
            let key = format!("k{n}");
            let length = client.insist(&key, &["XLEN", &key], within).await.expect("read");
            assert_eq!(show(&length), "1", "{key} in {mode}");
        }
    }
}

#[tokio::test]
async fn at_maxmemory_adds_are_refused_and_what_frees_memory_works() {
    let cluster = start(1, "--maxmemory 4000000").await;
    let mut c = connect(&cluster, 0).await;
    let value = "x".repeat(10_000);
    assert_eq!(ask(&mut c, "XADD s 0-1 f 1").await, "0-1");
    assert_eq!(ask(&mut c, "XGROUP CREATE s g 0").await, "OK");
    assert_eq!(ask(&mut c, "XREADGROUP GROUP g c STREAMS s >").await, "[[s, [[0-1, [f, 1]]]]]");
    let mut added = 1;
    let refusal = loop {
        let reply = ask(&mut c, &format!("XADD s * f {value}")).await;
        if reply.starts_with('-') {
            break reply;
        }
        added += 1;
        assert!(added < 5_000, "50 MB fit into 4 MB");
    };
    assert!(refusal.starts_with("-OOM command not allowed when used memory > 'maxmemory'"), "{refusal}");
    assert_eq!(ask(&mut c, "XLEN s").await, added.to_string());
    assert_eq!(ask(&mut c, "XGROUP CREATE s late 0").await.split(' ').next(), Some("-OOM"));
    // Nothing is evicted: what is pending stays and can be finished.
    assert_eq!(ask(&mut c, "CONFIG GET maxmemory-policy").await, "[maxmemory-policy, noeviction]");
    assert_eq!(ask(&mut c, "XPENDING s g").await, "[1, 0-1, 0-1, [[c, 1]]]");
    assert_eq!(ask(&mut c, "XACK s g 0-1").await, "1");
    assert_eq!(ask(&mut c, "XTRIM s MAXLEN 1").await, (added - 1).to_string());
    ask_until(&mut c, "XADD s * f 1", |reply| !reply.starts_with('-')).await;
}

#[tokio::test]
async fn metrics_name_streams_groups_and_followers() {
    let cluster = start(3, "").await;
    let mut client = weir_tests::client::ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    let within = Duration::from_secs(20);
    for line in [
        "XADD orders 1000-0 a 1",
        "XADD orders 2000-0 a 2",
        "XADD orders 3000-0 a 3",
        "XADD orders 4500-0 a 4",
        "XGROUP CREATE orders workers 0",
        "XGROUP CREATE orders done $",
        "XGROUP CREATECONSUMER orders workers w2",
        "XREADGROUP GROUP workers w1 COUNT 2 STREAMS orders >",
        "XDEL orders 1000-0",
    ] {
        client.insist("orders", &weir_tests::connection::words(line), within).await.expect(line);
    }
    let leader = client.leader_of("orders").and_then(|at| cluster.node_at(at)).expect("a leader");
    let (_, metrics) = http_get(cluster.port(leader) + 20_000, "/metrics").await;
    let of = |name: &str, labels: &[&str]| metric_in(&metrics, name, labels);
    let told = [
        ("weir_stream_length", &["orders"][..], 3.0),
        ("weir_stream_entries_added_total", &["orders"], 4.0),
        ("weir_group_pending", &["orders", "workers"], 2.0),
        ("weir_consumer_pending", &["orders", "workers", "w1"], 2.0),
        ("weir_consumer_pending", &["orders", "workers", "w2"], 0.0),
        ("weir_group_lag", &["orders", "workers"], 2.0),
        ("weir_group_distance_ms", &["orders", "workers"], 2_500.0),
        ("weir_group_distance_ms", &["orders", "done"], 0.0),
    ];
    for (name, labels, value) in told {
        assert_eq!(of(name, labels), Some(value), "{name} {labels:?} in\n{metrics}");
    }
    assert!(of("weir_group_oldest_pending_ms", &["orders", "workers"]).is_some());
    assert!(of("weir_wal_fsync_seconds_count", &[]).is_some_and(|count| count > 0.0));
    // An alert on a name that nobody tells would never fire.
    let alerts =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../ops/alerts.yml")).expect("alerts");
    let names =
        alerts.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| w.starts_with("weir_"));
    let unknown: Vec<&str> = names.filter(|name| of(name, &[]).is_none()).collect();
    assert!(unknown.is_empty() && alerts.contains("weir_"), "{unknown:?} in\n{metrics}");
    let mut c = connect(&cluster, leader).await;
    assert!(
        ask_value(&mut c, "INFO memory")
            .await
            .bytes()
            .is_some_and(|b| b.windows(11).any(|w| w == b"used_memory"))
    );
}

#[tokio::test]
async fn the_page_of_metrics_is_bounded_and_its_totals_are_whole() {
    let cluster = start(1, "--metrics-streams-max 3").await;
    let mut c = connect(&cluster, 0).await;
    for stream in 0..6 {
        for group in 0..6 {
            ask(&mut c, &format!("XGROUP CREATE s{stream} g{group} 0 MKSTREAM")).await;
        }
        ask(&mut c, &format!("XADD s{stream} * a 1")).await;
        for group in 0..6 {
            let read = format!("XREADGROUP GROUP g{group} c STREAMS s{stream} >");
            assert!(!ask(&mut c, &read).await.starts_with('-'));
        }
    }
    let (_, metrics) = http_get(cluster.port(0) + 20_000, "/metrics").await;
    for (name, total) in [("weir_streams", 6.0), ("weir_groups", 36.0), ("weir_pending", 36.0)] {
        assert_eq!(metric_in(&metrics, name, &[]), Some(total), "{name}");
    }
    for name in ["weir_stream_length{", "weir_group_pending{", "weir_consumer_pending{"] {
        assert_eq!(metrics.lines().filter(|line| line.starts_with(name)).count(), 3, "{name}");
    }
}
