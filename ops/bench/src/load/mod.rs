//! A closed loop: every connection sends, waits for its replies, sends again.

pub(crate) mod speech;
pub(crate) mod work;

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::BytesMut;
use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::servers::target::Target;
use speech::{Answer, Speech};
use work::{Job, Work};

/// An answer that takes longer than this ends the measurement.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// How many connections, and how many commands each sends at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) pipeline: usize,
}

/// What is measured of appends when nothing is chosen.
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
    /// Operations done after the warm-up.
    pub(crate) answered: u64,
    /// Operations done, the warm-up included.
    pub(crate) all: u64,
    pub(crate) errors: u64,
    /// The first error's text.
    pub(crate) error: Option<String>,
    pub(crate) long: Duration,
    /// User and system time of the server's processes, over the whole round.
    pub(crate) cpu_seconds: f64,
    /// What was written to the disk below the servers, over the whole round.
    pub(crate) disk_bytes: f64,
    pub(crate) latency_us: Histogram<u64>,
}

impl Measured {
    pub(crate) fn nothing(long: Duration) -> Result<Measured> {
        Ok(Measured {
            answered: 0,
            all: 0,
            errors: 0,
            error: None,
            long,
            cpu_seconds: 0.0,
            disk_bytes: 0.0,
            latency_us: Histogram::new(3)?,
        })
    }

    fn add(&mut self, part: Measured) -> Result<()> {
        self.answered += part.answered;
        self.all += part.all;
        self.errors += part.errors;
        self.error = self.error.take().or(part.error);
        Ok(self.latency_us.add(&part.latency_us)?)
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.answered as f64 / self.long.as_secs_f64()
    }

    /// What one operation costs the server's processes together.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.all.max(1) as f64
    }

    /// What one operation lets the disk write.
    pub(crate) fn disk_bytes_each(&self) -> f64 {
        self.disk_bytes / self.all.max(1) as f64
    }

    pub(crate) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latency_us.value_at_quantile(quantile) as f64 / 1e3
    }
}

/// Connections with their streams laid out.
pub(crate) struct Prepared(Vec<(Connection, Job)>);

/// Opens the connections and lays out their streams.
pub(crate) async fn prepare(target: &Target, work: Work, load: Load, label: &str) -> Result<Prepared> {
    let mut ready = Vec::new();
    for n in 0..load.connections {
        let (address, key) = target.place(label, n);
        let mut connection = Connection::open(address, target.speech(), &key).await?;
        let mut job = Job::new(work, target.speech(), key, n);
        let (requests, answers) = job.preparation();
        connection.insist(&requests, answers).await?;
        ready.push((connection, job));
    }
    Ok(Prepared(ready))
}

/// Runs the load for `long`; a tenth of that warms up before and does not count.
pub(crate) async fn run(Prepared(ready): Prepared, load: Load, long: Duration) -> Result<Measured> {
    let warm = Instant::now() + long / 10;
    let until = warm + long;
    let tasks: Vec<_> = ready
        .into_iter()
        .map(|(connection, job)| tokio::spawn(one(connection, job, load.pipeline, warm, until)))
        .collect();
    let mut sum = Measured::nothing(long)?;
    for task in tasks {
        sum.add(task.await??)?;
    }
    Ok(sum)
}

async fn one(
    mut connection: Connection,
    mut job: Job,
    pipeline: usize,
    warm: Instant,
    until: Instant,
) -> Result<Measured> {
    let mut measured = Measured::nothing(until - warm)?;
    loop {
        let began = Instant::now();
        if began >= until {
            return Ok(measured);
        }
        let (mut errors, mut moved) = (0, false);
        for (bytes, answers) in job.next(pipeline) {
            for answer in connection.exchange(&bytes, answers).await? {
                match answer {
                    Answer::Done => {}
                    Answer::Moved(to) => {
                        moved = true;
                        connection.address = to;
                    }
                    Answer::Error(text) => {
                        errors += 1;
                        measured.error.get_or_insert(text);
                    }
                }
            }
        }
        if moved {
            connection.reopen().await?;
            continue;
        }
        let done = (pipeline as u64).saturating_sub(errors);
        measured.errors += errors;
        measured.all += done;
        if began >= warm {
            measured.answered += done;
            measured.latency_us.record(u64::try_from(began.elapsed().as_micros())?)?;
        }
    }
}

/// One client's connection.
pub(crate) struct Connection {
    address: String,
    speech: Speech,
    key: String,
    stream: TcpStream,
    input: BytesMut,
}

impl Connection {
    pub(crate) async fn open(address: String, speech: Speech, key: &str) -> Result<Connection> {
        let stream = TcpStream::connect(&address).await.with_context(|| address.clone())?;
        let input = BytesMut::with_capacity(16 << 10);
        let mut connection = Connection { address, speech, key: key.to_owned(), stream, input };
        connection.greet().await?;
        Ok(connection)
    }

    async fn reopen(&mut self) -> Result<()> {
        self.stream = TcpStream::connect(&self.address).await?;
        self.input.clear();
        self.greet().await
    }

    async fn greet(&mut self) -> Result<()> {
        self.stream.set_nodelay(true)?;
        let Some((greeting, end)) = self.speech.greeting(&self.key) else { return Ok(()) };
        self.stream.write_all(greeting.as_bytes()).await?;
        while !self.input.ends_with(end) {
            let read = timeout(ANSWER_WITHIN, self.stream.read_buf(&mut self.input)).await??;
            anyhow::ensure!(read > 0, "{} closed the connection", self.address);
        }
        self.input.clear();
        Ok(())
    }

    /// Sends and awaits that many answers.
    pub(crate) async fn exchange(&mut self, bytes: &[u8], answers: usize) -> Result<Vec<Answer>> {
        self.stream.write_all(bytes).await?;
        let until = Instant::now() + ANSWER_WITHIN;
        let mut got = Vec::with_capacity(answers);
        loop {
            while got.len() < answers
                && let Some(answer) = self.speech.answer(&mut self.input)?
            {
                got.push(answer);
            }
            if got.len() == answers {
                return Ok(got);
            }
            let read = timeout_at(until, self.stream.read_buf(&mut self.input)).await??;
            anyhow::ensure!(read > 0, "{} closed the connection", self.address);
        }
    }

    /// As [`Connection::exchange`], where redirects are followed and an error ends the measurement.
    pub(crate) async fn insist(&mut self, bytes: &[u8], answers: usize) -> Result<()> {
        loop {
            let got = self.exchange(bytes, answers).await?;
            match got.into_iter().find(|answer| *answer != Answer::Done) {
                None => return Ok(()),
                Some(Answer::Moved(to)) => {
                    self.address = to;
                    self.reopen().await?;
                }
                Some(Answer::Error(text)) => anyhow::bail!("{}: {text}", self.address),
                Some(Answer::Done) => unreachable!("looked for others"),
            }
        }
    }
}
