//! Data directories, ports and member lists that do not fit: one clear line, a non-zero exit, nothing lost.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_tests::process::{Process, weir_binary};
use weir_tests::testing::{TestCluster, ask, ask_until, connect, prepare, start};

/// Starts node `node` with changed arguments; its last line must hold all of `texts`, its exit must not be 0.
async fn refuses(cluster: &TestCluster, node: usize, change: impl Fn(&mut Vec<String>), texts: &[&str]) {
    let mut arguments = cluster.arguments(node);
    change(&mut arguments);
    let log = cluster.dir.path().join("refused.log");
    let _ = std::fs::remove_file(&log);
    let mut process = Process::spawn(&weir_binary().expect("weir"), &arguments, &log).expect("it starts");
    let status = process.wait_exit(Duration::from_secs(20)).await.expect("it ends");
    let output = process.output();
    let last = output.lines().rfind(|line| line.starts_with("weir: ")).unwrap_or_default();
    assert!(!status.success(), "{status}: {output}");
    for text in texts {
        assert!(last.contains(text), "expected {text:?} in {last:?}; all of it:\n{output}");
        assert_eq!(
            output.matches(text).count(),
            last.matches(text).count(),
            "said more than once:\n{output}"
        );
    }
    assert!(last.len() < 400, "{last}");
}

fn set(arguments: &mut [String], flag: &str, value: &str) {
    let at = arguments.iter().position(|a| a == flag).expect("the flag");
    arguments[at + 1] = value.to_owned();
}

async fn add(cluster: &TestCluster, key: &str) {
    let mut client = weir_tests::client::ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    client.insist(key, &["XADD", key, "*", "a", "1"], Duration::from_secs(20)).await.expect("added");
}

async fn length(cluster: &TestCluster, key: &str) -> String {
    let mut client = weir_tests::client::ClusterClient::new(&cluster.addresses(), Duration::from_secs(6));
    let length = client.insist(key, &["XLEN", key], Duration::from_secs(20)).await.expect("read");
    weir_tests::connection::show(&length)
}

#[tokio::test]
async fn a_directory_that_does_not_fit_is_refused_and_stays_as_it_is() {
    let mut cluster = start(1, "").await;
    add(&cluster, "s").await;
    // In use.
    let port = weir_tests::ports::free_ports(1).to_string();
    let used = |arguments: &mut Vec<String>| set(arguments, "--port", &port);
    refuses(&cluster, 0, used, &["in use"]).await;
    cluster.terminate(0).await.expect("a clean end");
    // Of another node.
    refuses(&cluster, 0, |a| set(a, "--name", "other"), &["n1", "other"]).await;
    // With another member list.
    let members = format!("n1=127.0.0.1:{},n2=127.0.0.1:{}", cluster.port(0), cluster.port(0) + 1);
    refuses(&cluster, 0, |a| set(a, "--cluster", &members), &["--cluster"]).await;
    // With another durability than the cluster's.
    refuses(&cluster, 0, |a| a.extend(["--durability".into(), "os".into()]), &["durability"]).await;
    // Of another version.
    let file = cluster.data(0).join("node.json");
    let before = std::fs::read_to_string(&file).expect("node.json");
    let at = before.find("\"format\"").expect("a format");
    let value = before[at..].find(|c: char| c.is_ascii_digit()).expect("a number") + at;
    std::fs::write(&file, format!("{}999{}", &before[..value], &before[value + 1..])).expect("written");
    refuses(&cluster, 0, |_| {}, &["999"]).await;
    // Damaged.
    std::fs::write(&file, &before[..before.len() / 2]).expect("written");
    refuses(&cluster, 0, |_| {}, &["node.json"]).await;
    std::fs::write(&file, &before).expect("written");
    cluster.start_all().await.expect("as before");
    assert_eq!(length(&cluster, "s").await, "1");
}

#[tokio::test]
async fn a_place_that_cannot_hold_data_is_refused() {
    let cluster = prepare(1, "");
    let file = cluster.dir.path().join("file");
    std::fs::write(&file, "not a directory").expect("written");
    let file = file.display().to_string();
    refuses(&cluster, 0, |a| set(a, "--dir", &file), &[&file]).await;
    let below = format!("{file}/below");
    refuses(&cluster, 0, |a| set(a, "--dir", &below), &[&below]).await;
    // Read-only also for root.
    refuses(&cluster, 0, |a| set(a, "--dir", "/proc/weir"), &["/proc/weir"]).await;
    // Somebody else's things.
    let foreign = cluster.dir.path().join("foreign");
    std::fs::create_dir(&foreign).expect("a directory");
    std::fs::write(foreign.join("letters.txt"), "dear").expect("written");
    let foreign_name = foreign.display().to_string();
    refuses(&cluster, 0, |a| set(a, "--dir", &foreign_name), &[&foreign_name]).await;
    assert_eq!(std::fs::read_dir(&foreign).expect("still there").count(), 1);
}

#[tokio::test]
async fn a_port_that_is_taken_is_tried_again_then_named() {
    let mut cluster = prepare(1, "");
    // Clients, peers, administration.
    for offset in [0, 10_000, 20_000] {
        let port = cluster.port(0) + offset;
        let taken = TcpListener::bind(("127.0.0.1", port)).expect("free before");
        let began = Instant::now();
        refuses(&cluster, 0, |_| {}, &[&port.to_string()]).await;
        assert!(began.elapsed() >= Duration::from_secs(4), "gave up after {:?}", began.elapsed());
        drop(taken);
    }
    // Taken for a moment only.
    let taken = TcpListener::bind(("127.0.0.1", cluster.port(0))).expect("free before");
    cluster.spawn(0).expect("it starts");
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(taken);
    cluster.wait_ready(0).await.expect("ready after all");
}

#[tokio::test]
async fn settings_that_make_no_sense_are_named() {
    let cluster = prepare(1, "");
    refuses(&cluster, 0, |a| set(a, "--cluster", "n1=nowhere"), &["--cluster"]).await;
    refuses(&cluster, 0, |a| set(a, "--name", "n9"), &["n9"]).await;
    refuses(&cluster, 0, |a| a.extend(["--shards".into(), "100000".into()]), &["shards"]).await;
    let config = cluster.dir.path().join("weir.toml");
    std::fs::write(&config, "no-such-key = 1\n").expect("written");
    let config = config.display().to_string();
    refuses(&cluster, 0, |a| a.extend(["--config".into(), config.clone()]), &["no-such-key"]).await;
}

#[tokio::test]
async fn a_wiped_node_cannot_come_back_under_its_old_name() {
    let mut cluster = start(3, "").await;
    add(&cluster, "s").await;
    cluster.kill(1).await.expect("killed");
    std::fs::remove_dir_all(cluster.data(1)).expect("wiped");
    refuses(&cluster, 1, |_| {}, &["n2 lost its data and cannot rejoin as n2"]).await;
    // The others go on.
    add(&cluster, "s").await;
    assert_eq!(length(&cluster, "s").await, "2");
}

#[tokio::test]
async fn nodes_whose_lists_disagree_found_no_cluster() {
    let mut cluster = prepare(3, "");
    cluster.spawn(0).expect("it starts");
    cluster.spawn(1).expect("it starts");
    let elsewhere = weir_tests::ports::free_ports(1);
    let members = format!("n1={},n2={},n3=127.0.0.1:{elsewhere}", cluster.address(0), cluster.address(1));
    let mut arguments = cluster.arguments(2);
    set(&mut arguments, "--cluster", &members);
    set(&mut arguments, "--port", &elsewhere.to_string());
    let log = cluster.dir.path().join("odd.log");
    let mut odd = Process::spawn(&weir_binary().expect("weir"), &arguments, &log).expect("it starts");
    odd.wait_ready(Duration::from_secs(4)).await.expect_err("no cluster of two opinions");
    cluster.process(0).expect("n1").wait_ready(Duration::from_millis(1)).await.expect_err("nor here");
    assert!(odd.output().contains("--cluster"), "{}", odd.output());
}

#[tokio::test]
async fn a_damaged_log_stops_the_node_loudly_and_the_others_serve() {
    let mut cluster = start(3, "").await;
    for _ in 0..200 {
        add(&cluster, "s").await;
    }
    cluster.kill(2).await.expect("killed");
    let log =
        fullest_file(&cluster.data(2).join("wal")).or_else(|| fullest_file(&cluster.data(2))).expect("a log");
    let mut bytes = std::fs::read(&log).expect("read");
    let used = bytes.iter().rposition(|&b| b != 0).expect("not empty");
    bytes[used / 3] ^= 0x40;
    std::fs::write(&log, bytes).expect("written");
    let name = log.file_name().expect("a name").to_string_lossy().into_owned();
    refuses(&cluster, 2, |_| {}, &[&name]).await;
    add(&cluster, "s").await;
    assert_eq!(length(&cluster, "s").await, "201");
}

fn fullest_file(dir: &Path) -> Option<std::path::PathBuf> {
    let mut found: Vec<(u64, std::path::PathBuf)> = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(dir).ok()?.flatten() {
            if entry.metadata().ok()?.is_dir() {
                left.push(entry.path());
                continue;
            }
            // Files are made in full before they are used: what counts is what was written.
            let bytes = std::fs::read(entry.path()).ok()?;
            let used = bytes.iter().rposition(|&b| b != 0).map_or(0, |at| at as u64 + 1);
            found.push((used, entry.path()));
        }
    }
    found.into_iter().max().map(|(_, path)| path)
}

/// A small file system of its own, which only root can make; elsewhere there is nothing to see here.
#[tokio::test]
async fn a_full_disk_refuses_adds_and_keeps_what_was_answered() {
    let mut cluster = prepare(1, "--wal-segment-bytes 1048576");
    let Some(_unmount) = small_disk(&cluster) else { return };
    cluster.start_all().await.expect("ready");
    let mut c = connect(&cluster, 0).await;
    let value = "x".repeat(64 * 1024);
    let mut answered = 0;
    let refusal = loop {
        let reply = ask(&mut c, &format!("XADD s * f {value}")).await;
        if reply.starts_with('-') {
            break reply;
        }
        answered += 1;
        assert!(answered < 2_000, "24 MB hold 125 MB");
    };
    assert!(refusal.starts_with("-OOM"), "{refusal}");
    assert_eq!(ask(&mut c, "XLEN s").await, answered.to_string());
    assert!(ask(&mut c, "XADD s * f 1").await.starts_with("-OOM"));
    // What frees memory still works.
    assert_eq!(ask(&mut c, "XTRIM s MAXLEN 1").await, (answered - 1).to_string());
    cluster.terminate(0).await.expect("a clean end");
    cluster.start_all().await.expect("ready again");
    let mut c = connect(&cluster, 0).await;
    assert_eq!(ask(&mut c, "XLEN s").await, "1");
    cluster.terminate(0).await.expect("a clean end");
}

#[tokio::test]
async fn a_node_that_ran_out_of_disk_serves_again_when_there_is_room() {
    let mut cluster = prepare(1, "--wal-segment-bytes 1048576 --write-timeout-ms 1000");
    let Some(_unmount) = small_disk(&cluster) else { return };
    cluster.start_all().await.expect("ready");
    let other = cluster.data(0).join("somebody-elses");
    std::fs::write(&other, vec![1; 8 << 20]).expect("written");
    let mut c = connect(&cluster, 0).await;
    let value = "x".repeat(64 * 1024);
    let mut answered = 0;
    while !ask(&mut c, &format!("XADD s * f {value}")).await.starts_with("-OOM") {
        answered += 1;
        assert!(answered < 2_000, "24 MB hold 125 MB");
    }
    // Acks go on into the reserve, and are not answered any more when that is used up too.
    let ack = format!("XACK s g{}", " 1-1".repeat(20_000));
    let mut acks = 0;
    while ask(&mut c, &ack).await == "0" {
        acks += 1;
        assert!(acks < 1_000, "the reserve has no end");
    }
    cluster.assert_all_run().expect("the node waits for space");
    assert_eq!(ask(&mut c, "PING").await, "PONG");
    std::fs::remove_file(&other).expect("removed");
    let added = ask_until(&mut c, "XADD s * f 1", |reply| !reply.starts_with('-')).await;
    assert!(added.contains('-'), "{added}");
    cluster.terminate(0).await.expect("a clean end");
    cluster.start_all().await.expect("ready again");
    let mut c = connect(&cluster, 0).await;
    assert_eq!(ask(&mut c, "XLEN s").await, (answered + 1).to_string());
    cluster.terminate(0).await.expect("a clean end");
}

/// The first node's directory on 24 MB of its own; `None` where that cannot be made.
fn small_disk(cluster: &TestCluster) -> Option<Unmount> {
    let data = cluster.data(0);
    std::fs::create_dir_all(&data).expect("a directory");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"])
        .arg(&data)
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        eprintln!("not root, or no right to mount: a full disk cannot be made here");
    }
    mounted.then(|| Unmount(data))
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_missing_or_damaged_snapshot_is_named_once() {
    let mut cluster = start(1, "--snapshot-log-bytes 100000 --wal-segment-bytes 262144").await;
    let mut c = connect(&cluster, 0).await;
    let value = "x".repeat(10_000);
    let groups = cluster.data(0).join("groups");
    let snapshot = |dir: &Path| {
        let files =
            std::fs::read_dir(dir.join("1")).into_iter().flatten().map(|e| e.expect("an entry").path());
        files.filter(|path| path.extension().is_none_or(|e| e != "tmp")).max()
    };
    // Long enough that the log before the snapshot is gone.
    for _ in 0..100 {
        ask(&mut c, &format!("XADD s * f {value}")).await;
    }
    cluster.terminate(0).await.expect("a clean end");
    let file = snapshot(&groups).expect("a snapshot");
    let good = std::fs::read(&file).expect("read");
    let name = file.display().to_string();
    for (at, text) in
        [(3, "is damaged at byte 0"), (20, "is damaged at byte 12"), (5_000, "is damaged at byte")]
    {
        let mut bytes = good.clone();
        bytes[at] ^= 4;
        std::fs::write(&file, bytes).expect("written");
        refuses(&cluster, 0, |_| {}, &[&name, text]).await;
    }
    std::fs::remove_file(&file).expect("removed");
    refuses(&cluster, 0, |_| {}, &["holds no snapshot up to entry"]).await;
    std::fs::write(&file, good).expect("written");
    cluster.start_all().await.expect("as before");
    assert_eq!(length(&cluster, "s").await, "100");
}

#[tokio::test]
async fn the_log_of_another_node_is_refused() {
    let mut cluster = start(3, "").await;
    add(&cluster, "s").await;
    for node in 0..3 {
        cluster.terminate(node).await.expect("a clean end");
    }
    let (own, aside) = (cluster.data(0).join("wal"), cluster.dir.path().join("aside"));
    std::fs::rename(&own, &aside).expect("moved");
    copy_dir(&cluster.data(1).join("wal"), &own);
    refuses(&cluster, 0, |_| {}, &["holds the log of n2 (", "not that of n1 ("]).await;
    std::fs::remove_dir_all(&own).expect("removed");
    std::fs::rename(&aside, &own).expect("moved back");
    cluster.start_all().await.expect("as before");
    assert_eq!(length(&cluster, "s").await, "1");
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}
