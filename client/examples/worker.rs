//! Works on a stream until Ctrl-C: retries with pauses, dead letters, a graceful stop, and numbers by an observer.
//!
//! `cargo run -p weir-client --example worker -- 127.0.0.1:7001 orders billing billing-1`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_client::{Client, EntryId, Error, Observer, Options};

/// What a program would give to its metrics.
#[derive(Clone, Default)]
struct Numbers(Arc<(AtomicU64, AtomicU64)>);

impl Observer for Numbers {
    fn handled(&self, _: &[u8], _: EntryId, _: Duration, failure: Option<&str>) {
        let counter = if failure.is_some() { &self.0.1 } else { &self.0.0 };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn retried(&self, command: &str, why: &str, pause: Duration) {
        eprintln!("{command} again in {pause:?}: {why}");
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |n: usize, default: &str| args.get(n).cloned().unwrap_or_else(|| default.to_owned());
    let numbers = Numbers::default();
    let options = Options::default().name("worker-example").observer(numbers.clone());
    let client = Client::connect_with([arg(0, "127.0.0.1:7001")], options).await?;
    let worker = client
        .worker(arg(1, "orders"), arg(2, "billing"), arg(3, "billing-1"))
        .concurrency(16)
        .lease(Duration::from_secs(10))
        .handler_timeout(Duration::from_secs(60))
        .deliveries_max(5)
        .run(|delivery| async move {
            println!("{} delivery {}: {:?}", delivery.entry.id, delivery.deliveries, delivery.entry.fields);
            match delivery.entry.get_str("fail") {
                Some(why) => Err(why.to_owned()),
                None => Ok(()),
            }
        })
        .await?;
    tokio::signal::ctrl_c().await.ok();
    println!("{:?}", worker.stop_within(Duration::from_secs(30)).await?);
    println!(
        "{} succeeded, {} failed",
        numbers.0.0.load(Ordering::Relaxed),
        numbers.0.1.load(Ordering::Relaxed)
    );
    Ok(())
}
