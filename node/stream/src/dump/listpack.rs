//! Listpacks: a run of strings and integers, as Redis keeps the entries of a stream.
//!
//! Four bytes of size and two of the number of elements, lowest first; then elements, each an encoding, its bytes and
//! the length of both once more for walking back; then `0xff`.

use super::DumpError;
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;

const HEAD: usize = 6;
const END: u8 = 0xff;
/// Number of elements that means "count them".
const MANY: u16 = u16::MAX;

/// One element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Element<'a> {
    Int(i64),
    Str(&'a [u8]),
}

impl<'a> Element<'a> {
    /// As the string that it stands for.
    pub(super) fn string(self) -> Cow<'a, [u8]> {
        match self {
            Element::Int(number) => Cow::Owned(format!("{number}").into_bytes()),
            Element::Str(string) => Cow::Borrowed(string),
        }
    }

    /// As a number.
    pub(super) fn int(self) -> Result<i64, DumpError> {
        match self {
            Element::Int(number) => Ok(number),
            Element::Str(string) => {
                let text = core::str::from_utf8(string).map_err(|_| DumpError::Value)?;
                text.parse().map_err(|_| DumpError::Value)
            }
        }
    }
}

/// Walks a listpack whose frame is sound.
pub(super) struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    pub(super) fn of(listpack: &'a [u8]) -> Result<Elements<'a>, DumpError> {
        let (head, rest) = listpack.split_at_checked(HEAD).ok_or(DumpError::Value)?;
        let size = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        match rest.split_last() {
            Some((&END, rest)) if size as usize == listpack.len() => Ok(Elements { rest }),
            _ => Err(DumpError::Value),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], DumpError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DumpError::Value)?;
        self.rest = rest;
        Ok(taken)
    }

    fn int(&mut self, len: usize) -> Result<Element<'a>, DumpError> {
        let bytes = self.take(len)?;
        let mut wide = if bytes[len - 1] & 0x80 == 0 { [0; 8] } else { [0xff; 8] };
        wide[..len].copy_from_slice(bytes);
        Ok(Element::Int(i64::from_le_bytes(wide)))
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next element; there must be one.
    pub(super) fn next(&mut self) -> Result<Element<'a>, DumpError> {
        let before = self.rest.len();
        let first = self.take(1)?[0];
        let element = match first {
            0..0x80 => Element::Int(first.into()),
            0x80..0xc0 => Element::Str(self.take(usize::from(first & 0x3f))?),
            0xc0..0xe0 => {
                let value = i64::from(first & 0x1f) << 8 | i64::from(self.take(1)?[0]);
                Element::Int(if value < 1 << 12 { value } else { value - (1 << 13) })
            }
            0xe0..0xf0 => {
                let len = usize::from(first & 0x0f) << 8 | usize::from(self.take(1)?[0]);
                Element::Str(self.take(len)?)
            }
            0xf0 => {
                let len = self.take(4)?;
                let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]);
                Element::Str(self.take(len as usize)?)
            }
            0xf1 => self.int(2)?,
            0xf2 => self.int(3)?,
            0xf3 => self.int(4)?,
            0xf4 => self.int(8)?,
            _ => return Err(DumpError::Value),
        };
        let back = BackLen::of(before - self.rest.len());
        if self.take(back.len)? != back.as_slice() {
            return Err(DumpError::Value);
        }
        Ok(element)
    }
}

/// A listpack being written.
pub(super) struct Listpack {
    bytes: Vec<u8>,
    elements: usize,
}

impl Listpack {
    pub(super) fn new(capacity: usize) -> Listpack {
        let mut bytes = Vec::with_capacity(capacity + HEAD + 1);
        bytes.extend_from_slice(&[0; HEAD]);
        Listpack { bytes, elements: 0 }
    }

    pub(super) fn push_int(&mut self, value: i64) {
        let from = self.bytes.len();
        let wide = value.to_le_bytes();
        match value {
            0..=0x7f => self.bytes.push(value as u8),
            -0x1000..=0xfff => {
                let bits = (value & 0x1fff) as u16;
                self.bytes.extend_from_slice(&(bits | 0xc000).to_be_bytes());
            }
            -0x8000..=0x7fff => self.push_wide(0xf1, &wide[..2]),
            -0x80_0000..=0x7f_ffff => self.push_wide(0xf2, &wide[..3]),
            -0x8000_0000..=0x7fff_ffff => self.push_wide(0xf3, &wide[..4]),
            _ => self.push_wide(0xf4, &wide),
        }
        self.end_element(from);
    }

    fn push_wide(&mut self, encoding: u8, bytes: &[u8]) {
        self.bytes.push(encoding);
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn push_str(&mut self, string: &[u8]) {
        let from = self.bytes.len();
        match string.len() {
            len @ 0..64 => self.bytes.push(0x80 | len as u8),
            len @ 64..4096 => self.bytes.extend_from_slice(&(0xe000 | len as u16).to_be_bytes()),
            len => self.push_wide(0xf0, &(len as u32).to_le_bytes()),
        }
        self.bytes.extend_from_slice(string);
        self.end_element(from);
    }

    fn end_element(&mut self, from: usize) {
        let back = BackLen::of(self.bytes.len() - from);
        self.bytes.extend_from_slice(back.as_slice());
        self.elements += 1;
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let size = (self.bytes.len() as u32).to_le_bytes();
        self.bytes[..4].copy_from_slice(&size);
        let elements = u16::try_from(self.elements).unwrap_or(MANY).to_le_bytes();
        self.bytes[4..HEAD].copy_from_slice(&elements);
        self.bytes
    }
}

/// The length of an element for walking back: seven bits a byte, highest first, all but the first marked.
struct BackLen {
    bytes: [u8; 5],
    len: usize,
}

impl BackLen {
    fn of(element: usize) -> BackLen {
        // The upper bounds, each one short, are those of Redis.
        let len = match element {
            0..128 => 1,
            128..16_383 => 2,
            16_383..2_097_151 => 3,
            2_097_151..268_435_455 => 4,
            _ => 5,
        };
        let mut bytes = [0; 5];
        for (at, byte) in bytes[..len].iter_mut().enumerate() {
            let bits = (element >> (7 * (len - 1 - at))) as u8 & 0x7f;
            *byte = if at == 0 { bits } else { bits | 0x80 };
        }
        BackLen { bytes, len }
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn elements_of_every_size_come_back() {
        let ints: Vec<i64> = (0..63)
            .flat_map(|bit| {
                let power = 1i64 << bit;
                [power - 1, power, -power, -power - 1, power + 1]
            })
            .chain([i64::MIN, i64::MAX, 0])
            .collect();
        let strings: Vec<Vec<u8>> =
            [0, 1, 63, 64, 127, 4095, 4096, 16_370, 16_378, 16_383, 70_000, 2_097_151]
                .iter()
                .map(|len| vec![b'x'; *len])
                .collect();
        let mut list = Listpack::new(0);
        ints.iter().for_each(|int| list.push_int(*int));
        strings.iter().for_each(|string| list.push_str(string));
        let bytes = list.finish();
        let mut elements = Elements::of(&bytes).unwrap();
        for int in ints {
            assert_eq!(elements.next(), Ok(Element::Int(int)));
        }
        for string in &strings {
            assert_eq!(elements.next(), Ok(Element::Str(string)));
        }
        assert!(elements.is_at_end());
        assert_eq!(elements.next(), Err(DumpError::Value));
    }
}
