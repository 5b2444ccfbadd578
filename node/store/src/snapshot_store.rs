//! The snapshots of one group, in a directory of their own.
//!
//! A snapshot is written under a temporary name, synced, and renamed; so a file with a final name is whole or damaged,
//! never unfinished. The newest is the one that counts, older ones are removed when it is there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use weir_env::{Disk, Env};

use crate::error::Error;
use crate::position::LogPosition;
use crate::read::off_thread;
use crate::recover::create_dir;
use crate::snapshot_file::{CHUNK_BYTES, FileReader, FileWriter};

const PREFIX: &str = "snapshot-";
/// The one that this node takes.
const TAKING: &str = "taking.tmp";
/// The one that is sent to this node. Survives a restart, so that sending can go on.
const RECEIVING: &str = "receiving.tmp";

/// A whole snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// The last log entry that is in it.
    pub at: LogPosition,
    /// What its maker wanted to know about it, such as the membership.
    pub meta: Bytes,
    /// Bytes of its contents.
    pub bytes: u64,
}

/// The directory. Clones share it.
#[derive(Clone)]
pub struct SnapshotStore {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    dir: PathBuf,
    taking: AtomicBool,
    receiving: AtomicBool,
    /// One at a time: two at once would remove the same older files.
    publishing: Mutex<()>,
}

impl SnapshotStore {
    /// Opens the directory, creating it if there is none, and removes what an interrupted taking left.
    pub async fn open(env: &Env, dir: &Path) -> Result<Self, Error> {
        let inner = Arc::new(Inner {
            env: env.clone(),
            dir: dir.to_owned(),
            taking: AtomicBool::new(false),
            receiving: AtomicBool::new(false),
            publishing: Mutex::new(()),
        });
        let store = Self { inner };
        store.run(|inner| inner.prepare()).await?;
        Ok(store)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// All whole snapshots, oldest first. Beginning and end of each are checked, not what lies between.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Version`]: the node must not start.
    pub async fn list(&self) -> Result<Vec<SnapshotInfo>, Error> {
        self.run(|inner| inner.list()).await
    }

    /// The newest whole snapshot.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn latest(&self) -> Result<Option<SnapshotInfo>, Error> {
        Ok(self.list().await?.pop())
    }

    /// Begins to take a snapshot of this node's state.
    ///
    /// # Errors
    /// [`Error::Busy`] while another one is being taken.
    pub async fn take(&self, at: LogPosition, meta: Bytes) -> Result<SnapshotWriter, Error> {
        self.write(TAKING, at, meta, false).await
    }

    /// Begins to receive a snapshot. If an earlier try left a part of the same one (same position, same meta), goes on
    /// behind it: [`SnapshotWriter::bytes`] says where the sender has to start.
    ///
    /// # Errors
    /// [`Error::Busy`] while another one is being received.
    pub async fn receive(&self, at: LogPosition, meta: Bytes) -> Result<SnapshotWriter, Error> {
        self.write(RECEIVING, at, meta, true).await
    }

    /// Opens a snapshot for reading from its start. It stays readable when a newer one replaces it.
    pub async fn read(&self, at: LogPosition) -> Result<SnapshotReader, Error> {
        let file =
            self.run(move |inner| FileReader::open(&*inner.env.disk, &inner.dir.join(name(at)))).await?;
        Ok(SnapshotReader { env: self.inner.env.clone(), file: Some(file), rest: Bytes::new() })
    }

    /// Reads a whole snapshot and checks all of it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] says where it is damaged.
    pub async fn verify(&self, at: LogPosition) -> Result<(), Error> {
        self.run(move |inner| {
            let mut file = FileReader::open(&*inner.env.disk, &inner.dir.join(name(at)))?;
            while file.next_chunk()?.is_some() {}
            Ok(())
        })
        .await
    }

    async fn write(
        &self,
        temp: &'static str,
        at: LogPosition,
        meta: Bytes,
        resume: bool,
    ) -> Result<SnapshotWriter, Error> {
        let turn = Turn::claim(&self.inner, temp)?;
        let header = meta.clone();
        let file = self
            .run(move |inner| {
                let disk = &*inner.env.disk;
                let path = inner.dir.join(temp);
                if resume && let Some(file) = FileWriter::resume(disk, &path, at, &header)? {
                    return Ok(file);
                }
                FileWriter::create(disk, &path, at, &header).map_err(|error| inner.give_up(temp, error))
            })
            .await?;
        let written = file.data_bytes();
        Ok(SnapshotWriter {
            turn,
            at,
            meta,
            file: Some(file),
            gathered: BytesMut::new(),
            written,
            sealed: None,
        })
    }

    async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&Inner) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let inner = self.inner.clone();
        off_thread(&self.inner.env, "snapshot", move || job(&inner)).await?
    }
}

impl Inner {
    fn prepare(&self) -> Result<(), Error> {
        let disk = &*self.env.disk;
        create_dir(disk, &self.dir)?;
        self.remove(TAKING)
    }

    /// What is gone already is fine.
    fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.dir.join(name);
        match self.env.disk.remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &path, e)),
            _ => Ok(()),
        }
    }

    /// An unfinished file must not hold all the space that is left. A part of a received one is worth keeping where
    /// there is room, since sending goes on behind it.
    fn give_up(&self, temp: &str, error: Error) -> Error {
        if (temp == TAKING || error.is_full())
            && let Err(error) = self.remove(temp)
        {
            tracing::warn!(%error, "an unfinished snapshot stays");
        }
        error
    }

    fn positions(&self) -> Result<Vec<LogPosition>, Error> {
        let names = self.env.disk.read_dir(&self.dir).map_err(|e| Error::io("list", &self.dir, e))?;
        let mut positions: Vec<_> = names.iter().filter_map(|name| position(name)).collect();
        positions.sort_unstable_by_key(|at| (at.index, at.term));
        Ok(positions)
    }

    fn list(&self) -> Result<Vec<SnapshotInfo>, Error> {
        self.positions()?
            .into_iter()
            .map(|at| {
                let path = self.dir.join(name(at));
                let file = FileReader::open(&*self.env.disk, &path)?;
                if file.at != at {
                    return Err(Error::corrupt(&path, 16, "the file's name says another position"));
                }
                Ok(SnapshotInfo { at, bytes: file.promised_bytes()?, meta: file.meta })
            })
            .collect()
    }

    /// Gives a synced file its name, and removes what it replaces.
    fn publish(&self, temp: &str, at: LogPosition) -> Result<(), Error> {
        let disk: &dyn Disk = &*self.env.disk;
        let _publishing = self.publishing.lock();
        let from = self.dir.join(temp);
        disk.rename(&from, &self.dir.join(name(at))).map_err(|e| Error::io("rename", &from, e))?;
        disk.sync_dir(&self.dir).map_err(|e| Error::io("sync", &self.dir, e))?;
        let mut older = self.positions()?;
        older.pop();
        for at in older {
            self.remove(&name(at))?;
        }
        Ok(())
    }

    fn flag(&self, temp: &str) -> &AtomicBool {
        if temp == TAKING { &self.taking } else { &self.receiving }
    }
}

/// The right to write under one of the two temporary names.
struct Turn {
    inner: Arc<Inner>,
    temp: &'static str,
}

impl Turn {
    fn claim(inner: &Arc<Inner>, temp: &'static str) -> Result<Self, Error> {
        if inner.flag(temp).swap(true, Ordering::AcqRel) {
            return Err(Error::Busy { file: inner.dir.join(temp) });
        }
        Ok(Self { inner: inner.clone(), temp })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.inner.flag(self.temp).store(false, Ordering::Release);
    }
}

/// A snapshot being written. Dropping it gives up: nothing counts, but what was received can be gone on with. After an
/// error nothing of it is left on disk, unless it was being received and there is space.
pub struct SnapshotWriter {
    turn: Turn,
    at: LogPosition,
    meta: Bytes,
    /// `None` after a call was dropped before its end, or failed.
    file: Option<FileWriter>,
    gathered: BytesMut,
    written: u64,
    /// Bytes of contents, once all is on disk.
    sealed: Option<u64>,
}

impl SnapshotWriter {
    /// The last log entry that is in it.
    pub fn at(&self) -> LogPosition {
        self.at
    }

    /// Bytes of contents so far.
    pub fn bytes(&self) -> u64 {
        self.written + self.gathered.len() as u64
    }

    /// Adds to the contents.
    ///
    /// # Errors
    /// [`Error::Full`]: no space. After any error the writer is of no use.
    pub async fn push(&mut self, data: &[u8]) -> Result<(), Error> {
        self.gathered.extend_from_slice(data);
        if self.gathered.len() < CHUNK_BYTES {
            return Ok(());
        }
        let whole = self.gathered.len() / CHUNK_BYTES * CHUNK_BYTES;
        let chunks = self.gathered.split_to(whole).freeze();
        self.write(chunks).await
    }

    /// Puts all of it on disk without making it count: what can fail for want of space is over then. Nothing can be
    /// added any more.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub async fn seal(&mut self) -> Result<(), Error> {
        if self.sealed.is_some() {
            return Ok(());
        }
        let last = self.gathered.split().freeze();
        self.write(last).await?;
        let file = self.file.take().ok_or(Error::Closed)?;
        let (inner, temp) = (self.turn.inner.clone(), self.turn.temp);
        let bytes = off_thread(&self.turn.inner.env, "snapshot", move || {
            file.finish().map_err(|error| inner.give_up(temp, error))
        })
        .await??;
        self.sealed = Some(bytes);
        Ok(())
    }

    /// Makes the snapshot count: once this returns it is on disk, it is [`SnapshotStore::latest`] unless there is a
    /// newer one, and older ones are removed.
    pub async fn finish(mut self) -> Result<SnapshotInfo, Error> {
        self.seal().await?;
        let bytes = self.sealed.ok_or(Error::Closed)?;
        let (inner, temp, at) = (self.turn.inner.clone(), self.turn.temp, self.at);
        off_thread(&self.turn.inner.env, "snapshot", move || {
            inner.publish(temp, at).map_err(|error| inner.give_up(temp, error))
        })
        .await??;
        Ok(SnapshotInfo { at, meta: self.meta.clone(), bytes })
    }

    async fn write(&mut self, data: Bytes) -> Result<(), Error> {
        let mut file = self.file.take().ok_or(Error::Closed)?;
        let written = data.len() as u64;
        let (inner, temp) = (self.turn.inner.clone(), self.turn.temp);
        let file = off_thread(&self.turn.inner.env, "snapshot", move || {
            let added = data.chunks(CHUNK_BYTES).try_for_each(|chunk| file.chunk(chunk));
            if let Err(error) = added {
                drop(file);
                return Err(inner.give_up(temp, error));
            }
            Ok(file)
        })
        .await??;
        self.file = Some(file);
        self.written += written;
        Ok(())
    }
}

/// A snapshot being read.
pub struct SnapshotReader {
    env: Env,
    /// `None` after a call was dropped before its end, or failed.
    file: Option<FileReader>,
    /// The end of a chunk whose start was skipped.
    rest: Bytes,
}

impl SnapshotReader {
    /// Goes to byte `offset` of the contents. Only forward.
    ///
    /// # Errors
    /// [`Error::Order`]: it lies behind, or beyond the end.
    pub async fn skip_to(&mut self, offset: u64) -> Result<(), Error> {
        let behind = |at: u64| Error::Order(format!("cannot go from byte {at} of the snapshot to {offset}"));
        let mut at = self.offset()?;
        if at > offset {
            return Err(behind(at));
        }
        while at < offset {
            let mut chunk = self.next_chunk().await?.ok_or_else(|| behind(at))?;
            let skipped = (chunk.len() as u64).min(offset - at);
            chunk.advance(skipped as usize);
            self.rest = chunk;
            at += skipped;
        }
        Ok(())
    }

    /// The byte of the contents that comes next.
    pub fn offset(&self) -> Result<u64, Error> {
        let file = self.file.as_ref().ok_or(Error::Closed)?;
        Ok(file.data_bytes() - self.rest.len() as u64)
    }

    /// The next bytes, or `None` once all were there.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: the file is damaged, also when it ends too early.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if !self.rest.is_empty() {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        let mut file = self.file.take().ok_or(Error::Closed)?;
        let (file, chunk) = off_thread(&self.env, "snapshot", move || {
            let chunk = file.next_chunk()?;
            Ok::<_, Error>((file, chunk))
        })
        .await??;
        self.file = Some(file);
        Ok(chunk)
    }
}

fn name(at: LogPosition) -> String {
    format!("{PREFIX}{:020}-{:020}", at.index, at.term)
}

fn position(name: &str) -> Option<LogPosition> {
    let (index, term) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some(LogPosition::new(term.parse().ok()?, index.parse().ok()?))
}
