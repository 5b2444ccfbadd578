//! A NATS cluster with three JetStream streams of three replicas each, which the clients share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use weir_tests::ports::free_ports;
use weir_tests::process::Process;

use super::ANSWERS_WITHIN;

/// Starts it and makes the streams s0, s1 and s2; the addresses of their leaders.
pub(crate) async fn start(program: PathBuf, dir: &Path, always: bool) -> Result<(Vec<Process>, Vec<String>)> {
    let (client, route) = (free_ports(3), free_ports(3));
    let routes: Vec<String> = (0..3).map(|n| format!("nats://127.0.0.1:{}", route + n)).collect();
    let sync = if always { "sync_interval: always" } else { "" };
    let mut processes = Vec::new();
    for n in 0..3 {
        let (port, cluster) = (client + n, route + n);
        let data = dir.join(format!("j{n}"));
        let settings = format!(
            "server_name: j{n}\nlisten: 127.0.0.1:{port}\njetstream {{ store_dir: {:?}\n {sync} }}\n\
             cluster {{ name: bench, listen: 127.0.0.1:{cluster}, routes: [{}] }}\n",
            data.display().to_string(),
            routes.join(", "),
        );
        let file = dir.join(format!("j{n}.conf"));
        std::fs::write(&file, settings)?;
        let arguments = ["-c".to_owned(), file.display().to_string()];
        processes.push(Process::spawn(&program, &arguments, &dir.join(format!("j{n}.log")))?);
    }
    let deadline = Instant::now() + ANSWERS_WITHIN;
    let mut leaders = Vec::new();
    for stream in 0..3 {
        let name = format!("s{stream}");
        let settings = json!({
            "name": name, "subjects": [format!("{name}.>")], "retention": "limits", "storage": "file",
            "num_replicas": 3, "max_msgs_per_subject": -1, "discard": "old", "max_age": 0, "max_bytes": 4i64 << 30,
            "duplicate_window": 0,
        });
        leaders.push(loop {
            // While the cluster forms there is nobody who could make a stream.
            let made = made(client, &name, &settings).await;
            match made {
                Ok(leader) => break format!("127.0.0.1:{}", client + leader),
                Err(error) if Instant::now() > deadline => {
                    bail!("no stream {name}: {error:#}\n{}", processes[0].tail())
                }
                Err(_) => sleep(Duration::from_millis(200)).await,
            }
        });
    }
    Ok((processes, leaders))
}

/// Makes a stream, unless it is there; the number of the server that leads it.
async fn made(port: u16, name: &str, settings: &Value) -> Result<u16> {
    let answer = request(port, &format!("$JS.API.STREAM.CREATE.{name}"), &settings.to_string()).await?;
    if answer.get("error").is_some_and(|error| error["err_code"] != 10058) {
        bail!("{answer}");
    }
    let info = request(port, &format!("$JS.API.STREAM.INFO.{name}"), "").await?;
    let cluster = &info["cluster"];
    let current =
        cluster["replicas"].as_array().is_some_and(|all| all.iter().all(|one| one["current"] == true));
    let leader = cluster["leader"].as_str().with_context(|| info.to_string())?;
    anyhow::ensure!(current, "its replicas are not there yet");
    Ok(leader.trim_start_matches('j').parse()?)
}

/// One request and its answer.
async fn request(port: u16, subject: &str, body: &str) -> Result<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let words = format!(
        "CONNECT {{\"verbose\":false,\"headers\":false}}\r\nSUB _R.bench 1\r\nPUB {subject} _R.bench {}\r\n{body}\r\n",
        body.len()
    );
    stream.write_all(words.as_bytes()).await?;
    let mut input = Vec::new();
    loop {
        if let Some(answer) = message(&input) {
            return Ok(serde_json::from_slice(answer)?);
        }
        let read = timeout(Duration::from_secs(3), stream.read_buf(&mut input)).await??;
        anyhow::ensure!(read > 0, "NATS closed the connection: {}", String::from_utf8_lossy(&input));
    }
}

/// The body of the first message in it, once it is there whole.
fn message(input: &[u8]) -> Option<&[u8]> {
    let start = input.windows(6).position(|bytes| bytes == b"\r\nMSG ")? + 2;
    let end = start + input[start..].windows(2).position(|bytes| bytes == b"\r\n")?;
    let length: usize = std::str::from_utf8(&input[start..end]).ok()?.rsplit(' ').next()?.parse().ok()?;
    input.get(end + 2..end + 2 + length)
}
