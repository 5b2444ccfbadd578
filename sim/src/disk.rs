//! The disk of a simulated node.
//!
//! Our own rather than `turmoil::fs`, for four reasons: a process that is killed must keep its
//! page cache and only a power loss may lose it (there, every crash is a power loss); unsynced
//! writes have to survive in any subset of sectors, not only as prefixes; a crash must be possible
//! between two disk operations of one step; and a single sync, file or byte must be able to fail.
//! What a power loss leaves is decided in `medium.rs`.

pub(crate) mod medium;

use std::{
    any::Any,
    collections::BTreeSet,
    io::{Error, ErrorKind, Result},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use weir_env::{Disk, File, OpenMode};

use self::medium::{Inode, Medium, lock};

/// Bytes that a disk holds when it is not made full.
pub(crate) const CAPACITY: u64 = 8 << 30;

/// A node's disk; it outlives the node's processes. Clones are the same disk.
#[derive(Clone)]
pub(crate) struct SimDisk(Arc<Mutex<State>>);

struct State {
    medium: Medium,
    rng: StdRng,
    /// Counts the processes that used this disk. Handles of an earlier one are dead.
    life: u64,
    locks: BTreeSet<PathBuf>,
    capacity_bytes: u64,
    /// Power fails at the end of this many further changes.
    halt_in: Option<(Changes, u64)>,
    halted: bool,
    /// What was being done when it stopped.
    halted_at: Option<Point>,
    /// This many further syncs succeed, then one fails.
    fail_sync_in: Option<u64>,
    /// Times that power failed.
    boots: u64,
    /// The planted bug: syncs do nothing.
    sync_is_off: bool,
    /// The planted bug: nobody learns that power failed.
    boots_are_hidden: bool,
    stats: Stats,
    /// What files were before somebody damaged or replaced them: what was on the platter once counts as kept.
    before: Vec<Medium>,
}

/// A change that a disk makes: to which kind of file, and what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point(pub(crate) &'static str, pub(crate) &'static str);

/// Which of a disk's changes an ordered stop counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changes {
    All,
    /// All but writes to the log and their syncs, which are nearly all there are: files that come, go, get another
    /// name or length, and everything about snapshots.
    Rare,
}

impl Changes {
    /// Any of the next `all`, or one of the next few rare ones.
    pub(crate) fn draw(rng: &mut StdRng, all: u64) -> (Self, u64) {
        match rng.random_bool(0.3) {
            true => (Self::Rare, rng.random_range(0..9)),
            false => (Self::All, rng.random_range(0..all)),
        }
    }

    fn has(self, point: Point) -> bool {
        self == Self::All || !matches!(point, Point("log", "write" | "sync"))
    }
}

/// The kind of file that a path names.
fn kind_of(path: &Path) -> &'static str {
    let has = |name: &str| path.components().any(|part| part.as_os_str().to_string_lossy().contains(name));
    // The directory of a group has its snapshots, also those that are being written under another name.
    if has("snap") || has("groups") {
        "snapshot"
    } else if has("wal") {
        "log"
    } else {
        "node"
    }
}

/// What was done to a disk so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    pub(crate) writes: u64,
    pub(crate) bytes: u64,
    pub(crate) syncs: u64,
}

impl SimDisk {
    /// An empty disk with a root directory.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            medium: Medium::default(),
            rng: StdRng::seed_from_u64(seed),
            life: 0,
            locks: BTreeSet::new(),
            capacity_bytes: CAPACITY,
            halt_in: None,
            halted: false,
            halted_at: None,
            fail_sync_in: None,
            boots: 0,
            sync_is_off: false,
            boots_are_hidden: false,
            stats: Stats::default(),
            before: Vec::new(),
        })))
    }

    /// Plants the bug that syncs do nothing.
    pub(crate) fn switch_sync_off(&self) {
        lock(&self.0).sync_is_off = true;
    }

    /// Plants the bug that a start after a power loss looks like any other.
    pub(crate) fn hide_boots(&self) {
        lock(&self.0).boots_are_hidden = true;
    }

    /// The process died: its locks go, its open files are dead, all bytes stay.
    pub(crate) fn process_died(&self) {
        let mut state = lock(&self.0);
        state.life += 1;
        state.locks.clear();
        state.halted = false;
        state.halt_in = None;
        state.fail_sync_in = None;
    }

    /// Power failed: as [`Self::process_died`], and what was not synced is lost or torn.
    pub(crate) fn power_lost(&self) {
        self.process_died();
        let State { medium, rng, boots, boots_are_hidden, .. } = &mut *lock(&self.0);
        *boots += u64::from(!*boots_are_hidden);
        medium.power_loss(rng);
    }

    /// Stops the node in the middle of its work: the disk does `changes` more of `which`, then it and
    /// the node's network go silent until the world notices and restarts the node.
    pub(crate) fn halt_after(&self, which: Changes, changes: u64) {
        lock(&self.0).halt_in = Some((which, changes));
    }

    /// Takes back an order to stop that has not been carried out yet.
    pub(crate) fn call_off_halt(&self) {
        lock(&self.0).halt_in = None;
    }

    /// Whether the stop that was ordered has happened.
    pub(crate) fn halted(&self) -> bool {
        lock(&self.0).halted
    }

    /// Takes back an order to fail a sync.
    pub(crate) fn call_off_failing_sync(&self) {
        lock(&self.0).fail_sync_in = None;
    }

    /// Lets `syncs` more syncs succeed and fails the one after.
    pub(crate) fn fail_sync_after(&self, syncs: u64) {
        lock(&self.0).fail_sync_in = Some(syncs);
    }

    /// Where the ordered stop happened; told once.
    pub(crate) fn take_halt_point(&self) -> Option<Point> {
        lock(&self.0).halted_at.take()
    }

    /// Bounds the disk.
    pub(crate) fn set_capacity(&self, bytes: u64) {
        lock(&self.0).capacity_bytes = bytes;
    }

    /// Bytes in files.
    pub(crate) fn used_bytes(&self) -> u64 {
        lock(&self.0).medium.used_bytes()
    }

    /// Empties the disk, as if it had been replaced.
    pub(crate) fn wipe(&self) {
        self.process_died();
        self.keep_copy();
        lock(&self.0).medium = Medium::default();
    }

    fn keep_copy(&self) {
        let mut state = lock(&self.0);
        let copy = state.medium.copy();
        state.before.push(copy);
    }

    /// Whether some file would hold `needle` if the power failed now and nothing unsynced survived. What was damaged on
    /// purpose counts as it was before.
    pub(crate) fn holds_stably(&self, needle: &[u8]) -> bool {
        let state = lock(&self.0);
        state.medium.holds_stably(needle) || state.before.iter().any(|medium| medium.holds_stably(needle))
    }

    /// A disk with the same files, for looking into them.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new(0);
        lock(&copy.0).medium = lock(&self.0).medium.copy();
        copy
    }

    /// Cuts a random part off the end of a file whose path `pick` accepts; answers which one.
    pub(crate) fn cut_short(&self, pick: impl Fn(&Path) -> bool) -> Option<(PathBuf, usize)> {
        self.keep_copy();
        let State { medium, rng, .. } = &mut *lock(&self.0);
        let mut files = medium.files();
        files.retain(|(path, inode)| pick(path) && !lock(inode).live.is_empty());
        if files.is_empty() {
            return None;
        }
        let (path, inode) = files.swap_remove(rng.random_range(0..files.len()));
        let mut inode = lock(&inode);
        let len = rng.random_range(0..inode.live.len());
        inode.set_len(len);
        inode.sync();
        Some((path, len))
    }

    /// Flips a random bit in a file whose path `pick` accepts; answers which one.
    pub(crate) fn flip_a_bit(&self, pick: impl Fn(&Path) -> bool) -> Option<(PathBuf, usize)> {
        self.keep_copy();
        let State { medium, rng, .. } = &mut *lock(&self.0);
        let mut files = medium.files();
        files.retain(|(path, inode)| pick(path) && !lock(inode).live.is_empty());
        if files.is_empty() {
            return None;
        }
        let (path, inode) = files.swap_remove(rng.random_range(0..files.len()));
        let mut inode = lock(&inode);
        let byte = rng.random_range(0..inode.live.len());
        inode.flip_bit(byte, rng.random_range(0..8));
        Some((path, byte))
    }

    /// What was done so far.
    pub(crate) fn stats(&self) -> Stats {
        lock(&self.0).stats
    }

    /// Runs something that changes nothing.
    fn look<R>(&self, act: impl FnOnce(&State) -> Result<R>) -> Result<R> {
        let state = lock(&self.0);
        if state.halted {
            return Err(power_is_off());
        }
        act(&state)
    }

    /// Runs a change; this is where an ordered stop happens, before or after it took effect.
    fn change<R>(&self, point: Point, act: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        let mut state = lock(&self.0);
        if state.halted {
            return Err(power_is_off());
        }
        match &mut state.halt_in {
            Some((which, _)) if !which.has(point) => {}
            Some((_, 0)) => {
                state.halted = true;
                state.halted_at = Some(point);
                if state.rng.random_bool(0.5) {
                    let _ = act(&mut state);
                }
                return Err(power_is_off());
            }
            Some((_, left)) => *left -= 1,
            None => {}
        }
        act(&mut state)
    }
}

impl State {
    fn free_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.medium.used_bytes())
    }

    fn claim(&self, inode: &Mutex<Inode>, len: u64) -> Result<()> {
        let grows = len.saturating_sub(lock(inode).live.len() as u64);
        if grows > 0 && grows > self.free_bytes() {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

fn power_is_off() -> Error {
    Error::other("power is off")
}

impl Disk for SimDisk {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.change(Point(kind_of(path), "create directory"), |state| state.medium.create_dir_all(path))
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.look(|state| {
            let names = state.medium.read_dir(path)?;
            Ok(names
                .iter()
                .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
                .collect())
        })
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<Box<dyn File>> {
        let inode = match mode {
            OpenMode::CreateNew => {
                self.change(Point(kind_of(path), "create"), |state| state.medium.create(path))?
            }
            OpenMode::Read | OpenMode::ReadWrite => self.look(|state| state.medium.file(path))?,
        };
        let life = lock(&self.0).life;
        let writable = mode != OpenMode::Read;
        Ok(Box::new(SimFile { disk: self.clone(), inode, life, writable, kind: kind_of(path) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.change(Point(kind_of(to), "rename"), |state| state.medium.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.change(Point(kind_of(path), "remove"), |state| state.medium.remove_file(path))
    }

    fn remove_dir_all(&self, path: &Path) -> Result<()> {
        self.change(Point(kind_of(path), "remove"), |state| state.medium.remove_dir_all(path))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.change(Point(kind_of(path), "sync directory"), |state| {
            state.stats.syncs += 1;
            if state.sync_is_off { Ok(()) } else { state.medium.sync_dir(path) }
        })
    }

    fn exists(&self, path: &Path) -> bool {
        lock(&self.0).medium.exists(path)
    }

    fn lock_dir(&self, path: &Path) -> Result<Box<dyn Any + Send>> {
        let mut state = lock(&self.0);
        if !state.medium.exists(path) {
            return Err(ErrorKind::NotFound.into());
        }
        if !state.locks.insert(path.to_owned()) {
            let text = format!("{} is in use by another process", path.display());
            return Err(Error::new(ErrorKind::ResourceBusy, text));
        }
        Ok(Box::new(Claim { disk: self.clone(), path: path.to_owned(), life: state.life }))
    }

    fn boot_id(&self) -> Result<String> {
        self.look(|state| Ok(format!("boot {}", state.boots)))
    }

    fn free_bytes(&self, _path: &Path) -> Result<u64> {
        self.look(|state| Ok(state.free_bytes()))
    }
}

/// A claimed directory.
struct Claim {
    disk: SimDisk,
    path: PathBuf,
    life: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = lock(&self.disk.0);
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}

/// An open file of one process.
struct SimFile {
    disk: SimDisk,
    inode: Arc<Mutex<Inode>>,
    life: u64,
    writable: bool,
    kind: &'static str,
}

impl SimFile {
    fn check(&self, state: &State) -> Result<()> {
        if state.life == self.life { Ok(()) } else { Err(power_is_off()) }
    }

    fn change<R>(
        &self,
        what: &'static str,
        act: impl FnOnce(&mut State, &Mutex<Inode>) -> Result<R>,
    ) -> Result<R> {
        if !self.writable {
            return Err(ErrorKind::PermissionDenied.into());
        }
        self.disk.change(Point(self.kind, what), |state| {
            self.check(state)?;
            act(state, &self.inode)
        })
    }
}

impl File for SimFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        self.disk.look(|state| {
            self.check(state)?;
            let inode = lock(&self.inode);
            let start = usize::try_from(offset).map_err(Error::other)?.min(inode.live.len());
            let len = out.len().min(inode.live.len() - start);
            out[..len].copy_from_slice(&inode.live[start..start + len]);
            Ok(len)
        })
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        self.change("write", |state, inode| {
            state.claim(inode, offset + bytes.len() as u64)?;
            state.stats.writes += 1;
            state.stats.bytes += bytes.len() as u64;
            lock(inode).write(usize::try_from(offset).map_err(Error::other)?, bytes);
            Ok(())
        })
    }

    fn sync_data(&mut self) -> Result<()> {
        self.change("sync", |state, inode| {
            state.stats.syncs += 1;
            match &mut state.fail_sync_in {
                Some(0) => {
                    state.fail_sync_in = None;
                    lock(inode).sync_failed(&mut state.rng);
                    return Err(Error::other("input/output error"));
                }
                Some(left) => *left -= 1,
                None => {}
            }
            if !state.sync_is_off {
                lock(inode).sync();
            }
            Ok(())
        })
    }

    fn len(&self) -> Result<u64> {
        self.disk.look(|state| {
            self.check(state)?;
            Ok(lock(&self.inode).live.len() as u64)
        })
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        self.change("resize", |state, inode| {
            state.claim(inode, len)?;
            lock(inode).set_len(usize::try_from(len).map_err(Error::other)?);
            Ok(())
        })
    }

    fn allocate(&mut self, len: u64) -> Result<()> {
        self.change("resize", |state, inode| {
            state.claim(inode, len)?;
            let mut inode = lock(inode);
            let len = usize::try_from(len).map_err(Error::other)?;
            if inode.live.len() < len {
                inode.set_len(len);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(disk: &SimDisk) -> Box<dyn File> {
        disk.create_dir_all(Path::new("/d")).unwrap();
        disk.open(Path::new("/d/f"), OpenMode::CreateNew).unwrap()
    }

    #[test]
    fn a_killed_process_loses_nothing_but_its_handles_and_locks() {
        let disk = SimDisk::new(1);
        let mut old = file(&disk);
        old.write_at(b"abc", 0).unwrap();
        let _claim = disk.lock_dir(Path::new("/d")).unwrap();
        assert!(disk.lock_dir(Path::new("/d")).is_err());
        disk.process_died();
        assert!(old.write_at(b"x", 0).is_err());
        assert_eq!(disk.read(Path::new("/d/f")).unwrap(), b"abc");
        assert!(disk.lock_dir(Path::new("/d")).is_ok());
    }

    #[test]
    fn an_atomic_write_survives_power_loss() {
        for seed in 0..20 {
            let disk = SimDisk::new(seed);
            disk.create_dir_all(Path::new("/d")).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            disk.write_atomic(Path::new("/d/f"), b"one").unwrap();
            disk.write_atomic(Path::new("/d/f"), b"two").unwrap();
            disk.power_lost();
            assert_eq!(disk.read(Path::new("/d/f")).unwrap(), b"two");
        }
    }

    #[test]
    fn an_atomic_write_cut_anywhere_leaves_old_or_new() {
        for seed in 0..200 {
            let disk = SimDisk::new(seed);
            disk.create_dir_all(Path::new("/d")).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            disk.write_atomic(Path::new("/d/f"), b"old").unwrap();
            disk.halt_after(Changes::All, seed % 5);
            let cut = disk.write_atomic(Path::new("/d/f"), b"new").is_err();
            assert!(cut && disk.halted());
            disk.power_lost();
            let found = disk.read(Path::new("/d/f")).unwrap();
            assert!(found == b"old" || found == b"new", "{found:?}");
        }
    }

    #[test]
    fn a_stop_at_a_rare_change_passes_over_what_the_log_writes() {
        let disk = SimDisk::new(1);
        let (wal, group) = (Path::new("/data/wal"), Path::new("/data/groups/1"));
        disk.create_dir_all(wal).unwrap();
        disk.create_dir_all(group).unwrap();
        let mut log = disk.open(&wal.join("1"), OpenMode::CreateNew).unwrap();
        disk.halt_after(Changes::Rare, 1);
        for at in 0..50 {
            log.write_at(b"x", at).unwrap();
            log.sync_data().unwrap();
        }
        // A snapshot has another name while it is written.
        let mut snapshot = disk.open(&group.join("new"), OpenMode::CreateNew).unwrap();
        assert!(snapshot.write_at(b"x", 0).is_err());
        assert_eq!(disk.take_halt_point(), Some(Point("snapshot", "write")));
    }

    #[test]
    fn with_sync_switched_off_a_synced_write_is_lost() {
        let lost = (0..20).any(|seed| {
            let disk = SimDisk::new(seed);
            disk.create_dir_all(Path::new("/d")).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            disk.switch_sync_off();
            disk.write_atomic(Path::new("/d/f"), b"new").unwrap();
            disk.power_lost();
            disk.read(Path::new("/d/f")).map_or(true, |found| found != b"new")
        });
        assert!(lost);
    }

    #[test]
    fn a_full_disk_and_a_failed_sync_are_errors_and_damage_is_silent() {
        let disk = SimDisk::new(1);
        let mut file = file(&disk);
        disk.set_capacity(10);
        assert_eq!(file.allocate(11).unwrap_err().kind(), ErrorKind::StorageFull);
        file.allocate(10).unwrap();
        file.write_at(&[1; 10], 0).unwrap();
        disk.fail_sync_after(1);
        file.sync_data().unwrap();
        assert!(file.sync_data().is_err());
        let (path, byte) = disk.flip_a_bit(|_| true).unwrap();
        assert_ne!(disk.read(&path).unwrap()[byte], 1);
    }
}
