//! Power losses in the modes that do not sync each batch: a directory goes back to what it held before.

use std::time::Duration;

use weir_store::Durability;

use super::cluster::{Cluster, PATIENCE, Settings};
use super::list::{ListView, Outcome};
use super::net::Cut;
use crate::RaftTimings;

fn weak() -> Settings {
    let timings = RaftTimings { heartbeat_ms: 50, election_min_ms: 100, election_max_ms: 150 };
    Settings { durability: Durability::Os, timings, ..Settings::default() }
}

/// Proposes until so many items were answered in all.
async fn fill(cluster: &Cluster, leader: u64, from: usize, to: usize) {
    for number in from..to {
        let nonce = cluster.nodes[&leader].propose(format!("item {number}")).await.unwrap();
        let outcome = cluster.nodes[&leader].list.outcome(nonce).await;
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    }
}

async fn wait_restored(cluster: &Cluster) {
    for node in cluster.nodes.values() {
        let mut lost = node.group.tail_lost();
        let restored = tokio::time::timeout(PATIENCE, lost.wait_for(|lost| !*lost)).await;
        assert!(restored.is_ok(), "node {} is not restored: {:?}", node.id, node.status());
    }
}

/// The leader and one follower confirm entries; the follower loses them with its power, the leader stops. The other
/// two are a majority, and none of them has what was answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_lost_answered_entries_elects_nobody() {
    let mut cluster = Cluster::start_with(weak()).await;
    let leader = cluster.leader().await.id;
    let (unlucky, late) = (cluster.others(leader)[0], cluster.others(leader)[1]);
    fill(&cluster, leader, 0, 3).await;
    cluster.wait_items(3).await;
    cluster.net.isolate(late, &[1, 2, 3], Cut::Silence);
    cluster.note_disk(unlucky);
    fill(&cluster, leader, 3, 10).await;

    cluster.lose_power(unlucky).await;
    let list = cluster.stop(leader).await;
    cluster.net.mend();
    cluster.restart(unlucky, ListView::new()).await;
    assert!(*cluster.nodes[&unlucky].group.tail_lost().borrow());
    // Ten of the longest election timeouts, in which any pair of whole replicas elects a leader.
    let end = tokio::time::Instant::now() + 10 * weak().timings.election_max();
    while tokio::time::Instant::now() < end {
        for id in [unlucky, late] {
            assert!(!cluster.nodes[&id].status().is_leader, "node {id} leads without what was answered");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    cluster.restart(leader, list).await;
    cluster.leader().await;
    cluster.wait_items(10).await;
    wait_restored(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_caught_up_votes_again() {
    let mut cluster = Cluster::start_with(weak()).await;
    let leader = cluster.leader().await.id;
    let unlucky = cluster.others(leader)[0];
    cluster.note_disk(unlucky);
    fill(&cluster, leader, 0, 10).await;
    cluster.wait_items(10).await;
    cluster.lose_power(unlucky).await;
    cluster.restart(unlucky, ListView::new()).await;
    wait_restored(&cluster).await;
    cluster.wait_items(10).await;

    let now = cluster.leader().await.id;
    cluster.stop(now).await;
    let survivors = cluster.others(0);
    cluster.leader_among(&survivors).await;
    cluster.wait_items(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_power_loss_of_all_the_longest_log_that_is_left_goes_on() {
    let mut cluster = Cluster::start_with(weak()).await;
    let leader = cluster.leader().await.id;
    for (id, upto) in [(1, 5), (2, 10), (3, 15)] {
        fill(&cluster, leader, upto - 5, upto).await;
        cluster.wait_items(upto).await;
        // What it holds from now on goes.
        cluster.note_disk(id);
    }
    fill(&cluster, leader, 15, 20).await;
    cluster.wait_items(20).await;
    let before = cluster.nodes[&leader].list.items();
    for id in 1..=3 {
        cluster.lose_power(id).await;
    }
    for id in [1, 2] {
        cluster.restart(id, ListView::new()).await;
    }
    let end = tokio::time::Instant::now() + 10 * weak().timings.election_max();
    while tokio::time::Instant::now() < end {
        assert!([1, 2].iter().all(|id| !cluster.nodes[id].status().is_leader), "the third may have more");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cluster.restart(3, ListView::new()).await;
    assert_eq!(cluster.leader().await.id, 3);
    cluster.wait_items(15).await;
    assert_eq!(cluster.nodes[&1].list.items(), before[..15]);
    wait_restored(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_voter_goes_on_with_what_is_left() {
    let mut cluster = Cluster::start_with(Settings { nodes: 1, ..weak() }).await;
    fill(&cluster, 1, 0, 5).await;
    cluster.note_disk(1);
    fill(&cluster, 1, 5, 10).await;
    cluster.lose_power(1).await;
    cluster.restart(1, ListView::new()).await;
    cluster.leader().await;
    cluster.wait_items(5).await;
    wait_restored(&cluster).await;
}

/// In mode `always` no power loss explains it: the follower is sent nothing more, and the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_mode_always_a_follower_that_takes_back_its_word_is_refused() {
    let mut cluster = Cluster::start_with(Settings { durability: Durability::Always, ..weak() }).await;
    let leader = cluster.leader().await.id;
    let unlucky = cluster.others(leader)[0];
    cluster.note_disk(unlucky);
    fill(&cluster, leader, 0, 10).await;
    cluster.wait_items(10).await;
    cluster.lose_power(unlucky).await;
    cluster.restart(unlucky, ListView::new()).await;
    let refused = async {
        while !cluster.nodes[&leader].group.reversions().told(unlucky) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, refused).await.is_ok(), "nobody noticed");
    fill(&cluster, leader, 10, 20).await;
    assert_eq!(cluster.nodes[&unlucky].list.items().len(), 0);
    assert!(cluster.nodes[&leader].status().is_leader);
}
