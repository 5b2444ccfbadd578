use super::cluster::Cluster;
use super::list::Outcome;
use super::net::Cut;
use crate::ReadError;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_point_covers_every_write_answered_before() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    for number in 0..50 {
        let nonce = leader.propose(format!("item {number}")).await.unwrap();
        let Outcome::Done(at) = leader.list.outcome(nonce).await else { panic!("not done") };
        let index = leader.group.read_index().await.unwrap();
        assert!(index >= at.index, "read point {index} below {at:?}");
        leader.group.applied().reached(index).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_share_rounds() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let began = weir_env::time::Instant::now();
    let reads: Vec<_> = (0..1000)
        .map(|_| {
            let group = leader.group.clone();
            tokio::spawn(async move { group.read_index().await })
        })
        .collect();
    for read in reads {
        read.await.unwrap().unwrap();
    }
    println!("1000 reads took {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_gives_no_read_point() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await.id;
    let follower = cluster.follower().await;
    assert_eq!(follower.group.read_index().await, Err(ReadError::NotLeader { leader: Some(leader) }));
}

/// Cut off in silence, a leader still believes to lead; it cannot prove it and gives no read point, before
/// and after the others have moved on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_leader_gives_no_read_point() {
    for how in [Cut::Silence, Cut::Reset] {
        let cluster = Cluster::start().await;
        let old = cluster.leader().await;
        old.group.read_index().await.unwrap();
        cluster.net.isolate(old.id, &[1, 2, 3], how);
        assert!(old.group.read_index().await.is_err());
        let others: Vec<u64> = (1..=3).filter(|id| *id != old.id).collect();
        let leader = cluster.leader_among(&others).await;
        leader.propose("unseen by the old leader").await.unwrap();
        assert!(old.group.read_index().await.is_err());
        assert!(leader.group.read_index().await.is_ok());
    }
}

/// Both followers sit on a sync that does not end. Nothing commits, but the leader still leads: it proves
/// so again and again for much longer than an election timeout, and its reads are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_disk_neither_deposes_the_leader_nor_holds_up_reads() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let before = leader.propose("before").await.unwrap();
    assert!(matches!(leader.list.outcome(before).await, Outcome::Done(_)));
    let term = leader.status().term;
    for id in cluster.others(leader.id) {
        cluster.disks[&id].hold();
    }
    let held = leader.propose("held up").await.unwrap();
    let until = weir_env::time::Instant::now() + 4 * crate::RaftTimings::default().election_max();
    while weir_env::time::Instant::now() < until {
        let index = leader.group.read_index().await.unwrap();
        leader.group.applied().reached(index).await;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(leader.status().quorum_alive);
    assert!(leader.list.read(|state| !state.outcomes.contains_key(&held)), "no majority has it on disk");
    for id in cluster.others(leader.id) {
        cluster.disks[&id].release();
    }
    assert!(matches!(leader.list.outcome(held).await, Outcome::Done(_)));
    assert_eq!(cluster.leader().await.status().term, term);
}

/// Nothing is written, but heartbeats go on: a follower keeps hearing its leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_of_an_idle_leader_keeps_hearing_it() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let nonce = leader.propose("the last").await.unwrap();
    let Outcome::Done(at) = leader.list.outcome(nonce).await else { panic!("not done") };
    cluster.wait_items(1).await;
    // Appends of the write are over by then: the commit index itself comes with them or with a heartbeat.
    tokio::time::sleep(2 * crate::RaftTimings::default().election_max()).await;
    let idle_since = weir_env::time::Instant::now();
    for id in cluster.others(leader.id) {
        let group = &cluster.nodes[&id].group;
        let heard = async {
            while group.leader_contact().is_none_or(|heard| heard.at < idle_since || heard.commit < at.index)
            {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let heard = tokio::time::timeout(super::cluster::PATIENCE, heard).await;
        assert!(heard.is_ok(), "node {id} hears nothing: {:?}", group.leader_contact());
    }
}
