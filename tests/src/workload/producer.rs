//! XADD in a loop, each call with a token of its own. What is not answered is added again under another token, as an
//! application without idempotent adds would do; the checker follows each attempt.

use super::{Stage, add_line, pause_after, pick};
use crate::client::ClusterClient;
use crate::history::What;
use rand::Rng;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

pub(super) async fn run(stage: Arc<Stage>, number: u32, pace: Duration, stop: watch::Receiver<bool>) {
    let mut rng = stage.rng(number);
    // Some callers are patient, some give up long before the server would.
    let limit = Duration::from_millis(if number.is_multiple_of(2) { 1_000 } else { 6_000 });
    let mut client = ClusterClient::new(&stage.seeds, limit);
    let mut next = Instant::now();
    while !*stop.borrow() {
        let key = pick(&mut rng, &stage);
        let token = stage.token();
        let command = add_line(&stage.keys[key], token, rng.random_range(0..200));
        let outcome = stage.call(&mut client, number, key, What::Add { token }, &command).await;
        pause_after(outcome.as_ref()).await;
        if rng.random_ratio(1, 2_000) {
            client.forget();
        }
        next = (next + pace).max(Instant::now());
        sleep_until(next).await;
    }
}
