//! Keys and their hash slots.

/// Number of hash slots of a cluster.
pub const SLOTS: u16 = 16384;

/// The slot of a key: CRC16/XMODEM of the key, or of its hash tag if that is not empty.
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&b| b == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|&b| b == b'}').filter(|&len| len > 0).map(|len| &rest[..len])
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_decides_the_slot() {
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"{user}:a"), slot_of(b"user"));
        assert_eq!(slot_of(b"{}x"), crc16::State::<crc16::XMODEM>::calculate(b"{}x") % SLOTS);
    }
}
