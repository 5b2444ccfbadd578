use bytes::Bytes;
use weir_store::{LogPosition, SnapshotStore};

use super::cluster::{Cluster, GROUP, Settings};
use super::list::Outcome;
use super::net::Cut;
use crate::snapshot_file::{Label, Origin, SnapshotFile};
use crate::snapshot_transfer;
use crate::types::{SnapshotMeta, Vote};

fn small_log() -> Settings {
    Settings { snapshot_log_bytes: 64 << 10, ..Settings::default() }
}

async fn fill(cluster: &Cluster, on: u64, count: usize, bytes: usize) {
    let mut last = 0;
    for number in 0..count {
        let payload = format!("{number:0>bytes$}");
        last = cluster.nodes[&on].propose(payload).await.unwrap();
    }
    assert!(matches!(cluster.nodes[&on].list.outcome(last).await, Outcome::Done(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_purged_by_bytes_and_a_restart_reads_snapshot_and_tail() {
    let mut cluster = Cluster::start_with(small_log()).await;
    let leader = cluster.leader().await.id;
    fill(&cluster, leader, 300, 1000).await;
    cluster.wait_items(300).await;
    for node in cluster.nodes.values() {
        node.wait_status("a snapshot", |status| status.snapshot > 0).await;
        node.wait_purged().await;
    }
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
    cluster.wait_items(301).await;
    assert_eq!(cluster.nodes[&1].list.items()[..300], before);
    for node in cluster.nodes.values() {
        assert_eq!(node.list.read(|state| state.restores), 1, "node {} began with its snapshot", node.id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_lags_too_far_gets_a_snapshot() {
    let mut cluster = Cluster::start_with(small_log()).await;
    let lagging = cluster.follower().await.id;
    let list = cluster.stop(lagging).await;
    let leader = cluster.leader_among(&cluster.nodes.keys().copied().collect::<Vec<_>>()).await.id;
    fill(&cluster, leader, 300, 1000).await;
    cluster.nodes[&leader].wait_purged().await;
    cluster.restart(lagging, list).await;
    cluster.wait_items(300).await;
    assert_eq!(cluster.nodes[&lagging].list.read(|state| state.restores), 1);
    // It goes on with the log from there.
    fill(&cluster, leader, 10, 10).await;
    cluster.wait_items(310).await;
}

/// The connection breaks in the middle of a transfer; the follower keeps the chunks it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_transfer_goes_on_where_it_stopped() {
    let settings = Settings { snapshot_log_bytes: 2 << 20, ..Settings::default() };
    let mut cluster = Cluster::start_with(settings).await;
    let lagging = cluster.follower().await.id;
    let list = cluster.stop(lagging).await;
    let leader = cluster.leader_among(&cluster.nodes.keys().copied().collect::<Vec<_>>()).await.id;
    fill(&cluster, leader, 600, 10_000).await;
    cluster.nodes[&leader].wait_purged().await;
    let whole = cluster.nodes[&leader].list.items().iter().map(|item| item.len() as u64 + 4).sum::<u64>();
    cluster.net.break_after(leader, 4 << 20);
    cluster.restart(lagging, list).await;
    cluster.wait_items(600).await;
    let after = cluster.net.bytes_after_break().expect("the transfer was cut once");
    // Beside the rest of the snapshot up to 2 MiB of log follow it.
    assert!(after < whole - (1 << 20), "{after} bytes after the break: {whole} were sent again");
    assert_eq!(cluster.nodes[&lagging].list.read(|state| state.restores), 1);
}

/// What the isolated leader proposed lies inside the snapshot it is sent: nobody can tell any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_inside_an_installed_snapshot_is_never_called_done() {
    let cluster = Cluster::start_with(small_log()).await;
    let old = cluster.leader().await;
    cluster.net.isolate(old.id, &[1, 2, 3], Cut::Reset);
    let Ok(nonce) = old.propose("lost").await else { panic!("refused at once") };
    let others: Vec<u64> = (1..=3).filter(|id| *id != old.id).collect();
    let leader = cluster.leader_among(&others).await.id;
    fill(&cluster, leader, 300, 1000).await;
    cluster.nodes[&leader].wait_purged().await;
    cluster.net.mend();
    let outcome = old.list.outcome(nonce).await;
    assert!(matches!(outcome, Outcome::Settled(_)), "{outcome:?}");
    cluster.wait_items(300).await;
}

/// A sender of an old term is refused. Its snapshot must not count on disk either: after a crash it would
/// meet a log that was never cut to fit it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_snapshot_leaves_nothing_that_counts() {
    let cluster = Cluster::start().await;
    let to = cluster.leader().await.id;
    let from = cluster.follower().await;
    let env = cluster.env(from.id);
    let aside = SnapshotStore::open(&env, &cluster.dir(from.id).join("aside")).await.unwrap();
    let last = crate::types::log_id(LogPosition::new(1, 50));
    let meta = SnapshotMeta { last_log_id: Some(last), ..SnapshotMeta::default() };
    let label = Label { meta, origin: Origin { node: from.id, draw: 7 } };
    let mut writing = SnapshotFile::take(&aside, label).await.unwrap();
    writing.push(&Bytes::from_static(b"whatever")).await.unwrap();
    let file = writing.finish().await.unwrap();
    let old = Vote::new_committed(0, from.id);
    let response = snapshot_transfer::send(&from.peers, GROUP, to, old, file).await.unwrap();
    assert!(response.vote > old);
    let store = SnapshotStore::open(&env, &cluster.dir(to).join("snapshots")).await.unwrap();
    assert_eq!(store.latest().await.unwrap(), None);
    cluster.leader().await.propose("goes on").await.unwrap();
    cluster.wait_items(1).await;
}

/// No snapshot stands yet and none fits: the group goes on with its whole log, tries now and then, and takes one when
/// there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_snapshot_that_does_not_fit_stops_nobody() {
    let cluster = Cluster::start_with(small_log()).await;
    for disk in cluster.disks.values() {
        disk.refuse_snapshots(true);
    }
    let leader = cluster.leader().await.id;
    fill(&cluster, leader, 300, 1000).await;
    cluster.wait_items(300).await;
    for node in cluster.nodes.values() {
        node.group.trigger_snapshot().await;
        let failed = async {
            while cluster.disks[&node.id].takes() == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(super::cluster::PATIENCE, failed).await.expect("an attempt");
        let takes = cluster.disks[&node.id].takes();
        assert!(takes <= 300 * 1100 / (64 << 10) + 1, "node {} tried {takes} times", node.id);
    }
    for disk in cluster.disks.values() {
        disk.refuse_snapshots(false);
    }
    fill(&cluster, leader, 100, 1000).await;
    cluster.wait_items(400).await;
    for node in cluster.nodes.values() {
        let status = node.wait_status("a snapshot", |status| status.snapshot > 0).await;
        assert_eq!(status.stopped, None);
        node.wait_purged().await;
    }
}
