//! A RESP client of the simulated cluster: follows redirects, has a timeout, and tells apart what
//! was done, what was not, and what nobody knows.

use std::{collections::BTreeMap, io, time::Duration};

use bytes::BytesMut;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{sleep, timeout},
};
use turmoil::net::TcpStream;
use weir_resp::{Value, decode_value, encode_command};
use weir_stream::key_slot;

use crate::net::{Grid, dial};

/// Redirects followed, nodes tried and waits taken for one command before it counts as refused.
const ATTEMPTS_MAX: usize = 12;

/// What became of a command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// The server's reply.
    Value(Value),
    /// The server said no, or was never reached: nothing happened.
    Refused(String),
    /// The connection broke or nothing came in time: it may have happened.
    Unknown(String),
}

/// One client. Runs one command at a time.
pub(crate) struct Client {
    nodes: Vec<String>,
    rng: StdRng,
    /// Where each slot was last found.
    slots: BTreeMap<u16, String>,
    grid: Grid,
    connections: BTreeMap<String, Connection>,
}

struct Connection {
    stream: TcpStream,
    buffer: BytesMut,
}

/// How one attempt at one node ended.
enum Attempt {
    Reply(Value),
    /// Nothing was sent.
    NotSent(String),
    /// Something was, and no whole reply came.
    Broken(String),
}

impl Client {
    /// A client that knows the cluster by these `host:port`s.
    pub(crate) fn new(nodes: Vec<String>, grid: Grid, seed: u64) -> Self {
        Self {
            nodes,
            rng: StdRng::seed_from_u64(seed),
            slots: BTreeMap::new(),
            grid,
            connections: BTreeMap::new(),
        }
    }

    /// The client's own random source, for its workload.
    pub(crate) fn rng(&mut self) -> &mut StdRng {
        &mut self.rng
    }

    /// Runs a command about `key`; each attempt has `patience` to be answered.
    pub(crate) async fn call(&mut self, key: &str, args: &[&[u8]], patience: Duration) -> Answer {
        let slot = key_slot(key.as_bytes()).0;
        let mut refused = String::new();
        for _ in 0..ATTEMPTS_MAX {
            let at = match self.slots.get(&slot) {
                Some(at) => at.clone(),
                None => self.nodes[self.rng.random_range(0..self.nodes.len())].clone(),
            };
            match self.attempt(&at, args, patience).await {
                Attempt::Reply(Value::Error(text)) => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    let mut words = text.split(' ');
                    match (words.next(), words.nth(1)) {
                        (Some("UNKNOWN"), _) => return Answer::Unknown(text),
                        (Some("MOVED"), Some(to)) => {
                            self.slots.insert(slot, to.to_owned());
                        }
                        (Some("CLUSTERDOWN" | "TRYAGAIN" | "BUSY"), _) => {
                            self.slots.remove(&slot);
                            sleep(Duration::from_millis(50)).await;
                        }
                        _ => return Answer::Refused(text),
                    }
                    refused = text;
                }
                Attempt::Reply(value) => {
                    self.slots.insert(slot, at);
                    return Answer::Value(value);
                }
                Attempt::NotSent(why) => {
                    self.slots.remove(&slot);
                    refused = why;
                    sleep(Duration::from_millis(20)).await;
                }
                Attempt::Broken(why) => {
                    self.slots.remove(&slot);
                    return Answer::Unknown(why);
                }
            }
        }
        Answer::Refused(refused)
    }

    async fn attempt(&mut self, at: &str, args: &[&[u8]], patience: Duration) -> Attempt {
        let mut connection = match self.connections.remove(at) {
            Some(connection) => connection,
            None => match timeout(patience, dial(&self.grid, at)).await {
                Ok(Ok(stream)) => Connection { stream, buffer: BytesMut::new() },
                Ok(Err(error)) => return Attempt::NotSent(format!("{at}: {error}")),
                Err(_) => return Attempt::NotSent(format!("{at}: no connection in time")),
            },
        };
        match timeout(patience, connection.exchange(args)).await {
            Ok(Ok(value)) => {
                self.connections.insert(at.to_owned(), connection);
                Attempt::Reply(value)
            }
            Ok(Err(error)) => Attempt::Broken(format!("{at}: {error}")),
            Err(_) => Attempt::Broken(format!("{at}: no answer in time")),
        }
    }

    /// Drops all connections, as a client that restarts.
    pub(crate) fn disconnect(&mut self) {
        self.connections.clear();
    }
}

impl Connection {
    async fn exchange(&mut self, args: &[&[u8]]) -> io::Result<Value> {
        let mut request = Vec::with_capacity(128);
        encode_command(args, &mut request);
        self.stream.write_all(&request).await?;
        loop {
            match decode_value(&mut self.buffer) {
                Ok(Some(value)) => return Ok(value),
                Ok(None) => {}
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Reads `ms-seq`.
pub(crate) fn parse_id(text: &[u8]) -> Option<(u64, u64)> {
    let (ms, seq) = std::str::from_utf8(text).ok()?.split_once('-')?;
    Some((ms.parse().ok()?, seq.parse().ok()?))
}
