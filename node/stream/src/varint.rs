//! Numbers and strings in the engine's own byte formats: LEB128, and strings behind their length.
//!
//! The readers never panic: past the end they answer zero or an empty string. What comes from outside
//! (snapshots) is checked where it is read; blocks in memory are sound.

use alloc::vec::Vec;

/// Bytes that `value` takes.
pub(crate) fn len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

pub(crate) fn str_len(s: &[u8]) -> usize {
    len(s.len() as u64) + s.len()
}

pub(crate) fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_str(out: &mut Vec<u8>, s: &[u8]) {
    put_u64(out, s.len() as u64);
    out.extend_from_slice(s);
}

pub(crate) fn take_u64(rest: &mut &[u8]) -> u64 {
    try_take_u64(rest).unwrap_or(0)
}

pub(crate) fn take_str<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    try_take_str(rest).unwrap_or(&[])
}

/// `None`: the bytes end early or the number does not fit.
pub(crate) fn try_take_u64(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    let mut shift = 0;
    loop {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
        shift += 7;
        if shift > 63 {
            return None;
        }
    }
}

/// `None`: the bytes end early.
pub(crate) fn try_take_str<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(try_take_u64(rest)?).ok()?;
    let (s, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_in_the_length_told() {
        for value in (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit]).chain([u64::MAX]) {
            let mut out = Vec::new();
            put_u64(&mut out, value);
            assert_eq!(out.len(), len(value));
            assert_eq!(try_take_u64(&mut &out[..]), Some(value));
            assert_eq!(try_take_u64(&mut &out[..out.len() - 1]), None);
        }
        assert_eq!(try_take_u64(&mut &[0xff; 11][..]), None);
    }
}
