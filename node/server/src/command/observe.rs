//! SLOWLOG, LATENCY, MEMORY, SAVE, DEBUG and SHUTDOWN, as the node answers them.

use super::error;
use crate::config::DebugCommand;
use crate::info;
use crate::metrics::CommandMetrics;
use crate::node::Node;
use crate::observe::saves;
use crate::session::Session;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use weir_stream::Reply;

/// A parsed call.
#[derive(Debug)]
pub enum ObserveCall {
    /// SLOWLOG GET; at most so many.
    SlowLog(usize),
    /// SLOWLOG LEN.
    SlowLogLen,
    /// SLOWLOG RESET.
    SlowLogReset,
    /// LATENCY LATEST.
    Latest,
    /// LATENCY HISTORY.
    History(Bytes),
    /// LATENCY GRAPH.
    Graph(Bytes),
    /// LATENCY RESET.
    LatencyReset(Vec<Bytes>),
    /// LATENCY DOCTOR.
    LatencyDoctor,
    /// LATENCY HISTOGRAM; no name means all.
    Histogram(Vec<Bytes>),
    /// MONITOR.
    Monitor,
    /// MEMORY STATS.
    MemoryStats,
    /// MEMORY DOCTOR.
    MemoryDoctor,
    /// LASTSAVE.
    LastSave,
    /// BGSAVE.
    BgSave,
    /// SAVE.
    Save,
    /// DEBUG, with all arguments.
    Debug(Vec<Bytes>),
    /// SHUTDOWN; `save` asks for snapshots before.
    Shutdown {
        /// SAVE.
        save: bool,
    },
}

impl ObserveCall {
    /// Whether it takes its time.
    pub fn waits(&self) -> bool {
        matches!(self, ObserveCall::Save | ObserveCall::Debug(_) | ObserveCall::Shutdown { .. })
    }
}

const NO_DEBUG: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can \
    run it from a local connection, otherwise you need to set this option in the configuration file, and then restart \
    the server.";

fn bulk(text: impl Into<String>) -> Reply {
    Reply::Bulk(text.into().into())
}

/// Answers what needs no waiting; hands back what does.
pub(super) fn now(node: &Arc<Node>, session: &mut Session, call: ObserveCall) -> Result<Reply, ObserveCall> {
    let observe = &node.observe;
    Ok(match call {
        ObserveCall::SlowLog(count) => observe.slow.show(count),
        ObserveCall::SlowLogLen => Reply::Int(observe.slow.len() as i64),
        ObserveCall::SlowLogReset => {
            observe.slow.reset();
            Reply::Ok
        }
        ObserveCall::Latest => observe.latency.latest(),
        ObserveCall::History(event) => observe.latency.history(&event),
        ObserveCall::Graph(event) => match observe.latency.graph(&event, node.env.clock.wall_ms() / 1000) {
            Some(graph) => bulk(graph),
            None => {
                let event = String::from_utf8_lossy(&event);
                error(format!("ERR No samples available for event '{event}'"))
            }
        },
        ObserveCall::LatencyReset(events) => Reply::Int(observe.latency.reset(&events) as i64),
        ObserveCall::LatencyDoctor => {
            bulk(observe.latency.doctor(node.settings.latency_monitor_threshold.get()))
        }
        ObserveCall::Histogram(names) => histograms(node, &names),
        ObserveCall::Monitor => {
            observe.monitors.add(session.client.clone());
            session.client.update(|state| state.monitors = true);
            Reply::Ok
        }
        ObserveCall::MemoryStats => info::memory_stats(node),
        ObserveCall::MemoryDoctor => bulk(info::memory_doctor(node)),
        ObserveCall::LastSave => Reply::Int(observe.saves.last_s().max(node.started_s()) as i64),
        ObserveCall::BgSave => {
            let saving = node.clone();
            let task = async move {
                if !saves::save(&saving).await {
                    tracing::warn!("a snapshot that was asked for takes long");
                }
            };
            node.env.spawn.spawn("save", Box::pin(task));
            Reply::Simple("Background saving started")
        }
        ObserveCall::Debug(args) => {
            let allowed = match node.config.enable_debug_command {
                DebugCommand::No => false,
                DebugCommand::Local => session.client.addr.ip().to_canonical().is_loopback(),
                DebugCommand::Yes => true,
            };
            match allowed {
                true => return Err(ObserveCall::Debug(args)),
                false => error(NO_DEBUG),
            }
        }
        call @ (ObserveCall::Save | ObserveCall::Shutdown { .. }) => return Err(call),
    })
}

/// Answers the rest.
pub(super) async fn later(node: &Arc<Node>, call: ObserveCall) -> Reply {
    match call {
        ObserveCall::Save => match saves::save(node).await {
            true => Reply::Ok,
            false => error("ERR the snapshots are not finished yet; they go on"),
        },
        ObserveCall::Shutdown { save } => {
            if save && !saves::save(node).await {
                return error("ERR Errors trying to SHUTDOWN. Check logs.");
            }
            tracing::info!("a client asked this node to stop");
            node.asked_to_stop.send_replace(true);
            // The connection ends with the node, without an answer.
            std::future::pending().await
        }
        ObserveCall::Debug(args) => debug(&args).await,
        other => error(format!("ERR {other:?} cannot be answered here")),
    }
}

/// DEBUG SLEEP holds this connection alone: a node that stood still would lose its leadership.
async fn debug(args: &[Bytes]) -> Reply {
    let word = args[1].to_ascii_lowercase();
    match (&word[..], &args[2..]) {
        (b"sleep", [seconds]) => {
            let seconds = std::str::from_utf8(seconds).ok().and_then(|text| text.parse::<f64>().ok());
            match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
                Some(pause) => {
                    weir_env::time::sleep(pause).await;
                    Reply::Ok
                }
                None => error("ERR value is not a valid float"),
            }
        }
        (b"help", []) => Reply::Array(
            [
                "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "SLEEP <seconds>",
                "    Let this connection wait. Others do not notice.",
                "HELP",
                "    Print this help.",
            ]
            .map(Reply::Simple)
            .into(),
        ),
        _ => {
            let shown = String::from_utf8_lossy(&args[1][..args[1].len().min(128)]).into_owned();
            error(format!(
                "ERR unknown subcommand or wrong number of arguments for '{shown}'. Try DEBUG HELP."
            ))
        }
    }
}

fn histograms(node: &Node, names: &[Bytes]) -> Reply {
    let wanted = |name: &str| {
        // The name of a command stands for its subcommands too.
        let fits = |n: &Bytes| {
            let n = n.to_ascii_lowercase();
            n == name.as_bytes() || name.split_once('|').is_some_and(|(head, _)| head.as_bytes() == &n[..])
        };
        names.is_empty() || names.iter().any(fits)
    };
    let one = |metrics: &CommandMetrics| {
        let mut buckets = Vec::new();
        let mut last = 0;
        for (bound, count) in metrics.latency.cumulative() {
            if count > last {
                let bound = bound.unwrap_or_else(|| metrics.latency.max());
                buckets.push((Reply::Int(bound as i64), Reply::Int(count as i64)));
                last = count;
            }
        }
        Reply::Map(vec![
            (bulk("calls"), Reply::Int(last as i64)),
            (bulk("histogram_usec"), Reply::Map(buckets)),
        ])
    };
    let all = node.metrics.commands();
    let chosen = all.iter().filter(|(name, c)| wanted(name) && c.latency.count() > 0);
    Reply::Map(chosen.map(|(name, metrics)| (bulk(*name), one(metrics))).collect())
}
