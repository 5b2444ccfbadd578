//! A snapshot on disk as the rest of this crate sees it.
//!
//! The store keeps the machine's bytes; beside them this crate keeps the membership and the snapshot's
//! origin. A snapshot that was received keeps the origin of the one it is a copy of, so two files with one
//! origin hold the same bytes and a transfer may go on with either.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use weir_store::{Error, LogPosition, SnapshotInfo, SnapshotReader, SnapshotStore, SnapshotWriter};

use crate::types::{SnapshotMeta, position};
use crate::wire;

/// Names the bytes of a snapshot: who took it, and a number drawn then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) node: u64,
    pub(crate) draw: u64,
}

/// What is stored beside the machine's bytes.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Label {
    pub(crate) meta: SnapshotMeta,
    pub(crate) origin: Origin,
}

/// What the consensus library passes around as a snapshot.
pub(crate) enum SnapshotData {
    /// One that counts.
    Stored(SnapshotFile),
    /// All bytes of one that was received. It counts only once the library installs it, after it cut what
    /// conflicts in the log: a snapshot that counted before could meet that log again after a crash.
    Received(Writing),
    /// No bytes: an attempt to take one that failed, and none stands. Only ever handed to the library as the end of
    /// that attempt.
    NotTaken,
}

/// A whole snapshot on disk. It may be gone when opened: a newer one removes it.
#[derive(Clone)]
pub(crate) struct SnapshotFile {
    store: SnapshotStore,
    info: SnapshotInfo,
    pub(crate) label: Label,
}

impl SnapshotFile {
    /// The newest one, if there is any.
    pub(crate) async fn latest(store: &SnapshotStore) -> Result<Option<Self>, Error> {
        let Some(info) = store.latest().await? else { return Ok(None) };
        match wire::from_bytes("snapshot label", &info.meta) {
            Ok(label) => Ok(Some(Self { store: store.clone(), info, label })),
            Err(error) => {
                Err(Error::Corrupt { file: store.dir().to_owned(), offset: 0, what: error.to_string() })
            }
        }
    }

    /// Whether there is a snapshot that reaches to where the log begins, which is behind `purged`.
    pub(crate) async fn check(store: &SnapshotStore, purged: Option<LogPosition>) -> Result<(), Error> {
        let Some(purged) = purged else { return Ok(()) };
        match store.latest().await? {
            Some(newest) if newest.at.index >= purged.index => Ok(()),
            // The log is purged only behind a snapshot on disk.
            _ => Err(Error::SnapshotMissing { dir: store.dir().to_owned(), index: purged.index }),
        }
    }

    /// Begins to write a snapshot of this node's machine.
    pub(crate) async fn take(store: &SnapshotStore, label: Label) -> Result<Writing, Error> {
        let writer = store.take(at(&label), wire::to_bytes(&label)).await?;
        Ok(Writing { store: store.clone(), writer, label })
    }

    /// Begins to write a copy of another node's snapshot, or goes on with one.
    pub(crate) async fn receive(store: &SnapshotStore, label: Label) -> Result<Writing, Error> {
        let writer = store.receive(at(&label), wire::to_bytes(&label)).await?;
        Ok(Writing { store: store.clone(), writer, label })
    }

    /// Opens it for reading from the start.
    pub(crate) async fn open(&self) -> Result<SnapshotReader, Error> {
        self.store.read(self.info.at).await
    }

    /// Bytes of the machine's state in it.
    pub(crate) fn bytes(&self) -> u64 {
        self.info.bytes
    }
}

fn at(label: &Label) -> LogPosition {
    position(&label.meta.last_log_id.expect("a snapshot covers at least one entry"))
}

/// A snapshot being written.
pub(crate) struct Writing {
    store: SnapshotStore,
    writer: SnapshotWriter,
    pub(crate) label: Label,
}

impl Writing {
    /// Bytes of the machine's state so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    pub(crate) async fn push(&mut self, bytes: &Bytes) -> Result<(), Error> {
        self.writer.push(bytes).await
    }

    /// On return all of it is on disk; it does not count yet.
    pub(crate) async fn seal(&mut self) -> Result<(), Error> {
        self.writer.seal().await
    }

    /// On return it is on disk and counts.
    pub(crate) async fn finish(self) -> Result<SnapshotFile, Error> {
        let info = self.writer.finish().await?;
        Ok(SnapshotFile { store: self.store, info, label: self.label })
    }
}
