//! Single values in the format of Redis: what DUMP answers and RESTORE takes.
//!
//! A payload is a type byte, the value as Redis' database files have it, the version of that format (two bytes) and
//! the CRC64 of all before it (eight bytes), lowest byte first. `rdb.rs` knows numbers and strings, `listpack.rs` the
//! runs in which streams lie; `save.rs` and `load.rs` put values together.
//!
//! Written is the oldest form that holds the value, so that every server that could hold it reads it:
//!
//! | value | type | version | read by |
//! |---|---|---|---|
//! | string | 0 | 10 | Redis from 7.0, Valkey |
//! | stream | 19 | 10 | the same. It has no time of a consumer's last delivery: that becomes the time it was last seen |
//! | stream that remembers producers | 26 | 13 | Redis from 8.6 |
//! | stream with entries that were given back | 27 | 14 | Redis from 8.8 |
//!
//! Read are all of these and the streams of Redis 5 (type 15) and 7.2 (21). A payload never goes into the log: what it
//! holds does, as the snapshot of a shard with that one value.

mod listpack;
mod load;
mod rdb;
mod save;

pub use load::load;

use crate::keyspace::Value;
use alloc::vec::Vec;
use core::fmt;
use crc::{CRC_64_REDIS, Crc, Table};

static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// Bytes behind the value: version and checksum.
const FOOTER: usize = 10;
/// The newest version of Redis' format that is read, that of Redis 8.10. Later ones may mean other things.
const VERSION_MAX: u16 = 15;
/// The version that Valkey 9 writes, which has its own.
const VALKEY_VERSION: u16 = 80;

const STRING: u8 = 0;
const STREAM_1: u8 = 15;
const STREAM_2: u8 = 19;
const STREAM_3: u8 = 21;
const STREAM_4: u8 = 26;
const STREAM_5: u8 = 27;

/// The stream types, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StreamForm {
    /// Redis 5.
    First,
    /// Redis 7.0: counters.
    Counters,
    /// Redis 7.2: when consumers were active.
    Activity,
    /// Redis 8.6: what producers added.
    Producers,
    /// Redis 8.8: entries that were given back.
    Released,
}

/// A value on its way to a client, as it was when it was asked for. Turning it into bytes takes long for a large one,
/// so that is left to whoever sends it.
#[derive(Clone)]
pub struct Dump(pub(crate) Value);

impl Dump {
    /// The payload.
    pub fn payload(&self) -> Vec<u8> {
        save::payload(&self.0)
    }

    /// About how many bytes the payload will have.
    pub fn size_hint(&self) -> usize {
        let bytes = match &self.0 {
            Value::String(value) => value.len() as u64,
            Value::Stream(stream) => stream.memory_bytes(),
        };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

impl PartialEq for Dump {
    fn eq(&self, other: &Self) -> bool {
        self.payload() == other.payload()
    }
}

impl fmt::Debug for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dump({})", self.0.type_name())
    }
}

/// Why a payload was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpError {
    /// It ends too early, is of a version that is not known here, or is not what its checksum was made of.
    Footer,
    /// The value makes no sense.
    Value,
    /// A list, set, hash or another value that Weir does not have.
    Type(u8),
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DumpError::Footer => f.write_str("ERR DUMP payload version or checksum are wrong"),
            DumpError::Value => f.write_str("ERR Bad data format"),
            DumpError::Type(kind) => {
                write!(f, "ERR the payload holds a value of type {kind}; strings and streams can be restored")
            }
        }
    }
}

impl core::error::Error for DumpError {}

/// The value's bytes, without type and footer, and its type.
fn checked(payload: &[u8]) -> Result<(u8, &[u8]), DumpError> {
    let (value, footer) =
        payload.split_at_checked(payload.len().wrapping_sub(FOOTER)).ok_or(DumpError::Footer)?;
    let (version, sum) = footer.split_at(2);
    let version = u16::from_le_bytes([version[0], version[1]]);
    let sum = u64::from_le_bytes(sum.try_into().map_err(|_| DumpError::Footer)?);
    if version > VERSION_MAX && version != VALKEY_VERSION {
        return Err(DumpError::Footer);
    }
    // A sum of zero says that there is none, as in Redis.
    if sum != 0 && sum != CRC64.checksum(&payload[..payload.len() - 8]) {
        return Err(DumpError::Footer);
    }
    value.split_first().map(|(kind, value)| (*kind, value)).ok_or(DumpError::Value)
}

fn put_footer(out: &mut Vec<u8>, version: u16) {
    out.extend_from_slice(&version.to_le_bytes());
    let sum = CRC64.checksum(out);
    out.extend_from_slice(&sum.to_le_bytes());
}
