//! Entries and their ids.

use bytes::Bytes;
use std::fmt;
use std::str::FromStr;

/// Id of a stream entry, `ms-seq`: strictly increasing within a stream.
///
/// ```
/// use weir_client::EntryId;
/// let id: EntryId = "1700000000000-3".parse()?;
/// assert_eq!((id.ms, id.seq), (1_700_000_000_000, 3));
/// assert!(EntryId::MIN < id && id < EntryId::MAX);
/// # Ok::<(), weir_client::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Milliseconds since the Unix epoch, as the server counted them.
    pub ms: u64,
    /// Number within the millisecond.
    pub seq: u64,
}

impl EntryId {
    /// `0-0`: below every entry.
    pub const MIN: EntryId = EntryId { ms: 0, seq: 0 };
    /// The last possible id.
    pub const MAX: EntryId = EntryId { ms: u64::MAX, seq: u64::MAX };

    /// An id of its two parts.
    pub const fn new(ms: u64, seq: u64) -> Self {
        EntryId { ms, seq }
    }

    /// The id just after this one; the last one has none.
    pub fn next(self) -> Option<EntryId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(EntryId { ms: self.ms, seq }),
            None => self.ms.checked_add(1).map(|ms| EntryId { ms, seq: 0 }),
        }
    }

    pub(crate) fn from_bytes(text: &[u8]) -> Option<EntryId> {
        let (ms, seq) = std::str::from_utf8(text).ok()?.split_once('-')?;
        Some(EntryId { ms: ms.parse().ok()?, seq: seq.parse().ok()? })
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl FromStr for EntryId {
    type Err = crate::Error;

    /// Parses `ms-seq`.
    fn from_str(text: &str) -> Result<EntryId, crate::Error> {
        EntryId::from_bytes(text.as_bytes())
            .ok_or_else(|| crate::Error::Invalid(format!("{text:?} is not an entry id")))
    }
}

/// One entry of a stream. Its bytes share memory with the reply it came in: keep a copy of what is to live long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: EntryId,
    /// Its fields and values, in the order in which they were added. Empty for an entry that left the stream while
    /// it was pending in a group (only XREADGROUP of own pending entries shows those).
    pub fields: Vec<(Bytes, Bytes)>,
}

impl Entry {
    /// The first value of a field.
    ///
    /// ```
    /// use weir_client::{Entry, EntryId};
    /// let entry = Entry { id: EntryId::new(1, 0), fields: vec![("k".into(), "v".into())] };
    /// assert_eq!(entry.get("k"), Some(&b"v"[..]));
    /// assert_eq!(entry.get("other"), None);
    /// ```
    pub fn get(&self, field: impl AsRef<[u8]>) -> Option<&[u8]> {
        let field = field.as_ref();
        self.fields.iter().find(|(name, _)| name == field).map(|(_, value)| value.as_ref())
    }

    /// As [`Entry::get`], if the value is UTF-8.
    pub fn get_str(&self, field: impl AsRef<[u8]>) -> Option<&str> {
        self.get(field).and_then(|value| std::str::from_utf8(value).ok())
    }
}
