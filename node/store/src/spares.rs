//! Prepared files: space that was claimed from the disk ahead of the writes that need it.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use weir_env::{Disk, OpenMode};

use crate::error::{Error, is_no_space};
use crate::options::WalOptions;

const PREFIX: &str = "spare-";
/// Zeros are written in pieces of this size, and synced after some of them, so that a log that is being synced next
/// to it does not wait for all of them at once.
const FILL_BYTES: usize = 256 << 10;
const FILL_SYNC_BYTES: u64 = 4 << 20;

#[derive(Debug, Clone)]
pub(crate) struct Spare {
    path: PathBuf,
    /// Whether all of it was written before.
    filled: bool,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Spare>,
    /// A file that exists with its space and is being filled by a job.
    filling: bool,
    /// A job that prepares is at work.
    busy: bool,
    /// A job that drops segments is at work.
    dropping: bool,
    /// The disk had no space for a missing file.
    no_space: bool,
    /// Not to be tried again yet.
    paused: bool,
    next_id: u64,
}

/// Files that are ready to become segments.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    idle: Condvar,
}

/// The right to run the one job. Given back when dropped, also if the job never runs.
pub(crate) struct JobTurn(Arc<Inner>);

/// The right to drop segment files. Given back like [`JobTurn`].
pub(crate) struct DropTurn(Arc<Inner>);

impl Drop for DropTurn {
    fn drop(&mut self) {
        self.0.state.lock().dropping = false;
        self.0.idle.notify_all();
    }
}

impl Drop for JobTurn {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.busy = false;
        state.filling = false;
        self.0.idle.notify_all();
    }
}

impl Spares {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }

    /// Takes over spares that an earlier run left; those of another size are removed.
    pub(crate) fn adopt(
        disk: &dyn Disk,
        dir: &Path,
        names: &[String],
        options: &WalOptions,
    ) -> Result<Self, Error> {
        let spares = Self::default();
        let mut state = spares.lock();
        for name in names {
            let Some(digits) = name.strip_prefix(PREFIX) else { continue };
            let path = dir.join(name);
            state.next_id = state.next_id.max(u64::from_str_radix(digits, 16).map_or(0, |id| id + 1));
            let mut file = disk.open(&path, OpenMode::ReadWrite).map_err(|e| Error::io("open", &path, e))?;
            let fits = file.len().map_err(|e| Error::io("read", &path, e))? == options.segment_bytes
                && state.ready.len() <= options.spare_segments;
            if fits {
                // Whoever made it may have died before its length was on disk.
                file.sync_data().map_err(|e| Error::io("sync", &path, e))?;
            }
            drop(file);
            if fits {
                state.ready.push_back(Spare { path, filled: false });
            } else {
                disk.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
            }
        }
        drop(state);
        Ok(spares)
    }

    /// Files that can be taken without asking the disk.
    pub(crate) fn count(&self) -> u64 {
        let state = self.lock();
        state.ready.len() as u64 + u64::from(state.filling)
    }

    /// Whether the disk had no space for a missing file when asked last.
    pub(crate) fn no_space(&self) -> bool {
        self.lock().no_space
    }

    /// Lets the next job try again after the disk had no space.
    pub(crate) fn ask_again(&self) {
        self.lock().paused = false;
    }

    /// The right to run [`Self::run_job`], if it has something to do and nobody is at it.
    pub(crate) fn claim_job(&self, wanted: usize, fill: bool) -> Option<JobTurn> {
        let mut state = self.lock();
        let missing = state.ready.len() < wanted && !state.paused;
        let unfilled = fill && state.ready.iter().any(|spare| !spare.filled);
        if state.busy || !(missing || unfilled) {
            return None;
        }
        state.busy = true;
        Some(JobTurn(self.inner.clone()))
    }

    /// Whether a job is dropping segments.
    pub(crate) fn dropping(&self) -> bool {
        self.lock().dropping
    }

    /// The right to run a job that calls [`Self::recycle`]. Not while [`Self::dropping`].
    pub(crate) fn claim_drop(&self) -> DropTurn {
        let mut state = self.lock();
        assert!(!state.dropping, "one job drops, in order");
        state.dropping = true;
        DropTurn(self.inner.clone())
    }

    /// Waits until no job touches the directory.
    pub(crate) fn wait_idle(&self) {
        let mut state = self.lock();
        self.inner.idle.wait_while(&mut state, |state| state.busy || state.dropping);
    }

    /// The job: makes files until enough are ready, then fills one with zeros if `fill` says so.
    pub(crate) fn run_job(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        options: &WalOptions,
        fill: bool,
    ) -> Result<(), Error> {
        self.make_missing(disk, dir, options)?;
        if fill { self.fill_one(disk, options) } else { Ok(()) }
    }

    fn make_missing(&self, disk: &dyn Disk, dir: &Path, options: &WalOptions) -> Result<(), Error> {
        loop {
            let path = {
                let mut state = self.lock();
                if state.ready.len() >= options.spare_segments {
                    state.no_space = false;
                    return Ok(());
                }
                state.fresh_path(dir)
            };
            match make(disk, &path, options.segment_bytes) {
                Ok(()) => self.lock().ready.push_back(Spare { path, filled: false }),
                Err(e) if is_no_space(&e) => {
                    let mut state = self.lock();
                    state.no_space = true;
                    state.paused = true;
                    return Ok(());
                }
                Err(e) => return Err(Error::io("prepare", &path, e)),
            }
        }
    }

    fn fill_one(&self, disk: &dyn Disk, options: &WalOptions) -> Result<(), Error> {
        let Some(mut spare) = self.begin_filling() else { return Ok(()) };
        let filled = fill(disk, &spare.path, options.segment_bytes);
        let filled = filled.map_err(|e| Error::io("fill", &spare.path, e));
        spare.filled = filled.is_ok();
        self.end_filling(spare, options.spare_segments);
        filled
    }

    /// Takes out a file that is not filled yet.
    pub(crate) fn begin_filling(&self) -> Option<Spare> {
        let mut state = self.lock();
        let at = state.ready.iter().position(|spare| !spare.filled)?;
        state.filling = true;
        state.ready.remove(at)
    }

    /// Puts it back.
    pub(crate) fn end_filling(&self, spare: Spare, wanted: usize) {
        let mut state = self.lock();
        state.filling = false;
        state.ready.push_front(spare);
        state.missing_none(wanted);
    }

    /// A file of `capacity` bytes: a prepared one, or one made now. Waits for a job that has one in hand. On a full
    /// disk it may be smaller, but not below `least`. Returns its size too.
    pub(crate) fn take(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        mut capacity: u64,
        least: u64,
        options: &WalOptions,
    ) -> io::Result<(PathBuf, u64)> {
        let mut state = self.lock();
        if capacity == options.segment_bytes {
            if state.ready.is_empty() {
                self.inner.idle.wait_while(&mut state, |state| state.busy);
            }
            let filled = state.ready.iter().position(|spare| spare.filled).unwrap_or(0);
            if let Some(spare) = state.ready.remove(filled) {
                return Ok((spare.path, capacity));
            }
        }
        loop {
            let path = state.fresh_path(dir);
            match make(disk, &path, capacity) {
                Ok(()) => return Ok((path, capacity)),
                Err(e) if is_no_space(&e) && capacity > least => capacity = (capacity / 2).max(least),
                Err(e) => return Err(e),
            }
        }
    }

    /// Makes a segment's file a spare if one is wanted and it has the size, otherwise removes it. Returns once that
    /// survives a power loss.
    pub(crate) fn recycle(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        path: &Path,
        capacity: u64,
        options: &WalOptions,
    ) -> Result<(), Error> {
        let spare = {
            let mut state = self.lock();
            (capacity == options.segment_bytes && state.ready.len() <= options.spare_segments)
                .then(|| state.fresh_path(dir))
        };
        match &spare {
            Some(spare) => disk.rename(path, spare).map_err(|e| Error::io("rename", path, e))?,
            None => disk.remove_file(path).map_err(|e| Error::io("remove", path, e))?,
        }
        disk.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
        let mut state = self.lock();
        if let Some(path) = spare {
            state.ready.push_back(Spare { path, filled: true });
            state.missing_none(options.spare_segments);
        }
        // Either way there is more space now.
        state.paused = false;
        Ok(())
    }
}

impl State {
    /// To be called when a file was added. Nobody asks the disk for space again once no file is missing, so what it
    /// said when one was is forgotten then, wherever the file came from.
    fn missing_none(&mut self, wanted: usize) {
        self.no_space &= self.ready.len() + usize::from(self.filling) < wanted;
    }

    fn fresh_path(&mut self, dir: &Path) -> PathBuf {
        let id = self.next_id;
        self.next_id += 1;
        dir.join(format!("{PREFIX}{id:016x}"))
    }
}

fn make(disk: &dyn Disk, path: &Path, capacity: u64) -> io::Result<()> {
    let mut file = disk.open(path, OpenMode::CreateNew)?;
    let made = file.allocate(capacity).and_then(|()| file.sync_data());
    drop(file);
    if made.is_err() {
        // What cannot be removed now is removed by the next start, which finds it too short.
        let _ = disk.remove_file(path);
    }
    made
}

fn fill(disk: &dyn Disk, path: &Path, capacity: u64) -> io::Result<()> {
    let mut file = disk.open(path, OpenMode::ReadWrite)?;
    let zeros = vec![0; FILL_BYTES];
    let mut offset = 0;
    while offset < capacity {
        let len = (FILL_BYTES as u64).min(capacity - offset);
        file.write_at(&zeros[..len as usize], offset)?;
        offset += len;
        if offset % FILL_SYNC_BYTES == 0 {
            file.sync_data()?;
        }
    }
    file.sync_data()
}

/// Fills the first bytes of a file that is about to become the tail, so that its first syncs are cheap too.
pub(crate) fn fill_start(disk: &dyn Disk, path: &Path, capacity: u64) -> io::Result<()> {
    fill(disk, path, capacity.min(8 << 20))
}
