use std::collections::BTreeMap;
use std::time::Duration;

use weir_env::time::Instant;

use super::cluster::{Cluster, PATIENCE, Settings};
use super::list::Outcome;
use super::net::Cut;
use crate::{Error, RaftTimings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_elect_one_leader_and_agree_on_it() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    assert_eq!(leader.status().voters, [1, 2, 3]);
    for node in cluster.nodes.values() {
        assert_eq!(node.status().is_leader, node.id == leader.id);
        assert_eq!(node.status().leader, Some(leader.id));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn initializing_again_changes_nothing() {
    let cluster = Cluster::start().await;
    let term = cluster.leader().await.status().term;
    for node in cluster.nodes.values() {
        let members = (1..=3).map(|id| (id, cluster.addr(id))).collect::<BTreeMap<_, _>>();
        node.group.initialize(members).await.unwrap();
    }
    assert_eq!(cluster.leader().await.status().term, term);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_voter_leads_and_commits() {
    let cluster = Cluster::start_with(Settings { nodes: 1, ..Settings::default() }).await;
    let leader = cluster.leader().await;
    let nonce = leader.propose("alone").await.unwrap();
    assert!(matches!(leader.list.outcome(nonce).await, Outcome::Done(_)));
    assert!(leader.group.read_index().await.is_ok());
    assert!(leader.status().quorum_alive);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_leader_is_replaced_in_time() {
    let mut cluster = Cluster::start().await;
    let old = cluster.leader().await.id;
    let began = Instant::now();
    cluster.stop(old).await;
    let survivors: Vec<u64> = cluster.nodes.keys().copied().collect();
    let leader = cluster.leader_among(&survivors).await;
    let gap = began.elapsed();
    assert_ne!(leader.id, old);
    let nonce = leader.propose("after").await.unwrap();
    assert!(matches!(leader.list.outcome(nonce).await, Outcome::Done(_)));
    // The bound with default timings is 1.5 s; a busy machine gets some room.
    assert!(gap < Duration::from_secs(5), "took {gap:?}");
    println!("failover took {gap:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_restart_from_disk_with_the_same_state() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    for number in 0..50 {
        leader.propose(format!("item {number}")).await.unwrap();
    }
    cluster.wait_items(50).await;
    let before = cluster.nodes[&1].list.items();
    let mut lists = Vec::new();
    for id in 1..=3 {
        lists.push((id, cluster.stop(id).await));
    }
    for (id, list) in lists {
        cluster.restart(id, list).await;
    }
    let leader = cluster.leader().await;
    leader.propose("after").await.unwrap();
    cluster.wait_items(51).await;
    assert_eq!(cluster.nodes[&1].list.items()[..50], before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_moves_to_the_node_that_was_named() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let to = cluster.follower().await.id;
    let began = Instant::now();
    leader.group.transfer_leader(to).await.unwrap();
    println!("handover took {:?}", began.elapsed());
    assert_eq!(cluster.leader().await.id, to);
    let nonce = cluster.nodes[&to].propose("there").await.unwrap();
    assert!(matches!(cluster.nodes[&to].list.outcome(nonce).await, Outcome::Done(_)));
    assert_eq!(leader.group.transfer_leader(9).await, Err(Error::NotLeader { leader: Some(to) }));
    let error = cluster.nodes[&to].group.transfer_leader(9).await.unwrap_err();
    assert_eq!(error.to_string(), "node 9 is not a voter");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_quorum_says_so_and_the_others_go_on() {
    let cluster = Cluster::start().await;
    let old = cluster.leader().await;
    cluster.net.isolate(old.id, &[1, 2, 3], Cut::Silence);
    old.wait_status("a lost quorum", |status| !status.quorum_alive).await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != old.id).collect();
    let leader = cluster.leader_among(&others).await;
    leader.propose("without it").await.unwrap();
    cluster.net.mend();
    cluster.wait_items(1).await;
    // The old leader comes back as a follower without having raised the term.
    let term = leader.status().term;
    old.wait_status("the new leader", |status| status.leader == Some(leader.id)).await;
    assert_eq!(leader.status().term, term);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_follower_does_not_disturb_the_leader() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let term = leader.status().term;
    let follower = cluster.follower().await;
    cluster.net.isolate(follower.id, &[1, 2, 3], Cut::Reset);
    // Long enough for several elections on its own, each of which ends in the pre-vote.
    follower.wait_status("no leader", |status| status.leader.is_none() || status.term == term).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(follower.status().term, term);
    cluster.net.mend();
    leader.propose("together").await.unwrap();
    cluster.wait_items(1).await;
    assert_eq!(leader.status().term, term);
    assert!(leader.status().is_leader);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_log_stops_the_group_and_is_visible() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    leader.wal.close().await.unwrap();
    let nonce = leader.propose("nowhere to go").await.unwrap();
    leader.wait_status("the end", |status| status.stopped.is_some()).await;
    assert!(matches!(leader.list.outcome(nonce).await, Outcome::Settled(_)));
    assert!(leader.propose("too late").await.is_err());
    assert!(tokio::time::timeout(PATIENCE, leader.group.read_index()).await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_entry_does_not_hold_up_heartbeats() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let term = leader.status().term;
    cluster.net.stall_large(leader.id, true);
    let nonce = leader.propose(vec![7; 10 << 20]).await.unwrap();
    let mut status = leader.group.status();
    let lost = status.wait_for(|status| !status.quorum_alive || !status.is_leader);
    let ten_timeouts = 10 * RaftTimings::default().election_max();
    assert!(tokio::time::timeout(ten_timeouts, lost).await.is_err(), "it lost its majority");
    cluster.net.stall_large(leader.id, false);
    assert!(matches!(leader.list.outcome(nonce).await, Outcome::Done(_)));
    assert_eq!(leader.status().term, term);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_holds_a_replica_up_until_there_is_room() {
    let cluster = Cluster::start().await;
    let full = cluster.leader().await.id;
    cluster.disks[&full].fill(true);
    // It has up to three segments of 1 MiB left.
    let mut count = 0;
    let held_up = async {
        let node = &cluster.nodes[&full];
        while node.status().quorum_alive && node.propose(vec![7; 100_000]).await.is_ok() {
            count += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, held_up).await.expect("the disk fills up");
    assert!(count > 5, "{count}");
    let others = cluster.others(full);
    let leader = cluster.leader_among(&others).await;
    let nonce = leader.propose("meanwhile").await.unwrap();
    assert!(matches!(leader.list.outcome(nonce).await, Outcome::Done(_)));
    assert_eq!(cluster.nodes[&full].status().stopped, None);

    cluster.disks[&full].fill(false);
    let items = leader.list.items().len();
    cluster.wait_items(items).await;
    assert_eq!(cluster.nodes[&full].status().stopped, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_joins_and_becomes_a_voter() {
    let mut cluster = Cluster::start_with(Settings { nodes: 2, ..Settings::default() }).await;
    let third = cluster.add_node().await;
    let leader = cluster.leader_among(&[1, 2]).await;
    leader.propose("before").await.unwrap();
    leader.group.add_learner(third, cluster.addr(third)).await.unwrap();
    cluster.wait_items(1).await;
    assert_eq!(leader.status().learners, [third]);
    leader.group.change_voters([1, 2, third].into(), false).await.unwrap();
    leader.propose("after").await.unwrap();
    cluster.wait_items(2).await;
    leader.wait_status("three voters", |status| status.voters == [1, 2, third]).await;
}
