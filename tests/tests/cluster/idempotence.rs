//! A producer that does not know whether it added something adds it again.

use std::time::Duration;
use weir_tests::client::ClusterClient;
use weir_tests::connection::{show, words};
use weir_tests::testing::{key_led_by, start};

const WITHIN: Duration = Duration::from_secs(20);

async fn insist(client: &mut ClusterClient, key: &str, line: &str) -> String {
    let reply = client.insist(key, &words(&line.replace("KEY", key)), WITHIN).await;
    show(&reply.unwrap_or_else(|error| panic!("{line}: {error}")))
}

#[tokio::test]
async fn a_retry_gets_the_first_id_from_the_next_leader_and_from_restarted_nodes() {
    let mut cluster = start(3, "").await;
    let key = key_led_by(&cluster, 0).await;
    let mut client = ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    insist(&mut client, &key, "XADD KEY * n first").await;
    assert_eq!(insist(&mut client, &key, "XCFGSET KEY IDMP-DURATION 3600 IDMP-MAXSIZE 20").await, "OK");
    let mut first = Vec::new();
    for n in 0..20 {
        first.push(insist(&mut client, &key, &format!("XADD KEY IDMP producer {n} * n {n}")).await);
    }
    let by_content = insist(&mut client, &key, "XADD KEY IDMPAUTO other * a 1 b 2").await;
    let same = async |client: &mut ClusterClient, when: &str| {
        for (n, id) in first.iter().enumerate() {
            let again = insist(client, &key, &format!("XADD KEY IDMP producer {n} * n again")).await;
            assert_eq!(again, *id, "{n}, {when}");
        }
        assert_eq!(insist(client, &key, "XADD KEY IDMPAUTO other * b 2 a 1").await, by_content, "{when}");
        assert_eq!(insist(client, &key, "XLEN KEY").await, "22", "{when}");
    };
    cluster.kill(0).await.expect("killed");
    let others = [cluster.address(1), cluster.address(2)];
    let mut client = ClusterClient::new(&others, Duration::from_secs(6));
    same(&mut client, "at the next leader").await;
    for node in [1, 2] {
        cluster.kill(node).await.expect("killed");
    }
    cluster.start_all().await.expect("the cluster gets ready");
    let mut client = ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    same(&mut client, "after a restart of all").await;
    // The oldest makes room for the next, on every node alike.
    insist(&mut client, &key, "XADD KEY IDMP producer 20 * n 20").await;
    assert_ne!(insist(&mut client, &key, "XADD KEY IDMP producer 0 * n again").await, first[0]);
    assert_eq!(insist(&mut client, &key, "XADD KEY IDMP producer 2 * n again").await, first[2]);
}
