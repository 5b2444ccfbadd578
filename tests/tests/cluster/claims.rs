//! A reader that waits for pending entries to grow old enough, and what was given back.

use std::time::Duration;
use weir_tests::client::ClusterClient;
use weir_tests::connection::{show, words};
use weir_tests::testing::{ask, ask_until, connect, key_led_by, start};

const WITHIN: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_waiting_reader_takes_over_what_has_grown_old_also_at_the_next_leader() {
    let mut cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let mut c = connect(&cluster, 0).await;
    assert_eq!(ask(&mut c, &format!("XGROUP CREATE {key} g 0 MKSTREAM")).await, "OK");
    for n in 1..=2 {
        assert_eq!(ask(&mut c, &format!("XADD {key} {n}-0 n {n}")).await, format!("{n}-0"));
        ask(&mut c, &format!("XREADGROUP GROUP g a STREAMS {key} >")).await;
    }
    // A reader without CLAIM sleeps through what one with it is woken for.
    let mut plain = connect(&cluster, 0).await;
    plain.send(&words(&format!("XREADGROUP GROUP g p BLOCK 0 STREAMS {key} >"))).await.expect("sent");
    let mut waiting = connect(&cluster, 0).await;
    let claim = words(&format!("XREADGROUP GROUP g b BLOCK 0 CLAIM 5000 COUNT 1 STREAMS {key} >"));
    waiting.send(&claim).await.expect("sent");
    ask_until(&mut c, "INFO clients", |info| info.contains("blocked_clients:2")).await;
    assert_eq!(ask(&mut c, &format!("XNACK {key} g FAIL IDS 1 2-0")).await, "1");
    let woken = tokio::time::timeout(WITHIN, waiting.receive()).await.expect("in time").expect("an answer");
    // What was given back counts as delivered at the beginning of time: it has been idle since 1970.
    let woken = show(&woken);
    let idle_ms = woken
        .strip_prefix(&format!("[[{key}, [[2-0, [n, 2], "))
        .and_then(|rest| rest.strip_suffix(", 1]]]]"))
        .and_then(|idle| idle.parse::<u64>().ok());
    assert!(idle_ms.is_some_and(|idle_ms| idle_ms > 1_700_000_000_000), "{woken}");
    // 1-0 is not old enough yet, or only just; its reader waits over the change of the leader.
    waiting.send(&claim).await.expect("sent");
    cluster.kill(0).await.expect("killed");
    let others = [cluster.address(1), cluster.address(2)];
    let mut client = ClusterClient::new(&others, Duration::from_secs(6));
    let reply = client.insist(&key, &claim, WITHIN).await.expect("an answer");
    let reply = show(&reply);
    assert!(reply.starts_with(&format!("[[{key}, [[1-0, [n, 1], ")) && reply.ends_with(", 1]]]]"), "{reply}");
    let rows =
        client.insist(&key, &words(&format!("XPENDING {key} g - + 10 b")), WITHIN).await.expect("rows");
    let rows = show(&rows);
    assert!(rows.contains("[1-0, b, ") && rows.contains("[2-0, b, "), "{rows}");
}
