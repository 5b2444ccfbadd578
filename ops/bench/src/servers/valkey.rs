//! A Valkey cluster of three primaries, each with a third of the slots.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};
use weir_resp::Value;
use weir_tests::ports::free_ports;
use weir_tests::process::Process;

use super::{ANSWERS_WITHIN, answers, redis};

/// Starts it and waits until all slots are served; its addresses.
pub(crate) async fn start(program: PathBuf, dir: &Path) -> Result<(Vec<Process>, Vec<String>)> {
    let first = free_ports(3);
    let (mut processes, mut addresses, mut connections) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..3 {
        let data = dir.join(format!("v{n}"));
        std::fs::create_dir_all(&data)?;
        let (port, data) = ((first + n).to_string(), data.display().to_string());
        let mut words = vec!["--port", &port, "--bind", "127.0.0.1", "--dir", &data, "--save", ""];
        words.extend(["--cluster-enabled", "yes", "--cluster-node-timeout", "5000"]);
        words.extend(redis::ALWAYS);
        let arguments: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let process = Process::spawn(&program, &arguments, &dir.join(format!("v{n}.log")))?;
        let address = format!("127.0.0.1:{port}");
        connections.push(answers(&process, &address).await?);
        addresses.push(address);
        processes.push(process);
    }
    for (n, connection) in connections.iter_mut().enumerate() {
        let (from, to) = ((16384 * n / 3).to_string(), (16384 * (n + 1) / 3 - 1).to_string());
        connection.call(&["CLUSTER", "ADDSLOTSRANGE", &from, &to], ANSWERS_WITHIN).await?;
        connection.call(&["CLUSTER", "MEET", "127.0.0.1", &first.to_string()], ANSWERS_WITHIN).await?;
    }
    let deadline = Instant::now() + ANSWERS_WITHIN;
    for connection in &mut connections {
        loop {
            let info = connection.call(&["CLUSTER", "INFO"], ANSWERS_WITHIN).await?;
            let Value::Bulk(text) = &info else { bail!("CLUSTER INFO said {info:?}") };
            let text = String::from_utf8_lossy(text);
            if text.contains("cluster_state:ok") && text.contains("cluster_known_nodes:3") {
                break;
            }
            if Instant::now() > deadline {
                bail!("the cluster does not form: {text}");
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok((processes, addresses))
}
