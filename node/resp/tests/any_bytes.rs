//! Whatever arrives, in whatever pieces: no panic, and the pieces make no difference.
//!
//! Runs on the stable toolchain; the loops are bounded by iterations, so a run always takes about the same time.
//! `WEIR_FUZZ_ROUNDS` makes the second test longer.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use weir_resp::{Decoder, Limits, ProtocolError, Value, decode_value, encode_command};

type Frames = (Vec<Vec<Bytes>>, Option<ProtocolError>);

/// Small bounds, so that random input reaches them.
fn limits() -> Limits {
    Limits {
        bulk_bytes_max: 300,
        args_max: 40,
        line_bytes_max: 60,
        frame_bytes_max: 600,
        before_login: false,
    }
}

fn feed(pieces: &[&[u8]]) -> Frames {
    let mut decoder = Decoder::new(limits());
    let mut buf = BytesMut::new();
    let mut frames = Vec::new();
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            match decoder.next(&mut buf) {
                Ok(Some(args)) => {
                    assert!(!args.is_empty(), "a frame without a name");
                    frames.push(args);
                }
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

/// Bytes that look like the protocol often enough to get deep into it.
fn protocol_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => (0usize..6).prop_map(|n| format!("*{n}\r\n").into_bytes()),
        4 => prop::collection::vec(any::<u8>(), 0..12)
            .prop_map(|b| [format!("${}\r\n", b.len()).as_bytes(), &b, b"\r\n"].concat()),
        1 => any::<i64>().prop_map(|n| format!("*{n}\r\n").into_bytes()),
        1 => any::<i64>().prop_map(|n| format!("${n}\r\n").into_bytes()),
        2 => "[ -~]{0,80}\r?\n".prop_map(String::into_bytes),
        2 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_make_no_difference_to_the_server_side(bytes in protocol_like(), cut in any::<prop::sample::Index>()) {
        let whole = feed(&[&bytes]);
        let cut = cut.index(bytes.len() + 1);
        prop_assert_eq!(&feed(&[&bytes[..cut], &bytes[cut..]]), &whole);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&feed(&single), &whole);
    }

    #[test]
    fn commands_come_back_as_they_were_sent(
        commands in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 1..8), 1..8)
    ) {
        let mut bytes = Vec::new();
        for command in &commands {
            encode_command(command, &mut bytes);
        }
        let back: Vec<Vec<Vec<u8>>> =
            Decoder::commands(&bytes).iter().map(|c| c.iter().map(|a| a.to_vec()).collect()).collect();
        prop_assert_eq!(back, commands);
    }

    #[test]
    fn pieces_make_no_difference_to_the_client_side(bytes in protocol_like(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(bytes.len() + 1);
        let read = |pieces: &[&[u8]]| {
            let mut buf = BytesMut::new();
            let mut values: Vec<Value> = Vec::new();
            for piece in pieces {
                buf.extend_from_slice(piece);
                loop {
                    match decode_value(&mut buf) {
                        Ok(Some(value)) => values.push(value),
                        Ok(None) => break,
                        Err(error) => return (format!("{values:?}"), Some(error)),
                    }
                }
            }
            (format!("{values:?}"), None)
        };
        prop_assert_eq!(read(&[&bytes[..cut], &bytes[cut..]]), read(&[&bytes]));
    }
}

/// A plain generator, so that this file needs no other crate.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

#[test]
fn damaged_pipelines_never_panic() {
    let rounds = std::env::var("WEIR_FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let mut good = Vec::new();
    encode_command(["XADD", "stream", "*", "field", "value"], &mut good);
    encode_command(["XREADGROUP", "GROUP", "g", "c", "STREAMS", "stream", ">"], &mut good);
    good.extend_from_slice(b"SET \"a b\" '\\x00'\r\n\r\n%2\r\n+a\r\n:1\r\n_\r\n,1.5\r\n=5\r\ntxt:x\r\n");
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for _ in 0..rounds {
        let mut bytes = good.clone();
        for _ in 0..1 + dice.roll(6) {
            let at = dice.roll(bytes.len());
            match dice.roll(4) {
                0 => bytes[at] = dice.roll(256) as u8,
                1 => bytes.truncate(at.max(1)),
                2 => bytes.insert(at, b"*$\r\n-+0123456789\"'"[dice.roll(18)]),
                _ => {
                    let from = dice.roll(bytes.len());
                    let tail = bytes[from..].to_vec();
                    bytes.extend_from_slice(&tail);
                }
            }
            bytes.truncate(4096);
        }
        let cut = dice.roll(bytes.len());
        assert_eq!(feed(&[&bytes[..cut], &bytes[cut..]]), feed(&[&bytes]));
        let mut buf = BytesMut::from(&bytes[..]);
        while let Ok(Some(_)) = decode_value(&mut buf) {}
    }
}
