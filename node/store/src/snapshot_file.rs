//! The bytes of a snapshot file. Numbers here are permanent; all integers are little-endian.
//!
//! ```text
//! header
//!   0 magic "WEIRSNP\n"   8 version u32   12 crc32c u32 of all that follows in the header
//!   16 term u64           24 index u64    32 meta bytes u32   36 zeros u32   40 meta
//! chunk: 0 data bytes u32, never 0   4 crc32c u32 of the chunk's number u64 and the data   8 data
//! footer: 0 zero u32   4 crc32c u32 of the rest   8 chunks u64   16 data bytes of all chunks u64, then the file's end
//! ```

use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_env::{Disk, File, OpenMode};

use crate::error::{Error, is_no_space};
use crate::position::LogPosition;
use crate::record::{u32_at, u64_at};

/// The version of everything in a snapshot file.
const FORMAT_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"WEIRSNP\n";
const HEADER_BYTES: usize = 40;
const CHUNK_HEADER_BYTES: usize = 8;
const FOOTER_BYTES: usize = 24;
/// Data bytes of a chunk: gathered to this, cut at this.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// Bytes of a chunk or a meta beyond which a length is taken for damage.
const LENGTH_MAX: u32 = 16 << 20;
/// Written bytes are synced in pieces, so that the log's syncs never wait for a whole snapshot.
const SYNC_BYTES: u64 = 4 << 20;

fn chunk_crc(number: u64, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), data)
}

/// A snapshot being written.
pub(crate) struct FileWriter {
    pub(crate) path: PathBuf,
    file: Box<dyn File>,
    offset: u64,
    chunks: u64,
    data_bytes: u64,
    unsynced: u64,
}

impl FileWriter {
    pub(crate) fn create(disk: &dyn Disk, path: &Path, at: LogPosition, meta: &[u8]) -> Result<Self, Error> {
        if disk.exists(path) {
            disk.remove_file(path).map_err(|e| Error::io("remove", path, e))?;
        }
        let mut header = vec![0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&at.term.to_le_bytes());
        header[24..32].copy_from_slice(&at.index.to_le_bytes());
        let meta_len = u32::try_from(meta.len()).ok().filter(|len| *len <= LENGTH_MAX);
        let too_large = || Error::TooLarge { bytes: meta.len() as u64, max: u64::from(LENGTH_MAX) };
        header[32..36].copy_from_slice(&meta_len.ok_or_else(too_large)?.to_le_bytes());
        header.extend_from_slice(meta);
        let crc = crc32c::crc32c(&header[16..]);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        let file = disk.open(path, OpenMode::CreateNew).map_err(|e| write_error("create", path, e))?;
        let mut writer =
            Self { path: path.to_owned(), file, offset: 0, chunks: 0, data_bytes: 0, unsynced: 0 };
        writer.write(&header)?;
        Ok(writer)
    }

    /// Goes on with a file that an earlier writer left, behind its last good chunk. `None`: it is of no use.
    pub(crate) fn resume(
        disk: &dyn Disk,
        path: &Path,
        at: LogPosition,
        meta: &[u8],
    ) -> Result<Option<Self>, Error> {
        if !disk.exists(path) {
            return Ok(None);
        }
        let Ok(mut reader) = FileReader::open(disk, path) else { return Ok(None) };
        if reader.at != at || reader.meta != meta {
            return Ok(None);
        }
        while let Ok(Some(_)) = reader.next_chunk() {}
        let (offset, chunks, data_bytes) = (reader.offset, reader.chunks, reader.data_bytes);
        drop(reader);
        let mut file = disk.open(path, OpenMode::ReadWrite).map_err(|e| Error::io("open", path, e))?;
        file.set_len(offset).map_err(|e| Error::io("cut", path, e))?;
        Ok(Some(Self { path: path.to_owned(), file, offset, chunks, data_bytes, unsynced: offset }))
    }

    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    pub(crate) fn chunk(&mut self, data: &[u8]) -> Result<(), Error> {
        assert!(!data.is_empty() && data.len() <= CHUNK_BYTES, "callers cut chunks");
        let mut bytes = Vec::with_capacity(CHUNK_HEADER_BYTES + data.len());
        bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&chunk_crc(self.chunks, data).to_le_bytes());
        bytes.extend_from_slice(data);
        self.write(&bytes)?;
        self.chunks += 1;
        self.data_bytes += data.len() as u64;
        if self.unsynced >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    /// Ends the file and puts it on disk; it still has its temporary name.
    pub(crate) fn finish(mut self) -> Result<u64, Error> {
        let mut footer = [0; FOOTER_BYTES];
        footer[8..16].copy_from_slice(&self.chunks.to_le_bytes());
        footer[16..24].copy_from_slice(&self.data_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&footer[8..]);
        footer[4..8].copy_from_slice(&crc.to_le_bytes());
        self.write(&footer)?;
        self.sync()?;
        Ok(self.data_bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_at(bytes, self.offset).map_err(|e| write_error("write", &self.path, e))?;
        self.offset += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.unsynced = 0;
        self.file.sync_data().map_err(|e| write_error("sync", &self.path, e))
    }
}

fn write_error(what: &'static str, path: &Path, e: std::io::Error) -> Error {
    if is_no_space(&e) {
        Error::Full { dir: path.parent().unwrap_or(path).to_owned() }
    } else {
        Error::io(what, path, e)
    }
}

/// A snapshot being read from its start to its end. Every chunk is checked as it is read, and that all are there is
/// checked at the end.
pub(crate) struct FileReader {
    path: PathBuf,
    file: Box<dyn File>,
    pub(crate) at: LogPosition,
    pub(crate) meta: Bytes,
    /// Of the next chunk's header.
    offset: u64,
    chunks: u64,
    data_bytes: u64,
    ended: bool,
}

impl FileReader {
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> Result<Self, Error> {
        let file = disk.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
        let mut header = [0; HEADER_BYTES];
        read(&*file, path, &mut header, 0)?;
        if header[..8] != MAGIC {
            return Err(Error::corrupt(path, 0, "it does not begin like a snapshot"));
        }
        let meta_len = u32_at(&header, 32);
        if meta_len > LENGTH_MAX {
            return Err(Error::corrupt(path, 32, "the header's checksum is wrong"));
        }
        let mut meta = vec![0; meta_len as usize];
        read(&*file, path, &mut meta, HEADER_BYTES as u64)?;
        if crc32c::crc32c_append(crc32c::crc32c(&header[16..]), &meta) != u32_at(&header, 12) {
            return Err(Error::corrupt(path, 12, "the header's checksum is wrong"));
        }
        let found = u32_at(&header, 8);
        if found != FORMAT_VERSION {
            return Err(Error::Version { file: path.to_owned(), found, known: FORMAT_VERSION });
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            at: LogPosition::new(u64_at(&header, 16), u64_at(&header, 24)),
            meta: meta.into(),
            offset: HEADER_BYTES as u64 + u64::from(meta_len),
            chunks: 0,
            data_bytes: 0,
            ended: false,
        })
    }

    /// What the end of the file says about how much there is, if it is a good end.
    pub(crate) fn promised_bytes(&self) -> Result<u64, Error> {
        let len = self.file.len().map_err(|e| Error::io("read", &self.path, e))?;
        let start = len.saturating_sub(FOOTER_BYTES as u64);
        let footer = self.footer(start)?;
        Ok(u64_at(&footer, 16))
    }

    fn footer(&self, offset: u64) -> Result<[u8; FOOTER_BYTES], Error> {
        let mut footer = [0; FOOTER_BYTES];
        read(&*self.file, &self.path, &mut footer, offset)?;
        if u32_at(&footer, 0) != 0 || crc32c::crc32c(&footer[8..]) != u32_at(&footer, 4) {
            return Err(Error::corrupt(&self.path, offset, "the snapshot has no good end"));
        }
        Ok(footer)
    }

    /// Data bytes read or passed so far.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    pub(crate) fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.ended {
            return Ok(None);
        }
        let mut header = [0; CHUNK_HEADER_BYTES];
        read(&*self.file, &self.path, &mut header, self.offset)?;
        let len = u32_at(&header, 0);
        if len == 0 {
            return self.end().map(|()| None);
        }
        if len > LENGTH_MAX {
            return Err(Error::corrupt(&self.path, self.offset, "a chunk's length is impossible"));
        }
        let mut data = vec![0; len as usize];
        read(&*self.file, &self.path, &mut data, self.offset + CHUNK_HEADER_BYTES as u64)?;
        if chunk_crc(self.chunks, &data) != u32_at(&header, 4) {
            return Err(Error::corrupt(&self.path, self.offset, "a chunk's checksum is wrong"));
        }
        self.offset += (CHUNK_HEADER_BYTES + data.len()) as u64;
        self.chunks += 1;
        self.data_bytes += u64::from(len);
        Ok(Some(data.into()))
    }

    fn end(&mut self) -> Result<(), Error> {
        let footer = self.footer(self.offset)?;
        let len = self.file.len().map_err(|e| Error::io("read", &self.path, e))?;
        if u64_at(&footer, 8) != self.chunks
            || u64_at(&footer, 16) != self.data_bytes
            || len != self.offset + FOOTER_BYTES as u64
        {
            return Err(Error::corrupt(&self.path, self.offset, "the end does not fit what came before"));
        }
        self.ended = true;
        Ok(())
    }
}

fn read(file: &dyn File, path: &Path, out: &mut [u8], offset: u64) -> Result<(), Error> {
    file.read_exact_at(out, offset).map_err(|e| {
        if e.kind() == std::io::ErrorKind::UnexpectedEof {
            Error::corrupt(path, offset, "the file is too short")
        } else {
            Error::io("read", path, e)
        }
    })
}
