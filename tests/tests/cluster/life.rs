//! A node's and a cluster's life as an operator sees it: start, serve, hand over, stop, come back.

use std::time::{Duration, Instant};
use weir_tests::client::{ClusterClient, parse_moved, slot_map};
use weir_tests::connection::{Connection, show, words};
use weir_tests::ports::free_ports;
use weir_tests::process::{Process, READY_WITHIN, Signal, weir_binary};
use weir_tests::slots::slot_of;
use weir_tests::testing::{TestCluster, ask, ask_until, connect, http_get, key_led_by, start};

fn dev(dir: &std::path::Path, port: u16, more: &str) -> Process {
    let mut arguments = words("dev --port");
    arguments.push(port.to_string());
    arguments.extend(words(more));
    Process::spawn(&weir_binary().expect("weir"), &arguments, &dir.join("dev.log")).expect("it starts")
}

#[tokio::test]
async fn dev_is_a_whole_cluster_in_one_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let port = free_ports(3);
    let mut process = dev(dir.path(), port, "");
    process.wait_ready(READY_WITHIN).await.expect("ready");
    let seeds: Vec<String> = (port..port + 3).map(|p| format!("127.0.0.1:{p}")).collect();
    let mut client = ClusterClient::new(&seeds, Duration::from_secs(6));
    for n in 0..30 {
        let key = format!("k{n}");
        // `ready` is said once every slot is served: no call may meet an outage.
        for _ in 0..2 {
            let fate = client.attempt(&key, &["XADD", &key, "*", "a", "1"]).await;
            match fate {
                weir_tests::client::Fate::Done(_) => break,
                weir_tests::client::Fate::Refused(error) if error.starts_with("MOVED") => {}
                other => panic!("{key}: {other:?}"),
            }
        }
    }
    let rows = slot_map(&seeds).await.expect("a map");
    let leaders: std::collections::BTreeSet<_> = rows.into_iter().map(|(_, _, leader)| leader).collect();
    assert_eq!(leaders.len(), 3, "leaders are spread: {leaders:?}");
    let output = process.output();
    assert!(output.lines().any(|line| line.contains("redis-cli")), "it says what to type next:\n{output}");

    let began = Instant::now();
    process.signal(Signal::Terminate).expect("sent");
    let status = process.wait_exit(Duration::from_secs(10)).await.expect("it ends");
    assert!(status.success(), "{status}\n{}", process.tail());
    assert!(began.elapsed() < Duration::from_secs(3), "it took {:?}", began.elapsed());
}

#[tokio::test]
async fn dev_keeps_its_data_where_it_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let port = free_ports(3);
    let data = dir.path().join("data");
    let more = format!("--dir {}", data.display());
    let seeds: Vec<String> = (port..port + 3).map(|p| format!("127.0.0.1:{p}")).collect();
    for round in 1..=3 {
        let mut process = dev(dir.path(), port, &more);
        process.wait_ready(READY_WITHIN).await.expect("ready");
        let mut client = ClusterClient::new(&seeds, Duration::from_secs(6));
        for key in ["a", "b", "c", "d"] {
            let within = Duration::from_secs(20);
            client.insist(key, &["XADD", key, "*", "a", "1"], within).await.expect("added");
            let length = client.insist(key, &["XLEN", key], within).await.expect("read");
            assert_eq!(show(&length), round.to_string());
        }
        let bytes = bytes_below(&data);
        assert!(bytes < 120 << 20, "{bytes} bytes for a few entries");
        // The last round ends without a goodbye.
        process.signal(if round == 2 { Signal::Kill } else { Signal::Terminate }).expect("sent");
        process.wait_exit(Duration::from_secs(10)).await.expect("it ends");
    }
}

#[tokio::test]
async fn help_and_config_say_what_there_is() {
    let weir = weir_binary().expect("weir");
    let run = |arguments: &str| {
        let output = std::process::Command::new(&weir).args(words(arguments)).output().expect("it runs");
        assert!(output.status.success(), "weir {arguments}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let help = run("--help");
    for word in ["dev", "start", "config", "redis-cli"] {
        assert!(help.contains(word), "{word} is not in:\n{help}");
    }
    let help = run("start --help");
    for flag in [
        "--name",
        "--dir",
        "--port",
        "--cluster",
        "--bind",
        "--advertise",
        "--shards",
        "--durability",
        "--config",
    ] {
        assert!(help.contains(flag), "{flag} is not in:\n{help}");
    }
    let config = run("config");
    assert!(
        config.lines().any(|line| line.starts_with('#')) && config.contains("durability = \"always\""),
        "{config}"
    );
}

#[tokio::test]
async fn the_admin_port_tells_health_and_metrics() {
    let mut cluster = start(3, "").await;
    let admin = cluster.port(0) + 20_000;
    assert!(http_get(admin, "/healthz").await.0.contains("200"));
    assert!(http_get(admin, "/readyz").await.0.contains("200"));
    assert!(http_get(admin, "/nothing").await.0.contains("404"));
    let mut client = ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    for n in 0..30 {
        let key = format!("k{n}");
        client.insist(&key, &["XADD", &key, "*", "a", "1"], Duration::from_secs(10)).await.expect("added");
    }
    let (_, metrics) = http_get(admin, "/metrics").await;
    for name in ["command", "fsync", "term", "leader", "pending", "memory"] {
        let found = metrics
            .lines()
            .any(|line| !line.starts_with('#') && line.starts_with("weir_") && line.contains(name));
        assert!(found, "no metric about {name} in:\n{metrics}");
    }
    // Without a majority it lives, but is not ready.
    cluster.kill(1).await.expect("killed");
    cluster.kill(2).await.expect("killed");
    let deadline = Instant::now() + Duration::from_secs(15);
    while http_get(admin, "/readyz").await.0.contains("200") {
        assert!(Instant::now() < deadline, "still ready without a majority");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(http_get(admin, "/healthz").await.0.contains("200"));
    cluster.start_all().await.expect("healed");
}

#[tokio::test]
async fn sigterm_hands_over_and_ends_within_two_seconds() {
    let mut cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let mut parked = connect(&cluster, 0).await;
    ask(&mut parked, &format!("XADD {key} * a 1")).await;
    ask(&mut parked, &format!("XGROUP CREATE {key} g $")).await;
    parked.send(&words(&format!("XREADGROUP GROUP g c BLOCK 0 STREAMS {key} >"))).await.expect("sent");
    let mut looking = connect(&cluster, 0).await;
    ask_until(&mut looking, "INFO clients", |info| info.contains("blocked_clients:1")).await;

    let took = cluster.terminate(0).await.expect("exit 0");
    assert!(took < Duration::from_millis(2_500), "it took {took:?}");
    // The parked reader is sent away, not left hanging: with a redirect, or by the end of the connection.
    match tokio::time::timeout(Duration::from_secs(1), parked.receive()).await.expect("an end") {
        Ok(reply) => {
            let reply = show(&reply);
            assert!(reply.starts_with("-MOVED") || reply.starts_with("-CLUSTERDOWN"), "{reply}");
        }
        Err(_closed) => {}
    }
    // Another node leads at once.
    let began = Instant::now();
    let others = [cluster.address(1), cluster.address(2)];
    let mut client = ClusterClient::new(&others, Duration::from_secs(6));
    client.insist(&key, &["XADD", &key, "*", "a", "2"], Duration::from_secs(10)).await.expect("added");
    assert!(began.elapsed() < Duration::from_millis(1_500), "writers stood still for {:?}", began.elapsed());
}

#[tokio::test]
async fn a_parked_reader_of_a_deposed_leader_is_sent_to_the_new_one() {
    let mut cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let mut parked = connect(&cluster, 0).await;
    ask(&mut parked, &format!("XADD {key} * a 1")).await;
    parked.send(&words(&format!("XREAD BLOCK 0 STREAMS {key} $"))).await.expect("sent");
    let mut looking = connect(&cluster, 0).await;
    ask_until(&mut looking, "INFO clients", |info| info.contains("blocked_clients:1")).await;
    cluster.pause(0).expect("stopped");
    let others = [cluster.address(1), cluster.address(2)];
    let mut client = ClusterClient::new(&others, Duration::from_secs(2));
    client.insist(&key, &["XADD", &key, "*", "a", "2"], Duration::from_secs(15)).await.expect("a new leader");
    cluster.resume(0).expect("goes on");
    let reply = tokio::time::timeout(Duration::from_secs(10), parked.receive())
        .await
        .expect("an end")
        .expect("a reply");
    let reply = show(&reply);
    let moved = parse_moved(reply.trim_start_matches('-'));
    assert!(
        moved.is_some_and(|(_, to)| to != cluster.address(0)) || reply.starts_with("-CLUSTERDOWN"),
        "{reply}"
    );
}

#[tokio::test]
async fn without_a_majority_nothing_is_answered_as_done() {
    let mut cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let mut c = connect(&cluster, 0).await;
    ask(&mut c, &format!("XADD {key} * a 1")).await;
    cluster.pause(1).expect("stopped");
    cluster.pause(2).expect("stopped");
    let refused = Duration::from_secs(20);
    let mut answers = Vec::new();
    for command in [format!("XADD {key} * a 2"), format!("XLEN {key}"), format!("XADD {key} * a 3")] {
        answers.push(show(&c.call(&words(&command), refused).await.expect("an answer")));
    }
    for answer in &answers {
        assert!(answer.starts_with("-CLUSTERDOWN") || answer.starts_with("-UNKNOWN"), "{answers:?}");
    }
    assert!(answers[2].starts_with("-CLUSTERDOWN"), "refused at once by then: {answers:?}");
    cluster.resume(1).expect("goes on");
    cluster.resume(2).expect("goes on");
    let mut client = ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    let length = client.insist(&key, &["XLEN", &key], Duration::from_secs(20)).await.expect("healed");
    let unknown = answers.iter().filter(|a| a.starts_with("-UNKNOWN")).count();
    let length: usize = show(&length).parse().expect("a number");
    assert!((1..=1 + unknown).contains(&length), "{length} entries, {answers:?}");
}

#[tokio::test]
async fn wait_tells_the_truth() {
    let mut cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let mut c = connect(&cluster, 0).await;
    ask(&mut c, &format!("XADD {key} * a 1")).await;
    assert_eq!(ask_until(&mut c, "WAIT 2 1000", |n| n == "2").await, "2");
    // One more than there are: never above the truth, ends at the timeout.
    let began = Instant::now();
    assert_eq!(ask(&mut c, "WAIT 3 300").await, "2");
    assert!(began.elapsed() >= Duration::from_millis(290), "{:?}", began.elapsed());
    assert_eq!(ask(&mut c, "WAIT 0 0").await, "2");
    cluster.pause(2).expect("stopped");
    ask(&mut c, &format!("XADD {key} * a 2")).await;
    assert_eq!(ask(&mut c, "WAIT 2 300").await, "1");
    cluster.resume(2).expect("goes on");
    assert_eq!(ask(&mut c, "WAIT 2 5000").await, "2");
    // Deposed while waiting for ever: it ends, with what was proven.
    cluster.pause(2).expect("stopped");
    ask(&mut c, &format!("XADD {key} * a 3")).await;
    cluster.pause(1).expect("stopped");
    let last = c.call(&["WAIT", "2", "0"], Duration::from_secs(20)).await.expect("an end");
    assert_eq!(show(&last), "1");
    cluster.resume(1).expect("goes on");
    cluster.resume(2).expect("goes on");
}

#[tokio::test]
async fn any_node_redirects_to_the_leader_and_never_to_itself() {
    let cluster = start(3, "").await;
    for leader in 0..3 {
        let key = key_led_by(&cluster, leader).await;
        for node in 0..3 {
            let mut c = connect(&cluster, node).await;
            let reply = ask(&mut c, &format!("XLEN {key}")).await;
            if node == leader {
                assert_eq!(reply, "0");
            } else {
                assert_eq!(reply, format!("-MOVED {} {}", slot_of(key.as_bytes()), cluster.address(leader)));
            }
        }
    }
}

#[tokio::test]
async fn a_node_that_was_away_long_catches_up_by_a_snapshot() {
    let mut cluster = start(3, "--snapshot-log-bytes 200000 --wal-segment-bytes 262144").await;
    let key = key_led_by(&cluster, 0).await;
    let mut c = connect(&cluster, 0).await;
    ask(&mut c, &format!("XADD {key} * a 0")).await;
    ask(&mut c, &format!("XGROUP CREATE {key} g 0")).await;
    cluster.kill(2).await.expect("killed");
    let value = "x".repeat(500);
    let mut pipeline = Vec::new();
    for _ in 0..4_000 {
        pipeline.extend_from_slice(format!("XADD {key} * f {value}\r\n").as_bytes());
    }
    c.send_raw(&pipeline).await.expect("sent");
    for _ in 0..4_000 {
        let reply = show(&c.receive().await.expect("an id"));
        assert!(!reply.starts_with('-'), "{reply}");
    }
    ask(&mut c, &format!("XREADGROUP GROUP g c COUNT 10 STREAMS {key} >")).await;
    cluster.spawn(2).expect("it starts");
    cluster.wait_ready(2).await.expect("ready");
    let mut follower =
        Connection::open(&cluster.address(2), Duration::from_secs(5)).await.expect("a connection");
    assert_eq!(ask(&mut follower, "READONLY").await, "OK");
    ask_until(&mut follower, &format!("XLEN {key}"), |n| n == "4001").await;
    // And it can carry on alone with one other.
    ask_until(&mut c, "WAIT 2 100", |n| n == "2").await;
    cluster.kill(0).await.expect("killed");
    let others = [cluster.address(1), cluster.address(2)];
    let mut client = ClusterClient::new(&others, Duration::from_secs(6));
    let pending =
        client.insist(&key, &["XPENDING", &key, "g"], Duration::from_secs(20)).await.expect("answered");
    assert!(show(&pending).starts_with("[10, "), "{}", show(&pending));
}

#[tokio::test]
async fn a_dead_node_takes_one_line_and_another_when_it_is_back() {
    let mut cluster = start(3, "").await;
    let lines = |cluster: &TestCluster| std::fs::read_to_string(cluster.log(0)).expect("a log");
    let count = |text: &str, what: &str| text.lines().filter(|line| line.contains(what)).count();
    // A node that starts before another may have missed it for a moment.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(15);
    let settled = |text: &str| count(text, "answers again") == count(text, "does not answer any more");
    while !settled(&lines(&cluster)) {
        assert!(tokio::time::Instant::now() < deadline, "a node that runs is missed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = lines(&cluster).lines().count();
    let missed = count(&lines(&cluster), "does not answer any more");
    cluster.kill(2).await.expect("killed");
    while count(&lines(&cluster), "does not answer any more") == missed {
        assert!(tokio::time::Instant::now() < deadline, "nobody misses it");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Twenty heartbeats of every group.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let dead = lines(&cluster);
    assert_eq!(count(&dead, "does not answer any more"), missed + 1, "{dead}");
    assert!(dead.lines().count() < before + 20, "{dead}");
    cluster.start_all().await.expect("back");
    while !settled(&lines(&cluster)) {
        assert!(tokio::time::Instant::now() < deadline + Duration::from_secs(30), "nobody sees it");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(count(&lines(&cluster), "does not answer any more"), missed + 1);
}

fn bytes_below(dir: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(about) if about.is_dir() => bytes_below(&entry.path()),
        Ok(about) => about.len(),
        // Files come and go.
        Err(_) => 0,
    });
    bytes.sum()
}
