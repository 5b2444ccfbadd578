//! Makes, fills, reads and deletes streams and groups that nobody else uses. What comes of it is judged by a search for
//! an order of the calls that explains all answers.

use rand::Rng;
use weir_resp::Value;
use weir_tests::{
    client::{Fate, is_passing},
    history::{read_entries, read_stream_entries},
};

use super::{Worker, add_command, words};
use crate::invariants::linearizable::{Asked, Call, Told};

const GROUP: &str = "h";

pub(super) async fn run(mut me: Worker) {
    while me.again().await {
        let key = me.client.rng().random_range(0..me.stage.scratch.len());
        let name = me.stage.scratch[key].clone();
        let draw = me.client.rng().random_range(0..20u32);
        let (asked, command) = match draw {
            0..7 => {
                let token = me.stage.book.token();
                (Asked::Add(token), add_command(&name, token))
            }
            7 => (Asked::Delete, words(&["DEL", &name])),
            8..10 => (Asked::Length, words(&["XLEN", &name])),
            10..13 => (Asked::All, words(&["XRANGE", &name, "-", "+"])),
            13..15 => (Asked::CreateGroup, words(&["XGROUP", "CREATE", &name, GROUP, "0", "MKSTREAM"])),
            15 => (Asked::DestroyGroup, words(&["XGROUP", "DESTROY", &name, GROUP])),
            _ => (
                Asked::Take(2),
                words(&[
                    "XREADGROUP",
                    "GROUP",
                    GROUP,
                    &me.name,
                    "COUNT",
                    "2",
                    "NOACK",
                    "STREAMS",
                    &name,
                    ">",
                ]),
            ),
        };
        let started = me.stage.book.now();
        let fate = me.client.attempt(&name, &command).await;
        let told = match &fate {
            // Not done: if it was, no order explains what others saw.
            Fate::Refused(error) if is_passing(error) || error.starts_with("OOM") => continue,
            Fate::Unreachable => continue,
            Fate::Unknown(_) => None,
            Fate::Refused(error) => Some(Told::Error(error.split(' ').next().unwrap_or_default().to_owned())),
            Fate::Done(reply) => told(&asked, reply),
        };
        let shown = told.as_ref().map_or_else(|| "unknown".to_owned(), |told| format!("{told:?}"));
        me.stage.trace.line(&me.name, format_args!("{} > {shown}", super::shortened(&command)));
        let ended = me.stage.book.now();
        me.stage.book.write_scratch(Call { key, client: me.number, started, ended, asked, told });
    }
}

fn told(asked: &Asked, reply: &Value) -> Option<Told> {
    let tokens = |entries: Vec<(_, u64)>| Told::Tokens(entries.into_iter().map(|(_, token)| token).collect());
    let strange = || Told::Error(format!("BADREPLY {reply:?}"));
    Some(match (asked, reply) {
        (Asked::Add(_) | Asked::CreateGroup, _) => Told::Done,
        (Asked::All, reply) => read_entries(reply).map_or_else(|_| strange(), tokens),
        (Asked::Take(_), reply) => read_stream_entries(reply).map_or_else(|_| strange(), tokens),
        (_, Value::Int(count)) => Told::Count(*count),
        _ => strange(),
    })
}
