//! Whose log this is, and what is known of power losses: the file `owner` beside the segments.
//!
//! ```text
//! 0 magic "WEIROWN\n"   8 version u32   12 crc32c u32 of bytes 8..12 and all that follows   16 [`Record`], postcard
//! ```
//!
//! The numbers are permanent, integers are little-endian. The file is there before the first segment is and is
//! replaced as one step. In mode `always` it is written once and again only when the cluster gets its id; in the
//! other modes at every start, before anything is appended, so that a start after a power loss is known for what it
//! is even if that start loses power too.

use std::collections::BTreeSet;
use std::path::Path;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weir_env::Disk;

use crate::error::Error;
use crate::options::{Durability, Owner};
use crate::position::GroupId;
use crate::record::u32_at;

pub(crate) const FILE: &str = "owner";
const MAGIC: [u8; 8] = *b"WEIROWN\n";
const FORMAT_VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;

/// Fields are permanent; new ones come with a new version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    owner: Owner,
    /// The run of the system in which the log was last opened.
    boot: String,
    /// The segment in which it went on then: a log that ends before it lost something.
    tail: u64,
    /// Groups whose log may lack entries that they had confirmed.
    lost: BTreeSet<u32>,
}

/// The file as it is on disk.
#[derive(Debug, Default)]
pub(crate) struct OwnerFile(Mutex<Record>);

/// What a start found in the log.
pub(crate) struct Found {
    /// The log is not new.
    pub(crate) exists: bool,
    /// Its last record says that it was closed in order.
    pub(crate) closed: bool,
    /// The segment in which it ends.
    pub(crate) end: u64,
    /// Groups that have ever voted or had entries.
    pub(crate) groups: BTreeSet<u32>,
    /// The segment in which it goes on now.
    pub(crate) tail: u64,
}

impl OwnerFile {
    /// Reads the file and refuses a log that belongs to somebody else. `None`: there is no file.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path, owner: &Owner) -> Result<Option<Self>, Error> {
        let path = dir.join(FILE);
        if !disk.exists(&path) {
            return Ok(None);
        }
        let bytes = disk.read(&path).map_err(|e| Error::io("read", &path, e))?;
        let record = decode(&path, &bytes)?;
        let differs = |stored: &str, ours: &str| !stored.is_empty() && !ours.is_empty() && stored != ours;
        if differs(&record.owner.node, &owner.node) || differs(&record.owner.cluster, &owner.cluster) {
            let (dir, found, expected) = (dir.to_owned(), record.owner.to_string(), owner.to_string());
            return Err(Error::Foreign { dir, found, expected });
        }
        Ok(Some(Self(Mutex::new(record))))
    }

    /// Notes a start. What is said afterwards by [`Self::lost`] survives a power loss. Answers whether the log ended
    /// in order before.
    pub(crate) fn opened(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        owner: &Owner,
        durability: Durability,
        found: Found,
    ) -> Result<bool, Error> {
        let mut record = self.0.lock();
        let mut next = record.clone();
        if !owner.node.is_empty() {
            next.owner.clone_from(owner);
            if owner.cluster.is_empty() {
                next.owner.cluster.clone_from(&record.owner.cluster);
            }
        }
        let clean = !found.exists || found.closed && found.end >= record.tail;
        if durability != Durability::Always {
            let path = Path::new("the boot id");
            let boot = disk.boot_id().map_err(|e| Error::io("read", path, e))?;
            if !clean && boot != record.boot {
                next.lost.extend(found.groups);
            }
            (next.boot, next.tail) = (boot, found.tail);
        }
        if next != *record || !found.exists {
            write(disk, dir, &next)?;
        }
        *record = next;
        Ok(clean)
    }

    /// Whether the group's log may lack entries that it had confirmed.
    pub(crate) fn lost(&self, group: GroupId) -> bool {
        self.0.lock().lost.contains(&group.0)
    }

    /// The group's log lacks nothing any more. Durable on return.
    pub(crate) fn restored(&self, disk: &dyn Disk, dir: &Path, group: GroupId) -> Result<(), Error> {
        let mut record = self.0.lock();
        let mut next = record.clone();
        if next.lost.remove(&group.0) {
            write(disk, dir, &next)?;
            *record = next;
        }
        Ok(())
    }
}

fn write(disk: &dyn Disk, dir: &Path, record: &Record) -> Result<(), Error> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes.extend(postcard::to_allocvec(record).expect("own types serialize"));
    let crc = crc(&bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    let path = dir.join(FILE);
    disk.write_atomic(&path, &bytes).map_err(|e| Error::io("write", &path, e))
}

fn crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[8..12]), &bytes[HEADER_BYTES..])
}

fn decode(path: &Path, bytes: &[u8]) -> Result<Record, Error> {
    if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC || u32_at(bytes, 12) != crc(bytes) {
        return Err(Error::corrupt(path, 0, "its checksum is wrong"));
    }
    let found = u32_at(bytes, 8);
    if found != FORMAT_VERSION {
        return Err(Error::Version { file: path.to_owned(), found, known: FORMAT_VERSION });
    }
    postcard::from_bytes(&bytes[HEADER_BYTES..])
        .map_err(|e| Error::corrupt(path, HEADER_BYTES as u64, e.to_string()))
}
