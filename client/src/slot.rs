//! Which slot a key belongs to.

/// Number of hash slots of a cluster.
pub const SLOTS: u16 = 16384;

/// The hash slot of a key, `0..16384`: CRC16 of the key, or of the part in braces if there is one that is not empty.
///
/// Keys with the same part in braces share a slot, and only keys of one slot can be used in one command.
///
/// ```
/// use weir_client::key_slot;
/// assert_eq!(key_slot("{orders}:1"), key_slot("orders"));
/// assert_ne!(key_slot("orders:1"), key_slot("orders:2"));
/// ```
pub fn key_slot(key: impl AsRef<[u8]>) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(hash_tag(key.as_ref())) % SLOTS
}

/// The part of a key that decides its slot.
pub(crate) fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&b| b == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|&b| b == b'}') {
        Some(len) if len > 0 => &rest[..len],
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn client_and_server_agree_on_slots(key in prop::collection::vec(prop::sample::select(b"{}ab\0".to_vec()), 0..8)) {
            prop_assert_eq!(key_slot(&key), weir_stream::key_slot(&key).0);
        }
    }

    #[test]
    fn slots_follow_the_cluster_specification() {
        assert_eq!(key_slot("123456789"), 0x31c3);
        assert_eq!(key_slot("foo{bar}{zap}"), key_slot("bar"));
    }
}
