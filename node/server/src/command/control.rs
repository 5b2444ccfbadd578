//! What the node answers itself, without a shard's log.

use super::whole::{self, NO_CLUSTER};
use super::{ClientCall, Control, acl, error, observe, scan, settings};
use crate::acl::log::{Event, Reason};
use crate::acl::user::DEFAULT;
use crate::cluster;
use crate::config::Durability;
use crate::info;
use crate::listener::Kind;
use crate::node::Node;
use crate::pubsub;
use crate::route::{NO_LEADER, Redirect};
use crate::session::{Session, Written};
use crate::shard::{Answer, ShardHandle, Unblock};
use bytes::Bytes;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use weir_env::time::Instant;
use weir_stream::{Command, Reply};

/// Answers what needs no waiting; hands back what does.
///
/// MULTI, EXEC, DISCARD and CLIENT REPLY are the connection's own business.
pub(crate) fn now(node: &Arc<Node>, session: &mut Session, call: Control) -> Result<Reply, Control> {
    let is_whole = session.client.kind == Kind::Whole;
    Ok(match call {
        Control::Cluster(_) | Control::ReadOnly(_) | Control::Asking if is_whole => error(NO_CLUSTER),
        Control::Role if is_whole => info::whole_role(),
        Control::Ping(None) => Reply::Simple("PONG"),
        Control::Ping(Some(text)) | Control::Echo(text) => Reply::Bulk(text),
        Control::Quit => {
            session.closing = true;
            Reply::Ok
        }
        Control::Reset => {
            pubsub::forget(node, session);
            node.observe.monitors.remove(session.client.id);
            while session.client.inbox.take().is_some() {}
            session.reset(&node.acl);
            Reply::Simple("RESET")
        }
        Control::Auth { user: None, .. } if node.acl.default_user().user.nopass => error(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        ),
        Control::Auth { user, password } => {
            let user = user.unwrap_or(Bytes::from_static(DEFAULT));
            log_in(node, session, "AUTH", user, &password).err().unwrap_or(Reply::Ok)
        }
        Control::Acl(call) => match acl::now(node, session, call) {
            Ok(reply) => reply,
            Err(call) => return Err(Control::Acl(call)),
        },
        Control::Hello { proto, auth, name } => {
            if let Some((user, password)) = auth
                && let Err(refused) = log_in(node, session, "HELLO", user, &password)
            {
                return Ok(refused);
            }
            if session.must_log_in(&node.acl) {
                return Ok(error(
                    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                     AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                     version at the same time",
                ));
            }
            if let Some(name) = name {
                session.client.update(|state| state.name = name);
            }
            if let Some(proto) = proto {
                session.set_proto(proto);
            }
            hello(node, session)
        }
        Control::ReadOnly(readonly) => {
            session.set_readonly(readonly);
            Reply::Ok
        }
        Control::Unwatch => {
            session.watched.clear();
            Reply::Ok
        }
        // No slot is ever half moved yet, so there is nothing to ask for.
        Control::Asking => Reply::Ok,
        Control::Time => {
            let now = node.env.clock.wall_ms();
            Reply::Array(vec![bulk((now / 1000).to_string()), bulk((now % 1000 * 1000).to_string())])
        }
        Control::ConfigGet(patterns) => settings::get(node, &patterns, is_whole),
        Control::ConfigResetStat => settings::reset_statistics(node),
        Control::Observe(call) => match observe::now(node, session, call) {
            Ok(reply) => reply,
            Err(call) => return Err(Control::Observe(call)),
        },
        Control::Client(ClientCall::Unblock { id, error }) if node.clients.forwarded(id).is_some() => {
            return Err(Control::Client(ClientCall::Unblock { id, error }));
        }
        Control::Client(call) => client(node, session, call),
        Control::Role => info::role(node),
        Control::Multi => error("ERR MULTI calls can not be nested"),
        other => return Err(other),
    })
}

/// Answers the rest, and tells what it wrote itself. Called once all answers before are known; `written` is what
/// this connection wrote.
pub(crate) async fn later(node: Arc<Node>, call: Control, written: Written, kind: Kind) -> (Reply, Written) {
    let is_whole = kind == Kind::Whole;
    let reply = match call {
        Control::Info(sections) => bulk(info::info(&node, &sections, is_whole)),
        Control::Cluster(args) => cluster::execute(&node, &args, kind == Kind::Tls).await,
        Control::Acl(call) => acl::later(&node, call).await,
        Control::ConfigSet(pairs) => settings::set(&node, &pairs).await,
        Control::Observe(call) => observe::later(&node, call).await,
        Control::DbSize => whole::db_size(&node, is_whole).await,
        Control::Scan(call) => scan::scan(&node, &call, is_whole).await,
        Control::Keys(pattern) => scan::keys(&node, &pattern, is_whole).await,
        Control::RandomKey => scan::random_key(&node, is_whole).await,
        Control::Client(ClientCall::Unblock { id, error }) => {
            whole::unblock(&node, id, if error { Unblock::Error } else { Unblock::Timeout }).await
        }
        Control::Flush if is_whole => return whole::flush(&node).await,
        Control::Flush => return flush(&node).await,
        Control::Wait { replicas, timeout } if is_whole => {
            whole::wait(&node, &written, replicas, deadline(timeout)).await
        }
        Control::WaitAof { .. } if is_whole => {
            error("ERR WAITAOF needs a connection to a node's client port")
        }
        Control::Wait { replicas, timeout } => {
            let ends = Ends::at(deadline(timeout));
            Reply::Int(wait(&waited_for(&node, &written), replicas, &ends).await as i64)
        }
        Control::WaitAof { local, replicas, timeout } => {
            wait_synced(&node, &written, local, replicas, deadline(timeout)).await
        }
        other => error(format!("ERR {other:?} cannot be answered here")),
    };
    (reply, Written::default())
}

/// Changes the user of the connection, or refuses.
fn log_in(
    node: &Node,
    session: &mut Session,
    by: &'static str,
    user: Bytes,
    password: &[u8],
) -> Result<(), Reply> {
    match node.acl.log_in(&user, password) {
        Some(user) => {
            session.log_in(user);
            Ok(())
        }
        None => {
            let event = Event {
                reason: Reason::Auth,
                in_transaction: session.transaction.is_some(),
                object: Bytes::from_static(by.as_bytes()),
                user,
                client: session.client.line(node.env.clock.mono()),
            };
            node.acl_log.note(event, node.env.clock.wall_ms());
            node.metrics.acl_denied_auth.inc();
            Err(error("WRONGPASS invalid username-password pair or user is disabled."))
        }
    }
}

fn bulk(text: impl Into<String>) -> Reply {
    Reply::Bulk(Bytes::from(text.into()))
}

fn hello(node: &Node, session: &Session) -> Reply {
    let field = |name: &str, value: Reply| (bulk(name), value);
    let is_whole = session.client.kind == Kind::Whole;
    Reply::Map(vec![
        field("server", bulk("redis")),
        field("version", bulk(info::REDIS_VERSION)),
        field("proto", Reply::Int(session.proto.number())),
        field("id", Reply::Int(session.client.id as i64)),
        field("mode", bulk(if is_whole { "standalone" } else { "cluster" })),
        field("role", bulk(if is_whole { "master" } else { info::role_name(node) })),
        field("modules", Reply::Array(Vec::new())),
        field("weir_version", bulk(info::WEIR_VERSION)),
    ])
}

fn client(node: &Arc<Node>, session: &mut Session, call: ClientCall) -> Reply {
    if let ClientCall::Kill(filter) = &call
        && let Some(user) = &filter.user
        && node.acl.get(user).is_none()
    {
        return error(format!("ERR No such user '{}'", String::from_utf8_lossy(user)));
    }
    let me = session.client.clone();
    let now = node.env.clock.mono();
    match call {
        ClientCall::Id => Reply::Int(me.id as i64),
        ClientCall::Info => bulk(me.line(now)),
        ClientCall::GetName => {
            let name = me.state().name;
            if name.is_empty() { Reply::NilBulk } else { Reply::Bulk(name) }
        }
        ClientCall::SetName(name) => {
            me.update(|state| state.name = name);
            Reply::Ok
        }
        ClientCall::SetLibraryName(name) => {
            me.update(|state| state.library_name = name);
            Reply::Ok
        }
        ClientCall::SetLibraryVersion(version) => {
            me.update(|state| state.library_version = version);
            Reply::Ok
        }
        ClientCall::List(filter) => bulk(
            node.clients
                .matching(&filter, me.id, now)
                .iter()
                .map(|client| client.line(now))
                .collect::<String>(),
        ),
        ClientCall::Kill(filter) | ClientCall::KillAddress(filter) if filter.skip_me => {
            Reply::Int(node.clients.kill(&filter, me.id, now) as i64)
        }
        ClientCall::Kill(mut filter) => {
            let all = node.clients.matching(&filter, me.id, now).len();
            filter.skip_me = true;
            let others = node.clients.kill(&filter, me.id, now);
            // The caller goes after its answer.
            session.closing |= all > others;
            Reply::Int(all as i64)
        }
        ClientCall::KillAddress(mut filter) => {
            let all = node.clients.matching(&filter, me.id, now).len();
            filter.skip_me = true;
            session.closing |= all > node.clients.kill(&filter, me.id, now);
            if all > 0 { Reply::Ok } else { error("ERR No such client") }
        }
        ClientCall::Unblock { id, error } => {
            let how = if error { Unblock::Error } else { Unblock::Timeout };
            Reply::Int(i64::from(node.clients.unblock(id, how)))
        }
        ClientCall::Pause { limit, writes_only } => {
            node.pause.begin(now + limit, writes_only);
            let waits = node.clone();
            let end = async move {
                weir_env::time::sleep(limit).await;
                waits.clients.wake_all();
            };
            node.env.spawn.spawn("pause", Box::pin(end));
            Reply::Ok
        }
        ClientCall::Unpause => {
            node.pause.end();
            node.clients.wake_all();
            Reply::Ok
        }
        ClientCall::Reply(_) => Reply::Ok,
    }
}

/// Not done: the shard has too much in hand.
pub(crate) const BUSY: &str = "BUSY too many commands are in flight here, try again";
/// Nobody can say whether it was done.
pub(crate) const UNKNOWN: &str = "UNKNOWN the command may or may not have been applied";
/// Not done: only the reserve of the disk is left.
pub(crate) const DISK_FULL: &str = "OOM disk full";

/// Not done: it would have to be done on the nodes that lead.
const LEADS_NOTHING: &str = "READONLY You can't write against a read only replica.";

/// Pause before a shard that is led here and does not serve is asked again.
const FLUSH_AGAIN_PAUSE: Duration = Duration::from_millis(10);

/// One log entry for each shard led here.
async fn flush(node: &Node) -> (Reply, Written) {
    let until = Instant::now() + node.config.hold_max();
    let led: Vec<ShardHandle> = node.shards.all().into_iter().filter(is_leader).collect();
    let answers = join_all(led.iter().map(|shard| flush_shard(shard, until))).await;
    let mut written = Written::default();
    for (shard, answer) in led.iter().zip(&answers) {
        match answer {
            Answer::Reply { index, .. } => written.note(shard.id(), *index),
            Answer::Unknown => written.note_unknown(shard.id()),
            Answer::Moved | Answer::Busy | Answer::Later(_) | Answer::OutOfSpace | Answer::TooLarge => {}
        }
    }
    let refusal = match flush_end(&answers) {
        Ok(()) if !led.is_empty() => None,
        // Another node's shards are flushed there, but what nobody leads is flushed nowhere.
        Ok(()) if node.shards.all().iter().any(|shard| !has_leader(node, shard)) => Some(no_leader(node)),
        // As a replica of a Redis cluster does.
        Ok(()) => Some(LEADS_NOTHING.to_owned()),
        Err(Some(refusal)) => Some(refusal.to_owned()),
        Err(None) if led.iter().all(|shard| has_leader(node, shard)) => Some(Redirect::TryAgain.to_string()),
        Err(None) => Some(no_leader(node)),
    };
    (refusal.map_or(Reply::Ok, error), written)
}

/// Whether the shard is served, as far as is known here. Of its own leadership a node knows whether it can.
fn has_leader(node: &Node, shard: &ShardHandle) -> bool {
    let view = node.topology.view();
    shard.serving() || view.live_leader(shard.id()).is_some_and(|leader| leader.number != view.me)
}

pub(super) fn no_leader(node: &Node) -> String {
    node.metrics.cluster_down.inc();
    NO_LEADER.to_string()
}

/// Whether this node leads the shard, be it able to serve now or not.
fn is_leader(shard: &ShardHandle) -> bool {
    shard.group().status().borrow().is_leader
}

/// Empties one shard; asks again while it is led here and cannot serve.
async fn flush_shard(shard: &ShardHandle, until: Instant) -> Answer {
    loop {
        match shard.write(Command::Flush, None, None).await {
            Answer::Moved if is_leader(shard) && Instant::now() < until => {
                weir_env::time::sleep(FLUSH_AGAIN_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// What the shards' answers are together: a plain refusal means that no shard was touched. `Err(None)`: nothing was
/// done for want of a leader here.
pub(super) fn flush_end(answers: &[Answer]) -> Result<(), Option<&'static str>> {
    let any = |is: fn(&Answer) -> bool| answers.iter().any(is);
    let all_done = answers.iter().all(|answer| matches!(answer, Answer::Reply { .. }));
    if all_done {
        Ok(())
    } else if any(|answer| matches!(answer, Answer::Reply { .. } | Answer::Unknown)) {
        Err(Some(UNKNOWN))
    } else if any(|answer| matches!(answer, Answer::OutOfSpace)) {
        Err(Some(DISK_FULL))
    } else if any(|answer| matches!(answer, Answer::Busy)) {
        Err(Some(BUSY))
    } else {
        Err(None)
    }
}

/// Never, or that long from now.
fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// When a wait over several shards ends without enough: at its deadline, or once one shard cannot get there any more,
/// since the answer is the minimum.
struct Ends {
    deadline: Option<Instant>,
    over: watch::Sender<bool>,
}

impl Ends {
    fn at(deadline: Option<Instant>) -> Self {
        Ends { deadline, over: watch::Sender::new(false) }
    }

    /// Ends all.
    fn end(&self) {
        self.over.send_replace(true);
    }

    /// Returns at the end.
    async fn reached(&self) {
        let mut over = self.over.subscribe();
        // The sender lives as long as `self`.
        let over = async { over.wait_for(|over| *over).await.is_ok() };
        match self.deadline {
            Some(deadline) => drop(weir_env::time::timeout_at(deadline, over).await),
            None => drop(over.await),
        }
    }
}

/// A shard that WAIT looks at, with the index that matters there. `None`: nothing can be proven of what this connection
/// wrote to one, as its fate is unknown or the shard is no longer here.
type WaitedFor = Option<(ShardHandle, u64)>;

/// The shards that WAIT looks at: those written to, or else all led here.
fn waited_for(node: &Node, written: &Written) -> Vec<WaitedFor> {
    if written.is_empty() {
        return node.shards.led().into_iter().map(|shard| Some((shard, 0))).collect();
    }
    written.iter().map(|(id, index)| Some((node.shards.get(id)?, index?))).collect()
}

/// How many other voters hold every write of this connection: the minimum over its shards.
async fn wait(shards: &[WaitedFor], wanted: usize, ends: &Ends) -> usize {
    let each = shards.iter().map(|shard| async move {
        let proven = match shard {
            Some((shard, index)) => shard.wait_replicas(*index, wanted, ends.reached()).await,
            None => 0,
        };
        if proven < wanted {
            ends.end();
        }
        proven
    });
    join_all(each).await.into_iter().min().unwrap_or(0)
}

/// How often the own disk is looked at while WAITAOF waits for it.
const SYNC_LOOK: Duration = Duration::from_millis(5);

/// How often others are asked what they have synced; they sync once a second at most.
const SYNCED_ELSEWHERE_LOOK: Duration = Duration::from_millis(50);

/// 1 when this node has synced every write of this connection, and how many other voters have.
async fn wait_synced(
    node: &Node,
    written: &Written,
    local: usize,
    replicas: usize,
    deadline: Option<Instant>,
) -> Reply {
    let shards = waited_for(node, written);
    let ends = Ends::at(deadline);
    let synced_here = || {
        let synced = |(shard, index): &(ShardHandle, u64)| shard.group().durable_index() >= *index;
        shards.iter().all(|shard| shard.as_ref().is_some_and(synced))
    };
    let led_here = || shards.iter().all(|shard| shard.as_ref().is_some_and(|(shard, _)| shard.leads()));
    let own = async {
        let look = async {
            while local > 0 && !synced_here() && led_here() {
                weir_env::time::sleep(SYNC_LOOK).await;
            }
        };
        tokio::select! {
            biased;
            () = look => {}
            () = ends.reached() => {}
        }
        i64::from(synced_here())
    };
    let others = async {
        if node.config.durability == Durability::Always {
            return wait(&shards, replicas, &ends).await;
        }
        wait_synced_elsewhere(&shards, replicas, &ends).await
    };
    let (own, others) = futures_util::join!(own, others);
    Reply::Array(vec![Reply::Int(own), Reply::Int(others as i64)])
}

/// How many other voters have synced every write of this connection, where they confirm what is in memory alone: they
/// are asked until it is enough, or the end.
async fn wait_synced_elsewhere(shards: &[WaitedFor], wanted: usize, ends: &Ends) -> usize {
    let mut proven = 0;
    let look = async {
        loop {
            let each = shards.iter().map(|shard| async move {
                match shard {
                    Some((shard, index)) if shard.leads() => shard.group().synced_elsewhere(*index).await,
                    _ => 0,
                }
            });
            let now = join_all(each).await.into_iter().min().unwrap_or(0);
            // What is on a disk stays there.
            proven = proven.max(now);
            if proven >= wanted || !shards.iter().all(|s| s.as_ref().is_some_and(|(shard, _)| shard.leads()))
            {
                return;
            }
            weir_env::time::sleep(SYNCED_ELSEWHERE_LOOK).await;
        }
    };
    tokio::select! {
        biased;
        () = look => {}
        () = ends.reached() => {}
    }
    if proven < wanted {
        ends.end();
    }
    proven
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_touched_a_shard_is_never_refused_plainly() {
        let done = || Answer::Reply { reply: Reply::Ok, index: 3 };
        assert_eq!(flush_end(&[]), Ok(()), "a node that leads nothing has nothing to do");
        assert_eq!(flush_end(&[done(), done()]), Ok(()));
        for refused in [|| Answer::Moved, || Answer::Busy, || Answer::OutOfSpace] {
            assert_eq!(flush_end(&[done(), refused()]), Err(Some(UNKNOWN)));
            assert_eq!(flush_end(&[refused(), Answer::Unknown]), Err(Some(UNKNOWN)));
        }
        assert_eq!(flush_end(&[Answer::Moved, Answer::Busy]), Err(Some(BUSY)));
        assert_eq!(flush_end(&[Answer::OutOfSpace, Answer::Busy]), Err(Some(DISK_FULL)));
        assert_eq!(flush_end(&[Answer::Moved, Answer::Moved]), Err(None));
    }
}
