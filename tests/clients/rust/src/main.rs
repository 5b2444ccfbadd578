//! Lives of Rust clients through a killed leader. Usage: `client-lives redis-rs|fred PORT PROTOCOL`, as
//! `ops/client-lives` calls it.

mod life;
mod with_fred;
mod with_redis_rs;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, client, port, protocol] = arguments.as_slice() else {
        panic!("usage: client-lives redis-rs|fred PORT PROTOCOL");
    };
    let (port, protocol) = (port.parse().expect("a port"), protocol.parse().expect("2 or 3"));
    match client.as_str() {
        "redis-rs" => life::live(with_redis_rs::connect(port, protocol).await.expect("connected")).await,
        "fred" => life::live(with_fred::connect(port, protocol).await.expect("connected")).await,
        other => panic!("no life of {other}"),
    }
}
