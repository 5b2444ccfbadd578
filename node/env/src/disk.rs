use std::any::Any;
use std::io;
use std::path::Path;

/// How [`Disk::open`] treats a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; it must exist.
    Read,
    /// For reading and writing in place; it must exist.
    ReadWrite,
    /// For reading and writing; it must not exist yet.
    CreateNew,
}

/// Files and directories. Calls block, so they belong on the writer's loop, in [`crate::Spawn::blocking`] jobs or in
/// short start-up paths.
///
/// Nothing survives a power loss before it is synced: contents by [`File::sync_data`], and the existence or name of a
/// file by [`Disk::sync_dir`] of its directory.
pub trait Disk: Send + Sync {
    /// Creates a directory and its missing parents. An existing one is fine.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory and its missing parents, and returns once they survive a power loss. Parents that were
    /// there are synced too: a process before this one may have made them and died before it could do so. Where that
    /// is not allowed they are left alone.
    fn create_dir_durable(&self, path: &Path) -> io::Result<()> {
        let mut new = path.ancestors().take_while(|dir| !self.exists(dir)).count();
        self.create_dir_all(path)?;
        for dir in path.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
            let Some(parent) = dir.parent() else { break };
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            match self.sync_dir(parent) {
                Err(e) if new == 0 && e.kind() == io::ErrorKind::PermissionDenied => {}
                done => done?,
            }
            new = new.saturating_sub(1);
        }
        Ok(())
    }

    /// The names in a directory, sorted.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Opens a file. Do not keep it open over a rename of its path.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>>;

    /// The whole contents of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path, OpenMode::Read)?;
        let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Replaces the contents of a file as one step: afterwards, and after a crash at any moment, the file holds either
    /// all the old bytes or all the new ones. Returns once the new ones survive a power loss.
    fn write_atomic(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a path of a file"));
        };
        let mut temp_name = name.to_owned();
        temp_name.push(".tmp");
        let temp = dir.join(temp_name);
        if self.exists(&temp) {
            self.remove_file(&temp)?;
        }
        let mut file = self.open(&temp, OpenMode::CreateNew)?;
        file.write_at(bytes, 0)?;
        file.sync_data()?;
        drop(file);
        self.rename(&temp, path)?;
        self.sync_dir(dir)
    }

    /// Gives a file another name, replacing what was there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and all below it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory survive a power loss.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Whether there is something at `path`.
    fn exists(&self, path: &Path) -> bool;

    /// Claims an existing directory for this process until the returned value is dropped.
    ///
    /// # Errors
    /// `ResourceBusy`, with a message that says so, when another holder is alive.
    fn lock_dir(&self, path: &Path) -> io::Result<Box<dyn Any + Send>>;

    /// Names the run of the system that holds unsynced bytes: as long as it stays the same nothing that was written
    /// is lost, also when processes died. It changes when the machine starts anew.
    fn boot_id(&self) -> io::Result<String>;

    /// Bytes that an ordinary user may still write to the file system of `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Size of the file system of `path` in bytes, used or not. Where that is not known, what is free.
    fn total_bytes(&self, path: &Path) -> io::Result<u64> {
        self.free_bytes(path)
    }
}

/// An open file. Offsets and lengths are in bytes.
pub trait File: Send + Sync {
    /// Reads up to `out.len()` bytes at `offset`; 0 means the end of the file.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills all of `out` from `offset`, or fails with `UnexpectedEof`.
    fn read_exact_at(&self, mut out: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !out.is_empty() {
            match self.read_at(out, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    out = &mut out[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`; the file grows as needed. On an error any part may have been written.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes the contents and the length survive a power loss. After an error the file must not be trusted again: the
    /// system may have dropped the unwritten pages.
    fn sync_data(&mut self) -> io::Result<()>;

    /// The length of the file.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file or extends it with zeros.
    fn set_len(&mut self, len: u64) -> io::Result<()>;

    /// Extends the file to at least `len`, with the space claimed from the disk, so that later writes below `len`
    /// do not meet a full disk. The new bytes read as zeros.
    fn allocate(&mut self, len: u64) -> io::Result<()>;
}
