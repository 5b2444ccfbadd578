//! What the node answers itself, without a shard's log.

use super::{ClientCall, Control, error, glob};
use crate::cluster;
use crate::config::Durability;
use crate::info;
use crate::node::Node;
use crate::session::{Session, Written};
use crate::shard::{Answer, ReadMode, ShardHandle, Unblock};
use bytes::Bytes;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use weir_env::time::Instant;
use weir_stream::{Command, Query, Reply};

/// Answers what needs no waiting; hands back what does.
///
/// MULTI, EXEC, DISCARD and CLIENT REPLY are the connection's own business.
pub(crate) fn now(node: &Arc<Node>, session: &mut Session, call: Control) -> Result<Reply, Control> {
    Ok(match call {
        Control::Ping(None) => Reply::Simple("PONG"),
        Control::Ping(Some(text)) | Control::Echo(text) => Reply::Bulk(text),
        Control::Quit => {
            session.closing = true;
            Reply::Ok
        }
        Control::Reset => {
            session.reset();
            Reply::Simple("RESET")
        }
        Control::Hello { proto, name } => {
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
        // No slot is ever half moved yet, so there is nothing to ask for.
        Control::Asking => Reply::Ok,
        Control::Time => {
            let now = node.env.clock.wall_ms();
            Reply::Array(vec![bulk((now / 1000).to_string()), bulk((now % 1000 * 1000).to_string())])
        }
        Control::ConfigGet(patterns) => config_get(node, &patterns),
        Control::Client(call) => client(node, session, call),
        Control::Role => info::role(node),
        Control::Multi => error("ERR MULTI calls can not be nested"),
        other => return Err(other),
    })
}

/// Answers the rest. Called once all answers before are known; `written` is what this connection wrote.
pub(crate) async fn later(node: Arc<Node>, call: Control, written: Written) -> Reply {
    match call {
        Control::Info(sections) => bulk(info::info(&node, &sections)),
        Control::Cluster(args) => cluster::execute(&node, &args).await,
        Control::DbSize => db_size(&node).await,
        Control::Flush => flush(&node).await,
        Control::Wait { replicas, timeout } => {
            Reply::Int(wait(&node, &written, replicas, deadline(timeout)).await as i64)
        }
        Control::WaitAof { local, replicas, timeout } => {
            wait_synced(&node, &written, local, replicas, deadline(timeout)).await
        }
        other => error(format!("ERR {other:?} cannot be answered here")),
    }
}

fn bulk(text: impl Into<String>) -> Reply {
    Reply::Bulk(Bytes::from(text.into()))
}

fn hello(node: &Node, session: &Session) -> Reply {
    let field = |name: &str, value: Reply| (bulk(name), value);
    Reply::Map(vec![
        field("server", bulk("redis")),
        field("version", bulk(info::REDIS_VERSION)),
        field("proto", Reply::Int(session.proto.number())),
        field("id", Reply::Int(session.client.id as i64)),
        field("mode", bulk("cluster")),
        field("role", bulk(info::role_name(node))),
        field("modules", Reply::Array(Vec::new())),
        field("weir_version", bulk(info::WEIR_VERSION)),
    ])
}

fn config_get(node: &Node, patterns: &[Bytes]) -> Reply {
    let config = &node.config;
    let synced = match config.durability {
        Durability::Always => "always",
        Durability::EverySec => "everysec",
        Durability::Os => "no",
    };
    // What clients and tools ask a Redis for, in its words; the rest are the settings as the manual has them.
    let fixed = [
        ("appendfsync", synced),
        ("appendonly", "yes"),
        ("cluster-enabled", "yes"),
        ("databases", "1"),
        ("maxmemory-policy", "noeviction"),
        ("replica-read-only", "yes"),
        ("requirepass", ""),
        ("save", ""),
    ];
    let fixed = fixed.map(|(name, value)| (name, value.to_owned()));
    let all = config.pairs().into_iter().chain(fixed);
    let chosen = all.filter(|(name, _)| patterns.iter().any(|pattern| glob::fits(pattern, name.as_bytes())));
    Reply::Map(chosen.map(|(name, value)| (bulk(name), bulk(value))).collect())
}

fn client(node: &Node, session: &mut Session, call: ClientCall) -> Reply {
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
        ClientCall::Reply(_) => Reply::Ok,
    }
}

/// Keys of the shards led here.
async fn db_size(node: &Node) -> Reply {
    let led = node.shards.led();
    let counts = led.iter().map(|shard| shard.read(Query::KeyCount, ReadMode::Leader, None));
    let mut keys = 0;
    for answer in join_all(counts).await {
        // A shard that went elsewhere meanwhile is counted there.
        if let Answer::Reply { reply: Reply::Int(n), .. } = answer {
            keys += n;
        }
    }
    Reply::Int(keys)
}

/// One log entry for each shard led here.
async fn flush(node: &Node) -> Reply {
    let flushes = node.shards.led().into_iter().map(|shard| shard.write(Command::Flush, None));
    for answer in join_all(flushes).await {
        match answer {
            Answer::Reply { .. } | Answer::Moved => {}
            Answer::Busy => return error("BUSY too many commands are in flight here, try again"),
            Answer::Unknown => return error("UNKNOWN the command may or may not have been applied"),
            Answer::OutOfSpace => return error("OOM disk full"),
        }
    }
    Reply::Ok
}

/// Never, or that long from now.
fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// The shards that WAIT looks at with the index that matters there: those written to, or else all led here.
fn waited_for(node: &Node, written: &Written) -> Vec<(ShardHandle, u64)> {
    if written.is_empty() {
        return node.shards.led().into_iter().map(|shard| (shard, 0)).collect();
    }
    written.iter().filter_map(|(id, index)| Some((node.shards.get(id)?, index))).collect()
}

/// How many other voters hold every write of this connection: the minimum over its shards.
async fn wait(node: &Node, written: &Written, wanted: usize, deadline: Option<Instant>) -> usize {
    let shards = waited_for(node, written);
    let each = shards.iter().map(|(shard, index)| shard.wait_replicas(*index, wanted, deadline));
    join_all(each).await.into_iter().min().unwrap_or(0)
}

/// How often the own disk is looked at while WAITAOF waits for it.
const SYNC_LOOK_MS: u64 = 5;

/// 1 when this node has synced every write of this connection, and how many other voters have.
async fn wait_synced(
    node: &Node,
    written: &Written,
    local: usize,
    replicas: usize,
    deadline: Option<Instant>,
) -> Reply {
    let shards = waited_for(node, written);
    let synced_here = || shards.iter().all(|(shard, index)| shard.group().durable_index() >= *index);
    let own = async {
        while local > 0 && !synced_here() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            weir_env::time::sleep(Duration::from_millis(SYNC_LOOK_MS)).await;
        }
        i64::from(synced_here())
    };
    let others = async {
        if node.config.durability == Durability::Always {
            return wait(node, written, replicas, deadline).await as i64;
        }
        // Others tell what they hold in memory; what they have synced is not proven in these modes.
        if replicas > 0 {
            match deadline {
                Some(deadline) => weir_env::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        }
        0
    };
    let (own, others) = futures_util::join!(own, others);
    Reply::Array(vec![Reply::Int(own), Reply::Int(others)])
}
