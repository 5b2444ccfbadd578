//! What can go wrong, sorted by what the caller knows afterwards.

use std::time::Duration;
use weir_resp::Value;

/// Why a call has no result. [`Error::fate`] says whether it may have been done.
///
/// Cheap to clone; the texts are for people and logs, not for matching.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// No node could be reached, or none answered as a cluster would. Nothing was done.
    #[error("no node answers: {}", list(.tried))]
    Unreachable {
        /// Each address with why it did not serve.
        tried: Vec<(String, String)>,
    },

    /// The server does not accept the user or the password, or wants one. Nothing was done; trying again does not help.
    #[error("not let in: {0}")]
    Auth(ServerError),

    /// No secured connection: certificates do not fit, or one of the sides does not speak TLS. Nothing was done; trying
    /// again does not help until somebody changes that.
    #[error("{}no TLS: {error}", .addr.as_ref().map_or_else(String::new, |addr| format!("{addr}: ")))]
    Tls {
        /// `host:port`; none if it is about our own files.
        addr: Option<String>,
        /// What is wrong.
        error: weir_tls::Error,
    },

    /// What answers at this address is not a Redis-compatible server. Trying again does not help.
    #[error("{addr} does not speak the Redis protocol: {detail}")]
    Protocol {
        /// `host:port`.
        addr: String,
        /// What was read instead of a reply.
        detail: String,
    },

    /// The server read the command and refused it: nothing was done, and the same command will be refused again
    /// until something else changes.
    #[error("{0}")]
    Server(ServerError),

    /// The deadline passed while nobody could serve the command (no leader, no connection). Nothing was done.
    #[error("not served within {waited:?}: {last}")]
    Unavailable {
        /// How long it was tried.
        waited: Duration,
        /// What the last attempt met.
        last: String,
    },

    /// **The command may or may not have been done, and nobody can tell.** It was sent, and then the connection
    /// broke, the deadline passed, or the server itself answered `UNKNOWN` because its majority was lost in between.
    ///
    /// The client never repeats such a command by itself. What to do is the caller's to decide: read back what it
    /// would have changed, repeat it if doing it twice is harmless (XACK, DEL), or use [`crate::Producer`], whose
    /// appends carry an id by which the server recognises a repetition.
    #[error("it is unknown whether this was done: {why}")]
    Unknown {
        /// What was met.
        why: String,
    },

    /// The command was answered with something that it is never answered with. It was done, or at least received.
    #[error("unexpected reply to {command}: {got}")]
    UnexpectedReply {
        /// Name of the command.
        command: String,
        /// The reply, shortened.
        got: String,
    },

    /// The keys of one command belong to different slots. Nothing was sent.
    #[error("the keys of {command} belong to different slots; give them the same part in braces")]
    CrossSlot {
        /// Name of the command.
        command: String,
    },

    /// An argument or option cannot be used. Nothing was sent.
    #[error("{0}")]
    Invalid(String),

    /// The server lacks what this needs. Nothing was done.
    #[error("the server does not support {0}")]
    Unsupported(String),

    /// The producer, worker or stream that this belongs to has ended. Nothing was done.
    #[error("closed")]
    Closed,
}

/// What is known about a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was not done.
    NotDone,
    /// Nobody can tell.
    Unknown,
    /// It was done, but its reply makes no sense to this client.
    Done,
}

impl Error {
    /// What is known about the call that failed.
    ///
    /// ```
    /// use weir_client::{Error, Fate};
    /// assert_eq!(Error::Unknown { why: "the connection broke".into() }.fate(), Fate::Unknown);
    /// assert_eq!(Error::Closed.fate(), Fate::NotDone);
    /// ```
    pub fn fate(&self) -> Fate {
        match self {
            Error::Unknown { .. } => Fate::Unknown,
            Error::UnexpectedReply { .. } => Fate::Done,
            _ => Fate::NotDone,
        }
    }

    /// Whether the same call may succeed later without anyone changing anything: the cluster was busy, without a
    /// leader or out of reach. An unknown outcome is not among these.
    pub fn is_passing(&self) -> bool {
        match self {
            Error::Unreachable { .. } | Error::Unavailable { .. } => true,
            Error::Server(error) => error.is_passing(),
            _ => false,
        }
    }

    /// The server's refusal, if it is one.
    pub fn server(&self) -> Option<&ServerError> {
        match self {
            Error::Server(error) | Error::Auth(error) => Some(error),
            _ => None,
        }
    }

    pub(crate) fn unexpected(command: &str, got: &Value) -> Error {
        Error::UnexpectedReply { command: command.to_owned(), got: shortened(got) }
    }

    pub(crate) fn unknown(why: impl Into<String>) -> Error {
        Error::Unknown { why: why.into() }
    }
}

/// An error reply: `CODE message`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerError {
    text: String,
}

impl ServerError {
    pub(crate) fn new(text: &[u8]) -> ServerError {
        ServerError { text: String::from_utf8_lossy(text).into_owned() }
    }

    /// Its first word: `ERR`, `WRONGTYPE`, `NOGROUP`, `BUSYGROUP`, `OOM` ...
    pub fn code(&self) -> &str {
        self.text.split(' ').next().unwrap_or_default()
    }

    /// What follows the first word.
    pub fn message(&self) -> &str {
        self.text.split_once(' ').map_or("", |(_, message)| message)
    }

    /// Whether it speaks of the moment and not of the command.
    pub(crate) fn is_passing(&self) -> bool {
        const PASSING: [&str; 8] =
            ["TRYAGAIN", "CLUSTERDOWN", "LOADING", "BUSY", "MASTERDOWN", "OOM", "READONLY", "NOREPLICAS"];
        PASSING.contains(&self.code())
    }
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// The beginning of a reply, for messages.
pub(crate) fn shortened(value: &Value) -> String {
    const SHOWN: usize = 200;
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).escape_debug().to_string();
    if bytes.len() > SHOWN { format!("{text}...") } else { text }
}

fn list(tried: &[(String, String)]) -> String {
    match tried {
        [] => "no addresses".to_owned(),
        tried => tried.iter().map(|(at, why)| format!("{at}: {why}")).collect::<Vec<_>>().join("; "),
    }
}
