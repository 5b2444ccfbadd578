//! A disk that fills up.

use std::path::Path;

use bytes::Bytes;
use weir_env::OpenMode;

use super::crash::{DIR, options};
use super::fault_disk::FaultDisk;
use crate::spares::Spares;
use crate::suite::{append, entries};
use crate::{Durability, Error, GroupId, LogPosition, SnapshotStore, Wal};

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_appends_but_not_votes_and_cuts_and_recovers_by_purging() {
    for capacity in (40..60).map(|sectors| sectors * 512) {
        let disk = FaultDisk::default();
        disk.limit(Some(capacity));
        let wal = Wal::open(&disk.env(), Path::new(DIR), options(Durability::Always)).await.unwrap();
        let log = wal.group(GroupId(1));
        let mut low = wal.space_low();
        let mut next = 0;
        let refused = loop {
            match append(&log, entries(GroupId(1), 1, next, next, 100)).await.unwrap() {
                Ok(()) => next += 1,
                Err(error) => break error,
            }
            assert!(next < 1000, "the disk fills up");
        };
        assert!(matches!(refused, Error::Full { .. }) && refused.is_full(), "{refused}");
        assert!(*low.borrow_and_update(), "low space is told before or with the refusal");
        assert_eq!(log.state().last, Some(LogPosition::new(1, next - 1)), "a refused append changed nothing");
        for vote in 0..3_u8 {
            log.save_vote(vec![vote].into()).await.unwrap();
        }
        log.truncate_after(Some(next - 3)).await.unwrap();
        assert!(disk.used() <= capacity);

        // A restart has to work too, with what is left.
        wal.close().await.unwrap();
        let wal = Wal::open(&disk.env(), Path::new(DIR), options(Durability::Always)).await.unwrap();
        let log = wal.group(GroupId(1));
        assert_eq!(log.state().vote.as_deref(), Some(&[2][..]));
        assert_eq!(log.read(0..next, usize::MAX).await.unwrap().len() as u64, next - 2);
        let mut low = wal.space_low();
        log.purge(LogPosition::new(1, next - 5)).await.unwrap();
        let mut next = next - 2;
        while append(&log, entries(GroupId(1), 2, next, next, 100)).await.unwrap().is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        for _ in 0..50 {
            next += 1;
            append(&log, entries(GroupId(1), 2, next, next, 100)).await.unwrap().unwrap();
            log.purge(LogPosition::new(2, next - 1)).await.unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        assert!(!*low.borrow_and_update(), "space is back");
        assert!(wal.failed().borrow().is_none());
        wal.close().await.unwrap();
    }
}

/// Space comes back as a dropped segment, while the one file that is ready is being filled.
#[test]
fn a_full_disk_is_forgotten_once_no_file_is_missing() {
    let fault = FaultDisk::default();
    let disk = fault.env().disk;
    let dir = Path::new(DIR);
    disk.create_dir_all(dir).unwrap();
    let options = crate::WalOptions { spare_segments: 2, ..options(Durability::Always) };
    let segment = |name: &str| {
        let path = dir.join(name);
        let mut file = disk.open(&path, OpenMode::CreateNew).unwrap();
        file.allocate(options.segment_bytes).unwrap();
        file.sync_data().unwrap();
        path
    };
    let old = segment("wal-1");
    segment("spare-1");
    let spares = Spares::adopt(&*disk, dir, &["spare-1".to_owned()], &options).unwrap();
    fault.limit(Some(fault.used()));
    spares.run_job(&*disk, dir, &options, false).unwrap();
    assert!(spares.no_space(), "the second file found no room");

    let filling = spares.begin_filling().unwrap();
    spares.recycle(&*disk, dir, &old, options.segment_bytes, &options).unwrap();
    spares.end_filling(filling, options.spare_segments);
    assert_eq!(spares.count(), 2);
    assert!(spares.claim_job(options.spare_segments, false).is_none(), "nothing is missing, so nobody asks");
    assert!(!spares.no_space());
}

#[tokio::test(start_paused = true)]
async fn an_append_that_may_wait_goes_on_when_there_is_room() {
    let disk = FaultDisk::default();
    disk.limit(Some(50 * 512));
    let wal = Wal::open(&disk.env(), Path::new(DIR), options(Durability::Always)).await.unwrap();
    let log = wal.group(GroupId(1));
    let mut next = 0;
    while append(&log, entries(GroupId(1), 1, next, next, 100)).await.unwrap().is_ok() {
        next += 1;
    }
    let (tx, mut rx) = tokio::sync::oneshot::channel();
    let waiting = tokio::spawn({
        let log = log.clone();
        let done = Box::new(move |done| drop(tx.send(done)));
        async move { log.append_when_room(entries(GroupId(1), 1, next, next + 2, 100), done).await }
    });
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    assert!(rx.try_recv().is_err() && !waiting.is_finished());
    log.save_vote("a vote".into()).await.unwrap();
    disk.limit(None);
    let freed = tokio::time::Instant::now();
    waiting.await.unwrap();
    rx.await.unwrap().unwrap();
    // Soon: within an election timeout, or a shard whose majority needs this node is led by nobody.
    assert!(freed.elapsed() <= std::time::Duration::from_millis(400), "{:?}", freed.elapsed());
    assert_eq!(log.synced(), Some(LogPosition::new(1, next + 2)));

    // A log that ends does not keep anybody waiting.
    disk.limit(Some(disk.used()));
    let mut next = next + 3;
    while append(&log, entries(GroupId(1), 1, next, next, 100)).await.unwrap().is_ok() {
        next += 1;
    }
    let (tx, rx) = tokio::sync::oneshot::channel();
    let done = Box::new(move |done| drop(tx.send(done)));
    let waiting = {
        let log = log.clone();
        tokio::spawn(async move { log.append_when_room(entries(GroupId(1), 1, next, next, 100), done).await })
    };
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    wal.close().await.unwrap();
    waiting.await.unwrap();
    assert!(matches!(rx.await.unwrap(), Err(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn low_free_space_is_told_before_anything_is_refused() {
    let disk = FaultDisk::default();
    disk.limit(Some(1 << 20));
    let options = crate::WalOptions { reserve_bytes: 1 << 19, ..options(Durability::Always) };
    let wal = Wal::open(&disk.env(), Path::new(DIR), options).await.unwrap();
    let log = wal.group(GroupId(1));
    let low = wal.space_low();
    let mut next = 0;
    while !*low.borrow() {
        append(&log, entries(GroupId(1), 1, next, next, 1000)).await.unwrap().unwrap();
        next += 1;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(disk.used() < (1 << 19) + 64 * 1024, "{} used", disk.used());
    disk.limit(None);
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!(!*low.borrow(), "and that it is back");
    wal.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_does_not_fit_leaves_the_space_to_others() {
    let disk = FaultDisk::default();
    let store = SnapshotStore::open(&disk.env(), Path::new(DIR)).await.unwrap();
    let at = LogPosition::new(1, 5);
    // Too large at the first bytes, in the middle, and at the end.
    for capacity in [10, 1 << 20, (2 << 20) + 60] {
        for receiving in [false, true] {
            disk.limit(Some(capacity));
            let written = async {
                let mut writer = match receiving {
                    true => store.receive(at, Bytes::new()).await?,
                    false => store.take(at, Bytes::new()).await?,
                };
                for _ in 0..20 {
                    writer.push(&[7; 100 << 10]).await?;
                }
                writer.push(&[7; 48 << 10]).await?;
                writer.finish().await
            };
            let refused = written.await.expect_err("it does not fit");
            assert!(refused.is_full(), "{refused}");
            assert_eq!(disk.used(), 0, "of {capacity}, receiving: {receiving}");
        }
    }
    disk.limit(None);
    let mut writer = store.receive(at, Bytes::new()).await.unwrap();
    writer.push(&[7; 1000]).await.unwrap();
    writer.seal().await.unwrap();
    // A sealed one needs no more space, and if it is dropped it can be gone on with.
    disk.limit(Some(disk.used()));
    drop(writer);
    let writer = store.receive(at, Bytes::new()).await.unwrap();
    assert_eq!(writer.bytes(), 1000);
    writer.finish().await.unwrap();
    store.verify(at).await.unwrap();
}

/// One that was taken and one that was received end at once, with an older one standing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_snapshots_may_be_finished_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = SnapshotStore::open(&weir_env::Env::system(), dir.path()).await.unwrap();
    for round in 0..200 {
        let taken = store.take(LogPosition::new(1, 2 * round), Bytes::new()).await.unwrap();
        let newest = LogPosition::new(1, 2 * round + 1);
        let received = store.receive(newest, Bytes::new()).await.unwrap();
        let (taken, received) = (tokio::spawn(taken.finish()), tokio::spawn(received.finish()));
        taken.await.unwrap().unwrap();
        received.await.unwrap().unwrap();
        assert_eq!(store.list().await.unwrap().iter().map(|info| info.at).collect::<Vec<_>>(), [newest]);
    }
}
