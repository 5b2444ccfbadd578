//! Appends by many at once: `cargo run --release -p weir-store --example wal_bench -- DIR`.
//!
//! Each client appends one entry, waits until it is on disk, and goes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, oneshot};
use weir_env::Env;
use weir_store::{GroupId, LogEntry, LogPosition, Wal, WalOptions};

#[tokio::main]
async fn main() {
    let dir = PathBuf::from(std::env::args().nth(1).expect("a directory to write to"));
    let env = Env::system();
    for (clients, bytes) in [(1, 100), (8, 100), (64, 100), (1024, 100), (64, 4096)] {
        let path = dir.join(format!("wal-{clients}-{bytes}"));
        let wal = Wal::open(&env, &path, WalOptions::default()).await.expect("the log opens");
        let done = Arc::new(AtomicU64::new(0));
        let next: Vec<_> = (0..4).map(|_| Arc::new(Mutex::new(0_u64))).collect();
        let start = env.clock.mono();
        let mut tasks = Vec::new();
        for client in 0..clients {
            let (log, next) = (wal.group(GroupId(client % 4)), next[client as usize % 4].clone());
            let done = done.clone();
            let data = Bytes::from(vec![7; bytes]);
            tasks.push(tokio::spawn(async move {
                loop {
                    let (tx, rx) = oneshot::channel();
                    {
                        let mut next = next.lock().await;
                        let entry = LogEntry { position: LogPosition::new(1, *next), data: data.clone() };
                        *next += 1;
                        log.append(vec![entry], Box::new(move |result| drop(tx.send(result))));
                        if *next % 100_000 == 0 {
                            // As after a snapshot.
                            drop(log.purge(LogPosition::new(1, *next - 50_000)));
                        }
                    }
                    rx.await.expect("answered").expect("appended");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        tokio::time::sleep(Duration::from_secs(4)).await;
        for task in tasks {
            task.abort();
        }
        let seconds = (env.clock.mono() - start).as_secs_f64();
        let stats = wal.stats();
        println!(
            "{clients:5} clients x {bytes:5} B: {:8.0} entries/s, {:6.1} MB/s, {:6.0} syncs/s, sync p50 < {} us p99 < {} us, {} segments",
            done.load(Ordering::Relaxed) as f64 / seconds,
            stats.bytes as f64 / seconds / 1e6,
            stats.sync.count as f64 / seconds,
            stats.sync.quantile_us(0.5),
            stats.sync.quantile_us(0.99),
            stats.segments,
        );
        wal.close().await.expect("the log closes");
        let start = env.clock.mono();
        let wal = Wal::open(&env, &path, WalOptions::default()).await.expect("the log opens");
        let entries = wal.recovery().entries;
        println!("      reopened {entries} entries in {:?}", env.clock.mono() - start);
        wal.close().await.expect("the log closes");
        env.disk.remove_dir_all(&path).expect("removed");
    }
}
