//! What is refused changes nothing: every example of `tests/compat/bad-input.txt` with every argument left out, doubled,
//! swapped and replaced by nonsense, applied to a machine that holds something. That the texts are those of Redis is
//! for `tests/compat/differential`, which asks a server.

use super::super::{Request, parse, table};
use bytes::Bytes;
use weir_stream::{Command, Machine, Reply, SLOT_COUNT, Slot, SlotRange, Stamp};

const EXAMPLES: &str = include_str!("../../../../../tests/compat/bad-input.txt");

const NONSENSE: &[&[u8]] = &[
    b"",
    b"x",
    b"-1",
    b"0",
    b"1.5",
    b"nan",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"\xff\xfe\0z",
    b"*",
    b"$",
    b"1-1-1",
    b"18446744073709551615-18446744073709551615",
    b"NX",
    b"COUNT",
    b"IDS",
];

fn words(line: &str) -> Vec<Bytes> {
    line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

/// A stream with a group and pending entries, and two strings.
fn machine() -> Machine {
    let mut machine = Machine::new();
    let all =
        Command::SetOwnedSlots { ranges: vec![SlotRange { first: Slot(0), last: Slot(SLOT_COUNT - 1) }] };
    machine.apply(Stamp { now_ms: 1000 }, &all, false);
    for line in [
        "XADD {d}s 1-0 f v",
        "XADD {d}s 2-0 f v",
        "XADD {d}s 3-0 f v",
        "XGROUP CREATE {d}s g 0",
        "XREADGROUP GROUP g c COUNT 3 STREAMS {d}s >",
        "SET {d}t text",
        "SET {d}n 10",
    ] {
        let Ok((_, Request::Write(command, _))) = parse(&words(line)) else { panic!("{line}") };
        machine.apply(Stamp { now_ms: 1000 }, &command, false);
    }
    machine
}

/// Variants of a command, each argument after the name(s) spoiled in every way.
fn spoiled(args: &[Bytes], mut each: impl FnMut(Vec<Bytes>)) {
    each(args.to_vec());
    for at in 1..args.len() {
        let with = |middle: &[Bytes]| [&args[..at], middle, &args[at + 1..]].concat();
        each(with(&[]));
        each(with(&[args[at].clone(), args[at].clone()]));
        each(args[..=at].to_vec());
        each([args, &args[at..]].concat());
        for other in NONSENSE {
            each(with(&[Bytes::from_static(other)]));
        }
        for key in ["{d}s", "{d}t", "{d}none"] {
            each(with(&[Bytes::from_static(key.as_bytes())]));
        }
    }
}

#[test]
fn what_is_refused_changes_nothing() {
    let machine = machine();
    let before = machine.state_hash();
    let (mut refused_early, mut refused, mut done) = (0, 0, 0);
    for line in EXAMPLES.lines() {
        spoiled(&words(line), |args| {
            let Ok((_, Request::Write(command, _))) = parse(&args) else {
                refused_early += 1;
                return;
            };
            let mut tried = machine.clone();
            // The time of a command is kept whatever becomes of it, so that of the setup is used again.
            let reply = tried.apply(Stamp { now_ms: 1000 }, &command, true).reply;
            if matches!(reply, Reply::Error(_)) {
                assert_eq!(tried.state_hash(), before, "{args:?} was refused: {reply:?}");
                refused += 1;
            } else {
                done += 1;
            }
        });
    }
    assert!(refused_early > 5000 && refused > 500 && done > 2000, "{refused_early} {refused} {done}");
}

#[test]
fn every_command_on_keys_has_an_example_of_bad_input() {
    let named: Vec<String> =
        EXAMPLES.lines().map(|line| line.split(' ').next().unwrap_or_default().to_lowercase()).collect();
    for row in table::rows() {
        let exempt = ["migrate", "flushall", "flushdb", "wait", "waitaof"];
        if matches!(row.group, "stream" | "string" | "generic" | "transactions")
            && !exempt.contains(&row.name)
        {
            assert!(named.iter().any(|name| name == row.name), "{}", row.name);
        }
    }
}
