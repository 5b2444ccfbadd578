//! Numbers and strings as Redis' database files have them.
//!
//! A length is one byte below 64; `01` and 14 bits; `0x80` and 4 bytes; `0x81` and 8 bytes, highest first. `11` in
//! front of a string means that a number or packed bytes follow instead of a length.

use super::DumpError;
use crate::EntryId;
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Most bytes that a payload may become: packed bytes may stand for ninety times as many.
pub(super) const UNPACKED_MAX: usize = 512 << 20;

/// What of a payload is still to be read. Every mistake in it is [`DumpError::Value`].
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// Bytes that may still be unpacked.
    unpacked_left: usize,
}

enum Length {
    Bytes(u64),
    Int(u8),
    Packed,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, unpacked_left: UNPACKED_MAX }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], DumpError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DumpError::Value)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DumpError> {
        self.take(N)?.try_into().map_err(|_| DumpError::Value)
    }

    fn any_length(&mut self) -> Result<Length, DumpError> {
        let [first] = self.array()?;
        Ok(match (first >> 6, first) {
            (0, _) => Length::Bytes(first.into()),
            (1, _) => {
                let [second] = self.array()?;
                Length::Bytes(u64::from(first & 0x3f) << 8 | u64::from(second))
            }
            (_, 0x80) => Length::Bytes(u32::from_be_bytes(self.array()?).into()),
            (_, 0x81) => Length::Bytes(u64::from_be_bytes(self.array()?)),
            (_, 0xc0..=0xc2) => Length::Int(1 << (first & 3)),
            (_, 0xc3) => Length::Packed,
            _ => return Err(DumpError::Value),
        })
    }

    /// A length, or any other number that is stored as one.
    pub(super) fn number(&mut self) -> Result<u64, DumpError> {
        match self.any_length()? {
            Length::Bytes(number) => Ok(number),
            Length::Int(_) | Length::Packed => Err(DumpError::Value),
        }
    }

    pub(super) fn id(&mut self) -> Result<EntryId, DumpError> {
        Ok(EntryId::new(self.number()?, self.number()?))
    }

    /// An id as the keys of Redis' trees have it.
    pub(super) fn raw_id(&mut self) -> Result<EntryId, DumpError> {
        Ok(EntryId::new(u64::from_be_bytes(self.array()?), u64::from_be_bytes(self.array()?)))
    }

    /// A Unix time in milliseconds; what lies before 1970 is `None`.
    pub(super) fn time_ms(&mut self) -> Result<Option<u64>, DumpError> {
        Ok(u64::try_from(i64::from_le_bytes(self.array()?)).ok())
    }

    pub(super) fn string(&mut self) -> Result<Cow<'a, [u8]>, DumpError> {
        match self.any_length()? {
            Length::Bytes(len) => {
                Ok(Cow::Borrowed(self.take(usize::try_from(len).map_err(|_| DumpError::Value)?)?))
            }
            Length::Int(len) => {
                let mut bytes = self.take(len.into())?.to_vec();
                let negative = bytes.last().is_some_and(|high| high & 0x80 != 0);
                bytes.resize(4, if negative { 0xff } else { 0 });
                let number = i32::from_le_bytes(bytes.try_into().map_err(|_| DumpError::Value)?);
                Ok(Cow::Owned(alloc::format!("{number}").into_bytes()))
            }
            Length::Packed => {
                let (packed, len) = (self.number()?, self.number()?);
                let len = usize::try_from(len).map_err(|_| DumpError::Value)?;
                self.unpacked_left = self.unpacked_left.checked_sub(len).ok_or(DumpError::Value)?;
                let packed = self.take(usize::try_from(packed).map_err(|_| DumpError::Value)?)?;
                Ok(Cow::Owned(unpack(packed, len).ok_or(DumpError::Value)?))
            }
        }
    }
}

/// Undoes LZF: below 32 that many bytes and one more follow; else three bits of a length and thirteen of a distance
/// back name bytes that were there before. `None` if that does not make `len` bytes.
fn unpack(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(len.min(packed.len().saturating_mul(8)));
    let mut rest = packed.iter().copied();
    while let Some(control) = rest.next() {
        if control < 32 {
            for _ in 0..=control {
                out.push(rest.next()?);
            }
        } else {
            let mut count = usize::from(control >> 5);
            if count == 7 {
                count += usize::from(rest.next()?);
            }
            let distance = (usize::from(control & 0x1f) << 8 | usize::from(rest.next()?)) + 1;
            let from = out.len().checked_sub(distance)?;
            for at in from..from + count + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

pub(super) fn put_number(out: &mut Vec<u8>, number: u64) {
    if let Ok(small) = u8::try_from(number)
        && small < 64
    {
        out.push(small);
    } else if number < 1 << 14 {
        out.extend_from_slice(&(number as u16 | 1 << 14).to_be_bytes());
    } else if let Ok(number) = u32::try_from(number) {
        out.push(0x80);
        out.extend_from_slice(&number.to_be_bytes());
    } else {
        out.push(0x81);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

pub(super) fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    put_number(out, string.len() as u64);
    out.extend_from_slice(string);
}

pub(super) fn put_id(out: &mut Vec<u8>, id: EntryId) {
    put_number(out, id.ms);
    put_number(out, id.seq);
}

pub(super) fn put_raw_id(out: &mut Vec<u8>, id: EntryId) {
    out.extend_from_slice(&id.ms.to_be_bytes());
    out.extend_from_slice(&id.seq.to_be_bytes());
}

/// `None` is -1.
pub(super) fn put_time_ms(out: &mut Vec<u8>, ms: Option<u64>) {
    let ms = ms.map_or(-1, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
    out.extend_from_slice(&ms.to_le_bytes());
}
