//! Why a node cannot start or cannot go on: one line that says what, where and what to do.

use std::io;
use std::path::Path;

/// An operator's error. Everything that a client can see is a reply instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Settings do not fit.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// Starting would break a promise; the text says what to do.
    #[error("{0}")]
    Refused(String),
    /// A file or directory of this node failed.
    #[error("{0}")]
    Disk(String),
    /// A port could not be opened.
    #[error("{0}")]
    Listen(String),
    /// The log failed or is damaged.
    #[error("{0}")]
    Store(#[from] weir_store::Error),
    /// A Raft group cannot start or cannot go on.
    #[error("{0}")]
    Raft(#[from] weir_raft::Error),
}

/// What an IO error on the data directory means for an operator.
pub(crate) fn data_dir_error(path: &Path, what: &str, e: &io::Error) -> Error {
    let path = path.display();
    Error::Disk(match e.kind() {
        io::ErrorKind::ResourceBusy => {
            format!(
                "data directory {path} is in use by another running process: stop that one, or give another --dir"
            )
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!(
                "{path} {what}: it is read-only for this user ({e}); give --dir a place that can be written"
            )
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("{path} {what}: the disk is full; free some space and start again")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            format!("{path} {what}: there is a file in the way; give --dir another path")
        }
        _ => format!("{path} {what}: {e}"),
    })
}
