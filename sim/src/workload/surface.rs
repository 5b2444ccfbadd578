//! Transactions, references and released entries on streams and counters of their own. What comes of it is judged by a
//! search for an order of the calls that explains all answers.

use rand::Rng;
use weir_resp::Value;
use weir_tests::client::{Fate, is_passing};

use super::{Worker, words};
use crate::{
    invariants::surface::{Asked, Back, Call, GROUPS, Refs, Told},
    plan::Mix,
};

/// No entry gets this old: only those that were given back may be claimed.
const NEVER_MS: &str = "86400000";

/// A client and the ids that it has seen.
struct Member {
    me: Worker,
    seen: Vec<u64>,
}

pub(super) async fn run(me: Worker, mix: Mix) {
    let mut member = Member { me, seen: Vec::new() };
    while member.me.again().await {
        let key = member.me.client.rng().random_range(0..member.me.stage.surface.len());
        let unit = member.me.stage.surface[key].clone();
        match member.me.client.rng().random_range(0..12u32) {
            0..5 if mix == Mix::Transactions => member.transact(key, &unit).await,
            5..7 if mix == Mix::Transactions => member.swap(key, &unit).await,
            11 => member.exec(key, &unit, Asked::Look).await,
            draw => {
                let asked = member.choose(draw, mix);
                let command = command(&unit, &asked);
                let started = member.me.stage.book.now();
                let fate = member.me.client.attempt(&format!("{{{unit}}}"), &command).await;
                member.note(key, started, asked, &command, fate);
            }
        }
    }
}

impl Worker {
    /// Every stream has both groups before anybody uses it.
    pub(super) async fn make_surface(&mut self) {
        for unit in self.stage.surface.clone() {
            for group in GROUPS {
                let stream = stream_of(&unit);
                let command = words(&["XGROUP", "CREATE", &stream, group, "0", "MKSTREAM"]);
                if let Err(error) = self.client.insist(&stream, &command).await
                    && !error.starts_with("BUSYGROUP")
                {
                    self.stage.book.violation("errors_are_expected", format!("XGROUP CREATE: {error}"));
                }
            }
        }
    }
}

impl Member {
    fn choose(&mut self, draw: u32, mix: Mix) -> Asked {
        let consumer = self.me.number;
        let token = self.me.stage.book.token();
        let seen = self.seen.clone();
        let rng = self.me.client.rng();
        let group = rng.random_range(0..GROUPS.len());
        // Now and then one that is not there.
        let id = match seen.len() {
            0 => token,
            len => seen[rng.random_range(0..len)],
        };
        let refs = [Refs::Keep, Refs::Delete, Refs::Delete, Refs::Acked][rng.random_range(0..4)];
        match draw {
            0..4 => Asked::Add(token),
            4..6 => {
                let claim = mix == Mix::Released && rng.random_bool(0.6);
                Asked::Deliver { group, consumer, count: rng.random_range(1..=3), claim }
            }
            6 => Asked::Pending { group },
            7 if mix == Mix::Released => Asked::Ack { group, id },
            7 => Asked::All,
            8 | 9 if mix == Mix::Released => {
                let back = [Back::Silent, Back::Fail, Back::Fatal][rng.random_range(0..3)];
                Asked::GiveBack { group, back, id }
            }
            8 | 9 => Asked::Delete { refs, id },
            _ => Asked::AckDelete { group, refs, id },
        }
    }

    async fn transact(&mut self, key: usize, unit: &str) {
        let token = self.me.stage.book.token();
        self.exec(key, unit, Asked::Both(token)).await;
    }

    /// MULTI to EXEC in one go; the end of the last is the end of all.
    async fn exec(&mut self, key: usize, unit: &str, asked: Asked) {
        let mut commands = vec![words(&["MULTI"])];
        commands.extend(queued(unit, &asked));
        commands.push(words(&["EXEC"]));
        let started = self.me.stage.book.now();
        let mut passing = None;
        let tag = format!("{{{unit}}}");
        let last = self.me.client.pipeline(&tag, &commands, |_, fate| {
            if let Fate::Refused(error) = fate
                && is_passing(&error)
            {
                passing.get_or_insert(error);
            }
        });
        let Some(mut end) = last.await else { return };
        // A command that was not queued, since it belongs elsewhere, aborts all.
        if let (Fate::Refused(error), Some(why)) = (&end, passing)
            && error.starts_with("EXECABORT")
        {
            end = Fate::Refused(why);
        }
        let shown = words(&["MULTI", unit, &format!("{asked:?}"), "EXEC"]);
        self.note(key, started, asked, &shown, end);
    }

    /// One more, if nobody else was faster. Everything goes over one connection; if that breaks, so does the attempt.
    async fn swap(&mut self, key: usize, unit: &str) {
        let (tag, counter) = (format!("{{{unit}}}"), counter_of(unit));
        let Some(at) = self.me.client.leader_of(&tag) else { return };
        let watch = self.me.client.attempt_at(&at, &words(&["WATCH", &counter])).await;
        if !matches!(watch, Fate::Done(_)) {
            return;
        }
        let Fate::Done(value) = self.me.client.attempt_at(&at, &words(&["GET", &counter])).await else {
            return;
        };
        let seen = number(&value);
        let steps = [words(&["MULTI"]), words(&["SET", &counter, &(seen + 1).to_string()])];
        for step in &steps {
            if !matches!(self.me.client.attempt_at(&at, step).await, Fate::Done(_)) {
                // What was watched must not be left behind on a connection that goes on.
                self.me.client.disconnect();
                return;
            }
        }
        let started = self.me.stage.book.now();
        let fate = self.me.client.attempt_at(&at, &words(&["EXEC"])).await;
        let shown = words(&["WATCH", &counter, &seen.to_string(), "EXEC"]);
        self.note(key, started, Asked::Swap { seen }, &shown, fate);
    }

    fn note(&mut self, key: usize, started: u64, asked: Asked, command: &[String], fate: Fate) {
        let told = match &fate {
            // Not done: if it was, no order explains what others saw.
            Fate::Refused(error) if is_passing(error) || error.starts_with("OOM") => return,
            Fate::Unreachable => return,
            Fate::Unknown(_) => None,
            Fate::Refused(error) => Some(Told::Error(error.split(' ').next().unwrap_or_default().to_owned())),
            // Somebody may have been faster between WATCH and GET: that says nothing of the number that was seen.
            Fate::Done(reply) if matches!(asked, Asked::Swap { .. }) && reply.is_nil() => return,
            Fate::Done(reply) => Some(told(&asked, reply)),
        };
        if let Some(Told::Entries(entries)) = &told {
            self.seen.extend(entries.iter().map(|(id, _)| *id));
            let extra = self.seen.len().saturating_sub(8);
            self.seen.drain(..extra);
        }
        let shown = told.as_ref().map_or_else(|| "unknown".to_owned(), |told| format!("{told:?}"));
        self.me.stage.trace.line(&self.me.name, format_args!("{} > {shown}", super::shortened(command)));
        let ended = self.me.stage.book.now();
        let client = self.me.number;
        self.me.stage.book.write_surface(Call { key, client, started, ended, asked, told });
    }
}

fn stream_of(unit: &str) -> String {
    format!("{{{unit}}}s")
}

fn counter_of(unit: &str) -> String {
    format!("{{{unit}}}n")
}

fn refs_word(refs: Refs) -> &'static str {
    match refs {
        Refs::Keep => "KEEPREF",
        Refs::Delete => "DELREF",
        Refs::Acked => "ACKED",
    }
}

fn command(unit: &str, asked: &Asked) -> Vec<String> {
    let stream = stream_of(unit);
    let entry = |id: &u64| format!("{id}-0");
    match asked {
        Asked::Add(id) => words(&["XADD", &stream, &entry(id), "t", &id.to_string()]),
        Asked::All => words(&["XRANGE", &stream, "-", "+"]),
        Asked::Deliver { group, consumer, count, claim } => {
            let mut command = words(&[
                "XREADGROUP",
                "GROUP",
                GROUPS[*group],
                &format!("c{consumer}"),
                "COUNT",
                &count.to_string(),
            ]);
            if *claim {
                command.extend(words(&["CLAIM", NEVER_MS]));
            }
            command.extend(words(&["STREAMS", &stream, ">"]));
            command
        }
        Asked::Ack { group, id } => words(&["XACK", &stream, GROUPS[*group], &entry(id)]),
        Asked::Delete { refs, id } => words(&["XDELEX", &stream, refs_word(*refs), "IDS", "1", &entry(id)]),
        Asked::AckDelete { group, refs, id } => {
            words(&["XACKDEL", &stream, GROUPS[*group], refs_word(*refs), "IDS", "1", &entry(id)])
        }
        Asked::GiveBack { group, back, id } => {
            let mode = match back {
                Back::Silent => "SILENT",
                Back::Fail => "FAIL",
                Back::Fatal => "FATAL",
            };
            words(&["XNACK", &stream, GROUPS[*group], mode, "IDS", "1", &entry(id)])
        }
        Asked::Pending { group } => words(&["XPENDING", &stream, GROUPS[*group], "-", "+", "1000"]),
        Asked::Both(_) | Asked::Look | Asked::Swap { .. } => unreachable!("these are transactions"),
    }
}

fn queued(unit: &str, asked: &Asked) -> Vec<Vec<String>> {
    let (stream, counter) = (stream_of(unit), counter_of(unit));
    match asked {
        Asked::Both(id) => {
            vec![
                words(&["XADD", &stream, &format!("{id}-0"), "t", &id.to_string()]),
                words(&["INCR", &counter]),
            ]
        }
        _ => vec![words(&["XLEN", &stream]), words(&["GET", &counter])],
    }
}

/// Nothing counts as 0.
fn number(value: &Value) -> i64 {
    value.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse().ok()).unwrap_or(0)
}

fn told(asked: &Asked, reply: &Value) -> Told {
    read(asked, reply).unwrap_or_else(|| Told::Strange(format!("{reply:?}")))
}

fn read(asked: &Asked, reply: &Value) -> Option<Told> {
    Some(match (asked, reply) {
        (Asked::Add(_), Value::Bulk(_)) => Told::Done,
        (Asked::All, Value::Array(rows)) => Told::Entries(rows.iter().map(entry).collect::<Option<_>>()?),
        (Asked::Deliver { .. }, reply) if reply.is_nil() => Told::Entries(Vec::new()),
        (Asked::Deliver { .. }, Value::Array(streams)) => {
            let [Value::Array(stream)] = streams.as_slice() else { return None };
            let Value::Array(rows) = stream.get(1)? else { return None };
            Told::Entries(rows.iter().map(entry).collect::<Option<_>>()?)
        }
        (Asked::Delete { .. } | Asked::AckDelete { .. }, Value::Array(each)) => {
            let [Value::Int(count)] = each.as_slice() else { return None };
            Told::Count(*count)
        }
        (Asked::Ack { .. } | Asked::GiveBack { .. }, Value::Int(count)) => Told::Count(*count),
        (Asked::Pending { .. }, Value::Array(rows)) => {
            Told::Pending(rows.iter().map(pending).collect::<Option<_>>()?)
        }
        (Asked::Both(_), Value::Array(answers)) => {
            let [added, Value::Int(number)] = answers.as_slice() else { return None };
            Told::Both(matches!(added, Value::Bulk(_)), *number)
        }
        (Asked::Look, Value::Array(answers)) => {
            let [Value::Int(length), counter] = answers.as_slice() else { return None };
            Told::Look(*length, number(counter))
        }
        (Asked::Swap { .. }, Value::Array(_)) => Told::Swapped,
        _ => return None,
    })
}

fn id(value: &Value) -> Option<u64> {
    std::str::from_utf8(value.bytes()?).ok()?.strip_suffix("-0")?.parse().ok()
}

/// Id and, after a claim, deliveries before.
fn entry(row: &Value) -> Option<(u64, Option<i64>)> {
    let Value::Array(row) = row else { return None };
    match row.as_slice() {
        [at, _fields] => Some((id(at)?, None)),
        [at, _fields, _idle, Value::Int(deliveries)] => Some((id(at)?, Some(*deliveries))),
        _ => None,
    }
}

fn pending(row: &Value) -> Option<(u64, Option<u32>, i64)> {
    let Value::Array(row) = row else { return None };
    let [at, owner, _idle, Value::Int(deliveries)] = row.as_slice() else { return None };
    let owner =
        std::str::from_utf8(owner.bytes()?).ok()?.strip_prefix('c').and_then(|number| number.parse().ok());
    Some((id(at)?, owner, *deliveries))
}
