use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why bytes could not be kept or read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The disk is full but for a reserve that is kept for votes, truncation and purging. Nothing was written or
    /// queued; the log is as before. Try again when [`crate::Wal::space_low`] is false.
    #[error("disk full: only the reserve for votes and cleaning up is left in {dir}; free space there")]
    Full {
        /// The log's directory.
        dir: PathBuf,
    },

    /// The system refused. From a write or a sync of the log this is final: the log has failed.
    #[error("cannot {what} {file}: {source}")]
    Io {
        /// What was tried, as a verb.
        what: &'static str,
        /// Where.
        file: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },

    /// Bytes that were once known to be on disk are not what they were. The node must not serve or vote.
    #[error(
        "{file} is damaged at byte {offset}: {what}; this node must not go on with it: check the disk, then remove \
         the node from the cluster and let it join again with an empty directory"
    )]
    Corrupt {
        /// The damaged file, or the directory when a file is missing.
        file: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// What is wrong there.
        what: String,
    },

    /// Written by a version of this program that knows another format.
    #[error(
        "{file} has format version {found}, this program knows version {known}: start the version that wrote it"
    )]
    Version {
        /// The file.
        file: PathBuf,
        /// The version that it says.
        found: u32,
        /// The one version that this program reads and writes.
        known: u32,
    },

    /// The directory should hold a log and does not.
    #[error(
        "{dir} holds no log although this node has had one: its data is lost; let it join again as a new node"
    )]
    Missing {
        /// The log's directory.
        dir: PathBuf,
    },

    /// The log begins behind an entry up to which there must be a snapshot, and there is none.
    #[error(
        "{dir} holds no snapshot up to entry {index}, and the log before it is gone: the node's data is not whole; \
         remove the node from the cluster and let it join again with an empty directory"
    )]
    SnapshotMissing {
        /// The directory of the group's snapshots.
        dir: PathBuf,
        /// The last entry that the log no longer has.
        index: u64,
    },

    /// The log of another node, or of this node in another cluster. It was left as it is.
    #[error(
        "{dir} holds the log of {found}, not that of {expected}: put this node's own log back, or start the node \
         that it belongs to"
    )]
    Foreign {
        /// The log's directory.
        dir: PathBuf,
        /// Whose it is.
        found: String,
        /// Who opened it.
        expected: String,
    },

    /// A call that does not fit the log: a gap between indexes, or a cut below what was purged. Nothing was done.
    #[error("out of order: {0}")]
    Order(String),

    /// More bytes than one batch can hold. Nothing was done.
    #[error("too large: {bytes} bytes in one call, at most {max}")]
    TooLarge {
        /// What was asked for.
        bytes: u64,
        /// The bound.
        max: u64,
    },

    /// Another call's turn: the snapshot is being written already.
    #[error("a snapshot is being written to {file} already")]
    Busy {
        /// The file being written.
        file: PathBuf,
    },

    /// The log was closed, or its writer is gone.
    #[error("the log is closed")]
    Closed,
}

impl Error {
    pub(crate) fn io(what: &'static str, file: &Path, source: io::Error) -> Self {
        Self::Io { what, file: file.to_owned(), source: Arc::new(source) }
    }

    pub(crate) fn corrupt(file: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::Corrupt { file: file.to_owned(), offset, what: what.into() }
    }

    /// Whether the system said that no space is left.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Io { source, .. } => is_no_space(source),
            _ => false,
        }
    }
}

pub(crate) fn is_no_space(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        // The simulated disk only has the words.
        || e.to_string().contains("No space left")
}
