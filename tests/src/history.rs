//! What clients saw, one record a call. The checker knows nothing else.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, io::Write, path::Path, str::FromStr, sync::Mutex};
use tokio::time::Instant;
use weir_resp::Value;

/// The id of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id {
    /// Milliseconds.
    pub ms: u64,
    /// Sequence number within the millisecond.
    pub seq: u64,
}

impl Id {
    /// Below every entry.
    pub const ZERO: Id = Id { ms: 0, seq: 0 };
    /// Above every entry.
    pub const MAX: Id = Id { ms: u64::MAX, seq: u64::MAX };

    /// The next higher id.
    pub fn next(self) -> Id {
        match self.seq.checked_add(1) {
            Some(seq) => Id { ms: self.ms, seq },
            None => Id { ms: self.ms + 1, seq: 0 },
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl FromStr for Id {
    type Err = String;
    fn from_str(text: &str) -> Result<Id, String> {
        let parsed = text
            .split_once('-')
            .and_then(|(ms, seq)| Some(Id { ms: ms.parse().ok()?, seq: seq.parse().ok()? }));
        parsed.ok_or_else(|| format!("{text:?} is no entry id"))
    }
}

/// The unique content of an added entry: one a call, so also a repeated call has its own.
pub type Token = u64;

/// A call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// XADD key * with this token.
    Add {
        /// What the entry carries.
        token: Token,
    },
    /// MULTI, one XADD a token, EXEC.
    AddAll {
        /// What the entries carry, in order.
        tokens: Vec<Token>,
    },
    /// XREADGROUP with `>`.
    Deliver {
        /// Index into [`History::groups`].
        group: u8,
        /// Number of the consumer.
        consumer: u16,
    },
    /// XREADGROUP NOACK with `>`: nothing becomes pending.
    Take {
        /// Index into [`History::groups`].
        group: u8,
        /// Number of the consumer.
        consumer: u16,
    },
    /// XREADGROUP with an id: the consumer's own pending entries.
    Pending {
        /// Index into [`History::groups`].
        group: u8,
        /// Number of the consumer.
        consumer: u16,
    },
    /// XAUTOCLAIM or XCLAIM.
    Claim {
        /// Index into [`History::groups`].
        group: u8,
        /// Number of the consumer.
        consumer: u16,
    },
    /// XACK.
    Ack {
        /// Index into [`History::groups`].
        group: u8,
        /// The ids to acknowledge.
        ids: Vec<Id>,
    },
    /// XRANGE, XREVRANGE or XREAD. `from` to `to`, both inclusive, is what the reply had to cover.
    Read {
        /// Lowest id asked for.
        from: Id,
        /// Highest id asked for.
        to: Id,
        /// Asked of any replica (READONLY), which may be behind.
        follower: bool,
    },
    /// WAIT after an XADD on the same connection that was sent at `written` (microseconds).
    Wait {
        /// Replicas asked for.
        wanted: u32,
        /// When the write it waits for was sent.
        written: u64,
    },
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// XADD's reply.
    Added(Id),
    /// EXEC's reply, one id an XADD.
    AddedAll(Vec<Id>),
    /// Entries, in the order of the reply.
    Entries(Vec<(Id, Token)>),
    /// XACK's or WAIT's number.
    Count(u64),
    /// An error other than UNKNOWN.
    Refused(String),
    /// UNKNOWN, timeout, lost connection.
    Unknown(String),
    /// The client closed the connection while it waited; [`Op::ended`] is when.
    Cut,
}

/// One call of one client. Times are microseconds since the start of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// Which client.
    pub client: u32,
    /// Index into [`History::keys`].
    pub key: u16,
    /// Before the first byte was sent.
    pub started: u64,
    /// After the reply was read.
    pub ended: u64,
    /// The time that the call gave the server (BLOCK, WAIT), in microseconds; 0: none.
    pub limit: u64,
    /// The call.
    pub what: What,
    /// Its end.
    pub outcome: Outcome,
}

/// Time in which a node was certainly not running: killed or stopped before `from`, untouched until `to`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// Index of the node.
    pub node: usize,
    /// Start, microseconds.
    pub from: u64,
    /// End, microseconds.
    pub to: u64,
}

/// What a stream held once all faults were over.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LastState {
    /// Every entry.
    pub entries: BTreeMap<Id, Token>,
    /// Per group: every pending entry and its owner.
    pub pending: Vec<BTreeMap<Id, u16>>,
    /// Per group: how often each pending entry was delivered.
    pub deliveries: Vec<BTreeMap<Id, u64>>,
}

/// Time in which answers may be late: something was slow, cut off or down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Start, microseconds.
    pub from: u64,
    /// End, microseconds.
    pub to: u64,
}

/// A whole run.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Names of the streams.
    pub keys: Vec<String>,
    /// Names of the groups that each stream has.
    pub groups: Vec<String>,
    /// Nodes of the cluster; each holds a replica of everything.
    pub nodes: usize,
    /// All calls.
    pub ops: Vec<Op>,
    /// When nodes were down.
    pub outages: Vec<Outage>,
    /// When answers may have been late.
    pub disturbances: Vec<Disturbance>,
    /// First words of error replies that this run may bring, beside those of outages.
    pub expected_errors: Vec<String>,
    /// How late an answer may be otherwise, microseconds.
    pub late_max: u64,
    /// The same of WAIT, which nothing holds up but the way there and back.
    pub wait_late_max: u64,
    /// Final state, by key.
    pub last: Vec<LastState>,
}

impl History {
    /// Writes one JSON line a call, outage and final state.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn dump(&self, path: &Path) -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
        writeln!(
            out,
            "{}",
            serde_json::json!({ "keys": self.keys, "groups": self.groups, "nodes": self.nodes })
        )?;
        for op in &self.ops {
            serde_json::to_writer(&mut out, op)?;
            out.write_all(b"\n")?;
        }
        for outage in &self.outages {
            writeln!(out, "{}", serde_json::json!({ "outage": outage }))?;
        }
        for (key, last) in self.last.iter().enumerate() {
            let entries: Vec<_> = last.entries.iter().collect();
            let pending: Vec<Vec<_>> = last.pending.iter().map(|p| p.iter().collect()).collect();
            writeln!(out, "{}", serde_json::json!({ "key": key, "entries": entries, "pending": pending }))?;
        }
        out.flush()
    }
}

/// Collects the calls of all clients of a run.
#[derive(Debug)]
pub struct Recorder {
    began: Instant,
    ops: Mutex<Vec<Op>>,
    outages: Mutex<Vec<Outage>>,
    unreachable: Mutex<Vec<u64>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder {
            began: Instant::now(),
            ops: Mutex::default(),
            outages: Mutex::default(),
            unreachable: Mutex::default(),
        }
    }
}

impl Recorder {
    /// Microseconds since the run began.
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Writes a call down.
    pub fn record(&self, op: Op) {
        self.ops.lock().expect("recorder").push(op);
    }

    /// Counts an attempt that sent nothing.
    pub fn record_unreachable(&self) {
        let now = self.now();
        self.unreachable.lock().expect("recorder").push(now);
    }

    /// Writes an outage down once it is over.
    pub fn record_outage(&self, node: usize, from: u64, to: u64) {
        self.outages.lock().expect("recorder").push(Outage { node, from, to });
    }

    /// Takes everything out: calls in order of their end, outages, times of attempts that sent nothing.
    pub fn take(&self) -> (Vec<Op>, Vec<Outage>, Vec<u64>) {
        let mut ops = std::mem::take(&mut *self.ops.lock().expect("recorder"));
        ops.sort_by_key(|op| op.ended);
        let outages = std::mem::take(&mut *self.outages.lock().expect("recorder"));
        (ops, outages, std::mem::take(&mut *self.unreachable.lock().expect("recorder")))
    }
}

/// The entries of an XRANGE-like reply: id and token (the value of the first field).
///
/// # Errors
/// A reply of another shape.
pub fn read_entries(reply: &Value) -> Result<Vec<(Id, Token)>, String> {
    let rows = match reply {
        Value::Array(rows) => rows,
        other if other.is_nil() => return Ok(Vec::new()),
        other => return Err(format!("not entries: {other:?}")),
    };
    let entry = |row: &Value| {
        let Value::Array(pair) = row else { return None };
        let [id, Value::Array(fields)] = pair.as_slice() else { return None };
        let text = |v: &Value| v.bytes().and_then(|b| std::str::from_utf8(b).ok().map(str::to_owned));
        Some((text(id)?.parse().ok()?, text(fields.get(1)?)?.parse().ok()?))
    };
    rows.iter().map(|row| entry(row).ok_or_else(|| format!("not an entry: {row:?}"))).collect()
}

/// The entries of the only stream in an XREAD or XREADGROUP reply.
///
/// # Errors
/// A reply of another shape.
pub fn read_stream_entries(reply: &Value) -> Result<Vec<(Id, Token)>, String> {
    match reply {
        other if other.is_nil() => Ok(Vec::new()),
        Value::Array(streams) => match streams.as_slice() {
            [Value::Array(one)] if one.len() == 2 => read_entries(&one[1]),
            _ => Err(format!("not one stream: {reply:?}")),
        },
        other => Err(format!("not streams: {other:?}")),
    }
}
