//! `redis-server`, and `redis-benchmark`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};
use weir_resp::Value;
use weir_tests::ports::free_ports;
use weir_tests::process::Process;

use super::{ANSWERS_WITHIN, answers};

/// An append is on disk before it is answered.
pub(crate) const ALWAYS: [&str; 6] =
    ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];
/// Nothing is on disk.
pub(crate) const MEMORY: [&str; 2] = ["--appendonly", "no"];

/// Starts one and waits until it answers; its address.
pub(crate) async fn start(program: &Path, dir: &Path, settings: &[&str]) -> Result<(Process, String)> {
    std::fs::create_dir_all(dir)?;
    let port = free_ports(1);
    let data = dir.display().to_string();
    let own = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir", &data, "--save", ""];
    let arguments: Vec<String> = own.iter().chain(settings).map(|&word| word.to_owned()).collect();
    let process = Process::spawn(program, &arguments, &dir.join("log"))
        .context("redis-server is needed to compare with; ops/setup installs it")?;
    let address = format!("127.0.0.1:{port}");
    answers(&process, &address).await?;
    Ok((process, address))
}

/// Starts one and a replica of it, and waits until the replica follows.
pub(crate) async fn with_replica(program: &Path, dir: &Path) -> Result<(Vec<Process>, String)> {
    let (primary, address) = start(program, &dir.join("primary"), &ALWAYS).await?;
    let (host, port) = address.split_once(':').context("address")?;
    let of = format!("{host} {port}");
    let mut settings = vec!["--replicaof", &of];
    settings.extend(ALWAYS);
    // The program reads "--replicaof host port" as one setting of two words.
    let words: Vec<&str> =
        settings.iter().flat_map(|word| if *word == of { vec![host, port] } else { vec![*word] }).collect();
    let (replica, _) = start(program, &dir.join("replica"), &words).await?;
    let deadline = Instant::now() + ANSWERS_WITHIN;
    let mut connection = answers(&primary, &address).await?;
    loop {
        connection.call(&["SET", "follow", "1"], ANSWERS_WITHIN).await?;
        if connection.call(&["WAIT", "1", "100"], ANSWERS_WITHIN).await? == Value::Int(1) {
            return Ok((vec![primary, replica], address));
        }
        if Instant::now() > deadline {
            bail!("the replica does not follow\n{}", replica.tail());
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// XADDs a second and median latency (ms) as `redis-benchmark` sees them.
pub(crate) fn redis_benchmark(
    port: &str,
    cluster: bool,
    connections: usize,
    requests: usize,
) -> Result<(f64, f64)> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", port, "-c", &connections.to_string(), "-n", &requests.to_string(), "--csv"]);
    command.args(["-r", "1000"]);
    if cluster {
        command.arg("--cluster");
    }
    let key = if cluster { "rb:{tag}:__rand_int__" } else { "rb:__rand_int__" };
    command.args(["XADD", key, "*", "f", &"x".repeat(crate::load::speech::ENTRY_BYTES - 1)]);
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
