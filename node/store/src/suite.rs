//! What every disk under a [`Wal`] and a [`SnapshotStore`] has to give: the same checks run on the real disk and on
//! simulated ones. Each check gets an empty directory and panics with what is wrong.

use std::path::Path;

use bytes::Bytes;
use tokio::sync::oneshot;
use weir_env::{Env, OpenMode, time};

use crate::record::{HeaderRead, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::{Error, GroupId, GroupLog, LogEntry, LogPosition, LogState, SnapshotStore, Wal, WalOptions};

/// Segments so small that a few entries fill one.
const SEGMENT_BYTES: u64 = 4096;

/// Runs all checks below `dir`, each in a directory of its own.
pub async fn run(env: &Env, dir: &Path) {
    entries_are_there_at_once_and_after_reopening(env, &dir.join("entries")).await;
    cuts_and_purges_are_there_after_reopening(env, &dir.join("cuts")).await;
    an_installed_snapshot_restarts_the_log_behind_it(env, &dir.join("install")).await;
    votes_and_hints_are_there_after_reopening(env, &dir.join("votes")).await;
    calls_that_do_not_fit_change_nothing(env, &dir.join("order")).await;
    a_read_stops_at_its_bound_but_brings_one(env, &dir.join("bound")).await;
    an_entry_larger_than_a_segment_is_kept(env, &dir.join("large")).await;
    an_idle_group_does_not_pin_the_disk(env, &dir.join("pin")).await;
    a_closed_log_refuses_calls_and_says_that_it_ended_in_order(env, &dir.join("close")).await;
    a_directory_that_should_hold_a_log_is_not_started_empty(env, &dir.join("missing")).await;
    damage_to_what_was_on_disk_is_refused(env, &dir.join("damage")).await;
    another_format_version_is_refused(env, &dir.join("version")).await;
    a_snapshot_counts_once_it_is_finished(env, &dir.join("snapshot")).await;
    receiving_goes_on_where_it_stopped(env, &dir.join("receive")).await;
    a_damaged_snapshot_is_refused(env, &dir.join("bad-snapshot")).await;
}

fn options() -> WalOptions {
    WalOptions {
        segment_bytes: SEGMENT_BYTES,
        cache_bytes: 2048,
        reserve_bytes: 0,
        prefill: false,
        ..WalOptions::default()
    }
}

async fn open(env: &Env, dir: &Path) -> Wal {
    Wal::open(env, dir, options()).await.expect("the log opens")
}

/// Opens a log whose last user dropped it without closing: its writer may not have ended yet.
async fn reopen(env: &Env, dir: &Path) -> Wal {
    loop {
        match Wal::open(env, dir, options()).await {
            Err(Error::Io { what: "lock", .. }) => time::sleep(time::Duration::from_millis(1)).await,
            opened => return opened.expect("the log opens"),
        }
    }
}

/// The data of the entry at `index`: recognizable, and of various lengths.
pub(crate) fn data(group: GroupId, at: LogPosition, len: usize) -> Bytes {
    let mut data = format!("{group}:{at}:").into_bytes();
    data.resize(data.len().max(len), b'.');
    data.into()
}

/// Makes the entries `first..=last` of `term`.
pub(crate) fn entries(group: GroupId, term: u64, first: u64, last: u64, len: usize) -> Vec<LogEntry> {
    (first..=last)
        .map(|index| {
            let position = LogPosition::new(term, index);
            LogEntry { position, data: data(group, position, len) }
        })
        .collect()
}

/// Queues entries; the receiver hears when they are safe.
pub(crate) fn append(log: &GroupLog, entries: Vec<LogEntry>) -> oneshot::Receiver<Result<(), Error>> {
    let (tx, rx) = oneshot::channel();
    log.append(entries, Box::new(move |result| drop(tx.send(result))));
    rx
}

async fn appended(log: &GroupLog, term: u64, first: u64, last: u64) {
    append(log, entries(log.id(), term, first, last, 60)).await.expect("answered").expect("appended");
}

async fn read_all(log: &GroupLog) -> Vec<LogEntry> {
    log.read(0..u64::MAX, usize::MAX).await.expect("readable")
}

fn positions(entries: &[LogEntry]) -> Vec<(u64, u64)> {
    entries.iter().map(|entry| (entry.position.term, entry.position.index)).collect()
}

async fn entries_are_there_at_once_and_after_reopening(env: &Env, dir: &Path) {
    let wal = open(env, dir).await;
    let (a, b) = (wal.group(GroupId(0)), wal.group(GroupId(7)));
    let pending = append(&a, entries(a.id(), 1, 0, 199, 60));
    let other = append(&b, entries(b.id(), 3, 5, 6, 10));
    assert_eq!(
        positions(&a.read(190..1000, usize::MAX).await.unwrap()).len(),
        10,
        "readable before it is written"
    );
    pending.await.unwrap().unwrap();
    other.await.unwrap().unwrap();
    assert_eq!(a.synced(), Some(LogPosition::new(1, 199)));
    let (all_a, all_b) = (entries(a.id(), 1, 0, 199, 60), entries(b.id(), 3, 5, 6, 10));
    assert_eq!(read_all(&a).await, all_a);
    assert!(wal.stats().disk_reads > 0, "most of it is no longer in memory");
    wal.close().await.unwrap();

    let wal = open(env, dir).await;
    assert!(wal.recovery().clean);
    assert_eq!(wal.recovery().entries, 202);
    assert_eq!(read_all(&wal.group(GroupId(0))).await, all_a);
    assert_eq!(read_all(&wal.group(GroupId(7))).await, all_b);
    assert_eq!(wal.group(GroupId(9)).state(), LogState::default());
    wal.close().await.unwrap();
}

async fn cuts_and_purges_are_there_after_reopening(env: &Env, dir: &Path) {
    let wal = open(env, dir).await;
    let log = wal.group(GroupId(1));
    appended(&log, 1, 1, 100).await;
    log.truncate_after(Some(60)).await.unwrap();
    assert_eq!(log.state().last, Some(LogPosition::new(1, 60)));
    appended(&log, 2, 61, 70).await;
    log.purge(LogPosition::new(1, 30)).await.unwrap();
    let expected: Vec<_> = (31..=60).map(|i| (1, i)).chain((61..=70).map(|i| (2, i))).collect();
    assert_eq!(positions(&read_all(&log).await), expected);
    let state = log.state();
    wal.close().await.unwrap();

    let wal = open(env, dir).await;
    let log = wal.group(GroupId(1));
    assert_eq!(log.state(), state);
    assert_eq!(positions(&read_all(&log).await), expected);
    log.truncate_after(Some(30)).await.unwrap();
    assert_eq!(log.state().last, Some(LogPosition::new(1, 30)));
    appended(&log, 3, 31, 31).await;
    let other = wal.group(GroupId(2));
    appended(&other, 1, 0, 3).await;
    other.truncate_after(None).await.unwrap();
    assert_eq!(other.state().last, None);
    wal.close().await.unwrap();

    let wal = open(env, dir).await;
    assert_eq!(positions(&read_all(&wal.group(GroupId(1))).await), [(3, 31)]);
    let other = wal.group(GroupId(2));
    assert_eq!(other.state().last, None);
    appended(&other, 2, 0, 0).await;
    wal.close().await.unwrap();
}

async fn an_installed_snapshot_restarts_the_log_behind_it(env: &Env, dir: &Path) {
    let wal = open(env, dir).await;
    let log = wal.group(GroupId(1));
    appended(&log, 1, 0, 9).await;
    let at = LogPosition::new(4, 500);
    log.purge(at).await.unwrap();
    assert_eq!((log.state().purged, log.state().last), (Some(at), Some(at)));
    assert_eq!(read_all(&log).await, []);
    appended(&log, 4, 501, 502).await;
    wal.close().await.unwrap();
    let wal = open(env, dir).await;
    let log = wal.group(GroupId(1));
    assert_eq!(log.state().purged, Some(at));
    assert_eq!(positions(&read_all(&log).await), [(4, 501), (4, 502)]);
    wal.close().await.unwrap();
}

async fn votes_and_hints_are_there_after_reopening(env: &Env, dir: &Path) {
    let wal = open(env, dir).await;
    let log = wal.group(GroupId(1));
    log.save_vote(Bytes::from_static(b"first")).await.unwrap();
    log.save_committed(Bytes::from_static(b"hint"));
    log.save_vote(Bytes::from_static(b"second")).await.unwrap();
    wal.close().await.unwrap();
    // Once more, so that they come from the head of a segment.
    for _ in 0..2 {
        let wal = open(env, dir).await;
        let log = wal.group(GroupId(1));
        assert_eq!(log.state().vote.as_deref(), Some(&b"second"[..]));
        assert_eq!(log.state().committed.as_deref(), Some(&b"hint"[..]));
        wal.close().await.unwrap();
    }
}

async fn calls_that_do_not_fit_change_nothing(env: &Env, dir: &Path) {
    let wal = open(env, dir).await;
    let log = wal.group(GroupId(1));
    appended(&log, 1, 0, 9).await;
    log.purge(LogPosition::new(1, 4)).await.unwrap();
    let state = log.state();
    let gap = append(&log, entries(log.id(), 1, 11, 12, 10)).await.unwrap();
    assert!(matches!(gap, Err(Error::Order(_))), "{gap:?}");
    let again = append(&log, entries(log.id(), 1, 9, 9, 10)).await.unwrap();
    assert!(matches!(again, Err(Error::Order(_))), "{again:?}");
    let below = log.truncate_after(Some(3)).await;
    assert!(matches!(below, Err(Error::Order(_))), "{below:?}");
    log.purge(LogPosition::new(1, 2)).await.unwrap();
    log.truncate_after(Some(9)).await.unwrap();
    assert_eq!(log.state(), state);
    wal.close().await.unwrap();
}

async fn a_read_stops_at_its_bound_but_brings_one(env: &Env, dir: &Path) {
    let wal = open(env, dir).await;
    let log = wal.group(GroupId(1));
    append(&log, entries(log.id(), 1, 0, 99, 100)).await.unwrap().unwrap();
    assert_eq!(log.read(0..100, 250).await.unwrap().len(), 2);
    assert_eq!(log.read(98..100, 250).await.unwrap().len(), 2);
    assert_eq!(log.read(40..100, 1).await.unwrap().len(), 1);
    assert_eq!(log.read(100..200, 250).await.unwrap(), []);
    wal.close().await.unwrap();
}

async fn an_entry_larger_than_a_segment_is_kept(env: &Env, dir: &Path) {
    let wal = open(env, dir).await;
    let log = wal.group(GroupId(1));
    let large = entries(log.id(), 1, 0, 0, 3 * SEGMENT_BYTES as usize);
    append(&log, large.clone()).await.unwrap().unwrap();
    appended(&log, 1, 1, 100).await;
    wal.close().await.unwrap();
    let wal = open(env, dir).await;
    assert_eq!(wal.group(GroupId(1)).read(0..1, 0).await.unwrap(), large);
    wal.close().await.unwrap();
}

async fn an_idle_group_does_not_pin_the_disk(env: &Env, dir: &Path) {
    let wal = open(env, dir).await;
    let (idle, busy) = (wal.group(GroupId(0)), wal.group(GroupId(1)));
    appended(&idle, 1, 0, 9).await;
    let kept = read_all(&idle).await;
    for round in 0..60 {
        appended(&busy, 1, round * 20, round * 20 + 19).await;
        busy.purge(LogPosition::new(1, round * 20 + 15)).await.unwrap();
    }
    // Giving back follows in steps of its own.
    let mut stats = wal.stats();
    for _ in 0..5000 {
        if stats.segment_bytes <= 3 * stats.live_bytes + 5 * SEGMENT_BYTES {
            break;
        }
        time::sleep(time::Duration::from_millis(1)).await;
        stats = wal.stats();
    }
    assert!(stats.segment_bytes <= 3 * stats.live_bytes + 5 * SEGMENT_BYTES, "{stats:?}");
    assert!(stats.entries_moved >= 10, "{stats:?}");
    assert_eq!(read_all(&idle).await, kept);
    wal.close().await.unwrap();
    let wal = open(env, dir).await;
    assert_eq!(read_all(&wal.group(GroupId(0))).await, kept);
    assert_eq!(wal.group(GroupId(1)).state().last, Some(LogPosition::new(1, 1199)));
    wal.close().await.unwrap();
}

async fn a_closed_log_refuses_calls_and_says_that_it_ended_in_order(env: &Env, dir: &Path) {
    let wal = open(env, dir).await;
    let log = wal.group(GroupId(1));
    let pending = append(&log, entries(log.id(), 1, 0, 5, 10));
    wal.close().await.unwrap();
    pending.await.unwrap().unwrap();
    let refused = append(&log, entries(log.id(), 1, 6, 6, 10)).await.unwrap();
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    assert!(matches!(log.save_vote(Bytes::new()).await, Err(Error::Closed)));
    assert!(wal.failed().borrow().is_none(), "an orderly end is no failure");
    let wal = open(env, dir).await;
    assert!(wal.recovery().clean);
    appended(&wal.group(GroupId(1)), 1, 6, 6).await;
    drop(wal);
    let wal = reopen(env, dir).await;
    assert!(!wal.recovery().clean);
    assert_eq!(wal.group(GroupId(1)).state().last, Some(LogPosition::new(1, 6)));
    wal.close().await.unwrap();
}

async fn a_directory_that_should_hold_a_log_is_not_started_empty(env: &Env, dir: &Path) {
    let must_exist = WalOptions { must_exist: true, ..options() };
    let refused = Wal::open(env, dir, must_exist.clone()).await.err();
    assert!(matches!(refused, Some(Error::Missing { .. })), "{refused:?}");
    open(env, dir).await.close().await.unwrap();
    Wal::open(env, dir, must_exist).await.unwrap().close().await.unwrap();
}

/// The names of the segment files, oldest first.
pub(crate) fn segment_files(env: &Env, dir: &Path) -> Vec<std::path::PathBuf> {
    let names = env.disk.read_dir(dir).expect("listed");
    names.iter().filter(|name| crate::segment::number(name).is_some()).map(|name| dir.join(name)).collect()
}

/// Changes bytes of a file behind the log's back.
pub(crate) fn overwrite(env: &Env, path: &Path, offset: u64, change: impl FnOnce(&mut [u8]), len: usize) {
    let mut file = env.disk.open(path, OpenMode::ReadWrite).expect("opened");
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).expect("read");
    change(&mut bytes);
    file.write_at(&bytes, offset).expect("written");
    file.sync_data().expect("synced");
}

async fn damage_to_what_was_on_disk_is_refused(env: &Env, dir: &Path) {
    let wal = open(env, dir).await;
    let log = wal.group(GroupId(1));
    appended(&log, 1, 0, 9).await;
    // An idle writer notes how far the log is on disk, so that its last batch counts too.
    while wal.stats().batches < 2 {
        time::sleep(time::Duration::from_millis(1)).await;
    }
    drop((wal, log));
    drop(reopen(env, dir).await);
    let wal = reopen(env, dir).await;
    wal.close().await.unwrap();
    let files = segment_files(env, dir);
    let first = files.first().expect("there is one");
    overwrite(env, first, 300, |bytes| bytes[0] ^= 1, 1);
    let refused = Wal::open(env, dir, options()).await.err().expect("refused");
    let Error::Corrupt { file, offset, .. } = &refused else { panic!("{refused}") };
    assert_eq!(file, first);
    assert!(*offset > 0 && *offset <= 300, "{refused}");
    assert!(refused.to_string().contains("remove the node from the cluster"), "{refused}");
    overwrite(env, first, 300, |bytes| bytes[0] ^= 1, 1);
    let wal = open(env, dir).await;
    assert_eq!(read_all(&wal.group(GroupId(1))).await.len(), 10);
    wal.close().await.unwrap();
}

async fn another_format_version_is_refused(env: &Env, dir: &Path) {
    open(env, dir).await.close().await.unwrap();
    let files = segment_files(env, dir);
    let last = files.last().expect("there is one");
    overwrite(
        env,
        last,
        0,
        |bytes| {
            let HeaderRead::Valid(header) = SegmentHeader::decode(bytes, 1) else { panic!("a header") };
            bytes.copy_from_slice(&header.encode_as(99));
        },
        SEGMENT_HEADER_BYTES as usize,
    );
    let refused = Wal::open(env, dir, options()).await.err().expect("refused");
    assert!(matches!(refused, Error::Version { found: 99, known: 1, .. }), "{refused}");
}

async fn write_snapshot(store: &SnapshotStore, at: LogPosition, contents: &[u8]) {
    let mut writer = store.take(at, Bytes::from_static(b"members")).await.unwrap();
    for part in contents.chunks(100_000) {
        writer.push(part).await.unwrap();
    }
    assert_eq!(writer.bytes(), contents.len() as u64);
    let info = writer.finish().await.unwrap();
    assert_eq!((info.at, info.bytes), (at, contents.len() as u64));
}

fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

async fn read_snapshot(store: &SnapshotStore, at: LogPosition, from: u64) -> Vec<u8> {
    let mut reader = store.read(at).await.unwrap();
    reader.skip_to(from).await.unwrap();
    assert_eq!(reader.offset().unwrap(), from);
    let mut out = Vec::new();
    while let Some(chunk) = reader.next_chunk().await.unwrap() {
        out.extend_from_slice(&chunk);
    }
    out
}

async fn a_snapshot_counts_once_it_is_finished(env: &Env, dir: &Path) {
    let store = SnapshotStore::open(env, dir).await.unwrap();
    assert_eq!(store.latest().await.unwrap(), None);
    let (first, second) = (LogPosition::new(1, 10), LogPosition::new(2, 20));
    let contents = contents(1_000_000);
    write_snapshot(&store, first, &contents).await;
    let mut unfinished = store.take(second, Bytes::new()).await.unwrap();
    unfinished.push(&contents).await.unwrap();
    assert!(matches!(store.take(second, Bytes::new()).await.err(), Some(Error::Busy { .. })));
    drop(unfinished);
    let store = SnapshotStore::open(env, dir).await.unwrap();
    let latest = store.latest().await.unwrap().expect("there is one");
    assert_eq!((latest.at, latest.meta.as_ref()), (first, &b"members"[..]));
    assert!(read_snapshot(&store, first, 0).await == contents);
    assert!(read_snapshot(&store, first, 300_001).await == contents[300_001..]);
    assert_eq!(read_snapshot(&store, first, 1_000_000).await, []);
    write_snapshot(&store, second, b"").await;
    store.verify(second).await.unwrap();
    assert_eq!(store.list().await.unwrap().len(), 1, "the older one is gone");
    assert_eq!(store.latest().await.unwrap().map(|info| info.at), Some(second));
}

async fn receiving_goes_on_where_it_stopped(env: &Env, dir: &Path) {
    let at = LogPosition::new(3, 30);
    let contents = contents(900_000);
    let store = SnapshotStore::open(env, dir).await.unwrap();
    let mut writer = store.receive(at, Bytes::from_static(b"id-1")).await.unwrap();
    writer.push(&contents[..700_000]).await.unwrap();
    drop(writer);
    let store = SnapshotStore::open(env, dir).await.unwrap();
    let mut writer = store.receive(at, Bytes::from_static(b"id-1")).await.unwrap();
    let from = writer.bytes() as usize;
    assert!(from > 500_000 && from <= 700_000, "{from}");
    writer.push(&contents[from..]).await.unwrap();
    writer.finish().await.unwrap();
    store.verify(at).await.unwrap();
    assert!(read_snapshot(&store, at, 0).await == contents);

    let mut writer = store.receive(at, Bytes::from_static(b"id-2")).await.unwrap();
    writer.push(&contents[..700_000]).await.unwrap();
    drop(writer);
    let other = store.receive(at, Bytes::from_static(b"id-3")).await.unwrap();
    assert_eq!(other.bytes(), 0, "another snapshot starts anew");
}

async fn a_damaged_snapshot_is_refused(env: &Env, dir: &Path) {
    let at = LogPosition::new(1, 10);
    let store = SnapshotStore::open(env, dir).await.unwrap();
    write_snapshot(&store, at, &contents(600_000)).await;
    let names = env.disk.read_dir(dir).unwrap();
    let path = dir.join(names.iter().find(|name| name.starts_with("snapshot-")).expect("there is one"));
    let len = env.disk.open(&path, OpenMode::Read).unwrap().len().unwrap();
    for offset in [0, 20, 45, 50, 300_000, len - 20, len - 1] {
        overwrite(env, &path, offset, |byte| byte[0] ^= 0x40, 1);
        let refused = store.verify(at).await.expect_err("refused");
        assert!(matches!(refused, Error::Corrupt { .. }), "byte {offset}: {refused}");
        overwrite(env, &path, offset, |byte| byte[0] ^= 0x40, 1);
    }
    store.verify(at).await.unwrap();
    for cut in [10, 100, 300_000, len - 1] {
        let bytes = env.disk.read(&path).unwrap();
        env.disk.open(&path, OpenMode::ReadWrite).unwrap().set_len(cut).unwrap();
        assert!(matches!(store.verify(at).await, Err(Error::Corrupt { .. })), "cut to {cut}");
        assert!(matches!(store.latest().await, Err(Error::Corrupt { .. })), "cut to {cut}");
        env.disk.write_atomic(&path, &bytes).unwrap();
    }
    store.verify(at).await.unwrap();
}
