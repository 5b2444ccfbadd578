//! Appends numbers exactly once and in order, as fast as the cluster takes them, and checks that they are there.
//!
//! `cargo run -p weir-client --example exactly_once -- 127.0.0.1:7001 100000`; kill nodes meanwhile.

use weir_client::{Client, EntryId, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:7001".to_owned());
    let count: usize = args.next().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let client = Client::connect([addr]).await?;
    client.del(["numbers"]).await?;
    // Remembering more than the default 100 ids lets batches be larger.
    let producer = client.producer("numbers").remember(300, 10_000).open().await?;
    let began = tokio::time::Instant::now();
    let mut sent = Vec::with_capacity(count);
    for n in 0..count {
        // Waits when too much is on its way: that is the back-pressure.
        sent.push(producer.send([("n", n.to_string())]).await?);
    }
    for appended in sent {
        appended.await?;
    }
    println!("{count} entries in {:?}", began.elapsed());
    let (mut next, mut expected) = (EntryId::MIN, 0);
    loop {
        let entries = client.xrange("numbers", next, EntryId::MAX).count(10_000).await?;
        let Some(last) = entries.last() else { break };
        next = last.id.next().unwrap_or(EntryId::MAX);
        for entry in &entries {
            assert_eq!(entry.get_str("n"), Some(expected.to_string().as_str()), "{}", entry.id);
            expected += 1;
        }
    }
    assert_eq!(expected, count);
    println!("all there, once and in order");
    Ok(())
}
