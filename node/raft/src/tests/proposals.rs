use super::cluster::Cluster;
use super::list::Outcome;
use super::net::Cut;
use crate::{Fate, ProposeError};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_proposals_are_applied_in_order_by_all() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let mut nonces = Vec::new();
    for number in 0..1000 {
        nonces.push(leader.propose(format!("item {number}")).await.unwrap());
    }
    cluster.wait_items(1000).await;
    for (number, item) in leader.list.items().iter().enumerate() {
        assert_eq!(*item, format!("item {number}"));
    }
    let mut last = 0;
    for nonce in nonces {
        let Outcome::Done(at) = leader.list.outcome(nonce).await else { panic!("{nonce} was not done") };
        assert!(at.index > last);
        last = at.index;
    }
    // Followers never hear of another process' nonces.
    let follower = cluster.follower().await;
    assert!(follower.list.read(|state| state.outcomes.is_empty()));
    // What a quorum acknowledged is on its disks.
    assert!(leader.group.durable_index() >= last || leader.group.matched().iter().all(|(_, at)| *at >= last));
    assert_eq!(leader.group.metrics().waiting, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_refuses_and_names_the_leader() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await.id;
    let follower = cluster.follower().await;
    let refused = follower.propose("not here").await;
    assert_eq!(refused, Err(ProposeError::NotLeader { leader: Some(leader) }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn matched_tells_of_the_other_voters_alone() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let nonce = leader.propose("x").await.unwrap();
    let Outcome::Done(at) = leader.list.outcome(nonce).await else { panic!("not done") };
    let mut changed = leader.group.matched_changed();
    let all = async {
        while !leader.group.matched().iter().all(|(_, matched)| *matched >= at.index) {
            changed.changed().await.unwrap();
        }
    };
    tokio::time::timeout(super::cluster::PATIENCE, all).await.unwrap();
    let nodes: Vec<u64> = leader.group.matched().iter().map(|(node, _)| *node).collect();
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader.id).collect();
    assert_eq!(nodes, others);
    assert_eq!(cluster.follower().await.group.matched(), []);
}

/// The leader is cut off with batches in its log that nobody else has. The others elect another leader,
/// whose entries take their places: not done, told on the old leader once it hears of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_of_an_isolated_leader_ends_as_not_done() {
    let cluster = Cluster::start().await;
    let old = cluster.leader().await;
    let kept = old.propose("kept").await.unwrap();
    cluster.wait_items(1).await;
    cluster.net.isolate(old.id, &[1, 2, 3], Cut::Reset);
    let mut lost = Vec::new();
    for number in 0..10 {
        match old.propose(format!("lost {number}")).await {
            Ok(nonce) => lost.push(nonce),
            Err(ProposeError::NotLeader { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert!(!lost.is_empty());
    let others: Vec<u64> = (1..=3).filter(|id| *id != old.id).collect();
    let leader = cluster.leader_among(&others).await;
    leader.propose("instead").await.unwrap();
    cluster.net.mend();
    for nonce in lost {
        assert_eq!(old.list.outcome(nonce).await, Outcome::Settled(Fate::NotDone));
    }
    assert!(matches!(old.list.outcome(kept).await, Outcome::Done(_)));
    cluster.wait_items(2).await;
}

/// As above, but the batches had reached a majority before the cut: they are done, and the old leader,
/// now a follower, tells so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_that_outlives_its_leader_is_done() {
    let mut cluster = Cluster::start().await;
    let old = cluster.leader().await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != old.id).collect();
    let mut nonces = Vec::new();
    for number in 0..200 {
        nonces.push(old.propose(format!("item {number}")).await.unwrap());
    }
    // Cut in the middle of the work: each one ends as one of the two, and the log decides which.
    cluster.net.isolate(old.id, &[1, 2, 3], Cut::Reset);
    cluster.leader_among(&others).await;
    cluster.net.mend();
    let old_id = old.id;
    let mut done = 0;
    for nonce in &nonces {
        match old.list.outcome(*nonce).await {
            Outcome::Done(_) => done += 1,
            Outcome::Settled(fate) => assert_eq!(fate, Fate::NotDone),
        }
    }
    cluster.wait_items(done).await;
    // Items carry their number in order; what is done is a prefix.
    for (number, item) in cluster.nodes[&old_id].list.items().iter().enumerate() {
        assert_eq!(*item, format!("item {number}"));
    }
    println!("{done} of 200 were done");
    cluster.stop(old_id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_shuts_down_settles_everything() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await.id;
    let node = &cluster.nodes[&leader];
    let mut nonces = Vec::new();
    for number in 0..300 {
        nonces.push(node.propose(format!("item {number}")).await.unwrap());
    }
    let list = cluster.stop(leader).await;
    let others: Vec<u64> = cluster.nodes.keys().copied().collect();
    let next = cluster.leader_among(&others).await;
    next.propose("last").await.unwrap();
    cluster.nodes[&others[0]]
        .list
        .wait_for("the last item", |state| state.items.last().is_some_and(|item| *item == "last"))
        .await;
    let survived = cluster.nodes[&others[0]].list.items();
    for (number, nonce) in nonces.iter().enumerate() {
        let there = survived.iter().any(|item| *item == format!("item {number}"));
        match list.outcome(*nonce).await {
            Outcome::Done(_) => assert!(there, "item {number} was answered and is lost"),
            Outcome::Settled(Fate::NotDone) => assert!(!there, "item {number} was denied and is there"),
            Outcome::Settled(Fate::Unknown) => {}
        }
    }
}
