//! Plain readers: at the leader they must see all that was answered before they asked; on a READONLY connection they
//! may be behind, but see no holes.

use super::{Stage, line, pause_after, pick};
use crate::client::{ClusterClient, Fate};
use crate::history::{Id, Outcome, What};
use rand::Rng;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

pub(super) async fn run(stage: Arc<Stage>, number: u32, follower: bool, stop: watch::Receiver<bool>) {
    let mut rng = stage.rng(number);
    let mut client = ClusterClient::new(&stage.seeds, Duration::from_millis(1_500));
    if follower {
        client = client.readonly();
    }
    let mut cursors = vec![Id::ZERO; stage.keys.len()];
    while !*stop.borrow() {
        let key = pick(&mut rng, &stage);
        let name = &stage.keys[key];
        let from = cursors[key];
        let (what, command) = match rng.random_range(0..4) {
            0 => (
                What::Read { from: from.next(), to: Id::MAX, follower },
                line(&["XREAD", "COUNT", "100", "BLOCK", "50", "STREAMS", name, &from.to_string()]),
            ),
            1 => (
                What::Read { from: from.next(), to: Id::MAX, follower },
                line(&["XRANGE", name, &from.next().to_string(), "+", "COUNT", "100"]),
            ),
            _ => (
                What::Read { from: Id::ZERO, to: Id::MAX, follower },
                line(&["XREVRANGE", name, "+", "-", "COUNT", "50"]),
            ),
        };
        let outcome = read(&stage, &mut client, number, key, what, &command).await;
        pause_after(outcome.as_ref()).await;
        if let Some(Outcome::Entries(entries)) = outcome
            && let Some(&(highest, _)) = entries.iter().max()
        {
            cursors[key] = cursors[key].max(highest);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// As [`Stage::call`], but writes down what a reply that was cut by COUNT really covers.
async fn read(
    stage: &Stage,
    client: &mut ClusterClient,
    number: u32,
    key: usize,
    what: What,
    command: &[String],
) -> Option<Outcome> {
    let started = stage.recorder.now();
    let limit = super::time_limit(command);
    let fate = client.attempt(&stage.keys[key], command).await;
    let what = covered(what, command, &fate);
    stage.write_down(number, key, started, limit, what, fate)
}

/// What a read really covers: a reply that COUNT cut says nothing of what lies beyond its edge.
pub(super) fn covered(what: What, command: &[String], fate: &Fate) -> What {
    let What::Read { mut from, mut to, follower } = what else { return what };
    let count = command.iter().position(|word| word == "COUNT").and_then(|at| command.get(at + 1));
    let count = count.and_then(|count| count.parse().ok()).unwrap_or(usize::MAX);
    if let Fate::Done(reply) = fate
        && let Ok(Outcome::Entries(entries)) = super::read_outcome(&what, reply)
        && let Some(&(edge, _)) = entries.get(count - 1)
    {
        if command[0] == "XREVRANGE" { from = edge } else { to = edge }
    }
    What::Read { from, to, follower }
}
