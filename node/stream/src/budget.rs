//! How much one read may still answer: MAXCOUNT and MAXSIZE, over all its streams.

use crate::ReadLimits;
use crate::block::EntryView;

/// Bytes of an entry in an answer beside its strings, and of each string beside its bytes, roughly.
const ENTRY: u64 = 32;
const STRING: u64 = 6;

/// What is left. It is used up by what would be answered, whether or not anybody waits for the answer.
pub(crate) struct Budget {
    entries: u64,
    /// At least 1 at first: the first entry is answered whatever its size.
    bytes: Option<u64>,
}

impl Budget {
    pub(crate) fn new(limits: ReadLimits) -> Budget {
        Budget { entries: limits.max_count.unwrap_or(u64::MAX), bytes: limits.max_size }
    }

    /// Whether nothing more may be answered.
    pub(crate) fn is_spent(&self) -> bool {
        self.entries == 0 || self.bytes == Some(0)
    }

    /// One more entry is answered; `None`: one of which only the id is left.
    pub(crate) fn spend(&mut self, entry: Option<&EntryView<'_>>) {
        self.entries = self.entries.saturating_sub(1);
        if let Some(bytes) = &mut self.bytes {
            let strings = entry.map_or(0, |entry| entry.strings().map(|s| s.len() as u64 + STRING).sum());
            *bytes = bytes.saturating_sub(ENTRY + strings);
        }
    }
}
