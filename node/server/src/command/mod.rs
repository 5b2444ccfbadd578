//! From arguments to a request, and from a reply to bytes.
//!
//! [`table`] holds one row a command; [`parse`] turns arguments into a [`Request`]; [`control`] answers what needs no
//! shard; [`introspect`] answers `COMMAND`; [`reply`] is the only place that knows protocol versions.

pub mod acl;
pub mod control;
pub mod glob;
pub mod introspect;
pub mod late;
pub mod observe;
pub mod parse;
pub mod pubsub;
pub mod reply;
pub mod scan;
pub mod settings;
pub mod syntax;
pub mod table;
mod whole;

use crate::clients::ClientFilter;
use bytes::Bytes;
use parse::Refused;
use std::time::Duration;
use table::Row;
use weir_resp::Proto;
use weir_stream::{Command, Query, Refusal, Reply};

/// A parsed call.
#[derive(Debug)]
pub enum Request {
    /// Goes into the log of the shard of its keys.
    Write(Command, Option<Block>),
    /// Is answered from a shard's state.
    Read(Query, Option<Block>),
    /// Is answered by the node.
    Control(Control),
    /// The answer is known already.
    Ready(Reply),
}

/// `BLOCK`: how long to wait when there is nothing; `None` is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block(pub Option<Duration>);

impl Request {
    fn write(command: Command) -> Request {
        Request::Write(command, None)
    }

    fn read(query: Query) -> Request {
        Request::Read(query, None)
    }
}

/// What the node answers itself.
#[derive(Debug)]
pub enum Control {
    /// PING, with or without a message.
    Ping(Option<Bytes>),
    /// ECHO.
    Echo(Bytes),
    /// QUIT.
    Quit,
    /// RESET.
    Reset,
    /// HELLO.
    Hello {
        /// Version to change to.
        proto: Option<Proto>,
        /// AUTH: user and password.
        auth: Option<(Bytes, Bytes)>,
        /// SETNAME.
        name: Option<Bytes>,
    },
    /// AUTH.
    Auth {
        /// Without one, the default user.
        user: Option<Bytes>,
        /// What the user knows.
        password: Bytes,
    },
    /// ACL.
    Acl(acl::AclCall),
    /// PUBLISH, SUBSCRIBE and their like.
    PubSub(pubsub::PubSubCall),
    /// CLIENT.
    Client(ClientCall),
    /// READONLY and READWRITE.
    ReadOnly(bool),
    /// ASKING.
    Asking,
    /// MULTI.
    Multi,
    /// EXEC.
    Exec,
    /// DISCARD.
    Discard,
    /// UNWATCH.
    Unwatch,
    /// INFO with its sections.
    Info(Vec<Bytes>),
    /// ROLE.
    Role,
    /// CONFIG GET with its patterns.
    ConfigGet(Vec<Bytes>),
    /// CONFIG SET.
    ConfigSet(Vec<(Bytes, Bytes)>),
    /// CONFIG RESETSTAT.
    ConfigResetStat,
    /// SLOWLOG, LATENCY, MONITOR, SAVE and their like.
    Observe(observe::ObserveCall),
    /// CLUSTER, with all arguments.
    Cluster(Vec<Bytes>),
    /// DBSIZE.
    DbSize,
    /// SCAN.
    Scan(ScanCall),
    /// KEYS.
    Keys(Bytes),
    /// RANDOMKEY.
    RandomKey,
    /// FLUSHALL and FLUSHDB.
    Flush,
    /// TIME.
    Time,
    /// WAIT.
    Wait {
        /// Other voters wanted.
        replicas: usize,
        /// `None` waits for ever.
        timeout: Option<Duration>,
    },
    /// WAITAOF.
    WaitAof {
        /// 1 when this node must have it synced.
        local: usize,
        /// Other voters wanted.
        replicas: usize,
        /// `None` waits for ever.
        timeout: Option<Duration>,
    },
}

impl Control {
    /// Whether it can be answered inside a transaction: nothing waits there, and no other shard is asked.
    pub fn fits_transaction(&self) -> bool {
        if let Control::Acl(call) = self {
            return !call.changes();
        }
        if let Control::PubSub(call) = self {
            return !matches!(call, pubsub::PubSubCall::Subscribe(..) | pubsub::PubSubCall::Unsubscribe(..));
        }
        if let Control::Observe(call) = self {
            return !call.waits() && !matches!(call, observe::ObserveCall::Monitor);
        }
        !matches!(
            self,
            Control::Cluster(_)
                | Control::ConfigSet(_)
                | Control::DbSize
                | Control::Scan(_)
                | Control::Keys(_)
                | Control::RandomKey
                | Control::Flush
                | Control::Wait { .. }
                | Control::WaitAof { .. }
        )
    }

    /// Whether the answer depends on what this connection sent before, so that those answers must come first.
    pub fn looks_at_state(&self) -> bool {
        if let Control::Acl(call) = self {
            return call.changes();
        }
        matches!(
            self,
            Control::Info(_)
                | Control::ConfigSet(_)
                | Control::Observe(_)
                | Control::PubSub(_)
                | Control::Cluster(_)
                | Control::DbSize
                | Control::Scan(_)
                | Control::Keys(_)
                | Control::RandomKey
                | Control::Flush
                | Control::Wait { .. }
                | Control::WaitAof { .. }
                | Control::Client(
                    ClientCall::Unblock { .. } | ClientCall::Kill(_) | ClientCall::KillAddress(_)
                )
        )
    }
}

/// SCAN.
#[derive(Debug)]
pub struct ScanCall {
    /// Where to go on; 0 is the beginning.
    pub cursor: u64,
    /// MATCH.
    pub pattern: Option<Bytes>,
    /// COUNT.
    pub count: u64,
    /// TYPE.
    pub type_name: Option<Bytes>,
}

/// CLIENT's subcommands.
#[derive(Debug)]
pub enum ClientCall {
    /// ID.
    Id,
    /// INFO.
    Info,
    /// GETNAME.
    GetName,
    /// SETNAME.
    SetName(Bytes),
    /// SETINFO LIB-NAME.
    SetLibraryName(Bytes),
    /// SETINFO LIB-VER.
    SetLibraryVersion(Bytes),
    /// LIST.
    List(Box<ClientFilter>),
    /// KILL with options; answers how many.
    Kill(Box<ClientFilter>),
    /// KILL addr:port; answers OK or an error.
    KillAddress(Box<ClientFilter>),
    /// UNBLOCK.
    Unblock {
        /// Connection.
        id: u64,
        /// With an error instead of as by timeout.
        error: bool,
    },
    /// PAUSE.
    Pause {
        /// From now.
        limit: Duration,
        /// Reads go on.
        writes_only: bool,
    },
    /// UNPAUSE.
    Unpause,
    /// REPLY.
    Reply(ReplyMode),
}

/// CLIENT REPLY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyMode {
    /// Answers are sent.
    On,
    /// Answers are not sent.
    Off,
    /// The next answer is not sent.
    Skip,
}

/// Looks up, checks and parses `args`, whose first element is the name.
///
/// # Errors
/// [`Refused`]: unknown command, wrong arity or a syntax error, with the text of Redis.
pub fn parse(args: &[Bytes]) -> Result<(&'static Row, Request), Refused> {
    let row = table::resolve(args)?;
    Ok((row, parse_as(row, args)?))
}

/// Parses `args` for the row that [`table::resolve`] found.
///
/// # Errors
/// [`Refused`]: a syntax error, with the text of Redis.
pub fn parse_as(row: &'static Row, args: &[Bytes]) -> Result<Request, Refused> {
    match row.parse {
        Some(parse) => parse(args),
        None => Err(table::wrong_arity(row.name)),
    }
}

/// An error reply with this text, prefix included.
pub fn error(text: impl Into<String>) -> Reply {
    Reply::Error(Refusal::Text(text.into()))
}

impl From<Refused> for Reply {
    fn from(refused: Refused) -> Reply {
        error(refused.0)
    }
}
