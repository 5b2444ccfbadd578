//! The bytes of the log. Numbers here are permanent; all integers are little-endian.
//!
//! A segment file `wal-<number, 16 hex digits>` is a header, then batches, then nothing that counts:
//!
//! ```text
//! segment header, 64 bytes
//!   0 magic "WEIRWAL\n"   8 version u32   12 crc32c u32 of bytes 8..12 and 16..64
//!   16 number u64         24 previous segment's number u64 (0: none)   32 where that one ends u64
//!   40 capacity u64       48 zeros
//! batch header, 48 bytes, at a multiple of 8
//!   0 magic "WRB1"        4 crc32c u32 of bytes 8..48
//!   8 generation u64 (= the segment's number)         16 offset of this header in the file u64
//!   24 synced through: segment u64, 32 offset u64     40 payload bytes u32     44 records u32
//! record, 32 bytes + data
//!   0 crc32c u32 of the generation and all that follows     4 data bytes u32
//!   8 kind u8   9 flags u8   10 zeros u16   12 group u32    16 term u64   24 index u64   32 data
//! ```
//!
//! Files are reused, so old bytes may follow the last batch. They never pass for new ones: the generation is in every
//! checksum, and numbers are never given twice. A batch counts whole or not at all.

use bytes::Bytes;
use weir_env::planted::{Bug, planted};

use crate::position::{GroupId, LogPosition};

/// The version of everything in a segment file.
pub(crate) const FORMAT_VERSION: u32 = 1;
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 64;
pub(crate) const BATCH_HEADER_BYTES: usize = 48;
pub(crate) const RECORD_HEADER_BYTES: usize = 32;
/// Batches start at multiples of this.
pub(crate) const BATCH_ALIGN: usize = 8;

const SEGMENT_MAGIC: [u8; 8] = *b"WEIRWAL\n";
const BATCH_MAGIC: [u8; 4] = *b"WRB1";

/// A place in the log's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct FilePosition {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A log entry.
    Entry = 1,
    /// The group's vote.
    Vote = 2,
    /// The hint of what is committed.
    Committed = 3,
    /// Entries above `index` are cut off.
    Truncate = 4,
    /// All entries are cut off.
    TruncateAll = 5,
    /// Entries up to `index` are dropped.
    Purge = 6,
    /// At the head of a segment: where the group stood, so that older segments can go. `term` and `index` are what
    /// was purged (flag 1: there is such a thing), the data is term and index of the last entry (flag 2).
    Group = 7,
    /// A live entry, copied here so that its old segment can go.
    Moved = 8,
    /// The log was closed in order; nothing follows unless it is opened again.
    Closed = 9,
    /// This segment ends here and the one with number `index` follows.
    Sealed = 10,
}

pub(crate) const FLAG_PURGED: u8 = 1;
pub(crate) const FLAG_LAST: u8 = 2;

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Entry,
            2 => Self::Vote,
            3 => Self::Committed,
            4 => Self::Truncate,
            5 => Self::TruncateAll,
            6 => Self::Purge,
            7 => Self::Group,
            8 => Self::Moved,
            9 => Self::Closed,
            10 => Self::Sealed,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    /// Where the log continues from; segment 0 for the first one.
    pub(crate) previous: FilePosition,
    pub(crate) capacity: u64,
}

pub(crate) enum HeaderRead {
    Valid(SegmentHeader),
    OtherVersion(u32),
    Damaged,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        self.encode_as(FORMAT_VERSION)
    }

    /// As a program that knows another version would, as far as all versions agree.
    pub(crate) fn encode_as(&self, version: u32) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut out = [0; SEGMENT_HEADER_BYTES as usize];
        out[..8].copy_from_slice(&SEGMENT_MAGIC);
        out[8..12].copy_from_slice(&version.to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..32].copy_from_slice(&self.previous.segment.to_le_bytes());
        out[32..40].copy_from_slice(&self.previous.offset.to_le_bytes());
        out[40..48].copy_from_slice(&self.capacity.to_le_bytes());
        let crc = header_crc(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the header of segment `number`. One of another number is an older use of the same file.
    pub(crate) fn decode(bytes: &[u8], number: u64) -> HeaderRead {
        if bytes.len() < SEGMENT_HEADER_BYTES as usize || bytes[..8] != SEGMENT_MAGIC {
            return HeaderRead::Damaged;
        }
        let crc = u32_at(bytes, 12);
        if header_crc(bytes) != crc || u64_at(bytes, 16) != number {
            return HeaderRead::Damaged;
        }
        let version = u32_at(bytes, 8);
        if version != FORMAT_VERSION {
            return HeaderRead::OtherVersion(version);
        }
        HeaderRead::Valid(Self {
            number,
            previous: FilePosition { segment: u64_at(bytes, 24), offset: u64_at(bytes, 32) },
            capacity: u64_at(bytes, 40),
        })
    }
}

fn header_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[8..12]), &bytes[16..SEGMENT_HEADER_BYTES as usize])
}

/// A record as found in a batch. `data` borrows from the batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) group: GroupId,
    pub(crate) position: LogPosition,
    pub(crate) data: &'a [u8],
    /// Where the record starts in the file.
    pub(crate) offset: u64,
}

pub(crate) fn record_bytes(data_len: usize) -> usize {
    RECORD_HEADER_BYTES + data_len
}

fn record_crc(generation: u64, record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&generation.to_le_bytes()), &record[4..])
}

/// Reads the record at the start of `bytes`, which is at `offset` of segment `generation`.
pub(crate) fn decode_record(bytes: &[u8], generation: u64, offset: u64) -> Option<Record<'_>> {
    let len = u32_at(bytes.get(..RECORD_HEADER_BYTES)?, 4) as usize;
    let whole = bytes.get(..RECORD_HEADER_BYTES.checked_add(len)?)?;
    if record_crc(generation, whole) != u32_at(whole, 0) && !planted(Bug::TornTail) {
        return None;
    }
    Some(Record {
        kind: Kind::from_byte(whole[8])?,
        flags: whole[9],
        group: GroupId(u32_at(whole, 12)),
        position: LogPosition { term: u64_at(whole, 16), index: u64_at(whole, 24) },
        data: &whole[RECORD_HEADER_BYTES..],
        offset,
    })
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchHeader {
    pub(crate) synced_through: FilePosition,
    payload_bytes: usize,
    records: u32,
}

impl BatchHeader {
    /// The header at `offset` of a segment, if there is one that belongs there.
    pub(crate) fn decode(segment: &[u8], generation: u64, offset: usize) -> Option<Self> {
        let bytes = segment.get(offset..offset.checked_add(BATCH_HEADER_BYTES)?)?;
        if bytes[..4] != BATCH_MAGIC
            || u64_at(bytes, 8) != generation
            || u64_at(bytes, 16) != offset as u64
            || crc32c::crc32c(&bytes[8..]) != u32_at(bytes, 4)
        {
            return None;
        }
        Some(Self {
            synced_through: FilePosition { segment: u64_at(bytes, 24), offset: u64_at(bytes, 32) },
            payload_bytes: u32_at(bytes, 40) as usize,
            records: u32_at(bytes, 44),
        })
    }

    /// Where the next batch would start.
    pub(crate) fn end(&self, offset: usize) -> usize {
        (offset + BATCH_HEADER_BYTES + self.payload_bytes).next_multiple_of(BATCH_ALIGN)
    }

    /// The records of the batch at `offset`; `Err` is the offset of the first bad one.
    pub(crate) fn records<'a>(
        &self,
        segment: &'a [u8],
        generation: u64,
        offset: usize,
    ) -> Result<Vec<Record<'a>>, u64> {
        let start = offset + BATCH_HEADER_BYTES;
        let end = start + self.payload_bytes;
        let mut at = start;
        let mut records =
            Vec::with_capacity((self.records as usize).min(self.payload_bytes / RECORD_HEADER_BYTES));
        for _ in 0..self.records {
            let rest = segment.get(at..end).ok_or(at as u64)?;
            let record = decode_record(rest, generation, at as u64).ok_or(at as u64)?;
            at += record_bytes(record.data.len());
            records.push(record);
        }
        if at == end { Ok(records) } else { Err(at as u64) }
    }
}

/// A batch being put together, in a buffer that is used again for the next one.
#[derive(Debug, Default)]
pub(crate) struct BatchBuffer {
    bytes: Vec<u8>,
    records: u32,
    start: FilePosition,
}

impl BatchBuffer {
    /// Starts a batch that will be written at `start`.
    pub(crate) fn begin(&mut self, start: FilePosition) {
        self.bytes.clear();
        self.bytes.resize(BATCH_HEADER_BYTES, 0);
        self.records = 0;
        self.start = start;
    }

    /// Adds a record; returns where in the file it will be.
    pub(crate) fn push(
        &mut self,
        kind: Kind,
        flags: u8,
        group: GroupId,
        at: LogPosition,
        data: &[u8],
    ) -> u64 {
        let start = self.bytes.len();
        let len = u32::try_from(data.len()).expect("callers bound a record's bytes");
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(&[kind as u8, flags, 0, 0]);
        self.bytes.extend_from_slice(&group.0.to_le_bytes());
        self.bytes.extend_from_slice(&at.term.to_le_bytes());
        self.bytes.extend_from_slice(&at.index.to_le_bytes());
        self.bytes.extend_from_slice(data);
        let crc = record_crc(self.start.segment, &self.bytes[start..]);
        self.bytes[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        self.records += 1;
        self.start.offset + start as u64
    }

    /// Completes the batch and returns its bytes.
    pub(crate) fn finish(&mut self, synced_through: FilePosition) -> &[u8] {
        let payload =
            u32::try_from(self.bytes.len() - BATCH_HEADER_BYTES).expect("callers bound a batch's bytes");
        let padded = self.bytes.len().next_multiple_of(BATCH_ALIGN);
        self.bytes.resize(padded, 0);
        let header = &mut self.bytes[..BATCH_HEADER_BYTES];
        header[..4].copy_from_slice(&BATCH_MAGIC);
        header[8..16].copy_from_slice(&self.start.segment.to_le_bytes());
        header[16..24].copy_from_slice(&self.start.offset.to_le_bytes());
        header[24..32].copy_from_slice(&synced_through.segment.to_le_bytes());
        header[32..40].copy_from_slice(&synced_through.offset.to_le_bytes());
        header[40..44].copy_from_slice(&payload.to_le_bytes());
        header[44..48].copy_from_slice(&self.records.to_le_bytes());
        let crc = crc32c::crc32c(&header[8..]);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
        &self.bytes
    }

    /// Gives memory back after an unusually large batch.
    pub(crate) fn shrink(&mut self, max: usize) {
        if self.bytes.capacity() > max {
            self.bytes = Vec::new();
        }
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The data of a [`Kind::Group`] record.
pub(crate) fn encode_last(last: Option<LogPosition>) -> [u8; 16] {
    let mut out = [0; 16];
    if let Some(last) = last {
        out[..8].copy_from_slice(&last.term.to_le_bytes());
        out[8..].copy_from_slice(&last.index.to_le_bytes());
    }
    out
}

/// Reads what [`encode_last`] wrote.
pub(crate) fn decode_last(flags: u8, data: &[u8]) -> Option<LogPosition> {
    (flags & FLAG_LAST != 0 && data.len() == 16).then(|| LogPosition::new(u64_at(data, 0), u64_at(data, 8)))
}

/// Owns a copy of a record's data.
pub(crate) fn owned(data: &[u8]) -> Bytes {
    Bytes::copy_from_slice(data)
}
