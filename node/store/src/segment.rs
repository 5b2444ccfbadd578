//! One file of the log, as the writer holds it.

use std::path::{Path, PathBuf};

use weir_env::{Disk, File, OpenMode};

use crate::error::Error;
use crate::record::{
    BATCH_HEADER_BYTES, FilePosition, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader,
};

/// Room kept at the end of a segment for the note that it ends there.
pub(crate) const SEAL_BYTES: u64 = (BATCH_HEADER_BYTES + RECORD_HEADER_BYTES) as u64;

const PREFIX: &str = "wal-";

/// The name of a segment's file.
pub(crate) fn name(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

/// The number in the name of a segment's file.
pub(crate) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
}

/// The segment that is being written.
pub(crate) struct Tail {
    pub(crate) number: u64,
    pub(crate) capacity: u64,
    /// Where the next batch goes.
    pub(crate) offset: u64,
    pub(crate) file: Box<dyn File>,
    pub(crate) path: PathBuf,
    /// Whether it holds no batch yet, so that the next one begins with the groups' states.
    pub(crate) fresh: bool,
}

impl Tail {
    /// Makes the prepared file at `spare` into segment `number`. Its header is written but not synced; its name is.
    pub(crate) fn create(
        disk: &dyn Disk,
        dir: &Path,
        spare: &Path,
        number: u64,
        previous: FilePosition,
        capacity: u64,
    ) -> Result<Self, Error> {
        let path = dir.join(name(number));
        disk.rename(spare, &path).map_err(|e| Error::io("rename", spare, e))?;
        let mut file = disk.open(&path, OpenMode::ReadWrite).map_err(|e| Error::io("open", &path, e))?;
        let header = SegmentHeader { number, previous, capacity };
        file.write_at(&header.encode(), 0).map_err(|e| Error::io("write", &path, e))?;
        disk.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
        Ok(Self { number, capacity, offset: SEGMENT_HEADER_BYTES, file, path, fresh: true })
    }

    pub(crate) fn end(&self) -> FilePosition {
        FilePosition { segment: self.number, offset: self.offset }
    }

    /// Whether a batch of `bytes` fits and leaves room for the seal.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.offset + bytes + SEAL_BYTES <= self.capacity
    }

    /// Bytes of batches that still fit.
    pub(crate) fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.offset + SEAL_BYTES)
    }
}

/// The capacity for a segment that has to hold a batch of `bytes`.
pub(crate) fn capacity_for(bytes: u64, segment_bytes: u64) -> u64 {
    segment_bytes.max(SEGMENT_HEADER_BYTES + bytes + SEAL_BYTES)
}
