//! Takes entries with NOACK, mostly parked when they come.

use rand::Rng;
use weir_tests::history::What;

use super::{GROUPS, NOACK_GROUP, Worker, pause_after, words};

pub(super) async fn run(mut me: Worker) {
    let consumer = me.consumer();
    let own = me.name.clone();
    let group = GROUPS[usize::from(NOACK_GROUP)];
    while me.again().await {
        let key = me.pick_key();
        let name = me.stage.keys[key].clone();
        let block = me.client.rng().random_range(1..800).to_string();
        let command = words(&[
            "XREADGROUP",
            "GROUP",
            group,
            &own,
            "COUNT",
            "10",
            "BLOCK",
            &block,
            "NOACK",
            "STREAMS",
            &name,
            ">",
        ]);
        let outcome = me.call(key, What::Take { group: NOACK_GROUP, consumer }, &command).await;
        pause_after(outcome.as_ref()).await;
    }
}
