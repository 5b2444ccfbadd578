//! A disk for tests that keeps what is not synced in the memory of the process: `kill -9` is then what a loss of
//! power is to a node. Compiled into builds with debug assertions only ([`crate::hooks`]).
//!
//! Bytes go to the file at [`File::sync_data`]; names of files appear, change and go at [`Disk::sync_dir`]. Space is
//! claimed at once, so that a full disk is met by the write and not by the sync. Directories and their removal are
//! durable at once: less than a real disk may forget, never more.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rand::{Rng, TryRngCore, rngs::OsRng};
use rustix::fs::{FallocateFlags, fallocate};

use crate::{Disk, File, OpenMode};

const PAGE: u64 = 4096;
/// What a disk writes whole or not at all.
const SECTOR: u64 = 512;
/// Files that have no durable name yet. They are nobody's once the process that made them is gone.
const HIDDEN: &str = ".unsynced-";

/// See the module.
pub(crate) struct ForgetfulDisk {
    /// The real one.
    below: Arc<dyn Disk>,
    names: Mutex<Names>,
    /// Whether some sectors reach the disk before they are synced, in no order.
    torn: bool,
    /// Names this process.
    boot: String,
}

#[derive(Default)]
struct Names {
    /// Where names differ from those on disk, and files that somebody has open.
    seen: BTreeMap<PathBuf, Seen>,
    /// What happens to the names of a directory when it is synced.
    pending: BTreeMap<PathBuf, Vec<Change>>,
    hidden: u64,
}

enum Seen {
    Gone,
    There(Arc<Mutex<Inode>>),
}

enum Change {
    Rename { from: PathBuf, to: PathBuf },
    Remove(PathBuf),
}

/// A file's contents: what is on disk below `valid`, and over it the pages that are not synced.
struct Inode {
    file: fs::File,
    pages: BTreeMap<u64, Box<[u8; PAGE as usize]>>,
    /// Its length, as seen.
    len: u64,
    /// Bytes on disk that count; what lies beyond reads as zeros.
    valid: u64,
    /// Bytes whose space is claimed.
    claimed: u64,
}

impl ForgetfulDisk {
    pub(crate) fn new(below: Arc<dyn Disk>, torn: bool) -> Self {
        let boot = format!("{:016x}", OsRng.try_next_u64().expect("the system's random source works"));
        Self { below, names: Mutex::default(), torn, boot }
    }

    fn is_hidden(name: &str) -> bool {
        name.starts_with(HIDDEN)
    }

    /// Removes what processes before this one left without a name.
    fn sweep(&self, dir: &Path) -> io::Result<()> {
        let ours = format!("{HIDDEN}{}", self.boot);
        for entry in fs::read_dir(dir)? {
            let (path, name) = entry.map(|e| (e.path(), e.file_name()))?;
            let name = name.to_string_lossy();
            if path.is_dir() {
                self.sweep(&path)?;
            } else if Self::is_hidden(&name) && !name.starts_with(&ours) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(ErrorKind::NotFound, format!("{} does not exist", path.display()))
}

fn dir_of(path: &Path) -> PathBuf {
    path.parent().map(Path::to_owned).unwrap_or_default()
}

impl Names {
    /// The file at a path, as seen.
    fn find(&mut self, path: &Path) -> io::Result<Arc<Mutex<Inode>>> {
        match self.seen.get(path) {
            Some(Seen::Gone) => Err(not_found(path)),
            Some(Seen::There(inode)) => Ok(inode.clone()),
            None => {
                let file = OpenOptions::new().read(true).write(true).open(path)?;
                let inode = Arc::new(Mutex::new(Inode::new(file)?));
                self.seen.insert(path.to_owned(), Seen::There(inode.clone()));
                Ok(inode)
            }
        }
    }

    fn exists(&self, path: &Path) -> bool {
        match self.seen.get(path) {
            Some(Seen::Gone) => false,
            Some(Seen::There(_)) => true,
            None => path.exists(),
        }
    }

    fn change(&mut self, change: Change) {
        let (Change::Rename { to: path, .. } | Change::Remove(path)) = &change;
        self.pending.entry(dir_of(path)).or_default().push(change);
    }

    /// Forgets files that are on disk as they are seen and that nobody has open.
    fn tidy(&mut self) {
        let pending = &self.pending;
        self.seen.retain(|path, seen| match seen {
            _ if pending.contains_key(&dir_of(path)) => true,
            Seen::Gone => false,
            Seen::There(inode) => Arc::strong_count(inode) > 1 || !inode.lock().is_clean(),
        });
    }
}

impl Disk for ForgetfulDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.below.create_dir_all(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = self.names.lock();
        let mut found = self.below.read_dir(path)?;
        found.retain(|name| !Self::is_hidden(name) && names.exists(&path.join(name)));
        for (seen, what) in &names.seen {
            if let (Seen::There(_), Some(name)) = (what, seen.file_name().and_then(|name| name.to_str()))
                && dir_of(seen) == path
            {
                found.push(name.to_owned());
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        let mut names = self.names.lock();
        names.tidy();
        if mode == OpenMode::CreateNew {
            if names.exists(path) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            names.hidden += 1;
            let hidden = dir_of(path).join(format!("{HIDDEN}{}-{}", self.boot, names.hidden));
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&hidden)?;
            let inode = Arc::new(Mutex::new(Inode::new(file)?));
            names.change(Change::Rename { from: hidden, to: path.to_owned() });
            names.seen.insert(path.to_owned(), Seen::There(inode));
        }
        Ok(Box::new(ForgetfulFile { inode: names.find(path)?, torn: self.torn }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if dir_of(from) != dir_of(to) {
            return Err(io::Error::new(ErrorKind::Unsupported, "this disk renames within a directory"));
        }
        let mut names = self.names.lock();
        let inode = names.find(from)?;
        names.seen.insert(from.to_owned(), Seen::Gone);
        names.seen.insert(to.to_owned(), Seen::There(inode));
        names.change(Change::Rename { from: from.to_owned(), to: to.to_owned() });
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        if !names.exists(path) {
            return Err(not_found(path));
        }
        names.seen.insert(path.to_owned(), Seen::Gone);
        names.change(Change::Remove(path.to_owned()));
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        names.seen.retain(|seen, _| !seen.starts_with(path));
        names.pending.retain(|dir, _| !dir.starts_with(path));
        self.below.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        for change in names.pending.remove(path).unwrap_or_default() {
            match change {
                Change::Rename { from, to } => fs::rename(from, to)?,
                Change::Remove(path) => fs::remove_file(path)?,
            }
        }
        names.tidy();
        self.below.sync_dir(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.names.lock().exists(path)
    }

    fn lock_dir(&self, path: &Path) -> io::Result<Box<dyn Any + Send>> {
        let lock = self.below.lock_dir(path)?;
        self.sweep(path)?;
        Ok(lock)
    }

    fn boot_id(&self) -> io::Result<String> {
        // What was not synced lives as long as this process.
        Ok(self.boot.clone())
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.below.free_bytes(path)
    }

    fn total_bytes(&self, path: &Path) -> io::Result<u64> {
        self.below.total_bytes(path)
    }
}

impl Inode {
    fn new(file: fs::File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { file, pages: BTreeMap::new(), len, valid: len, claimed: len })
    }

    fn is_clean(&self) -> bool {
        self.pages.is_empty() && self.len == self.valid
    }

    /// What is on disk at `offset`, as far as it counts, and zeros.
    fn read_below(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        out.fill(0);
        let count = usize::try_from(self.valid.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        let mut done = 0;
        while done < count {
            match self.file.read_at(&mut out[done..count], offset + done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        Ok(())
    }

    fn page(&mut self, number: u64) -> io::Result<&mut [u8; PAGE as usize]> {
        if !self.pages.contains_key(&number) {
            let mut page = Box::new([0; PAGE as usize]);
            self.read_below(&mut page[..], number * PAGE)?;
            self.pages.insert(number, page);
        }
        Ok(self.pages.get_mut(&number).expect("it is there now"))
    }

    fn claim(&mut self, end: u64) -> io::Result<()> {
        if end > self.claimed {
            let more = end - self.claimed;
            match fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.claimed, more) {
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => self.claimed = end,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], offset: u64, torn: bool) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        self.claim(end)?;
        let mut at = offset;
        while at < end {
            let (number, within) = (at / PAGE, (at % PAGE) as usize);
            let count = (PAGE as usize - within).min((end - at) as usize);
            let from = (at - offset) as usize;
            self.page(number)?[within..within + count].copy_from_slice(&bytes[from..from + count]);
            at += count as u64;
        }
        self.len = self.len.max(end);
        if torn && end > offset {
            for sector in offset / SECTOR..end.div_ceil(SECTOR) {
                if rand::rng().random_ratio(1, 4) {
                    let within = (sector * SECTOR % PAGE) as usize;
                    let page = &self.pages[&(sector * SECTOR / PAGE)];
                    self.file.write_all_at(&page[within..within + SECTOR as usize], sector * SECTOR)?;
                }
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.len != self.valid {
            // What lies beyond must read as zeros. Not by cutting the file: that would give its claimed space back.
            let below = self.file.metadata()?.len().min(self.len);
            let mut at = self.valid;
            while at < below {
                let count = PAGE.min(below - at);
                self.file.write_all_at(&[0; PAGE as usize][..count as usize], at)?;
                at += count;
            }
            self.file.set_len(self.len)?;
            self.valid = self.len;
        }
        for (number, page) in &self.pages {
            let at = number * PAGE;
            let count = PAGE.min(self.len.saturating_sub(at)) as usize;
            self.file.write_all_at(&page[..count], at)?;
        }
        self.pages.clear();
        self.file.sync_data()
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        if len < self.len {
            self.pages.retain(|number, _| number * PAGE < len);
            if !len.is_multiple_of(PAGE) {
                let within = (len % PAGE) as usize;
                self.page(len / PAGE)?[within..].fill(0);
            }
            self.valid = self.valid.min(len);
            self.claimed = self.claimed.min(len);
        }
        self.len = len;
        Ok(())
    }
}

struct ForgetfulFile {
    inode: Arc<Mutex<Inode>>,
    torn: bool,
}

impl File for ForgetfulFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let inode = self.inode.lock();
        let count = usize::try_from(inode.len.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        let out = &mut out[..count];
        inode.read_below(out, offset)?;
        let end = offset + count as u64;
        for (number, page) in inode.pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let start = (number * PAGE).max(offset);
            let stop = ((number + 1) * PAGE).min(end);
            if start < stop {
                let within = (start - number * PAGE) as usize;
                let length = (stop - start) as usize;
                let at = (start - offset) as usize;
                out[at..at + length].copy_from_slice(&page[within..within + length]);
            }
        }
        Ok(count)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inode.lock().write(bytes, offset, self.torn)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.inode.lock().sync()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.inode.lock().len)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.inode.lock().set_len(len)
    }

    fn allocate(&mut self, len: u64) -> io::Result<()> {
        let mut inode = self.inode.lock();
        inode.claim(len)?;
        inode.len = inode.len.max(len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system;

    fn disk(torn: bool) -> ForgetfulDisk {
        ForgetfulDisk::new(system::env().disk, torn)
    }

    #[test]
    fn what_is_not_synced_is_seen_and_dies_with_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let before = disk(false);
        let mut file = before.open(&path, OpenMode::CreateNew).unwrap();
        file.write_at(b"synced", 0).unwrap();
        file.sync_data().unwrap();
        before.sync_dir(dir.path()).unwrap();
        file.write_at(b"SYN and more", 0).unwrap();
        assert_eq!(before.read(&path).unwrap(), b"SYN and more");
        assert_eq!(disk(false).read(&path).unwrap(), b"synced");
        file.sync_data().unwrap();
        assert_eq!(disk(false).read(&path).unwrap(), b"SYN and more");
    }

    #[test]
    fn a_name_is_there_at_once_and_durable_when_its_directory_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let before = disk(false);
        let mut file = before.open(&a, OpenMode::CreateNew).unwrap();
        file.write_at(b"x", 0).unwrap();
        file.sync_data().unwrap();
        before.rename(&a, &b).unwrap();
        assert_eq!(before.read_dir(dir.path()).unwrap(), ["b"]);
        assert_eq!(disk(false).read_dir(dir.path()).unwrap(), [""; 0]);
        before.sync_dir(dir.path()).unwrap();
        assert_eq!(disk(false).read(&b).unwrap(), b"x");
        before.remove_file(&b).unwrap();
        assert!(!before.exists(&b) && before.open(&b, OpenMode::Read).is_err());
        assert!(disk(false).exists(&b), "until the directory is synced");
        before.sync_dir(dir.path()).unwrap();
        assert!(!disk(false).exists(&b));
    }

    #[test]
    fn a_name_may_be_used_again_before_its_directory_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        let disk = disk(false);
        let path = dir.path().join("f");
        for content in [b"1", b"2", b"3"] {
            disk.write_atomic(&path, content).unwrap();
            assert_eq!(disk.read(&path).unwrap(), content);
        }
        disk.remove_file(&path).unwrap();
        disk.open(&path, OpenMode::CreateNew).unwrap().write_at(b"4", 0).unwrap();
        disk.sync_dir(dir.path()).unwrap();
        assert_eq!(disk.read(&path).unwrap(), b"4");
        assert_eq!(disk.read_dir(dir.path()).unwrap(), ["f"]);
    }

    #[test]
    fn what_nobody_named_is_swept_when_the_directory_is_claimed() {
        let dir = tempfile::tempdir().unwrap();
        drop(disk(false).open(&dir.path().join("f"), OpenMode::CreateNew).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let _lock = disk(false).lock_dir(dir.path()).unwrap();
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["LOCK"]);
    }

    #[test]
    fn a_torn_write_leaves_whole_sectors_old_or_new() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let before = disk(true);
        let mut file = before.open(&path, OpenMode::CreateNew).unwrap();
        file.write_at(&[1; 64 * 512], 0).unwrap();
        file.sync_data().unwrap();
        before.sync_dir(dir.path()).unwrap();
        file.write_at(&[2; 64 * 512], 0).unwrap();
        assert_eq!(before.read(&path).unwrap(), [2; 64 * 512]);
        let after = disk(false).read(&path).unwrap();
        let sectors: Vec<&[u8]> = after.chunks(512).collect();
        assert!(sectors.iter().all(|sector| *sector == [1; 512] || *sector == [2; 512]));
        let new = sectors.iter().filter(|sector| sector[0] == 2).count();
        assert!((1..64).contains(&new), "{new} of 64 sectors");
    }

    #[test]
    fn a_file_that_was_cut_and_grows_again_reads_as_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let disk = disk(false);
        let mut file = disk.open(&path, OpenMode::CreateNew).unwrap();
        file.write_at(&[9; 10_000], 0).unwrap();
        file.sync_data().unwrap();
        file.set_len(5_000).unwrap();
        file.allocate(9_000).unwrap();
        for _ in 0..2 {
            let read = disk.read(&path).unwrap();
            assert_eq!(read.len(), 9_000);
            assert!(read[..5_000].iter().all(|&b| b == 9) && read[5_000..].iter().all(|&b| b == 0));
            file.sync_data().unwrap();
        }
    }

    #[test]
    fn claimed_space_stays_claimed() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let disk = disk(false);
        let mut file = disk.open(&path, OpenMode::CreateNew).unwrap();
        file.allocate(1 << 20).unwrap();
        for length in [100, 5_000] {
            file.write_at(&vec![1; length], 0).unwrap();
            file.sync_data().unwrap();
            disk.sync_dir(dir.path()).unwrap();
            let blocks = fs::metadata(&path).unwrap().blocks() * 512;
            assert!(blocks >= 1 << 20, "{blocks} bytes of space after a write of {length}");
        }
    }

    #[test]
    fn it_agrees_with_a_plain_file_whatever_is_done_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let disk = disk(true);
        let mut file = disk.open(&path, OpenMode::CreateNew).unwrap();
        let mut plain: Vec<u8> = Vec::new();
        let mut rng = <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(3);
        for step in 0..2_000u32 {
            let at = rng.random_range(0..20_000usize);
            match rng.random_range(0..10) {
                0 => {
                    plain.resize(at, 0);
                    file.set_len(at as u64).unwrap();
                }
                1 => {
                    plain.resize(plain.len().max(at), 0);
                    file.allocate(at as u64).unwrap();
                }
                2 => file.sync_data().unwrap(),
                _ => {
                    let bytes = vec![step as u8; rng.random_range(0..6_000)];
                    plain.resize(plain.len().max(at + bytes.len()), 0);
                    plain[at..at + bytes.len()].copy_from_slice(&bytes);
                    file.write_at(&bytes, at as u64).unwrap();
                }
            }
            assert!(disk.read(&path).unwrap() == plain, "step {step}");
        }
        file.sync_data().unwrap();
        disk.sync_dir(dir.path()).unwrap();
        assert!(fs::read(&path).unwrap() == plain);
    }
}
