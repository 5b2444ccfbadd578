//! Parks in a group under a new name each time and mostly closes the connection before anything comes. Its name in a
//! pending list then tells which call got the entry.

use std::time::Duration;

use rand::Rng;
use weir_tests::history::{Outcome, What};

use super::{GROUPS, Worker, words};

/// Its names begin here, well above those of the other clients.
const FIRST_NAME: u16 = 1000;

pub(super) async fn run(mut me: Worker) {
    let mut consumer = FIRST_NAME + me.consumer() * 500;
    while me.again().await {
        consumer = consumer.wrapping_add(1);
        let group = me.client.rng().random_range(0..2u8);
        let key = me.pick_key();
        let name = me.stage.keys[key].clone();
        let own = format!("c{consumer}");
        let block = me.client.rng().random_range(300..3000).to_string();
        let after = Duration::from_millis(me.client.rng().random_range(5..500));
        let command = words(&[
            "XREADGROUP",
            "GROUP",
            GROUPS[usize::from(group)],
            &own,
            "COUNT",
            "10",
            "BLOCK",
            &block,
            "STREAMS",
            &name,
            ">",
        ]);
        let what = What::Deliver { group, consumer };
        let started = me.stage.book.now();
        let outcome = match me.client.attempt_and_quit(&name, &command, after).await {
            Some(fate) => me.write_down(key, started, what, &command, fate),
            None => {
                me.write(key, started, what, &command, Outcome::Cut);
                continue;
            }
        };
        if let Some(Outcome::Entries(entries)) = outcome {
            let ids = entries.into_iter().map(|(id, _)| id).collect();
            me.acknowledge(key, group, ids).await;
        }
    }
}
