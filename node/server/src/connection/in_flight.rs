//! Calls that were started and not answered yet.

use super::crossed::Crossed;
use crate::clients::Client;
use crate::command::control::{BUSY, DISK_FULL, UNKNOWN};
use crate::command::error;
use crate::command::late::Late;
use crate::command::table::Row;
use crate::forward::lane::Ended;
use crate::forward::{Wait, Work, waiter};
use crate::listener::Kind;
use crate::metrics::CommandMetrics;
use crate::node::Node;
use crate::route::{Access, NO_LEADER, Redirect};
use crate::session::{Origin, Written};
use crate::shard::{Answer, Park, Pending, ReadMode, ShardHandle, ShardId};
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use weir_env::BoxFuture;
use weir_env::time::{Duration, Instant, sleep};
use weir_stream::{Command, Query, Refusal, Reply, Slot};

/// One call on its way.
pub(super) struct InFlight {
    pub(super) stage: Stage,
    pub(super) about: About,
}

/// What does not change while a call is on its way.
pub(super) struct About {
    /// Numbers of the command.
    pub(super) metrics: Arc<CommandMetrics>,
    /// When it was read.
    pub(super) started: Instant,
    /// CLIENT REPLY OFF or SKIP: the answer is not sent.
    pub(super) silent: bool,
    /// Ends with the connection: a reader that may be parked, a WAIT.
    pub(super) waits: bool,
    /// How the shard's answer becomes the client's, if not as it is.
    pub(super) finish: Option<Finish>,
    /// WATCH: the keys whose versions are asked for.
    pub(super) watched: Vec<Bytes>,
    /// The call, if it waits.
    pub(super) origin: Option<Box<Origin>>,
    /// Its row and arguments, for SLOWLOG, if they are worth it.
    pub(super) row: Option<&'static Row>,
    pub(super) args: Vec<Bytes>,
    /// It was refused before its arguments were looked at.
    pub(super) rejected: bool,
    /// The user lost the right while it waited: what is answered instead.
    pub(super) revoked: Option<Reply>,
}

impl About {
    /// The answer, unless the wait was ended for want of rights.
    pub(super) fn or_revoked(&mut self, answer: Reply) -> Reply {
        match (&answer, self.revoked.take()) {
            (Reply::Error(Refusal::Text(text)), Some(revoked)) if text.starts_with("UNBLOCKED ") => revoked,
            _ => answer,
        }
    }
}

/// What is done to a shard's answer.
pub(super) enum Finish {
    /// EXEC: where the answers come from, in their order.
    Merged(Vec<Place>),
    /// A refusal that had to look at the state first.
    Late(Box<Late>),
    /// EXEC of what crosses slots, after a look at what is watched.
    Crossed(Box<Crossed>),
}

/// Where the answer to an element of a transaction comes from.
pub(super) enum Place {
    /// It is the next one of the log entry.
    Logged,
    /// It is made once the log entry is applied, if it is.
    Then(Box<dyn FnOnce() -> Reply + Send>),
    /// It was known before.
    Known(Reply),
    /// A refusal, unless the look that is next in the log entry found another reason.
    Late(Box<Late>),
}

/// How far a call is.
pub(super) enum Stage {
    /// Answered, but others stand before it.
    Ready(Reply),
    /// With a shard.
    Shard {
        pending: Pending,
        shard: ShardId,
        slot: Slot,
        /// A write, or which kind of read.
        access: Access,
        /// How to send it once more if it was not done and nothing followed it.
        again: Option<Box<Job>>,
    },
    /// In the lane of a client that knows no cluster; `writes`: it is a write.
    Lane { ended: oneshot::Receiver<Ended>, slot: Slot, writes: bool },
    /// Anything that needs more than one step.
    Task(BoxFuture<'static, Done>),
}

/// The end of a call.
pub(super) struct Done {
    pub(super) reply: Reply,
    /// Shard and log index of a write; without the index when nobody knows whether it was done.
    pub(super) written: Option<(ShardId, Option<u64>)>,
    /// What a call over several shards wrote.
    pub(super) written_more: Written,
}

impl Done {
    pub(super) fn reply(reply: Reply) -> Self {
        Done { reply, written: None, written_more: Written::default() }
    }
}

/// Something to do at a shard.
#[derive(Clone)]
pub(super) enum Job {
    Write(Command, Option<Park>),
    Read(Query, Access, Option<Park>),
}

impl Job {
    pub(super) fn access(&self) -> Access {
        match self {
            Job::Write(..) => Access::Write,
            Job::Read(_, access, _) => *access,
        }
    }

    /// The same for whichever node leads.
    pub(super) fn into_work(self, node: &Node) -> Work {
        let wait = |park: Park| Wait { until: park.deadline, waiter: waiter(node, park.client) };
        match self {
            Job::Write(command, park) => Work::Write(command, park.map(wait)),
            Job::Read(query, _, park) => Work::Read(query, park.map(wait)),
        }
    }

    /// How it waits, if it does.
    pub(super) fn park(&self) -> Option<Park> {
        match self {
            Job::Write(_, park) | Job::Read(_, _, park) => *park,
        }
    }

    /// Hands it to the shard; `client` is told where its reader may be parked.
    pub(super) fn submit(self, shard: &ShardHandle, client: &Client) -> Pending {
        if self.park().is_some() {
            client.update(|state| state.blocked_at = Some(shard.clone()));
        }
        match self {
            Job::Write(command, park) => shard.write(command, park, Some(client.backlog.clone())),
            Job::Read(query, access, park) => {
                let follower = access == Access::FollowerRead && !shard.serving();
                let mode = if follower { ReadMode::Follower } else { ReadMode::Leader };
                shard.read(query, mode, park, Some(client.backlog.clone()))
            }
        }
    }
}

/// Pause before a shard that said it does not lead, while the map says it does, is asked again.
const AGAIN_PAUSE: Duration = Duration::from_millis(10);

/// Routes, holding on while there is no leader, and sees the job through. What was not done is sent again while it
/// belongs here, `until` the end of its hold; a reader that waits is not, since it would wait from a later point.
pub(super) async fn send(
    node: Arc<Node>,
    client: Arc<Client>,
    slot: Slot,
    job: Job,
    bytes: usize,
    until: Instant,
) -> Done {
    loop {
        let shard = match node.route(slot, job.access(), bytes, until).await {
            Ok(shard) => shard,
            Err(redirect) => return Done::reply(redirected(&redirect, &client)),
        };
        let writes = job.access() == Access::Write;
        match settle(job.clone().submit(&shard, &client).await, shard.id(), slot, writes) {
            Ok(done) => return done,
            // All before it were sent by now.
            Err(Unsettled::Later(_)) => client.backlog.drained(),
            Err(Unsettled::Moved(slot)) if job.park().is_some() || Instant::now() >= until => {
                return elsewhere(node, client, slot, until).await;
            }
            Err(Unsettled::Moved(slot)) => {
                // This replica is too far behind for a follower's read: the leader is not.
                if let (Access::FollowerRead, Some(Err(redirect))) =
                    (job.access(), node.route_now(slot, Access::Read))
                {
                    return Done::reply(redirected(&redirect, &client));
                }
                sleep(AGAIN_PAUSE).await;
            }
        }
    }
}

/// Not done here, and not to be tried here again: where to.
pub(super) async fn elsewhere(node: Arc<Node>, client: Arc<Client>, slot: Slot, until: Instant) -> Done {
    Done::reply(redirected(&node.redirect(slot, until).await, &client))
}

/// The redirect as an answer for this client.
pub(super) fn redirected(redirect: &Redirect, client: &Client) -> Reply {
    error(redirect.line(client.kind == Kind::Tls))
}

/// What has to be sent again.
#[derive(Debug, PartialEq)]
enum Unsettled {
    /// Not done here: route the slot again.
    Moved(Slot),
    /// A read whose turn had not come.
    Later(Box<Query>),
}

/// The end that a shard's answer means, or what is left to do. `writes`: it answers a write.
fn settle(answer: Answer, shard: ShardId, slot: Slot, writes: bool) -> Result<Done, Unsettled> {
    match answer {
        Answer::Reply { reply: Reply::Error(Refusal::NotOwned(slot)), .. } => Err(Unsettled::Moved(slot)),
        Answer::Later(query) => Err(Unsettled::Later(query)),
        Answer::Reply { reply, index } => {
            Ok(Done { written: (index > 0).then_some((shard, Some(index))), ..Done::reply(reply) })
        }
        Answer::Moved => Err(Unsettled::Moved(slot)),
        Answer::Busy => Ok(Done::reply(error(BUSY))),
        Answer::Unknown => {
            Ok(Done { written: writes.then_some((shard, None)), ..Done::reply(error(UNKNOWN)) })
        }
        Answer::OutOfSpace => Ok(Done::reply(error(DISK_FULL))),
        Answer::TooLarge => Ok(Done::reply(error("ERR the command is larger than a log entry can be"))),
    }
}

impl InFlight {
    /// Whether its answer only waits to be sent.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready(_))
    }

    /// Whether it left the order in which it was submitted.
    pub(super) fn is_being_sent_again(&self) -> bool {
        matches!(self.stage, Stage::Task(_))
    }

    /// Goes on. `alone` says that no call was started after this one, so that sending it again cannot swap two.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        node: &Arc<Node>,
        client: &Arc<Client>,
        written: &mut Written,
        alone: bool,
    ) -> Poll<Reply> {
        let done = loop {
            match &mut self.stage {
                Stage::Ready(reply) => break Done::reply(std::mem::replace(reply, Reply::None)),
                Stage::Task(task) => match task.as_mut().poll(cx) {
                    Poll::Ready(done) => break done,
                    Poll::Pending => return Poll::Pending,
                },
                Stage::Lane { ended, slot, writes } => match Pin::new(ended).poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(Ended { shard, answer })) => match settle(answer, shard, *slot, *writes) {
                        Ok(done) => break done,
                        Err(_) => break Done::reply(error(NO_LEADER.to_string())),
                    },
                    // The lane is gone with the command in hand.
                    Poll::Ready(Err(_)) => break Done::reply(error(UNKNOWN)),
                },
                Stage::Shard { pending, shard, slot, access, again } => match Pin::new(pending).poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(answer) => match settle(answer, *shard, *slot, *access == Access::Write) {
                        Ok(done) => break done,
                        Err(Unsettled::Later(query)) => {
                            // All before it are sent: its turn has come.
                            client.backlog.drained();
                            let job = Job::Read(*query, *access, None);
                            let until = Instant::now() + node.config.hold_max();
                            let again = send(node.clone(), client.clone(), *slot, job, 0, until);
                            self.stage = Stage::Task(Box::pin(again));
                        }
                        Err(Unsettled::Moved(slot)) => {
                            let until = Instant::now() + node.config.hold_max();
                            self.stage = Stage::Task(match again.take().filter(|_| alone) {
                                Some(job) => {
                                    Box::pin(send(node.clone(), client.clone(), slot, *job, 0, until))
                                }
                                None => Box::pin(elsewhere(node.clone(), client.clone(), slot, until)),
                            });
                        }
                    },
                },
            }
        };
        match done.written {
            Some((shard, Some(index))) => written.note(shard, index),
            Some((shard, None)) => written.note_unknown(shard),
            None => written.append(&done.written_more),
        }
        Poll::Ready(match self.about.finish.take() {
            Some(Finish::Merged(places)) => merged(places, done.reply),
            Some(Finish::Late(late)) => late.answer(done.reply),
            Some(Finish::Crossed(crossed)) => crossed.answer(done.reply),
            None => done.reply,
        })
    }
}

/// The answers of the log entry, with the others in their places. An error stands for the whole.
pub(super) fn merged(places: Vec<Place>, reply: Reply) -> Reply {
    match reply {
        Reply::Array(answers) => {
            let mut answers = answers.into_iter();
            let mut next = || answers.next().unwrap_or(Reply::NilBulk);
            let all = places.into_iter().map(|place| match place {
                Place::Known(reply) => reply,
                Place::Then(then) => then(),
                Place::Logged => next(),
                Place::Late(late) => late.answer(next()),
            });
            Reply::Array(all.collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_keep_their_places_in_a_transaction() {
        let places = vec![Place::Logged, Place::Known(Reply::Ok), Place::Logged];
        let answers = Reply::Array(vec![Reply::Int(1), Reply::Int(2)]);
        assert_eq!(merged(places, answers), Reply::Array(vec![Reply::Int(1), Reply::Ok, Reply::Int(2)]));
        assert_eq!(merged(vec![Place::Logged], error("ERR x")), error("ERR x"));
    }

    #[test]
    fn each_answer_of_a_shard_has_one_meaning() {
        let settle = |answer, writes| settle(answer, ShardId(0), Slot(7), writes);
        let ended = |done: Done| (done.reply, done.written);
        let settled = |answer| settle(answer, true).map(ended);
        assert_eq!(settled(Answer::Moved), Err(Unsettled::Moved(Slot(7))));
        let refused = Reply::Error(Refusal::NotOwned(Slot(9)));
        assert_eq!(settled(Answer::Reply { reply: refused, index: 3 }), Err(Unsettled::Moved(Slot(9))));
        assert_eq!(
            settled(Answer::Reply { reply: Reply::Ok, index: 3 }),
            Ok((Reply::Ok, Some((ShardId(0), Some(3)))))
        );
        assert_eq!(settled(Answer::Reply { reply: Reply::Ok, index: 0 }), Ok((Reply::Ok, None)));
        let unknown = "UNKNOWN the command may or may not have been applied";
        assert_eq!(settled(Answer::Unknown), Ok((error(unknown), Some((ShardId(0), None)))));
        assert_eq!(settle(Answer::Unknown, false).map(ended), Ok((error(unknown), None)), "a read");
    }
}
