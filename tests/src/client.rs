//! A cluster client that never repeats a call by itself, because a history needs to know each attempt's fate.

use crate::connection::{Connection, show};
use crate::slots::{SLOTS, slot_of};
use std::{collections::HashMap, io, time::Duration};
use tokio::time::Instant;
use weir_resp::Value;

/// What a caller knows after one attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// The server answered, and not with an error.
    Done(Value),
    /// An error reply other than UNKNOWN: the server says that nothing was done.
    Refused(String),
    /// UNKNOWN, a timeout or a lost connection: it may or may not have been done.
    Unknown(String),
    /// No connection could be made; nothing was sent.
    Unreachable,
}

impl Fate {
    /// What the end of an exchange that began to be sent tells.
    pub fn of(reply: io::Result<Value>) -> Fate {
        match reply {
            Ok(Value::Error(text)) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                if text.starts_with("UNKNOWN") { Fate::Unknown(text) } else { Fate::Refused(text) }
            }
            Ok(value) => Fate::Done(value),
            Err(error) => Fate::Unknown(error.to_string()),
        }
    }
}

/// Follows `MOVED`; one connection a node; not shared between tasks.
#[derive(Debug)]
pub struct ClusterClient {
    seeds: Vec<String>,
    leaders: HashMap<u16, String>,
    connections: HashMap<String, Connection>,
    limit: Duration,
    next_seed: usize,
    readonly: bool,
}

impl ClusterClient {
    /// A client that knows the nodes' addresses and gives each call at most `limit`.
    pub fn new(seeds: &[String], limit: Duration) -> Self {
        ClusterClient {
            seeds: seeds.to_vec(),
            leaders: HashMap::new(),
            connections: HashMap::new(),
            limit,
            next_seed: rand::random_range(0..seeds.len()),
            readonly: false,
        }
    }

    /// Says READONLY on every new connection and asks any node, not the leader.
    pub fn readonly(mut self) -> Self {
        self.readonly = true;
        self
    }

    /// One attempt at a command on `key`, at the node believed to lead it. A redirect is an attempt's end
    /// (`Refused("MOVED ...")`), but the next attempt goes to the node it named.
    pub async fn attempt<A: AsRef<[u8]>>(&mut self, key: &str, command: &[A]) -> Fate {
        let slot = slot_of(key.as_bytes());
        let address = match self.leaders.get(&slot) {
            Some(address) if !self.readonly => address.clone(),
            _ => self.another_node(),
        };
        let fate = self.attempt_at(&address, command).await;
        match &fate {
            Fate::Done(_) if !self.readonly => {
                self.leaders.insert(slot, address);
            }
            Fate::Done(_) => {}
            Fate::Refused(error) => {
                if let Some((moved, to)) = parse_moved(error) {
                    self.leaders.insert(moved, to);
                } else {
                    self.leaders.remove(&slot);
                }
            }
            Fate::Unknown(_) | Fate::Unreachable => {
                // That node may be gone, with all that it led.
                self.leaders.retain(|_, leader| *leader != address);
            }
        }
        fate
    }

    /// One attempt at a given node.
    pub async fn attempt_at<A: AsRef<[u8]>>(&mut self, address: &str, command: &[A]) -> Fate {
        if !self.connections.contains_key(address) {
            match self.connect(address).await {
                Ok(connection) => self.connections.insert(address.to_owned(), connection),
                Err(_) => return Fate::Unreachable,
            };
        }
        let Some(connection) = self.connections.get_mut(address) else { return Fate::Unreachable };
        let reply = connection.call(command, self.limit).await;
        if reply.is_err() {
            self.connections.remove(address);
        }
        Fate::of(reply)
    }

    /// Repeats a command that is safe to repeat until it is answered.
    ///
    /// # Errors
    /// An error reply that will not pass, as it is; or the last fate, when `within` is over.
    pub async fn insist<A: AsRef<[u8]>>(
        &mut self,
        key: &str,
        command: &[A],
        within: Duration,
    ) -> Result<Value, String> {
        let deadline = Instant::now() + within;
        loop {
            let fate = self.attempt(key, command).await;
            match fate {
                Fate::Done(value) => return Ok(value),
                Fate::Refused(error) if !is_passing(&error) => return Err(error),
                other if Instant::now() >= deadline => {
                    let name = String::from_utf8_lossy(command[0].as_ref()).into_owned();
                    return Err(format!("{name} on {key}: {other:?} after {within:?}"));
                }
                Fate::Refused(error) if parse_moved(&error).is_some() => {}
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Forgets all connections, as a restarted client would.
    pub fn forget(&mut self) {
        self.connections.clear();
        self.leaders.clear();
    }

    /// The address the next call on `key` would go to, if a leader is known.
    pub fn leader_of(&self, key: &str) -> Option<&str> {
        self.leaders.get(&slot_of(key.as_bytes())).map(String::as_str)
    }

    async fn connect(&self, address: &str) -> io::Result<Connection> {
        let mut connection = Connection::open(address, Duration::from_millis(500)).await?;
        if self.readonly {
            // An error here is as good as no connection: nothing that counts was sent.
            match connection.call(&["READONLY"], self.limit).await? {
                Value::Error(text) => {
                    return Err(io::Error::other(String::from_utf8_lossy(&text).into_owned()));
                }
                _ => return Ok(connection),
            }
        }
        Ok(connection)
    }

    fn another_node(&mut self) -> String {
        self.next_seed = (self.next_seed + 1) % self.seeds.len();
        self.seeds[self.next_seed].clone()
    }
}

/// Whether an error reply speaks of the cluster's state, not of the command: a redirect or an outage.
pub fn is_passing(error: &str) -> bool {
    let word = error.split(' ').next().unwrap_or_default();
    ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "BUSY"].contains(&word)
}

/// Slot and address of a `MOVED` error.
pub fn parse_moved(error: &str) -> Option<(u16, String)> {
    let mut parts = error.strip_prefix("MOVED ")?.split(' ');
    let slot = parts.next()?.parse().ok().filter(|&slot| slot < SLOTS)?;
    Some((slot, parts.next()?.to_owned()))
}

/// Who leads what, by the first node that answers `CLUSTER SLOTS`: (first slot, last slot, address of the leader).
///
/// # Errors
/// No node answered with a whole map.
pub async fn slot_map(seeds: &[String]) -> Result<Vec<(u16, u16, String)>, String> {
    let mut last = String::from("no seeds");
    for seed in seeds {
        let asked = async {
            let limit = Duration::from_secs(1);
            Connection::open(seed, limit).await?.call(&["CLUSTER", "SLOTS"], limit).await
        };
        match asked.await {
            Ok(Value::Array(rows)) => match rows.iter().map(slot_row).collect::<Option<Vec<_>>>() {
                Some(rows) if !rows.is_empty() => return Ok(rows),
                _ => last = format!("{seed}: {}", rows.iter().map(show).collect::<String>()),
            },
            Ok(other) => last = format!("{seed}: {}", show(&other)),
            Err(error) => last = format!("{seed}: {error}"),
        }
    }
    Err(last)
}

fn slot_row(row: &Value) -> Option<(u16, u16, String)> {
    let Value::Array(row) = row else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(leader), ..] = row.as_slice() else { return None };
    let [host, Value::Int(port), ..] = leader.as_slice() else { return None };
    let host = String::from_utf8_lossy(host.bytes()?).into_owned();
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, format!("{host}:{port}")))
}
