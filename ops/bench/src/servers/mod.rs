//! What is measured: Weir, the machine's own limit, and the peers.

pub(crate) mod nats;
pub(crate) mod peers;
pub(crate) mod redis;
pub(crate) mod target;
pub(crate) mod valkey;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};
use weir_tests::connection::Connection;
use weir_tests::ports::free_ports;
use weir_tests::process::{Cluster, ClusterOptions, Process};

use crate::Plan;
use crate::load::speech::Speech;
use peers::Programs;
use target::Target;

/// How long a peer may take until it answers.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// A server, or a cluster of them, by its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// The machine's own limit: three processes that only append, sync and answer.
    Ideal,
    /// Three processes.
    Weir,
    /// One, with `appendfsync always`.
    RedisAlways,
    /// One without persistence.
    RedisMemory,
    /// Two with `appendfsync always`; each append is followed by `WAIT 1`.
    RedisReplica,
    /// Three, each with a third of the slots, `appendfsync always`, no replicas.
    ValkeyCluster,
    /// JetStream, three streams of three replicas, `sync_interval: always`.
    NatsAlways,
    /// JetStream at its default: a sync each two minutes.
    NatsDefault,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Ideal => "ideal, 3 copies",
            Kind::Weir => "weir, 3 copies",
            Kind::RedisAlways => "redis always",
            Kind::RedisMemory => "redis, no disk",
            Kind::RedisReplica => "redis always, WAIT 1",
            Kind::ValkeyCluster => "valkey always",
            Kind::NatsAlways => "nats R3 always",
            Kind::NatsDefault => "nats R3 default",
        }
    }
}

/// One that runs. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) kind: Kind,
    processes: Vec<Process>,
    cluster: Option<Cluster>,
    target: Target,
    seeds: Vec<String>,
    dir: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.processes.clear();
        self.cluster = None;
        // What is left goes with the directory of the whole run.
        _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Server {
    /// Starts it with empty directories and waits until it answers.
    pub(crate) async fn start(kind: Kind, plan: &Plan, programs: &Programs) -> Result<Server> {
        let dir = tempfile::Builder::new()
            .prefix(&kind.name().replace([' ', ','], "-"))
            .tempdir_in(&plan.dir)?
            .keep();
        let single = |processes, address, speech| Server {
            kind,
            processes,
            cluster: None,
            target: Target::Single(address, speech),
            seeds: Vec::new(),
            dir: dir.clone(),
        };
        Ok(match kind {
            Kind::Weir => {
                let cluster = weir(plan, &dir).await?;
                let seeds = cluster.addresses();
                let target = Target::cluster(&seeds).await?;
                Server { kind, processes: Vec::new(), cluster: Some(cluster), target, seeds, dir }
            }
            Kind::Ideal => {
                let (processes, address) = ideal(&dir).await?;
                single(processes, address, Speech::Frames)
            }
            Kind::RedisAlways => {
                let (process, address) = redis::start(&programs.redis, &dir, &redis::ALWAYS).await?;
                single(vec![process], address, Speech::Resp)
            }
            Kind::RedisMemory => {
                let (process, address) = redis::start(&programs.redis, &dir, &redis::MEMORY).await?;
                single(vec![process], address, Speech::Resp)
            }
            Kind::RedisReplica => {
                let (processes, address) = redis::with_replica(&programs.redis, &dir).await?;
                single(processes, address, Speech::RespWait)
            }
            Kind::ValkeyCluster => {
                let (processes, seeds) = valkey::start(programs.valkey()?, &dir).await?;
                let target = Target::cluster(&seeds).await?;
                Server { kind, processes, cluster: None, target, seeds, dir }
            }
            Kind::NatsAlways | Kind::NatsDefault => {
                let always = kind == Kind::NatsAlways;
                let (processes, leaders) = nats::start(programs.nats()?, &dir, always).await?;
                Server {
                    kind,
                    processes,
                    cluster: None,
                    target: Target::Nats(leaders),
                    seeds: Vec::new(),
                    dir,
                }
            }
        })
    }

    /// Where its clients go now.
    pub(crate) async fn target(&self) -> Result<Target> {
        if self.seeds.is_empty() { Ok(self.target.clone()) } else { Target::cluster(&self.seeds).await }
    }

    /// Its processes.
    pub(crate) fn pids(&mut self) -> Result<Vec<u32>> {
        match &mut self.cluster {
            Some(cluster) => (0..cluster.len()).map(|node| Ok(cluster.process(node)?.pid())).collect(),
            None => Ok(self.processes.iter().map(Process::pid).collect()),
        }
    }
}

/// Three nodes of Weir.
pub(crate) async fn weir(plan: &Plan, dir: &Path) -> Result<Cluster> {
    Cluster::start(ClusterOptions {
        weir: plan.weir.clone(),
        dir: dir.to_owned(),
        nodes: 3,
        arguments: plan.node_arguments.clone(),
        hosts: Vec::new(),
    })
    .await
}

/// Two followers and their leader.
async fn ideal(dir: &Path) -> Result<(Vec<Process>, String)> {
    let program = std::env::current_exe()?;
    let port = free_ports(3);
    let mut processes = Vec::new();
    for n in [1, 2, 0] {
        let mut arguments: Vec<String> = vec!["ideal".into(), "--port".into(), (port + n).to_string()];
        arguments.extend(["--dir".into(), dir.join(format!("i{n}")).display().to_string()]);
        if n == 0 {
            arguments.extend(["--followers".into(), format!("{},{}", port + 1, port + 2)]);
        }
        let mut process = Process::spawn(&program, &arguments, &dir.join(format!("i{n}.log")))?;
        process.wait_ready(ANSWERS_WITHIN).await?;
        processes.push(process);
    }
    Ok((processes, format!("127.0.0.1:{port}")))
}

/// Waits until a server of Redis' protocol answers.
async fn answers(process: &Process, address: &str) -> Result<Connection> {
    let deadline = Instant::now() + ANSWERS_WITHIN;
    loop {
        match Connection::open(address, Duration::from_secs(1)).await {
            Ok(connection) => return Ok(connection),
            Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(20)).await,
            Err(error) => bail!("{address} does not answer: {error}\n{}", process.tail()),
        }
    }
}

fn program(path: &Option<PathBuf>, what: &str) -> Result<PathBuf> {
    path.clone().with_context(|| format!("{what} is not installed; ops/setup bench installs it"))
}
