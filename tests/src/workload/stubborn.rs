//! A client that stays with one node whatever the node answers, follows no redirect, and goes on sending while nothing
//! comes back. When its node is paused or cut off from the others, this is who would see stale answers: what it sent
//! in the middle of a pause is answered when the pause is over, and must be as fresh as the moment it was sent.

use super::{GROUPS, Stage, add_line, line, pick};
use crate::client::Fate;
use crate::connection::Connection;
use crate::history::{Id, Outcome, What};
use rand::{Rng, rngs::StdRng};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// Between two calls, whether or not the first was answered.
const PACE: Duration = Duration::from_millis(15);
/// Calls without an answer; one that is paused for long gets no more.
const UNANSWERED_MAX: usize = 600;
/// How long a call may take; longer than any pause.
const LIMIT: Duration = Duration::from_secs(12);
/// How long a call may take once everybody goes home.
const LEAVE_AFTER: Duration = Duration::from_millis(1500);

/// A call that was sent.
struct Sent {
    at: Instant,
    started: u64,
    key: usize,
    what: What,
    command: Vec<String>,
}

struct Stubborn {
    stage: Arc<Stage>,
    number: u32,
    rng: StdRng,
    cursors: Vec<Id>,
    sent: VecDeque<Sent>,
}

pub(super) async fn run(stage: Arc<Stage>, number: u32, address: String, stop: watch::Receiver<bool>) {
    let rng = stage.rng(number);
    let cursors = vec![Id::ZERO; stage.keys.len()];
    let mut me = Stubborn { stage, number, rng, cursors, sent: VecDeque::new() };
    while !*stop.borrow() {
        match Connection::open(&address, Duration::from_millis(500)).await {
            Ok(connection) => me.talk(connection, stop.clone()).await,
            Err(_) => {
                me.stage.recorder.record_unreachable();
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

impl Stubborn {
    /// Until the connection breaks, an answer takes too long, or everybody goes home.
    async fn talk(&mut self, mut connection: Connection, mut stop: watch::Receiver<bool>) {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leave_at: Option<Instant> = None;
        let why = loop {
            if leave_at.is_some() && self.sent.is_empty() {
                return;
            }
            let oldest = self.sent.front().map_or_else(|| Instant::now() + LIMIT, |sent| sent.at + LIMIT);
            let deadline = leave_at.map_or(oldest, |at| at.min(oldest));
            tokio::select! {
                _ = pace.tick(), if leave_at.is_none() && self.sent.len() < UNANSWERED_MAX => {
                    let sent = self.choose();
                    let written = connection.send(&sent.command).await;
                    self.sent.push_back(sent);
                    if let Err(error) = written {
                        break error;
                    }
                }
                reply = connection.receive(), if !self.sent.is_empty() => match reply {
                    Ok(value) => self.answered(Fate::of(Ok(value))),
                    Err(error) => break error,
                },
                _ = stop.changed() => leave_at = Some(Instant::now() + LEAVE_AFTER),
                () = tokio::time::sleep_until(deadline) => break io::ErrorKind::TimedOut.into(),
            }
        };
        while !self.sent.is_empty() {
            self.answered(Fate::Unknown(why.to_string()));
        }
    }

    fn choose(&mut self) -> Sent {
        let key = pick(&mut self.rng, &self.stage);
        let name = &self.stage.keys[key];
        let from = self.cursors[key].next();
        let group = u8::try_from(self.rng.random_range(0..GROUPS.len())).expect("few groups");
        let consumer = u16::try_from(self.number).expect("few clients");
        let (what, command) = match self.rng.random_range(0..8) {
            0 => {
                let token = self.stage.token();
                (What::Add { token }, add_line(name, token, 20))
            }
            1 => (
                What::Deliver { group, consumer },
                line(&[
                    "XREADGROUP",
                    "GROUP",
                    GROUPS[usize::from(group)],
                    &format!("c{consumer}"),
                    "COUNT",
                    "5",
                    "STREAMS",
                    name,
                    ">",
                ]),
            ),
            2 | 3 => (
                What::Read { from, to: Id::MAX, follower: false },
                line(&["XRANGE", name, &from.to_string(), "+", "COUNT", "100"]),
            ),
            _ => (
                What::Read { from: Id::ZERO, to: Id::MAX, follower: false },
                line(&["XREVRANGE", name, "+", "-", "COUNT", "20"]),
            ),
        };
        Sent { at: Instant::now(), started: self.stage.recorder.now(), key, what, command }
    }

    /// Writes the end of the oldest call down.
    fn answered(&mut self, fate: Fate) {
        let Some(sent) = self.sent.pop_front() else { return };
        let what = super::reader::covered(sent.what, &sent.command, &fate);
        let read = matches!(what, What::Read { .. });
        let outcome = self.stage.write_down(self.number, sent.key, sent.started, 0, what, fate);
        if read
            && let Some(Outcome::Entries(entries)) = outcome
            && let Some(&(highest, _)) = entries.iter().max()
        {
            self.cursors[sent.key] = self.cursors[sent.key].max(highest);
        }
    }
}
