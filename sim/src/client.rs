//! A RESP client of the simulated cluster. It never repeats a call by itself: a history needs to know the fate of each
//! attempt, in the words of the process test ([`Fate`]).

use std::{collections::BTreeMap, io, time::Duration};

use bytes::BytesMut;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, sleep, timeout, timeout_at},
};
use turmoil::net::TcpStream;
use weir_resp::{Value, decode_value, encode_command};
use weir_tests::{
    client::{Fate, is_passing, parse_moved},
    slots::slot_of,
};

use crate::cluster::PLAIN_PORT;
use crate::net::{Grid, dial};

/// One client. Runs one call at a time.
pub(crate) struct Client {
    nodes: Vec<String>,
    rng: StdRng,
    /// Where each slot was last found.
    leaders: BTreeMap<u16, String>,
    grid: Grid,
    connections: BTreeMap<String, Connection>,
    /// How long it waits for an answer.
    pub(crate) patience: Duration,
    readonly: bool,
    /// Now and then it asks a node that it does not believe to lead.
    strays: bool,
    /// It knows no cluster.
    plain: bool,
}

struct Connection {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Client {
    /// A client that knows the cluster by these `host:port`s.
    pub(crate) fn new(nodes: Vec<String>, grid: Grid, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let patience = Duration::from_millis([400, 1500, 7000][rng.random_range(0..3)]);
        Self {
            nodes,
            rng,
            leaders: BTreeMap::new(),
            grid,
            connections: BTreeMap::new(),
            patience,
            readonly: false,
            strays: true,
            plain: false,
        }
    }

    /// Says READONLY on every connection and asks any node, none of them at its plain port.
    pub(crate) fn set_readonly(&mut self) {
        self.readonly = true;
        self.plain = false;
    }

    /// Connects to plain ports. It stays with a node that answered, whoever leads.
    pub(crate) fn set_plain(&mut self) {
        self.plain = true;
    }

    /// Whether it speaks to plain ports.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// Asks nobody else while it knows a leader.
    pub(crate) fn never_stray(&mut self) {
        self.strays = false;
    }

    /// The client's own random source, for its workload.
    pub(crate) fn rng(&mut self) -> &mut StdRng {
        &mut self.rng
    }

    /// One attempt at a command on `key`, at the node believed to lead it, now and then at another. A redirect is
    /// an attempt's end, but the next goes where it says.
    pub(crate) async fn attempt(&mut self, key: &str, command: &[String]) -> Fate {
        let at = self.choose(key);
        let fate = self.attempt_at(&at, command).await;
        self.learn(key, &at, &fate);
        fate
    }

    /// One attempt at a given node.
    pub(crate) async fn attempt_at(&mut self, at: &str, command: &[String]) -> Fate {
        let sent = self.send(at, std::slice::from_ref(&command.to_vec())).await;
        let deadline = Instant::now() + self.patience;
        match sent {
            Ok(()) => self.receive(at, deadline).await,
            Err(fate) => fate,
        }
    }

    /// Sends several commands at once; `each` is told every answer as it comes.
    pub(crate) async fn pipeline(
        &mut self,
        key: &str,
        commands: &[Vec<String>],
        mut each: impl FnMut(usize, Fate),
    ) -> Option<Fate> {
        let at = self.choose(key);
        if let Err(fate) = self.send(&at, commands).await {
            self.learn(key, &at, &fate);
            for number in 0..commands.len() {
                each(number, fate.clone());
            }
            return Some(fate);
        }
        let deadline = Instant::now() + self.patience;
        let mut last = None;
        for number in 0..commands.len() {
            let fate = match &last {
                // Nothing more comes from a connection that broke.
                Some(Fate::Unknown(why)) if !self.connections.contains_key(&at) => Fate::Unknown(why.clone()),
                _ => self.receive(&at, deadline).await,
            };
            self.learn(key, &at, &fate);
            each(number, fate.clone());
            last = Some(fate);
        }
        last
    }

    /// Sends a command and closes the connection after `after`, unless it was answered. `None`: closed.
    pub(crate) async fn attempt_and_quit(
        &mut self,
        key: &str,
        command: &[String],
        after: Duration,
    ) -> Option<Fate> {
        let at = self.choose(key);
        if let Err(fate) = self.send(&at, std::slice::from_ref(&command.to_vec())).await {
            self.learn(key, &at, &fate);
            return Some(fate);
        }
        let connection = self.connections.get_mut(&at)?;
        let fate = match timeout(after, connection.receive()).await {
            Err(_) => {
                self.connections.remove(&at);
                return None;
            }
            Ok(answer) => fate_of(answer),
        };
        self.learn(key, &at, &fate);
        Some(fate)
    }

    /// Repeats a command that is safe to repeat until it is answered. An error that will not pass is an answer.
    pub(crate) async fn insist(&mut self, key: &str, command: &[String]) -> Result<Value, String> {
        loop {
            match self.attempt(key, command).await {
                Fate::Done(value) => return Ok(value),
                Fate::Refused(error) if !is_passing(&error) && !error.starts_with("OOM") => {
                    return Err(error);
                }
                Fate::Refused(error) if parse_moved(&error).is_some() => {}
                _ => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Where the next call on `key` goes, if a leader is known.
    pub(crate) fn leader_of(&self, key: &str) -> Option<String> {
        self.leaders.get(&slot_of(key.as_bytes())).cloned()
    }

    /// Drops all connections, as a client that restarts.
    pub(crate) fn disconnect(&mut self) {
        self.connections.clear();
    }

    fn choose(&mut self, key: &str) -> String {
        let known = self.leaders.get(&slot_of(key.as_bytes()));
        match known {
            Some(at) if !(self.readonly || self.strays && self.rng.random_ratio(1, 40)) => at.clone(),
            _ => self.nodes[self.rng.random_range(0..self.nodes.len())].clone(),
        }
    }

    fn learn(&mut self, key: &str, at: &str, fate: &Fate) {
        let slot = slot_of(key.as_bytes());
        match fate {
            Fate::Done(_) if self.readonly => {}
            Fate::Done(_) => {
                self.leaders.insert(slot, at.to_owned());
            }
            Fate::Refused(error) => match parse_moved(error) {
                Some((moved, to)) => {
                    self.leaders.insert(moved, to);
                }
                None => {
                    self.leaders.remove(&slot);
                }
            },
            // That node may be gone, with all that it led.
            Fate::Unknown(_) | Fate::Unreachable => self.leaders.retain(|_, leader| leader != at),
        }
    }

    async fn connect(&mut self, at: &str) -> io::Result<()> {
        if self.connections.contains_key(at) {
            return Ok(());
        }
        let to = match (self.plain, at.rsplit_once(':')) {
            (true, Some((host, _))) => format!("{host}:{PLAIN_PORT}"),
            _ => at.to_owned(),
        };
        let dialed = timeout(self.patience.min(Duration::from_millis(800)), dial(&self.grid, &to)).await;
        let stream = dialed.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let mut connection = Connection { stream, buffer: BytesMut::new() };
        if self.readonly {
            let hello = async {
                connection.send(&[vec!["READONLY".to_owned()]]).await?;
                connection.receive().await
            };
            let answer = timeout(self.patience, hello).await;
            if matches!(answer.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??, Value::Error(_)) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
        }
        self.connections.insert(at.to_owned(), connection);
        Ok(())
    }

    async fn send(&mut self, at: &str, commands: &[Vec<String>]) -> Result<(), Fate> {
        if self.connect(at).await.is_err() {
            return Err(Fate::Unreachable);
        }
        let Some(connection) = self.connections.get_mut(at) else { return Err(Fate::Unreachable) };
        match timeout(self.patience, connection.send(commands)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.connections.remove(at);
                Err(Fate::Unknown(format!("{at}: {error}")))
            }
            Err(_) => {
                self.connections.remove(at);
                Err(Fate::Unknown(format!("{at}: could not be sent in time")))
            }
        }
    }

    async fn receive(&mut self, at: &str, deadline: Instant) -> Fate {
        let Some(connection) = self.connections.get_mut(at) else {
            return Fate::Unknown(format!("{at}: no connection any more"));
        };
        match timeout_at(deadline, connection.receive()).await {
            Ok(answer) => {
                if answer.is_err() {
                    self.connections.remove(at);
                }
                fate_of(answer)
            }
            Err(_) => {
                self.connections.remove(at);
                Fate::Unknown(format!("{at}: no answer in time"))
            }
        }
    }
}

fn fate_of(answer: io::Result<Value>) -> Fate {
    match answer {
        Ok(Value::Error(text)) => {
            let text = String::from_utf8_lossy(&text).into_owned();
            if text.starts_with("UNKNOWN") { Fate::Unknown(text) } else { Fate::Refused(text) }
        }
        Ok(value) => Fate::Done(value),
        Err(error) => Fate::Unknown(error.to_string()),
    }
}

impl Connection {
    async fn send(&mut self, commands: &[Vec<String>]) -> io::Result<()> {
        let mut out = Vec::with_capacity(256);
        for command in commands {
            encode_command(command, &mut out);
        }
        self.stream.write_all(&out).await
    }

    async fn receive(&mut self) -> io::Result<Value> {
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
