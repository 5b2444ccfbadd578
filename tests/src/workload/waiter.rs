//! XADD, then WAIT on the same connection: the number answered must be true.

use super::{Stage, add_line, line, pause_after, pick};
use crate::client::{ClusterClient, Fate};
use crate::history::{Outcome, What};
use rand::Rng;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

pub(super) async fn run(stage: Arc<Stage>, number: u32, stop: watch::Receiver<bool>) {
    let mut rng = stage.rng(number);
    let mut client = ClusterClient::new(&stage.seeds, Duration::from_secs(6));
    while !*stop.borrow() {
        let key = pick(&mut rng, &stage);
        let token = stage.token();
        let written = stage.recorder.now();
        let outcome = stage
            .call(&mut client, number, key, What::Add { token }, &add_line(&stage.keys[key], token, 20))
            .await;
        pause_after(outcome.as_ref()).await;
        if matches!(outcome, Some(Outcome::Added(_)))
            && let Some(leader) = client.leader_of(&stage.keys[key]).map(str::to_owned)
        {
            let wanted = rng.random_range(0..=3u32);
            let limit_ms = rng.random_range(1..300u32);
            let started = stage.recorder.now();
            let fate = client
                .attempt_at(&leader, &line(&["WAIT", &wanted.to_string(), &limit_ms.to_string()]))
                .await;
            // A connection that broke in between was replaced by a new one, on which WAIT would speak of no write at
            // all; attempt_at says Unreachable or Unknown then, never Done.
            if fate != Fate::Unreachable {
                let limit = u64::from(limit_ms) * 1000;
                stage.write_down(number, key, started, limit, What::Wait { wanted, written }, fate);
            }
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}
