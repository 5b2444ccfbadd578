use std::time::Duration;

use bytes::Bytes;

use super::cluster::{CLUSTER, Cluster, GROUP};
use crate::peers::method;
use crate::{Error, PeerIdentity, Peers};

const SHORT: Duration = Duration::from_secs(5);

/// A caller beside the cluster that claims what it is told to claim.
fn stranger(cluster: &Cluster, me: u64, cluster_id: &str, node_hex: String) -> Peers {
    let peers = Peers::new(cluster.env(me), me, PeerIdentity { cluster_id: cluster_id.to_owned(), node_hex });
    for id in 1..=3 {
        peers.set_addr(id, cluster.addr(id));
    }
    peers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_reaches_the_handler_and_its_answer_comes_back() {
    let cluster = Cluster::start().await;
    let answer = cluster.nodes[&1].peers.call(2, 7, Bytes::from_static(b"hello"), SHORT).await.unwrap();
    assert_eq!(answer, "true 1 7 hello");
    let error = cluster.nodes[&1].peers.call(2, 0, Bytes::new(), SHORT).await.unwrap_err();
    assert_eq!(error.to_string(), "peer 2 answered: kind 0 means nothing");
    let answer = cluster.nodes[&1].peers.call_addr(&cluster.addr(3), 9, Bytes::new(), SHORT).await.unwrap();
    assert_eq!(answer, "false 1 9 ", "a caller that names no receiver is not verified");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_is_refused() {
    let cluster = Cluster::start().await;
    let foreign = stranger(&cluster, 2, "beef", format!("{:040x}", 2));
    let error = foreign.call(1, 7, Bytes::new(), SHORT).await.unwrap_err();
    assert_eq!(error.to_string(), "peer 1 refused the call: this is cluster c0ffee, not beef");
    let vote = foreign.group_call(1, GROUP, method::VOTE, Bytes::new(), SHORT).await.unwrap_err();
    assert!(matches!(vote, Error::Refused { .. }), "{vote}");
    let stream = foreign.append_stream(1, GROUP, method::APPEND, futures_util::stream::empty(), SHORT).await;
    let stream = stream.unwrap_err();
    assert!(matches!(stream, Error::Refused { .. }), "{stream}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_for_another_node_is_refused() {
    let cluster = Cluster::start().await;
    let peers = stranger(&cluster, 2, CLUSTER, format!("{:040x}", 2));
    peers.set_addr(3, cluster.addr(1));
    let error = peers.call(3, 7, Bytes::new(), SHORT).await.unwrap_err();
    assert_eq!(error.to_string(), "peer 3 refused the call: this is node 1, not 3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_node_under_its_old_number_is_refused() {
    let cluster = Cluster::start().await;
    let wiped = stranger(&cluster, 2, CLUSTER, "f".repeat(40));
    let error = wiped.group_call(1, GROUP, method::VOTE, Bytes::new(), SHORT).await.unwrap_err();
    assert_eq!(error.to_string(), "peer 1 refused the call: the caller is not the node 2 of this cluster");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_not_there_is_named() {
    let cluster = Cluster::start().await;
    let peers = &cluster.nodes[&1].peers;
    let error =
        peers.group_call(2, weir_store::GroupId(9), method::VOTE, Bytes::new(), SHORT).await.unwrap_err();
    assert_eq!(error, Error::NoGroup { peer: "2".to_owned(), group: 9 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_address_is_told_in_a_moment_and_got_nothing() {
    let cluster = Cluster::start().await;
    let error = cluster.nodes[&1].peers.call_addr("127.0.0.1:1", 1, Bytes::new(), SHORT).await.unwrap_err();
    assert!(matches!(error, Error::NotConnected { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    let unknown = cluster.nodes[&1].peers.call(8, 1, Bytes::new(), SHORT).await.unwrap_err();
    assert_eq!(unknown, Error::NoAddress(8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_call_that_cannot_have_left_is_told_not_connected() {
    let cluster = Cluster::start().await;
    let listener = weir_env::Env::system().net.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let peers = stranger(&cluster, 9, CLUSTER, format!("{:040x}", 9));
    peers.set_addr(1, listener.local_addr().unwrap().to_string());
    // Breaks each connection once all of a request may have been read. A call that still finds the one before makes none.
    let silent = async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.windows(7).any(|bytes| bytes == b"payload")
                && tokio::io::AsyncReadExt::read_buf(&mut stream, &mut seen).await.is_ok_and(|n| n > 0)
            {
            }
        }
    };
    let calls = async {
        for _ in 0..3 {
            let error = peers.call_work(1, 7, Bytes::from_static(b"payload"), SHORT).await.unwrap_err();
            assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        }
    };
    tokio::select! {
        () = silent => {}
        () = calls => {}
    }
    // The first may still find a connection that has just broken.
    let _ = peers.call_work(1, 7, Bytes::from_static(b"payload"), SHORT).await.unwrap_err();
    for _ in 0..3 {
        let error = peers.call_work(1, 7, Bytes::from_static(b"payload"), SHORT).await.unwrap_err();
        assert!(matches!(error, Error::NotConnected { .. }), "{error:?}");
    }
}
