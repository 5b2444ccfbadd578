//! Entry ids: `ms-seq`, strictly increasing within a stream.

use core::fmt;
use serde::{Deserialize, Serialize};

/// Id of one stream entry. Ordered by `ms`, then `seq`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntryId {
    /// Milliseconds part.
    pub ms: u64,
    /// Sequence part.
    pub seq: u64,
}

/// The text is not an entry id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdParseError;

impl EntryId {
    /// `0-0`: below every entry; never an entry's id itself.
    pub const MIN: EntryId = EntryId { ms: 0, seq: 0 };
    /// The last possible id.
    pub const MAX: EntryId = EntryId { ms: u64::MAX, seq: u64::MAX };

    /// An id of its two parts.
    pub const fn new(ms: u64, seq: u64) -> Self {
        EntryId { ms, seq }
    }

    /// The id just after this one, `None` after the last.
    pub fn next(self) -> Option<EntryId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(EntryId { ms: self.ms, seq }),
            None => self.ms.checked_add(1).map(|ms| EntryId { ms, seq: 0 }),
        }
    }

    /// The id just before this one, `None` before the first.
    pub fn prev(self) -> Option<EntryId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(EntryId { ms: self.ms, seq }),
            None => self.ms.checked_sub(1).map(|ms| EntryId { ms, seq: u64::MAX }),
        }
    }

    /// Parses `ms` or `ms-seq`; a missing sequence becomes `missing_seq`. Leading zeros are accepted.
    ///
    /// # Errors
    /// [`IdParseError`] for anything else, `-` and `+` included.
    pub fn parse(text: &[u8], missing_seq: u64) -> Result<EntryId, IdParseError> {
        match text.iter().position(|&b| b == b'-') {
            None => Ok(EntryId { ms: parse_u64(text)?, seq: missing_seq }),
            Some(at) => Ok(EntryId { ms: parse_u64(&text[..at])?, seq: parse_u64(&text[at + 1..])? }),
        }
    }
}

/// Parses decimal digits only (no sign, no spaces).
fn parse_u64(text: &[u8]) -> Result<u64, IdParseError> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(IdParseError);
    }
    core::str::from_utf8(text).map_err(|_| IdParseError)?.parse().map_err(|_| IdParseError)
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}
