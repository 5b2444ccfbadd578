//! Appends lines from standard input to a stream, with plain calls, and tells what is known about each.
//!
//! `cargo run -p weir-client --example produce -- 127.0.0.1:7001 lines < FILE`

use std::io::BufRead;
use weir_client::{Client, Error, Fate};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:7001".to_owned());
    let stream = args.next().unwrap_or_else(|| "lines".to_owned());
    let client = Client::connect([addr]).await?;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match client.xadd(&stream).maxlen_approx(1_000_000).field("line", &line).await {
            Ok(id) => println!("{id}"),
            Err(error) => match error.fate() {
                Fate::NotDone => eprintln!("not added: {error}"),
                // A plain append is not repeated; `exactly_once` shows who does.
                Fate::Unknown | Fate::Done => eprintln!("perhaps added: {error}"),
            },
        }
    }
    Ok(())
}
