//! Sets values that end after a while, and reads those of everybody.

use rand::Rng;
use weir_tests::client::Fate;

use super::{Worker, words};
use crate::invariants::ends_in_time::{Timed, What};

/// `own`: the key that this client alone sets.
pub(super) async fn run(mut me: Worker, own: usize) {
    while me.again().await {
        let sets = me.client.rng().random_ratio(1, 5);
        let key = if sets { own } else { me.client.rng().random_range(0..me.stage.timed.len()) };
        let name = me.stage.timed[key].clone();
        let token = me.stage.book.token();
        let lasts_ms: u64 = me.client.rng().random_range(200..6000);
        let command = match sets {
            true => words(&["SET", &name, &token.to_string(), "PX", &lasts_ms.to_string()]),
            false => words(&["GET", &name]),
        };
        let started = me.stage.book.now();
        let fate = me.client.attempt(&name, &command).await;
        let what = match (&fate, sets) {
            (Fate::Done(_), true) => What::Set { token, lasts: lasts_ms * 1000, known: true },
            (Fate::Unknown(_), true) => What::Set { token, lasts: lasts_ms * 1000, known: false },
            (Fate::Done(value), false) if value.is_nil() => What::Get { token: None },
            (Fate::Done(value), false) => {
                let token = value.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse().ok());
                What::Get { token: Some(token.unwrap_or(0)) }
            }
            _ => continue,
        };
        me.stage.trace.line(&me.name, format_args!("{} > {what:?}", super::shortened(&command)));
        let ended = me.stage.book.now();
        me.stage.book.write_timed(Timed { key, started, ended, what });
    }
}
