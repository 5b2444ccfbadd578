//! The plain port: a client that knows no cluster sees one server, through any node and through a failover.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use weir_resp::Value;
use weir_tests::connection::{Connection, show, words};
use weir_tests::testing::{TestCluster, ask, ask_until, ask_value, connect, key_led_by, prepare, start};

const WITH_PLAIN: &str = "--plain-port {plain-port}";
/// Longer than the write timeout and two elections.
const PATIENCE: Duration = Duration::from_secs(20);

async fn plain(cluster: &TestCluster, node: usize) -> Connection {
    let address = format!("127.0.0.1:{}", cluster.plain_port(node));
    Connection::open(&address, Duration::from_secs(5)).await.expect("a connection")
}

#[tokio::test]
async fn any_node_does_what_any_other_leads() {
    let cluster = start(3, WITH_PLAIN).await;
    let keys = [key_led_by(&cluster, 0).await, key_led_by(&cluster, 1).await, key_led_by(&cluster, 2).await];
    for node in 0..3 {
        let mut c = plain(&cluster, node).await;
        for key in &keys {
            let id = format!("{}-1", node + 1);
            assert_eq!(ask(&mut c, &format!("XADD {key} {id} n {node}")).await, id);
            assert_eq!(ask(&mut c, &format!("XLEN {key}")).await, (node + 1).to_string());
            assert_eq!(
                ask(&mut c, &format!("XADD {key} 0-1 n x")).await,
                "-ERR The ID specified in XADD is equal or smaller than the target stream top item"
            );
            assert_eq!(
                ask(&mut c, &format!("XRANGE {key} {id} {id}")).await,
                format!("[[{id}, [n, {node}]]]")
            );
            assert_eq!(ask(&mut c, &format!("TYPE {key}")).await, "stream");
            assert!(ask(&mut c, &format!("GET {key}")).await.starts_with("-WRONGTYPE"));
        }
        assert_eq!(ask(&mut c, "DBSIZE").await, "3");
        assert_eq!(ask(&mut c, "WAIT 1 5000").await.parse::<u64>().expect("a number").min(1), 1);
        let mut found = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let Value::Array(parts) = ask_value(&mut c, &format!("SCAN {cursor}")).await else {
                panic!("SCAN answers two parts")
            };
            cursor = show(&parts[0]);
            found.push(show(&parts[1]));
            if cursor == "0" {
                break;
            }
        }
        let found = found.concat();
        assert!(keys.iter().all(|key| found.contains(key.as_str())), "{found}");
        let info = ask(&mut c, "INFO").await;
        for line in ["cluster_enabled:0", "role:master", "redis_mode:standalone"] {
            assert!(info.contains(line), "{info}");
        }
        assert_eq!(ask(&mut c, "CLUSTER SLOTS").await, "-ERR This instance has cluster support disabled");
        assert!(ask(&mut c, "HELLO 3").await.contains("mode: standalone"));
    }
    let mut c = plain(&cluster, 0).await;
    for (subscribe, publish) in [("SUBSCRIBE", "PUBLISH"), ("SSUBSCRIBE", "SPUBLISH")] {
        let mut listener = plain(&cluster, 2).await;
        for (at, key) in keys.iter().enumerate() {
            let told = ask(&mut listener, &format!("{subscribe} {key}")).await;
            assert_eq!(told, format!("[{}, {key}, {}]", subscribe.to_lowercase(), at + 1));
            ask(&mut c, &format!("{publish} {key} hello")).await;
            let heard = timeout(PATIENCE, listener.receive()).await.expect("heard").expect("a message");
            assert!(show(&heard).ends_with(&format!("message, {key}, hello]")), "{}", show(&heard));
        }
    }
    assert_eq!(ask(&mut c, "FLUSHALL").await, "OK");
    assert_eq!(ask(&mut c, "DBSIZE").await, "0");
}

#[tokio::test]
async fn pipelines_keep_their_order_and_transactions_are_one_unit() {
    let cluster = start(3, WITH_PLAIN).await;
    let (here, there) = (key_led_by(&cluster, 0).await, key_led_by(&cluster, 1).await);
    let mut c = plain(&cluster, 0).await;
    for n in 1..=500 {
        c.send(&words(&format!("XADD {here} {n}-1 n {n}"))).await.expect("sent");
        c.send(&words(&format!("XADD {there} {n}-1 n {n}"))).await.expect("sent");
    }
    c.send(&words(&format!("XLEN {there}"))).await.expect("sent");
    for n in 1..=500 {
        for _ in 0..2 {
            assert_eq!(show(&c.receive().await.expect("a reply")), format!("{n}-1"));
        }
    }
    assert_eq!(show(&c.receive().await.expect("a reply")), "500", "a read sees the writes before it");

    let script = |lines: Vec<(String, &'static str)>| lines;
    for (command, reply) in script(vec![
        ("MULTI".into(), "OK"),
        (format!("XADD {there} 501-1 n x"), "QUEUED"),
        (format!("XLEN {there}"), "QUEUED"),
        ("PING".into(), "QUEUED"),
        ("EXEC".into(), "[501-1, 501, PONG]"),
        (format!("WATCH {there}"), "OK"),
        (format!("XADD {there} 502-1 n x"), "502-1"),
        ("MULTI".into(), "OK"),
        (format!("XLEN {there}"), "QUEUED"),
        ("EXEC".into(), "nil"),
        ("MULTI".into(), "OK"),
        (format!("XLEN {here}"), "QUEUED"),
        (format!("XLEN {there}"), "QUEUED"),
        ("EXEC".into(), "-CROSSSLOT Keys in request don't hash to the same slot"),
    ]) {
        assert_eq!(ask(&mut c, &command).await, reply, "{command}");
    }
}

#[tokio::test]
async fn with_one_shard_keys_of_one_command_may_lie_anywhere() {
    let cluster = start(3, &format!("{WITH_PLAIN} --shards 1")).await;
    let mut c = plain(&cluster, 2).await;
    for (command, reply) in [
        ("MSET a 1 b 2 c 3", "OK"),
        ("MGET a b c d", "[1, 2, 3, nil]"),
        ("RENAME a z", "OK"),
        ("EXISTS a z b", "2"),
        ("XADD s1 1-1 n 1", "1-1"),
        ("XADD s2 1-1 n 2", "1-1"),
        ("XREAD STREAMS s1 s2 0 0", "[[s1, [[1-1, [n, 1]]]], [s2, [[1-1, [n, 2]]]]]"),
        ("MULTI", "OK"),
        ("SET x 1", "QUEUED"),
        ("SET y 2", "QUEUED"),
        ("EXEC", "[OK, OK]"),
        ("DEL x y z b c s1 s2", "7"),
        ("DBSIZE", "0"),
    ] {
        assert_eq!(ask(&mut c, command).await, reply, "{command}");
    }
    let mut cluster_client = connect(&cluster, 0).await;
    let crossed = ask(&mut cluster_client, "MGET a b").await;
    assert!(crossed.starts_with("-CROSSSLOT"), "{crossed}");
}

#[tokio::test]
async fn readers_wait_at_the_leader_and_go_with_their_client() {
    let cluster = start(3, WITH_PLAIN).await;
    let key = key_led_by(&cluster, 1).await;
    let (mut reader, mut writer) = (plain(&cluster, 0).await, plain(&cluster, 2).await);
    let mut leader = connect(&cluster, 1).await;
    assert_eq!(ask(&mut writer, &format!("XGROUP CREATE {key} g $ MKSTREAM")).await, "OK");
    let blocked = |n: usize| move |info: &str| info.contains(&format!("blocked_clients:{n}\r"));
    for command in
        [format!("XREAD BLOCK 0 STREAMS {key} $"), format!("XREADGROUP GROUP g c BLOCK 0 STREAMS {key} >")]
    {
        assert_eq!(ask(&mut writer, &format!("XGROUP SETID {key} g $")).await, "OK");
        reader.send(&words(&command)).await.expect("sent");
        ask_until(&mut leader, "INFO clients", blocked(1)).await;
        let id = ask(&mut writer, &format!("XADD {key} * n 1")).await;
        let got = timeout(Duration::from_secs(5), reader.receive()).await.expect("woken").expect("a reply");
        assert_eq!(show(&got), format!("[[{key}, [[{id}, [n, 1]]]]]"), "{command}");
    }
    // CLIENT UNBLOCK finds it wherever it waits, from another connection of the node in front.
    let id = ask(&mut reader, "CLIENT ID").await;
    let mut beside = connect(&cluster, 0).await;
    for (how, answer) in [("TIMEOUT", "nil"), ("ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK")] {
        reader.send(&words(&format!("XREAD BLOCK 0 STREAMS {key} $"))).await.expect("sent");
        ask_until(&mut leader, "INFO clients", blocked(1)).await;
        assert_eq!(ask(&mut beside, &format!("CLIENT UNBLOCK {id} {how}")).await, "1");
        let got = timeout(Duration::from_secs(5), reader.receive()).await.expect("ended").expect("a reply");
        assert_eq!(show(&got), answer);
    }
    assert_eq!(ask(&mut beside, &format!("CLIENT UNBLOCK {id}")).await, "0");
    let began = Instant::now();
    assert_eq!(ask(&mut reader, &format!("XREAD BLOCK 200 STREAMS {key} $")).await, "nil");
    assert!(began.elapsed() >= Duration::from_millis(190), "{:?}", began.elapsed());

    // A client that goes takes its reader along: nothing is delivered to it.
    reader.send(&words(&format!("XREADGROUP GROUP g gone BLOCK 0 STREAMS {key} >"))).await.expect("sent");
    ask_until(&mut leader, "INFO clients", blocked(1)).await;
    drop(reader);
    ask_until(&mut leader, "INFO clients", blocked(0)).await;
    let id = ask(&mut writer, &format!("XADD {key} * n 2")).await;
    let got = ask(&mut writer, &format!("XREADGROUP GROUP g other STREAMS {key} >")).await;
    assert_eq!(got, format!("[[{key}, [[{id}, [n, 2]]]]]"));
}

#[tokio::test]
async fn a_failover_behind_the_plain_port_loses_nothing_that_was_answered() {
    let mut cluster = prepare(3, WITH_PLAIN);
    cluster.start_all().await.expect("ready");
    let key = key_led_by(&cluster, 1).await;
    let mut c = plain(&cluster, 0).await;
    let mut waiting = plain(&cluster, 0).await;
    let far = "99999999999999-0";
    waiting.send(&words(&format!("XREAD BLOCK 0 STREAMS {key} {far}"))).await.expect("sent");
    let mut answered = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    let mut refused = BTreeSet::new();
    let mut longest = Duration::ZERO;
    // Alone and in pipelines: what one of them meets when its leader dies is told for each command.
    for round in 0..100 {
        let together = [1, 8][round % 2];
        let first = answered.len() + unknown.len() + refused.len();
        let began = Instant::now();
        for n in first..first + together {
            c.send(&words(&format!("XADD {key} * n {n}"))).await.expect("sent");
        }
        if round == 31 {
            cluster.kill(1).await.expect("killed");
        }
        for n in first..first + together {
            let reply = show(&timeout(PATIENCE, c.receive()).await.expect("in time").expect("a reply"));
            match reply.as_str() {
                error if error.starts_with("-UNKNOWN") => unknown.insert(n),
                error if error.starts_with("-CLUSTERDOWN") || error.starts_with("-TRYAGAIN") => {
                    refused.insert(n)
                }
                id => {
                    assert!(!id.starts_with('-'), "{id}");
                    answered.insert(n, id.to_owned()).is_none()
                }
            };
        }
        longest = longest.max(began.elapsed());
    }
    println!("longest wait {longest:?}; unknown {unknown:?}, refused {refused:?}");
    assert!(answered.len() > 430 && unknown.len() <= 8, "{} answered", answered.len());
    let Value::Array(stored) = ask_value(&mut c, &format!("XRANGE {key} - +")).await else {
        panic!("no list")
    };
    let stored: Vec<(String, usize)> = stored
        .iter()
        .map(|entry| {
            let Value::Array(parts) = entry else { panic!("{entry:?}") };
            let number = show(&parts[1]);
            (show(&parts[0]), number.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number"))
        })
        .collect();
    assert!(stored.is_sorted_by(|a, b| a.1 < b.1), "out of order, or twice: {stored:?}");
    for (n, id) in &answered {
        assert!(stored.contains(&(id.clone(), *n)), "{n} was answered {id} and is gone");
    }
    for n in &refused {
        assert!(stored.iter().all(|(_, stored)| stored != n), "{n} was refused and is there");
    }
    // The reader that waited at the old leader waits at the new one.
    assert_eq!(ask(&mut c, &format!("XADD {key} 99999999999999-1 n last")).await, "99999999999999-1");
    let got = timeout(Duration::from_secs(10), waiting.receive()).await.expect("woken").expect("a reply");
    assert_eq!(show(&got), format!("[[{key}, [[99999999999999-1, [n, last]]]]]"));
}

#[tokio::test]
async fn users_are_checked_at_the_plain_port_too() {
    let cluster = start(3, WITH_PLAIN).await;
    let key = key_led_by(&cluster, 1).await;
    let mut c = plain(&cluster, 0).await;
    assert_eq!(ask(&mut c, "ACL SETUSER u on nopass ~mine:* +@all").await, "OK");
    assert_eq!(ask(&mut c, "AUTH u x").await, "OK");
    assert_eq!(ask(&mut c, &format!("XADD {key} * a 1")).await, "-NOPERM No permissions to access a key");
    assert!(!ask(&mut c, "XADD mine:1 * a 1").await.starts_with('-'));
}
