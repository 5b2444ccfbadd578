//! A disk in memory that keeps apart what was written and what was synced, and fails as told.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use weir_env::{BoxFuture, Clock, Disk, Env, File, Job, Next, OpenMode, Spawn, TaskHandle, Wake, WriterLoop};

const SECTOR: usize = 512;

/// What happens at a chosen operation, counted over all that change the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The process is gone: this and all later operations fail and do nothing more.
    Crash,
    /// This one fails, the others work.
    Error,
}

#[derive(Debug, Clone)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    /// What `bytes` has beyond `synced`, in order.
    pending: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Naming {
    Put(PathBuf, u64),
    Remove(PathBuf),
}

#[derive(Debug, Clone, Default)]
struct World {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<PathBuf, u64>,
    synced_names: BTreeMap<PathBuf, u64>,
    pending_names: Vec<Naming>,
    next_inode: u64,
    ops: u64,
    syncs: u64,
    fault: Option<(u64, Fault)>,
    crashed: bool,
    capacity: Option<u64>,
    locked: Vec<PathBuf>,
    boots: u64,
}

fn no_space() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(offset, data) => {
            let end = *offset as usize + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*offset as usize..end].copy_from_slice(data);
        }
        Change::SetLen(len) => bytes.resize(*len as usize, 0),
    }
}

fn rename(names: &mut BTreeMap<PathBuf, u64>, naming: &Naming) {
    match naming {
        Naming::Put(path, inode) => {
            // A rename is one step: the other name of the file goes with it.
            names.retain(|_, other| other != inode);
            names.insert(path.clone(), *inode);
        }
        Naming::Remove(path) => {
            names.remove(path);
        }
    }
}

impl World {
    fn op(&mut self) -> io::Result<()> {
        self.ops += 1;
        if self.crashed {
            return Err(io::Error::other("the process is gone"));
        }
        match self.fault {
            Some((at, Fault::Crash)) if at == self.ops => {
                self.crashed = true;
                Err(io::Error::other("the process is gone"))
            }
            Some((at, Fault::Error)) if at == self.ops => Err(io::Error::other("an error was injected")),
            _ => Ok(()),
        }
    }

    fn used(&self) -> u64 {
        self.names.values().map(|inode| self.inodes[inode].bytes.len() as u64).sum()
    }

    fn change(&mut self, inode: u64, change: Change) -> io::Result<()> {
        let before = self.inodes[&inode].bytes.len() as u64;
        let after = match &change {
            Change::Write(offset, data) => before.max(offset + data.len() as u64),
            Change::SetLen(len) => *len,
        };
        if after > before && self.capacity.is_some_and(|capacity| self.used() + after - before > capacity) {
            return Err(no_space());
        }
        // A write that the crash interrupts may still get to the disk, in part.
        let died = self.op().err();
        if died.is_none() || self.crashed {
            let file = self.inodes.get_mut(&inode).expect("it is open");
            apply(&mut file.bytes, &change);
            file.pending.push(change);
        }
        died.map_or(Ok(()), Err)
    }
}

/// Numbers from a seed.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

#[derive(Clone, Default)]
pub(super) struct FaultDisk {
    world: Arc<Mutex<World>>,
}

impl FaultDisk {
    /// A disk with the same contents that shares nothing.
    pub(super) fn copy(&self) -> Self {
        Self { world: Arc::new(Mutex::new(self.world.lock().clone())) }
    }

    pub(super) fn ops(&self) -> u64 {
        self.world.lock().ops
    }

    pub(super) fn syncs(&self) -> u64 {
        self.world.lock().syncs
    }

    pub(super) fn crashed(&self) -> bool {
        self.world.lock().crashed
    }

    /// `after` operations from now.
    pub(super) fn fail(&self, after: u64, fault: Fault) {
        let mut world = self.world.lock();
        world.fault = Some((world.ops + after, fault));
    }

    pub(super) fn limit(&self, capacity: Option<u64>) {
        self.world.lock().capacity = capacity;
    }

    pub(super) fn used(&self) -> u64 {
        self.world.lock().used()
    }

    /// The process is gone, the system goes on: everything written is there.
    pub(super) fn restart_process(&self) {
        let mut world = self.world.lock();
        world.crashed = false;
        world.fault = None;
        world.locked.clear();
    }

    /// The power is gone: of what was not synced, some is there, and some in part.
    pub(super) fn lose_power(&self, dice: &mut Dice) {
        self.restart_process();
        let mut world = self.world.lock();
        world.boots += 1;
        let World { inodes, names, synced_names, pending_names, .. } = &mut *world;
        let kept = dice.below(pending_names.len() as u64 + 1) as usize;
        *names = synced_names.clone();
        for naming in pending_names.drain(..).take(kept) {
            rename(names, &naming);
        }
        *synced_names = names.clone();
        inodes.retain(|inode, _| names.values().any(|named| named == inode));
        for file in inodes.values_mut() {
            let mut bytes = std::mem::take(&mut file.synced);
            let all_or_nothing = dice.below(3);
            for change in file.pending.drain(..) {
                match (all_or_nothing, &change) {
                    (0, _) => {}
                    (1, _) => apply(&mut bytes, &change),
                    (_, Change::SetLen(_)) => {
                        if dice.below(2) == 0 {
                            apply(&mut bytes, &change);
                        }
                    }
                    (_, Change::Write(offset, data)) => {
                        let mut at = 0;
                        while at < data.len() {
                            let absolute = *offset as usize + at;
                            let len = (SECTOR - absolute % SECTOR).min(data.len() - at);
                            if dice.below(2) == 0 {
                                let part = Change::Write(absolute as u64, data[at..at + len].to_vec());
                                apply(&mut bytes, &part);
                            }
                            at += len;
                        }
                    }
                }
            }
            file.synced = bytes.clone();
            file.bytes = bytes;
        }
    }

    /// Everything else is real or simple: tasks instead of threads, tokio's clock.
    pub(super) fn env(&self) -> Env {
        let system = Env::system();
        Env {
            clock: Arc::new(TokioClock { start: Instant::now() }),
            net: system.net,
            disk: Arc::new(self.clone()),
            rng: system.rng,
            spawn: Arc::new(Tasks),
        }
    }
}

impl Disk for FaultDisk {
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let world = self.world.lock();
        let inside = world.names.keys().filter(|name| name.parent() == Some(path));
        Ok(inside.filter_map(|name| Some(name.file_name()?.to_str()?.to_owned())).collect())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        let mut world = self.world.lock();
        let inode = match (world.names.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(inode), _) => *inode,
            (None, OpenMode::CreateNew) => {
                world.op()?;
                let inode = world.next_inode;
                world.next_inode += 1;
                world.inodes.insert(inode, Inode::default());
                world.names.insert(path.to_owned(), inode);
                world.pending_names.push(Naming::Put(path.to_owned(), inode));
                inode
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Box::new(FaultFile { world: self.world.clone(), inode }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        world.op()?;
        let inode = world.names.get(from).copied().ok_or(io::ErrorKind::NotFound)?;
        let naming = Naming::Put(to.to_owned(), inode);
        rename(&mut world.names, &naming);
        world.pending_names.push(naming);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        world.op()?;
        world.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        world.pending_names.push(Naming::Remove(path.to_owned()));
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        world.op()?;
        world.names.retain(|name, _| !name.starts_with(path));
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        world.op()?;
        world.synced_names = world.names.clone();
        world.pending_names.clear();
        Ok(())
    }

    fn exists(&self, path: &Path) -> bool {
        self.world.lock().names.keys().any(|name| name.starts_with(path))
    }

    fn lock_dir(&self, path: &Path) -> io::Result<Box<dyn Any + Send>> {
        let mut world = self.world.lock();
        if world.locked.iter().any(|locked| locked == path) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        world.locked.push(path.to_owned());
        Ok(Box::new(DirLock { world: self.world.clone(), path: path.to_owned() }))
    }

    fn boot_id(&self) -> io::Result<String> {
        Ok(format!("boot {}", self.world.lock().boots))
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        let world = self.world.lock();
        Ok(world.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(world.used())))
    }
}

struct DirLock {
    world: Arc<Mutex<World>>,
    path: PathBuf,
}

impl Drop for DirLock {
    fn drop(&mut self) {
        self.world.lock().locked.retain(|locked| *locked != self.path);
    }
}

struct FaultFile {
    world: Arc<Mutex<World>>,
    inode: u64,
}

impl File for FaultFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let world = self.world.lock();
        let file = world.inodes.get(&self.inode).ok_or(io::ErrorKind::NotFound)?;
        let rest = file.bytes.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.world.lock().change(self.inode, Change::Write(offset, bytes.to_vec()))
    }

    fn sync_data(&mut self) -> io::Result<()> {
        let mut world = self.world.lock();
        world.op()?;
        world.syncs += 1;
        let file = world.inodes.get_mut(&self.inode).ok_or(io::ErrorKind::NotFound)?;
        file.synced = file.bytes.clone();
        file.pending.clear();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let world = self.world.lock();
        Ok(world.inodes.get(&self.inode).ok_or(io::ErrorKind::NotFound)?.bytes.len() as u64)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.world.lock().change(self.inode, Change::SetLen(len))
    }

    fn allocate(&mut self, len: u64) -> io::Result<()> {
        if self.len()? < len { self.set_len(len) } else { Ok(()) }
    }
}

struct TokioClock {
    start: Instant,
}

impl Clock for TokioClock {
    fn wall_ms(&self) -> u64 {
        0
    }

    fn mono(&self) -> Duration {
        self.start.elapsed()
    }
}

struct Tasks;

impl Spawn for Tasks {
    fn spawn(&self, _: &'static str, future: BoxFuture<'static, ()>) -> TaskHandle {
        TaskHandle::new(tokio::spawn(future))
    }

    fn blocking(&self, _: &'static str, job: Job) {
        job();
    }

    fn writer(&self, _: &'static str, mut body: Box<dyn WriterLoop>, wake: Arc<Wake>) {
        tokio::spawn(async move {
            loop {
                match body.step() {
                    Next::Again => tokio::task::yield_now().await,
                    Next::Wait(timeout) => wake.wait(timeout).await,
                    Next::End => return,
                }
            }
        });
    }
}
