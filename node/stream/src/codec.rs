//! Batches as bytes: a version byte, then postcard.
//!
//! Positions of variants and fields are permanent within a version. A node refuses a version that it does not
//! know; a new one is written only after every node can read it.

use crate::Batch;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// The version written. Since 2 there are idempotent adds; since 3 references, claims and limits of reads;
/// since 4 watched keys, since 5 copies and edits of strings, since 6 restored values.
const VERSION: u8 = 6;
/// The oldest version read: what came later are variants behind the others.
const VERSION_MIN: u8 = 1;

/// Bytes that are not a batch this node can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// Written by a newer Weir: upgrade this node first.
    Version(u8),
    /// Not a batch.
    Malformed,
}

impl Batch {
    /// The form in which a batch goes into the log.
    pub fn encode(&self) -> Vec<u8> {
        // Writing to memory has no way to fail; were there one, the empty batch is refused when read.
        postcard::to_extend(self, vec![VERSION]).unwrap_or_default()
    }

    /// Reads what [`Batch::encode`] wrote.
    ///
    /// # Errors
    /// [`DecodeError`]: the bytes are of another version or damaged; the caller must not go on as if the
    /// entry were empty.
    pub fn decode(bytes: &[u8]) -> Result<Batch, DecodeError> {
        match bytes.split_first() {
            Some((VERSION_MIN..=VERSION, rest)) => match postcard::take_from_bytes(rest) {
                Ok((batch, [])) => Ok(batch),
                _ => Err(DecodeError::Malformed),
            },
            Some((&version, _)) => Err(DecodeError::Version(version)),
            None => Err(DecodeError::Malformed),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Version(version) => {
                write!(f, "log entry of format version {version}, this node reads version {VERSION}")
            }
            DecodeError::Malformed => f.write_str("log entry is not a batch of commands"),
        }
    }
}

impl core::error::Error for DecodeError {}
