//! A closed loop: every connection sends, waits for its replies, sends again.

use crate::target::Target;
use anyhow::Result;
use bytes::BytesMut;
use hdrhistogram::Histogram;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use weir_resp::{Value, decode_value, encode_command};

/// Bytes of the field and value of each entry together.
pub(crate) const ENTRY_BYTES: usize = 100;

/// How many connections, and how many commands each sends at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) pipeline: usize,
}

/// What is measured when nothing is chosen.
pub(crate) const LOADS: [Load; 4] = [
    Load { connections: 1, pipeline: 1 },
    Load { connections: 50, pipeline: 1 },
    Load { connections: 200, pipeline: 1 },
    Load { connections: 50, pipeline: 16 },
];

impl Load {
    /// Reads `50x16`.
    pub(crate) fn parse(text: &str) -> Result<Load, String> {
        let parts = text.split_once('x').and_then(|(n, p)| Some((n.parse().ok()?, p.parse().ok()?)));
        match parts {
            Some((connections @ 1.., pipeline @ 1..)) => Ok(Load { connections, pipeline }),
            _ => Err("write CONNECTIONSxPIPELINE, such as 50x16".into()),
        }
    }

    pub(crate) fn name(&self) -> String {
        match (self.connections, self.pipeline) {
            (1, 1) => "1 connection".into(),
            (n, 1) => format!("{n} connections"),
            (n, p) => format!("{n} connections x {p}"),
        }
    }
}

/// What one round showed. Latency is that of a whole pipeline.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Answered after the warm-up.
    pub(crate) answered: u64,
    /// Answered, the warm-up included.
    pub(crate) all: u64,
    pub(crate) errors: u64,
    pub(crate) long: Duration,
    /// User and system time of the server's processes, over the whole round.
    pub(crate) cpu_seconds: f64,
    pub(crate) latency_us: Histogram<u64>,
}

impl Measured {
    pub(crate) fn per_second(&self) -> f64 {
        self.answered as f64 / self.long.as_secs_f64()
    }

    /// What one command costs the server's processes together.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.all.max(1) as f64
    }

    pub(crate) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latency_us.value_at_quantile(quantile) as f64 / 1e3
    }
}

/// Runs the load for `long`; the first tenth warms up and does not count.
pub(crate) async fn run(target: &Target, load: Load, long: Duration, label: &str) -> Result<Measured> {
    let warm = Instant::now() + long / 10;
    let until = warm + long;
    let mut tasks = Vec::new();
    for n in 0..load.connections {
        let key = format!("bench:{label}:{n}");
        let address = target.address_of(&key);
        tasks.push(tokio::spawn(one(address, key, load.pipeline, warm, until)));
    }
    let mut sum =
        Measured { answered: 0, all: 0, errors: 0, long, cpu_seconds: 0.0, latency_us: Histogram::new(3)? };
    for task in tasks {
        let part = task.await??;
        sum.answered += part.answered;
        sum.all += part.all;
        sum.errors += part.errors;
        sum.latency_us.add(&part.latency_us)?;
    }
    Ok(sum)
}

/// The command that adds an entry of [`ENTRY_BYTES`].
pub(crate) fn add_command(key: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let value = vec![b'x'; ENTRY_BYTES - 1];
    encode_command([b"XADD".as_slice(), key.as_bytes(), b"*", b"f", &value], &mut out);
    out
}

async fn one(
    address: String,
    key: String,
    pipeline: usize,
    warm: Instant,
    until: Instant,
) -> Result<Measured> {
    let command = add_command(&key).repeat(pipeline);
    let mut measured = Measured {
        answered: 0,
        all: 0,
        errors: 0,
        long: until - warm,
        cpu_seconds: 0.0,
        latency_us: Histogram::new(3)?,
    };
    let mut address = address;
    'connect: loop {
        let mut stream = TcpStream::connect(&address).await?;
        stream.set_nodelay(true)?;
        let mut input = BytesMut::with_capacity(16 * 1024);
        loop {
            let began = Instant::now();
            if began >= until {
                return Ok(measured);
            }
            stream.write_all(&command).await?;
            let mut moved = None;
            for _ in 0..pipeline {
                match reply(&mut stream, &mut input, until + Duration::from_secs(10)).await? {
                    Value::Error(text) => {
                        let text = String::from_utf8_lossy(&text).into_owned();
                        match weir_tests::client::parse_moved(&text) {
                            Some((_, to)) => moved = Some(to),
                            None => measured.errors += 1,
                        }
                    }
                    _ => {
                        measured.all += 1;
                        measured.answered += u64::from(began >= warm);
                    }
                }
            }
            if began >= warm && moved.is_none() {
                measured.latency_us.record(u64::try_from(began.elapsed().as_micros())?)?;
            }
            if let Some(to) = moved {
                address = to;
                continue 'connect;
            }
        }
    }
}

async fn reply(stream: &mut TcpStream, input: &mut BytesMut, until: Instant) -> Result<Value> {
    loop {
        if let Some(value) = decode_value(input)? {
            return Ok(value);
        }
        let read = timeout_at(until, stream.read_buf(input)).await??;
        anyhow::ensure!(read > 0, "the server closed the connection");
    }
}
