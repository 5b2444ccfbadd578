//! Produces by key into a topic of twelve partitions and follows all of them as one stream.
//!
//! `cargo run -p weir-client --example fan_in -- 127.0.0.1:7001`

use weir_client::{Client, Error, GroupStart};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7001".to_owned());
    let client = Client::connect([addr]).await?;
    let topic = client.topic("visits", 12).await?;
    let streams = (0..topic.partitions()).map(|partition| (topic.stream_of(partition), GroupStart::New));
    let mut entries = client.read_many(streams).await?;
    let producer = topic.producer();
    let producing = tokio::spawn(async move {
        for n in 0..1000 {
            producer.append(format!("visitor-{}", n % 50), [("n", n.to_string())]).await?;
        }
        Ok::<(), Error>(())
    });
    for _ in 0..1000 {
        if let Some((stream, entry)) = entries.next().await? {
            println!("{} {} {:?}", String::from_utf8_lossy(&stream), entry.id, entry.get_str("n"));
        }
    }
    producing.await.map_err(|_| Error::Closed)?
}
