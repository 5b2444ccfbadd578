//! Plain readers: at the leader they must see all that was answered before they asked; on a READONLY connection they
//! may be behind, but see no holes.

use rand::Rng;
use weir_tests::{
    client::Fate,
    history::{Id, Outcome, What},
    workload::read_outcome,
};

use super::{Worker, pause_after, words};

/// Most entries of a read forwards, and of one backwards.
const COUNT: usize = 60;
const COUNT_BACK: usize = 20;

pub(super) async fn run(mut me: Worker, follower: bool) {
    if follower {
        me.client.set_readonly();
    }
    let mut cursors = vec![Id::ZERO; me.stage.keys.len()];
    while me.again().await {
        let key = me.pick_key();
        let name = me.stage.keys[key].clone();
        let from = cursors[key];
        let draw = me.client.rng().random_range(0..4u32);
        let (low, command) = match draw {
            0 => {
                let block = me.client.rng().random_range(1..250).to_string();
                let command = ["XREAD", "COUNT", "60", "BLOCK", &block, "STREAMS", &name, &from.to_string()];
                (from.next(), words(&command))
            }
            1 => (from.next(), words(&["XRANGE", &name, &from.next().to_string(), "+", "COUNT", "60"])),
            _ => (Id::ZERO, words(&["XREVRANGE", &name, "+", "-", "COUNT", "20"])),
        };
        let started = me.stage.book.now();
        let fate = me.client.attempt(&name, &command).await;
        let what = covered(low, follower, &command, &fate);
        let outcome = me.write_down(key, started, what, &command, fate);
        pause_after(outcome.as_ref()).await;
        if let Some(Outcome::Entries(entries)) = outcome
            && let Some(&(highest, _)) = entries.iter().max()
        {
            cursors[key] = cursors[key].max(highest);
        }
    }
}

/// What a reply that may have been cut by COUNT covers.
fn covered(low: Id, follower: bool, command: &[String], fate: &Fate) -> What {
    let whole = What::Read { from: low, to: Id::MAX, follower };
    let Fate::Done(reply) = fate else { return whole };
    let Ok(Outcome::Entries(entries)) = read_outcome(&whole, reply) else { return whole };
    let backwards = command[0] == "XREVRANGE";
    match entries.last() {
        Some(&(edge, _)) if backwards && entries.len() >= COUNT_BACK => {
            What::Read { from: edge, to: Id::MAX, follower }
        }
        Some(&(edge, _)) if !backwards && entries.len() >= COUNT => {
            What::Read { from: low, to: edge, follower }
        }
        _ => whole,
    }
}
