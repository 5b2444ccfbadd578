//! WATCH over a change of the leader: what one leader showed, the next one compares.

use std::time::Duration;
use weir_tests::client::ClusterClient;
use weir_tests::connection::{Connection, show, words};
use weir_tests::testing::{ask, connect, key_led_by, script, start};

const WITHIN: Duration = Duration::from_secs(20);

#[tokio::test]
async fn watched_keys_share_a_slot_and_a_watch_ends_with_its_transaction() {
    let cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let mut c = connect(&cluster, 0).await;
    let mut other = connect(&cluster, 0).await;
    script(&mut c, &format!("WATCH {{{key}}}1 {{{key}}}2 => OK")).await;
    let elsewhere = ask(&mut c, "WATCH other").await;
    assert!(elsewhere.starts_with("-CROSSSLOT"), "{elsewhere}");
    assert_eq!(ask(&mut other, &format!("XADD {{{key}}}2 1-1 n 1")).await, "1-1");
    // A transaction without keys depends on what is watched too; the next one on nothing.
    script(&mut c, "MULTI => OK\nPING => QUEUED\nEXEC => nil").await;
    script(&mut c, "MULTI => OK\nPING => QUEUED\nEXEC => [PONG]").await;
    // Pipelined behind each other, EXEC knows what WATCH was answered.
    let key = format!("{{{key}}}2");
    for line in
        [format!("XLEN {key}"), format!("WATCH {key}"), "MULTI".into(), format!("XLEN {key}"), "EXEC".into()]
    {
        c.send(&words(&line)).await.expect("sent");
    }
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(show(&c.receive().await.expect("an answer")));
    }
    assert_eq!(answers, ["1", "OK", "OK", "QUEUED", "[1]"]);
    // A key that is due by its clock is watched as a key that is not there.
    script(&mut c, &format!("PEXPIRE {key} 40 => 1\nWATCH {key} => OK")).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    script(&mut c, &format!("MULTI => OK\nXLEN {key} => QUEUED\nEXEC => nil")).await;
    script(&mut c, &format!("WATCH {key} => OK\nMULTI => OK\nXLEN {key} => QUEUED\nEXEC => [0]")).await;
}

/// Adds one to a counter kept as the last entry of a stream, if nobody else did meanwhile.
async fn count_on(c: &mut Connection, key: &str) -> Result<bool, String> {
    let limit = Duration::from_secs(6);
    let mut call = async |line: String| match c.call(&words(&line), limit).await {
        Ok(reply) if show(&reply).starts_with('-') => Err(show(&reply)),
        Ok(reply) => Ok(show(&reply)),
        Err(error) => Err(error.to_string()),
    };
    call(format!("WATCH {key}")).await?;
    let length: u64 = call(format!("XLEN {key}")).await?.parse().map_err(|_| "a length")?;
    call("MULTI".into()).await?;
    // The id says how long the stream was when it was looked at.
    call(format!("XADD {key} * seen {length}")).await?;
    Ok(call("EXEC".into()).await? != "nil")
}

#[tokio::test]
async fn transactions_that_watch_never_overtake_each_other_also_when_leaders_change() {
    let mut cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let addresses = cluster.addresses();
    let stop = tokio::time::Instant::now() + Duration::from_secs(6);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (addresses, key) = (addresses.clone(), key.clone());
            tokio::spawn(async move {
                let (mut done, mut refused) = (0, 0);
                while tokio::time::Instant::now() < stop {
                    for address in &addresses {
                        let Ok(mut c) = Connection::open(address, Duration::from_secs(1)).await else {
                            continue;
                        };
                        while tokio::time::Instant::now() < stop {
                            match count_on(&mut c, &key).await {
                                Ok(true) => done += 1,
                                Ok(false) => refused += 1,
                                Err(_) => break,
                            }
                        }
                    }
                }
                (done, refused)
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    cluster.kill(0).await.expect("killed");
    let (mut done, mut refused) = (0, 0);
    for client in clients {
        let (client_done, client_refused) = client.await.expect("a client");
        done += client_done;
        refused += client_refused;
    }
    let others = [cluster.address(1), cluster.address(2)];
    let mut client = ClusterClient::new(&others, Duration::from_secs(6));
    let entries = client.insist(&key, &words(&format!("XRANGE {key} - +")), WITHIN).await.expect("entries");
    let weir_resp::Value::Array(entries) = entries else { panic!("{entries:?}") };
    for (at, entry) in entries.iter().enumerate() {
        let entry = show(entry);
        assert!(entry.ends_with(&format!("[seen, {at}]]")), "entry {at}: {entry}");
    }
    assert!(
        entries.len() >= done && done > 10 && refused > 0,
        "{done} done, {refused} refused, {}",
        entries.len()
    );
}
