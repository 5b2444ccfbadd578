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

    /// Parses `ms` or `ms-seq`; a missing sequence becomes `missing_seq`. Leading zeros and signs are accepted as Redis
    /// does, which reads a number that it does not know by the rules of C.
    ///
    /// # Errors
    /// [`IdParseError`] for anything else, `-` and `+` included.
    pub fn parse(text: &[u8], missing_seq: u64) -> Result<EntryId, IdParseError> {
        if text.len() > TEXT_MAX {
            return Err(IdParseError);
        }
        let text = until_zero(text);
        match text.iter().position(|&b| b == b'-') {
            None => Ok(EntryId { ms: parse_u64(text)?, seq: missing_seq }),
            Some(at) => Ok(EntryId { ms: parse_u64(&text[..at])?, seq: parse_u64(&text[at + 1..])? }),
        }
    }
}

/// Longest text of an id that Redis looks at.
const TEXT_MAX: usize = 127;

/// A byte of zero ends a string of C.
fn until_zero(text: &[u8]) -> &[u8] {
    &text[..text.iter().position(|&b| b == 0).unwrap_or(text.len())]
}

/// A number without sign as Redis reads it: decimal digits behind spaces and a sign, if any. What is below zero by the
/// usual rules is refused; what is not written as usual, or no signed number can hold, wraps around, as `strtoull` has it.
///
/// # Errors
/// [`IdParseError`] for anything else.
pub fn parse_u64(text: &[u8]) -> Result<u64, IdParseError> {
    let text = until_zero(text);
    let spaces = text.iter().take_while(|b| matches!(b, b' ' | b'\t'..=b'\r')).count();
    let signed = &text[spaces..];
    let (negative, digits) = match signed {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(IdParseError);
    }
    let number: u64 =
        core::str::from_utf8(digits).map_err(|_| IdParseError)?.parse().map_err(|_| IdParseError)?;
    let as_usual = spaces == 0 && digits[0] != b'0';
    let plainly_negative = negative && as_usual && number <= 1 << 63;
    match negative {
        _ if plainly_negative => Err(IdParseError),
        true => Ok(number.wrapping_neg()),
        false => Ok(number),
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each as a Redis 8.10 answers XADD with it.
    #[test]
    fn ids_are_read_by_the_rules_of_c() {
        let id = |text: &str| EntryId::parse(text.as_bytes(), 7).ok().map(|id| (id.ms, id.seq));
        for (text, meant) in [
            ("5", Some((5, 7))),
            ("007-003", Some((7, 3))),
            ("+5", Some((5, 7))),
            ("+5-+6", Some((5, 6))),
            ("5\0z", Some((5, 7))),
            ("5--0", Some((5, 0))),
            ("5--18446744073709551615", Some((5, 1))),
            ("5--05", Some((5, u64::MAX - 4))),
            ("5--5", None),
            ("5--9223372036854775808", None),
            ("-5", None),
            ("5-", None),
            ("+", None),
            (" 5", Some((5, 7))),
            ("5- -5", Some((5, u64::MAX - 4))),
            ("5 ", None),
            ("+-5", None),
            ("18446744073709551616", None),
            ("1-1-1", None),
        ] {
            assert_eq!(id(text), meant, "{text}");
        }
        let long = [b'0'; TEXT_MAX + 1];
        assert!(EntryId::parse(&long[1..], 0).is_ok() && EntryId::parse(&long, 0).is_err());
    }
}
