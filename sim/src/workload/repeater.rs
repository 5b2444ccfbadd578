//! XADD with IDMP: what has no known end is sent again under the same name, until it is answered. However often that
//! takes, the entry is there once, with the id that was answered.

use weir_tests::history::{Outcome, What};

use super::{Worker, fields_of, pause_after, words};

/// Attempts before it gives an add up, with an unknown end.
const ATTEMPTS_MAX: usize = 60;

pub(super) async fn run(mut me: Worker) {
    while me.again().await {
        let key = me.pick_key();
        let name = me.stage.keys[key].clone();
        let token = me.stage.book.token();
        let mut command = words(&["XADD", &name, "IDMP", &me.name, &token.to_string(), "*"]);
        command.extend(fields_of(token));
        for _ in 0..ATTEMPTS_MAX {
            let outcome = me.call(key, What::Add { token }, &command).await;
            if matches!(outcome, Some(Outcome::Added(_))) {
                break;
            }
            pause_after(outcome.as_ref()).await;
            if me.stage.repeat_plainly && matches!(outcome, Some(Outcome::Unknown(_))) {
                command.drain(2..5);
                me.call(key, What::Add { token }, &command).await;
                break;
            }
        }
    }
}
