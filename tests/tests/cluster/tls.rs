//! TLS between clients and nodes and among nodes, with certificates that fit and with those that do not. Whatever is
//! wrong, the client's error says so within its deadline.

use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use weir_client::{Client, EntryId, Error, Options, Tls, TlsReason};
use weir_tests::certificates::{Authority, Good};
use weir_tests::process::Signal;
use weir_tests::testing::{TestCluster, ask, ask_until, connect, prepare};

const HERE: &str = "127.0.0.1";

/// Arguments of nodes that show `dir/node.crt`.
fn arguments(dir: &Path, more: &str) -> String {
    let dir = dir.display();
    format!(
        "--tls-port {{tls-port}} --tls-cert-file {dir}/node.crt --tls-key-file {dir}/node.key --tls-ca-cert-file \
         {dir}/ca.crt {more}"
    )
}

fn tls_addresses(cluster: &TestCluster) -> Vec<String> {
    (0..cluster.len()).map(|node| format!("{HERE}:{}", cluster.tls_port(node))).collect()
}

async fn dial(addresses: &[String], tls: Option<Tls>) -> Result<Client, Error> {
    let options = Options::default().timeout(Duration::from_secs(8));
    let options = match tls {
        Some(tls) => options.tls(tls),
        None => options,
    };
    let began = Instant::now();
    let client = Client::connect_with(addresses.iter().cloned(), options).await;
    assert!(began.elapsed() < Duration::from_secs(9), "took {:?}", began.elapsed());
    client
}

fn why(result: Result<Client, Error>) -> TlsReason {
    match result {
        Err(Error::Tls { error, .. }) => error.reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_whole_cluster_over_tls_tells_tls_clients_tls_ports_also_after_a_failover() {
    let files = tempfile::tempdir().expect("a directory");
    let authority = Authority::new();
    let ca = authority.write(files.path(), "ca");
    authority.sign(files.path(), "node", &[HERE], Good::Now);
    let more = "--tls-auth-clients no --tls-cluster";
    let mut cluster = prepare(3, &arguments(files.path(), more));
    cluster.start_all().await.expect("ready");
    let mut addresses = tls_addresses(&cluster);
    let client = dial(&addresses[..1], Some(Tls::trusting(&ca))).await.expect("let in");
    for n in 0..30 {
        client.xadd(format!("k{n}")).field("n", n.to_string()).await.expect("added");
    }
    let mut known = client.nodes();
    known.sort();
    addresses.sort();
    assert_eq!(known, addresses, "no plain port is told");

    let mut plain = connect(&cluster, 0).await;
    let shards = ask(&mut plain, "CLUSTER SHARDS").await;
    assert!(shards.contains(&format!("tls-port, {}", cluster.tls_port(0))), "{shards}");
    assert!(shards.contains(&format!("port, {}", cluster.port(0))), "{shards}");
    let nodes = ask(&mut plain, "CLUSTER NODES").await;
    assert!(nodes.contains(&cluster.address(1)) && !nodes.contains(&addresses[1]), "{nodes}");

    cluster.kill(1).await.expect("killed");
    for n in 0..30 {
        client.xadd(format!("k{n}")).field("n", "again").await.expect("added after a failover");
    }
    // Large values need more than one TLS record and several writes.
    let large = "x".repeat(3 << 20);
    client.xadd("large").field("v", large.clone()).await.expect("added");
    let entries = client.xrange("large", EntryId::MIN, EntryId::MAX).await.expect("read");
    assert_eq!(entries[0].get_str("v"), Some(large.as_str()));
}

#[tokio::test]
async fn wrong_expired_and_missing_certificates_are_typed_errors_within_the_deadline() {
    let files = tempfile::tempdir().expect("a directory");
    let dir = files.path();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let ca = ours.write(dir, "ca");
    let their_ca = theirs.write(dir, "theirs");
    ours.sign(dir, "node", &[HERE], Good::Now);
    let mut cluster = prepare(1, &arguments(dir, "--tls-auth-clients yes"));
    cluster.start_all().await.expect("ready");
    let addresses = tls_addresses(&cluster);
    let app = ours.sign(dir, "app", &["app"], Good::Now);
    let good = Tls::trusting(&ca).certificate(&app.cert, &app.key);
    dial(&addresses, Some(good.clone())).await.expect("let in");
    let old = ours.sign(dir, "old", &["app"], Good::Past);
    let foreign = theirs.sign(dir, "foreign", &["app"], Good::Now);
    for (tls, reason) in [
        (Tls::trusting(&ca), TlsReason::Refused),
        (Tls::trusting(&ca).certificate(&old.cert, &old.key), TlsReason::Refused),
        (Tls::trusting(&ca).certificate(&foreign.cert, &foreign.key), TlsReason::Refused),
        (Tls::trusting(&their_ca).certificate(&app.cert, &app.key), TlsReason::UntrustedCertificate),
        (good.clone().server_name("elsewhere"), TlsReason::WrongName),
        (Tls::trusting(dir.join("missing.crt")), TlsReason::Files),
        (Tls::trusting(&app.key), TlsReason::Files),
    ] {
        assert_eq!(why(dial(&addresses, Some(tls.clone())).await), reason, "{tls:?}");
    }
    // To the wrong port, both ways.
    assert_eq!(why(dial(&cluster.addresses(), Some(good.clone())).await), TlsReason::NotTls);
    assert_eq!(why(dial(&addresses, None).await), TlsReason::NotTls);

    // A server whose certificate has expired, noticed without a restart; and back.
    ours.sign(dir, "node", &[HERE], Good::Past);
    cluster.process(0).expect("runs").signal(Signal::HangUp).expect("told");
    let expired = async { while why(dial(&addresses, Some(good.clone())).await) != TlsReason::Expired {} };
    let until_expired = async {
        while dial(&addresses, Some(good.clone())).await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
        expired.await;
    };
    timeout(Duration::from_secs(10), until_expired).await.expect("the new certificate is shown");
    dial(&addresses, Some(Tls::insecure().certificate(&app.cert, &app.key))).await.expect("not looked at");
    ours.sign(dir, "node", &[HERE], Good::Now);
    // Noticed by itself.
    let until_good = async {
        while dial(&addresses, Some(good.clone())).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(10), until_good).await.expect("the new certificate is shown");
}

#[tokio::test]
async fn a_node_whose_certificate_does_not_fit_is_no_member_until_it_does() {
    let files = tempfile::tempdir().expect("a directory");
    let dir = files.path();
    let (ours, theirs) = (Authority::new(), Authority::new());
    ours.write(dir, "ca");
    let place = dir.display();
    let mut cluster = prepare(
        3,
        &format!(
            "--tls-cluster --tls-cert-file {place}/{{port}}.crt --tls-key-file {place}/{{port}}.key \
             --tls-ca-cert-file {place}/ca.crt"
        ),
    );
    let own = |cluster: &TestCluster, node: usize| cluster.port(node).to_string();
    for node in 0..3 {
        ours.sign(dir, &own(&cluster, node), &[HERE], Good::Now);
    }
    cluster.start_all().await.expect("ready");
    let last = own(&cluster, 2);
    let mut c = connect(&cluster, 0).await;
    let alone = |nodes: &str| nodes.contains("fail");
    for round in 0..3 {
        cluster.kill(2).await.expect("killed");
        match round {
            0 => ours.sign(dir, &last, &[HERE], Good::Past),
            1 => theirs.sign(dir, &last, &[HERE], Good::Now),
            // A client's certificate, by the same authority.
            _ => ours.sign(dir, &last, &["app"], Good::Now),
        };
        cluster.spawn(2).expect("started");
        ask_until(&mut c, "CLUSTER NODES", alone).await;
        // Longer than an election, and than some announcements.
        let stays_out = async {
            loop {
                let nodes = ask(&mut c, "CLUSTER NODES").await;
                assert!(alone(&nodes), "round {round}: {nodes}");
                sleep(Duration::from_millis(50)).await;
            }
        };
        let _ = timeout(Duration::from_millis(1500), stays_out).await;

        ours.sign(dir, &last, &[HERE], Good::Now);
        cluster.process(2).expect("runs").signal(Signal::HangUp).expect("told");
        cluster.wait_ready(2).await.expect("a member again without a restart");
        let mut c = connect(&cluster, 0).await;
        ask_until(&mut c, "CLUSTER NODES", |nodes| !alone(nodes)).await;
    }
}

#[tokio::test]
async fn files_that_do_not_fit_keep_a_node_from_starting_with_one_line() {
    let files = tempfile::tempdir().expect("a directory");
    let dir = files.path();
    let authority = Authority::new();
    authority.write(dir, "ca");
    authority.sign(dir, "node", &[HERE], Good::Now);
    for (break_it, told) in [
        ("ca.crt", "ca.crt cannot be read"),
        ("node.key", "node.key cannot be read"),
        ("node.crt", "node.crt cannot be read"),
    ] {
        let away = dir.join("away");
        std::fs::rename(dir.join(break_it), &away).expect("moved");
        let mut cluster = prepare(1, &arguments(dir, ""));
        cluster.spawn(0).expect("started");
        let process = cluster.process(0).expect("started");
        let status = process.wait_exit(Duration::from_secs(10)).await.expect("it ends");
        assert!(!status.success());
        let output = process.output();
        assert!(output.contains("weir: TLS: ") && output.contains(told), "{output}");
        std::fs::rename(&away, dir.join(break_it)).expect("moved back");
    }
}
