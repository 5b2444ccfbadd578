//! What a disk remembers: two views of files and names, and what a power loss leaves of them.
//!
//! The *live* view is what the running machine reads: the page cache and the names in it. The
//! *stable* view is what is on the platter. A write changes the live view; a sync of the file
//! carries its bytes over, a sync of the directory carries over the names in it. Killing the
//! process loses nothing; losing power loses what was not carried over, and tears what was
//! on its way: each 512-byte sector of an unsynced write may or may not have made it.
//!
//! Deliberately pessimistic where POSIX leaves room: syncing a new file does not make its name
//! durable, and a rename without a directory sync may be undone. Deliberately kind in one point:
//! names in one directory become durable in order, as every journalling filesystem does it.

use std::{
    collections::BTreeMap,
    io::{Error, ErrorKind, Result},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rand::{Rng, RngCore};

/// Unit that a disk writes whole, in bytes.
const SECTOR: usize = 512;

/// A file's bytes, in both views.
#[derive(Debug, Default)]
pub(crate) struct Inode {
    /// As the running machine reads them.
    pub(crate) live: Vec<u8>,
    /// As they are on the platter.
    stable: Vec<u8>,
    /// What the live view has over the stable one, in order.
    unsynced: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

impl Inode {
    /// Writes at `offset`, growing the file as needed.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        put(&mut self.live, offset, bytes);
        self.unsynced.push(Change::Write { offset, bytes: bytes.to_vec() });
    }

    /// Cuts or extends (with zeros).
    pub(crate) fn set_len(&mut self, len: usize) {
        self.live.resize(len, 0);
        self.unsynced.push(Change::Length(len));
    }

    /// Carries everything over to the platter.
    pub(crate) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            match change {
                Change::Write { offset, bytes } => put(&mut self.stable, offset, &bytes),
                Change::Length(len) => self.stable.resize(len, 0),
            }
        }
        debug_assert_eq!(self.live.len(), self.stable.len());
    }

    /// A sync that failed: the kernel has dropped its knowledge of what was dirty, so a part of
    /// it is on the platter and no later sync will write the rest.
    pub(crate) fn sync_failed(&mut self, rng: &mut dyn RngCore) {
        let survived = self.after_power_loss(rng);
        self.stable = survived;
        self.unsynced.clear();
    }

    /// Flips one bit on the platter and in the live view.
    pub(crate) fn flip_bit(&mut self, byte: usize, bit: u8) {
        for view in [&mut self.live, &mut self.stable] {
            if let Some(byte) = view.get_mut(byte) {
                *byte ^= 1 << (bit & 7);
            }
        }
    }

    /// The bytes found after power came back.
    fn after_power_loss(&self, rng: &mut dyn RngCore) -> Vec<u8> {
        let mut found = self.stable.clone();
        if self.unsynced.is_empty() {
            return found;
        }
        // Nothing, everything, or any subset of sectors: a disk may do each of these.
        let survival = match rng.random_range(0..10u32) {
            0..=3 => 0.0,
            4..=5 => 1.0,
            _ => 0.5,
        };
        for change in &self.unsynced {
            match change {
                Change::Length(len) => {
                    if rng.random_bool(survival) {
                        found.resize(*len, 0);
                    }
                }
                Change::Write { offset, bytes } => {
                    let end = offset + bytes.len();
                    let mut at = *offset;
                    while at < end {
                        let sector_end = ((at / SECTOR + 1) * SECTOR).min(end);
                        if rng.random_bool(survival) {
                            put(&mut found, at, &bytes[at - offset..sector_end - offset]);
                        }
                        at = sector_end;
                    }
                }
            }
        }
        found
    }
}

fn put(view: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if view.len() < end {
        view.resize(end, 0);
    }
    view[offset..end].copy_from_slice(bytes);
}

/// What a name stands for.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Dir,
    File(Arc<Mutex<Inode>>),
}

/// A change of names that no directory sync has carried over yet.
#[derive(Debug)]
enum NameChange {
    Create { path: PathBuf, node: Node },
    Remove { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, node: Node },
}

impl NameChange {
    /// The directory whose sync makes this durable.
    fn directory(&self) -> &Path {
        let (Self::Create { path, .. } | Self::Remove { path } | Self::Rename { to: path, .. }) = self;
        parent_of(path)
    }

    fn apply(self, names: &mut BTreeMap<PathBuf, Node>) {
        let parent_exists = |names: &BTreeMap<PathBuf, Node>, path: &Path| is_dir(names, parent_of(path));
        match self {
            Self::Create { path, node } => {
                if parent_exists(names, &path) {
                    names.insert(path, node);
                }
            }
            Self::Remove { path } => {
                names.retain(|name, _| !name.starts_with(&path));
            }
            Self::Rename { from, to, node } => {
                names.remove(&from);
                if parent_exists(names, &to) {
                    names.insert(to, node);
                }
            }
        }
    }
}

/// A file that is kept ready to become a part of the log holds nothing that counts.
fn is_spare(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("spare-"))
}

fn is_dir(names: &BTreeMap<PathBuf, Node>, path: &Path) -> bool {
    path.parent().is_none() || matches!(names.get(path), Some(Node::Dir))
}

/// The directory that a name is in; the root is its own.
fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// One disk with its filesystem.
#[derive(Debug, Default)]
pub(crate) struct Medium {
    live: BTreeMap<PathBuf, Node>,
    stable: BTreeMap<PathBuf, Node>,
    pending: Vec<NameChange>,
}

impl Medium {
    pub(crate) fn exists(&self, path: &Path) -> bool {
        path.parent().is_none() || self.live.contains_key(path)
    }

    pub(crate) fn file(&self, path: &Path) -> Result<Arc<Mutex<Inode>>> {
        match self.live.get(path) {
            Some(Node::File(inode)) => Ok(Arc::clone(inode)),
            Some(Node::Dir) => Err(about(ErrorKind::IsADirectory, path)),
            None => Err(about(ErrorKind::NotFound, path)),
        }
    }

    pub(crate) fn create(&mut self, path: &Path) -> Result<Arc<Mutex<Inode>>> {
        if self.exists(path) {
            return Err(about(ErrorKind::AlreadyExists, path));
        }
        self.expect_parent(path)?;
        let inode = Arc::new(Mutex::new(Inode::default()));
        self.change(NameChange::Create { path: path.to_owned(), node: Node::File(Arc::clone(&inode)) });
        Ok(inode)
    }

    pub(crate) fn create_dir_all(&mut self, path: &Path) -> Result<()> {
        let mut wanted: Vec<&Path> = path.ancestors().filter(|p| p.parent().is_some()).collect();
        wanted.reverse();
        for dir in wanted {
            match self.live.get(dir) {
                Some(Node::Dir) => {}
                Some(Node::File(_)) => return Err(about(ErrorKind::NotADirectory, dir)),
                None => {
                    self.change(NameChange::Create { path: dir.to_owned(), node: Node::Dir });
                }
            }
        }
        Ok(())
    }

    /// Names directly inside `dir`, sorted.
    pub(crate) fn read_dir(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        if !is_dir(&self.live, dir) {
            return Err(about(ErrorKind::NotFound, dir));
        }
        Ok(self.live.keys().filter(|path| path.parent() == Some(dir)).cloned().collect())
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        let node = self.live.get(from).cloned().ok_or_else(|| about(ErrorKind::NotFound, from))?;
        self.expect_parent(to)?;
        if matches!(node, Node::Dir) {
            return self.rename_dir(from, to);
        }
        self.change(NameChange::Rename { from: from.to_owned(), to: to.to_owned(), node });
        Ok(())
    }

    fn rename_dir(&mut self, from: &Path, to: &Path) -> Result<()> {
        if self.live.contains_key(to) && !self.read_dir(to)?.is_empty() {
            return Err(about(ErrorKind::DirectoryNotEmpty, to));
        }
        let inside: Vec<(PathBuf, Node)> = self
            .live
            .iter()
            .filter(|(path, _)| path.starts_with(from))
            .map(|(path, node)| (path.clone(), node.clone()))
            .collect();
        for (path, node) in inside {
            let moved = match path.strip_prefix(from) {
                Ok(rest) if rest.as_os_str().is_empty() => to.to_owned(),
                Ok(rest) => to.join(rest),
                Err(_) => continue,
            };
            self.change(NameChange::Rename { from: path, to: moved, node });
        }
        Ok(())
    }

    pub(crate) fn remove_file(&mut self, path: &Path) -> Result<()> {
        self.file(path)?;
        self.change(NameChange::Remove { path: path.to_owned() });
        Ok(())
    }

    pub(crate) fn remove_dir_all(&mut self, path: &Path) -> Result<()> {
        if !self.exists(path) {
            return Err(about(ErrorKind::NotFound, path));
        }
        self.change(NameChange::Remove { path: path.to_owned() });
        Ok(())
    }

    /// Makes the names in `dir` durable.
    pub(crate) fn sync_dir(&mut self, dir: &Path) -> Result<()> {
        if !is_dir(&self.live, dir) {
            return Err(about(ErrorKind::NotFound, dir));
        }
        for change in std::mem::take(&mut self.pending) {
            if change.directory() == dir {
                change.apply(&mut self.stable);
            } else {
                self.pending.push(change);
            }
        }
        Ok(())
    }

    /// Bytes in all files that have a name.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.live
            .values()
            .map(|node| match node {
                Node::File(inode) => lock(inode).live.len() as u64,
                Node::Dir => 0,
            })
            .sum()
    }

    /// Whether a file that survives a power loss holds `needle` on the platter.
    pub(crate) fn holds_stably(&self, needle: &[u8]) -> bool {
        let finder = memchr::memmem::Finder::new(needle);
        self.stable.iter().any(|(path, node)| match node {
            Node::File(inode) if !is_spare(path) => finder.find(&lock(inode).stable).is_some(),
            _ => false,
        })
    }

    /// The same files and names, nothing shared.
    pub(crate) fn copy(&self) -> Self {
        let names = |view: &BTreeMap<PathBuf, Node>| {
            let copied = view.iter().map(|(path, node)| {
                let node = match node {
                    Node::Dir => Node::Dir,
                    Node::File(inode) => {
                        let bytes = lock(inode).live.clone();
                        let stable = bytes.clone();
                        let copy = Inode { live: bytes, stable, unsynced: Vec::new() };
                        Node::File(Arc::new(Mutex::new(copy)))
                    }
                };
                (path.clone(), node)
            });
            copied.collect::<BTreeMap<_, _>>()
        };
        let live = names(&self.live);
        Self { stable: live.clone(), live, pending: Vec::new() }
    }

    /// Every file by name, for faults that damage one.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Arc<Mutex<Inode>>)> {
        self.live
            .iter()
            .filter_map(|(path, node)| match node {
                Node::File(inode) => Some((path.clone(), Arc::clone(inode))),
                Node::Dir => None,
            })
            .collect()
    }

    /// Power went away and came back: the stable view, plus whatever of the unsynced changes had
    /// reached the platter by chance, is all there is.
    pub(crate) fn power_loss(&mut self, rng: &mut dyn RngCore) {
        let pending = std::mem::take(&mut self.pending);
        let mut per_dir: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for change in &pending {
            *per_dir.entry(change.directory().to_owned()).or_default() += 1;
        }
        for survives in per_dir.values_mut() {
            *survives = rng.random_range(0..=*survives);
        }
        for change in pending {
            if let Some(left) = per_dir.get_mut(change.directory())
                && *left > 0
            {
                *left -= 1;
                change.apply(&mut self.stable);
            }
        }
        // A file whose directory did not survive is unreachable.
        let dirs: Vec<PathBuf> = self.stable.keys().cloned().collect();
        for path in dirs {
            if !is_dir(&self.stable, parent_of(&path)) {
                self.stable.remove(&path);
            }
        }
        for node in self.stable.values_mut() {
            if let Node::File(inode) = node {
                let found = lock(inode).after_power_loss(rng);
                *node = Node::File(Arc::new(Mutex::new(Inode {
                    live: found.clone(),
                    stable: found,
                    unsynced: Vec::new(),
                })));
            }
        }
        self.live = self.stable.clone();
    }

    fn expect_parent(&self, path: &Path) -> Result<()> {
        let parent = parent_of(path);
        if is_dir(&self.live, parent) { Ok(()) } else { Err(about(ErrorKind::NotFound, parent)) }
    }

    fn change(&mut self, change: NameChange) {
        let copy = match &change {
            NameChange::Create { path, node } => {
                NameChange::Create { path: path.clone(), node: node.clone() }
            }
            NameChange::Remove { path } => NameChange::Remove { path: path.clone() },
            NameChange::Rename { from, to, node } => {
                NameChange::Rename { from: from.clone(), to: to.clone(), node: node.clone() }
            }
        };
        copy.apply(&mut self.live);
        self.pending.push(change);
    }
}

/// The simulation runs on one thread, so a poisoned lock means that thread already failed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn about(kind: ErrorKind, path: &Path) -> Error {
    Error::new(kind, format!("{}: {kind}", path.display()))
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    fn written(medium: &mut Medium, path: &str, bytes: &[u8]) -> Arc<Mutex<Inode>> {
        let inode = medium.create(Path::new(path)).unwrap();
        lock(&inode).write(0, bytes);
        inode
    }

    /// Runs `build` over many seeds and answers what `path` held after a power loss.
    fn found(build: impl Fn(&mut Medium), path: &str) -> Vec<Option<Vec<u8>>> {
        (0..64)
            .map(|seed| {
                let mut medium = Medium::default();
                medium.create_dir_all(Path::new("/d")).unwrap();
                medium.sync_dir(Path::new("/")).unwrap();
                build(&mut medium);
                medium.power_loss(&mut StdRng::seed_from_u64(seed));
                medium.file(Path::new(path)).ok().map(|inode| lock(&inode).live.clone())
            })
            .collect()
    }

    #[test]
    fn synced_bytes_under_a_synced_name_survive_power_loss() {
        let all = found(
            |medium| {
                let inode = written(medium, "/d/a", b"kept");
                lock(&inode).sync();
                medium.sync_dir(Path::new("/d")).unwrap();
            },
            "/d/a",
        );
        assert!(all.iter().all(|found| found.as_deref() == Some(b"kept")));
    }

    #[test]
    fn a_name_that_no_directory_sync_covered_may_be_gone() {
        let all = found(
            |medium| {
                let inode = written(medium, "/d/a", b"kept");
                lock(&inode).sync();
            },
            "/d/a",
        );
        assert!(all.iter().any(Option::is_none) && all.iter().any(Option::is_some));
    }

    #[test]
    fn unsynced_bytes_are_kept_lost_or_torn_by_sector() {
        let all = found(
            |medium| {
                written(medium, "/d/a", &[7; 3 * SECTOR]);
                medium.sync_dir(Path::new("/d")).unwrap();
            },
            "/d/a",
        );
        let bytes: Vec<&Vec<u8>> = all.iter().flatten().collect();
        assert!(bytes.iter().any(|found| found.is_empty()));
        assert!(bytes.iter().any(|found| found.iter().filter(|b| **b == 7).count() == 3 * SECTOR));
        assert!(bytes.iter().any(|found| {
            let ones = found.iter().filter(|b| **b == 7).count();
            ones > 0 && ones < 3 * SECTOR
        }));
    }

    #[test]
    fn a_rename_over_a_file_is_atomic() {
        let all = found(
            |medium| {
                let old = written(medium, "/d/a", b"old");
                lock(&old).sync();
                medium.sync_dir(Path::new("/d")).unwrap();
                let new = written(medium, "/d/a.tmp", b"new");
                lock(&new).sync();
                medium.rename(Path::new("/d/a.tmp"), Path::new("/d/a")).unwrap();
            },
            "/d/a",
        );
        assert!(all.iter().all(|f| matches!(f.as_deref(), Some(b"old" | b"new"))));
        assert!(all.iter().any(|f| f.as_deref() == Some(b"old")));
        assert!(all.iter().any(|f| f.as_deref() == Some(b"new")));
    }
}
