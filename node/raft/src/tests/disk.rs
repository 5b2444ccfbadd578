//! The real disk, with syncs that can be held up and no room for snapshots when told so.

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use weir_env::{Disk, File, OpenMode};

#[derive(Default)]
struct Gate {
    held: Mutex<bool>,
    opened: Condvar,
    /// Snapshots being taken do not fit.
    no_room: AtomicBool,
    /// Snapshots begun to be taken.
    takes: AtomicU64,
    /// Times that power failed.
    boots: AtomicU64,
    /// No file gets space any more.
    full: AtomicBool,
}

/// Clones share the gate.
#[derive(Clone)]
pub(super) struct SlowDisk {
    real: Arc<dyn Disk>,
    gate: Arc<Gate>,
}

impl SlowDisk {
    pub(super) fn new(real: Arc<dyn Disk>) -> Self {
        Self { real, gate: Arc::default() }
    }

    /// From now on no sync ends until [`SlowDisk::release`].
    pub(super) fn hold(&self) {
        *self.gate.held.lock() = true;
    }

    pub(super) fn release(&self) {
        *self.gate.held.lock() = false;
        self.gate.opened.notify_all();
    }

    /// From now on a snapshot being taken finds room for its header alone, or for all.
    pub(super) fn refuse_snapshots(&self, refuse: bool) {
        self.gate.no_room.store(refuse, Ordering::Relaxed);
    }

    /// From now on there is no space for new files, or there is.
    pub(super) fn fill(&self, full: bool) {
        self.gate.full.store(full, Ordering::Relaxed);
    }

    /// Power failed and came back.
    pub(super) fn reboot(&self) {
        self.gate.boots.fetch_add(1, Ordering::Relaxed);
    }

    /// How many snapshots were begun to be taken.
    pub(super) fn takes(&self) -> u64 {
        self.gate.takes.load(Ordering::Relaxed)
    }
}

impl Disk for SlowDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.real.create_dir_all(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.real.read_dir(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        let file = self.real.open(path, mode)?;
        let taking = mode == OpenMode::CreateNew && path.ends_with("taking.tmp");
        self.gate.takes.fetch_add(u64::from(taking), Ordering::Relaxed);
        Ok(Box::new(SlowFile { file, gate: self.gate.clone(), taking }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.real.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.real.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.real.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.real.sync_dir(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.real.exists(path)
    }

    fn lock_dir(&self, path: &Path) -> io::Result<Box<dyn Any + Send>> {
        self.real.lock_dir(path)
    }

    fn boot_id(&self) -> io::Result<String> {
        Ok(format!("boot {}", self.gate.boots.load(Ordering::Relaxed)))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.real.free_bytes(path)
    }
}

struct SlowFile {
    file: Box<dyn File>,
    gate: Arc<Gate>,
    taking: bool,
}

impl File for SlowFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(out, offset)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.taking && offset > 0 && self.gate.no_room.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.gate.opened.wait_while(&mut self.gate.held.lock(), |held| *held);
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&mut self, len: u64) -> io::Result<()> {
        if self.gate.full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.allocate(len)
    }
}
