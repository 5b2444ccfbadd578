//! One `redis-server --appendfsync always`, and `redis-benchmark`.

use crate::Plan;
use crate::target::Target;
use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use weir_tests::connection::Connection;
use weir_tests::process::Process;

/// A running reference server; ends when dropped.
#[derive(Debug)]
pub(crate) struct Redis {
    process: Process,
    pub(crate) port: u16,
}

impl Redis {
    /// Starts it with an empty directory and waits until it answers.
    pub(crate) async fn start(plan: &Plan) -> Result<Redis> {
        let dir = plan.dir.join("redis");
        std::fs::create_dir_all(&dir)?;
        let port = weir_tests::ports::free_ports(1);
        let arguments = [
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--dir",
            &dir.display().to_string(),
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--auto-aof-rewrite-percentage",
            "0",
        ]
        .map(str::to_owned);
        let program = std::path::Path::new(&plan.redis);
        let process = Process::spawn(program, &arguments, &plan.dir.join("redis.log"))
            .context("redis-server is needed to compare with; ops/setup installs it")?;
        let redis = Redis { process, port };
        let deadline = Instant::now() + Duration::from_secs(10);
        while Connection::open(&redis.address(), Duration::from_secs(1)).await.is_err() {
            if Instant::now() > deadline {
                bail!("redis-server does not answer\n{}", redis.process.tail());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(redis)
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn target(&self) -> Target {
        Target::Single(self.address())
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Drops all data, so that rounds do not pile up.
    pub(crate) async fn clear(&self) -> Result<()> {
        let limit = Duration::from_secs(10);
        Connection::open(&self.address(), limit).await?.call(&["FLUSHALL"], limit).await?;
        Ok(())
    }
}

/// XADDs a second and median latency (ms) as `redis-benchmark` sees them.
pub(crate) fn redis_benchmark(
    port: u16,
    cluster: bool,
    connections: usize,
    requests: usize,
) -> Result<(f64, f64)> {
    let mut command = Command::new("redis-benchmark");
    command.args([
        "-p",
        &port.to_string(),
        "-c",
        &connections.to_string(),
        "-n",
        &requests.to_string(),
        "--csv",
    ]);
    command.args(["-r", "1000"]);
    if cluster {
        command.arg("--cluster");
    }
    let key = if cluster { "rb:{tag}:__rand_int__" } else { "rb:__rand_int__" };
    command.args(["XADD", key, "*", "f", &"x".repeat(crate::load::ENTRY_BYTES - 1)]);
    let output = command.output().context("redis-benchmark")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",...
    let row = text.lines().rfind(|line| line.starts_with("\"XADD")).with_context(|| {
        format!("redis-benchmark printed no result: {text}{}", String::from_utf8_lossy(&output.stderr))
    })?;
    // The name of the test holds commas of its own; the figures are the last seven columns.
    let figures: Vec<f64> = row.split(',').rev().map_while(|c| c.trim_matches('"').parse().ok()).collect();
    match figures.as_slice() {
        [_, _, _, p50, _, _, rps] => Ok((*rps, *p50)),
        _ => bail!("redis-benchmark printed: {row}"),
    }
}
