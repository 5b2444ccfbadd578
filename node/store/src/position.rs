use std::fmt;

use bytes::Bytes;

/// A Raft group. 0 is the meta group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The place of a log entry: its index, and the term of the leader that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// The leader's term.
    pub term: u64,
    /// The index, without gaps within a group.
    pub index: u64,
}

impl LogPosition {
    /// The entry of `term` at `index`.
    pub fn new(term: u64, index: u64) -> Self {
        Self { term, index }
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.term, self.index)
    }
}

/// One log entry. The log does not look into `data`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Its place.
    pub position: LogPosition,
    /// Its contents.
    pub data: Bytes,
}
