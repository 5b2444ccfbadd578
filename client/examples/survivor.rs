//! Produces, consumes in a group, and survives a failover, in under 30 lines.
//!
//! `weir dev`, then `cargo run -p weir-client --example survivor`; kill a node meanwhile and start it again.

use weir_client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = Client::connect(["127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"]).await?;
    let worker = client
        .worker("orders", "billing", "billing-1")
        .run(|delivery| async move {
            println!("{} {:?}", delivery.entry.id, delivery.entry.get_str("number"));
            Ok::<(), Error>(())
        })
        .await?;
    let producer = client.producer("orders").open().await?;
    for number in 0..1000 {
        producer.append([("number", number.to_string())]).await?;
    }
    println!("{:?}", worker.stop().await?);
    Ok(())
}
