//! DUMP and RESTORE: payloads of other servers mean here what they meant there, and ours hold all that they can.

use crate::random::any_command;
use crate::support::*;
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_stream::*;

/// `name server payload` a line, written by `tests/compat/payloads/record`.
const RECORDED: &str = include_str!("../../../../tests/compat/payloads/recorded.txt");

fn recorded() -> impl Iterator<Item = (&'static str, &'static str, Vec<u8>)> {
    RECORDED.lines().map(|line| {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("three words");
        let (name, server, hex) = (word(), word(), word());
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
        (name, server, (0..hex.len()).step_by(2).map(byte).collect())
    })
}

fn restore(name: &str, payload: &[u8]) -> Command {
    Command::Restore { key: key(name), value: load_dump(payload).expect(name), ends: None, replace: true }
}

fn dump(machine: &Machine, name: &Key) -> Option<Vec<u8>> {
    match machine.query_as_logged(0, &Query::Dump { key: name.clone() }) {
        Reply::Dump(dump) => Some(dump.payload()),
        _ => None,
    }
}

/// All that does not depend on when it was recorded.
fn shown(shard: &Shard) -> String {
    let mut lines = vec![shard.ask(Query::Get { key: key("k") })];
    if lines[0].starts_with('!') {
        lines.clear();
        let info = shard.ask(Query::XinfoStream { key: key("k"), full: None });
        let info = info.replace(['{', '}'], "");
        let wanted = [
            "length",
            "radix-tree-keys",
            "last-generated-id",
            "max-deleted",
            "entries-added",
            "recorded",
            "idmp",
            "pids",
            "iids",
        ];
        let known: Vec<_> =
            info.split(' ').filter(|pair| wanted.iter().any(|name| pair.starts_with(name))).collect();
        lines.push(known.join(" "));
        lines.push(shard.ask(whole("k")));
        for group in ["g", "late", "somewhere"] {
            lines.push(shard.ask(xpending("k", group)));
            let Answer::Reply(Reply::Array(rows)) =
                shard.machine.query(shard.now_ms, &pending_rows("k", group))
            else {
                continue;
            };
            for row in rows {
                let Reply::Array(mut row) = row else { panic!("a row") };
                // The idle time.
                row.remove(2);
                lines.push(show(&Reply::Array(row)));
            }
        }
        lines.push(shard.ask(xinfo_groups("k")));
    }
    lines.join("\n")
}

/// Of the values that all servers can hold; the streams of producers and of released entries have tests of their own.
const MEANT: &[(&str, &str)] = &[
    ("string-short", "hello"),
    ("string-empty", ""),
    ("string-int8", "-7"),
    ("string-int16", "12345"),
    ("string-int32", "2000000000"),
    ("string-int64", "99999999999"),
];

#[test]
fn payloads_of_other_servers_mean_here_what_they_meant_there() {
    let mut seen: BTreeMap<&str, String> = BTreeMap::new();
    for (name, server, payload) in recorded() {
        let mut shard = Shard::new();
        assert_eq!(shard.run(restore("k", &payload)), "OK", "{name} {server}");
        let shown = shown(&shard);
        if name != "stream-producers" {
            assert_eq!(*seen.entry(name).or_insert_with(|| shown.clone()), shown, "{name} {server}");
        }
        // What is written here means the same to us; the suite of the process asks the other servers.
        let again = dump(&shard.machine, &key("k")).expect("a payload");
        shard.run(restore("k", &again));
        assert_eq!(self::shown(&shard), shown, "{name} {server}, written again");
    }
    for (name, meant) in MEANT {
        assert_eq!(seen[name], *meant);
    }
    assert_eq!(seen["string-packed"], "ab".repeat(300));
    assert_eq!(seen["string-long"], "x".repeat(20_000));
    let (runs, fields) = (&seen["stream-runs"], &seen["stream-fields"]);
    assert!(runs.starts_with("length=150 radix-tree-keys=2 last-generated-id=1150-3 "), "{runs}");
    assert!(
        runs.contains("1001-1 name value-1 number 1, ") && runs.contains("1150-3 name value-150 number 150")
    );
    assert!(fields.contains("5-1 a 1 b -1, 5-9 a 40000 b -0 c xxxx"), "{fields}");
    assert!(fields.contains("18446744073709551615-1 a 9223372036854775807 b yyy"), "{fields}");
    assert!(
        fields.contains("max-deleted-entry-id=5-2 entries-added=5 recorded-first-entry-id=5-1"),
        "{fields}"
    );
    assert_eq!(seen["stream-groups"], STREAM_GROUPS);
    assert_eq!(seen["stream-emptied"], STREAM_EMPTIED);
    assert_eq!(seen["stream-released"], STREAM_RELEASED);
}

const STREAM_GROUPS: &str = "\
length=6 radix-tree-keys=1 last-generated-id=8-0 max-deleted-entry-id=8-0 entries-added=8 recorded-first-entry-id=1-1 \
idmp-duration=100 idmp-maxsize=100 pids-tracked=0 iids-tracked=0 iids-added=0 iids-duplicates=0
1-1 f v, 2-0 f 2, 3-0 f 3, 5-0 f 5, 6-0 f 6, 7-0 f 7
[4 2-0 5-0 [[alice 1] [bob 3]]]
[2-0 bob 40]
[3-0 alice 1]
[4-0 bob 1]
[5-0 bob 1]
[0 nil nil nil-array]
[0 nil nil nil-array]
[{name=g consumers=3 pending=4 last-delivered-id=5-0 entries-read=5 lag=nil} \
{name=late consumers=0 pending=0 last-delivered-id=8-0 entries-read=nil lag=0} \
{name=somewhere consumers=0 pending=0 last-delivered-id=3-0 entries-read=3 lag=nil}]";
const STREAM_EMPTIED: &str = "\
length=0 radix-tree-keys=0 last-generated-id=7-7 max-deleted-entry-id=7-7 entries-added=1 recorded-first-entry-id=0-0 \
idmp-duration=100 idmp-maxsize=100 pids-tracked=0 iids-tracked=0 iids-added=0 iids-duplicates=0

[1 7-7 7-7 [[c 1]]]
[7-7 c 1]
!NOGROUP No such key 'k' or consumer group 'late'
!NOGROUP No such key 'k' or consumer group 'somewhere'
[{name=g consumers=1 pending=1 last-delivered-id=7-7 entries-read=1 lag=0}]";
const STREAM_RELEASED: &str = "\
length=6 radix-tree-keys=1 last-generated-id=6-0 max-deleted-entry-id=0-0 entries-added=6 recorded-first-entry-id=1-0 \
idmp-duration=100 idmp-maxsize=100 pids-tracked=0 iids-tracked=0 iids-added=0 iids-duplicates=0
1-0 f 1, 2-0 f 2, 3-0 f 3, 4-0 f 4, 5-0 f 5, 6-0 f 6
[5 1-0 5-0 [[c 2]]]
[1-0 c 1]
[2-0  1]
[3-0 c 1]
[4-0  1]
[5-0  9223372036854775807]
!NOGROUP No such key 'k' or consumer group 'late'
!NOGROUP No such key 'k' or consumer group 'somewhere'
[{name=g consumers=1 pending=5 last-delivered-id=5-0 entries-read=5 lag=1}]";

#[test]
fn what_producers_added_is_restored() {
    let (_, _, payload) = recorded().find(|(name, ..)| *name == "stream-producers").expect("of Redis 8.10");
    let mut shard = Shard::new();
    shard.run(restore("k", &payload));
    let info = shard.ask(Query::XinfoStream { key: key("k"), full: None });
    let known =
        "idmp-duration=86400 idmp-maxsize=50 pids-tracked=2 iids-tracked=3 iids-added=4 iids-duplicates=1";
    assert!(info.contains(known), "{info}");
    let again = Idempotent { producer: key("p"), iid: key("b") };
    let fields = words("f b");
    let add =
        Xadd { key: key("k"), no_mkstream: false, trim: None, id: AddId::Once(Box::new(again)), fields };
    let before = shard.machine.stats().entries;
    shard.run(Command::Xadd(add));
    assert_eq!(shard.machine.stats().entries, before, "it was added before");
}

#[test]
fn a_value_is_written_in_the_oldest_form_that_holds_it() {
    let mut shard = Shard::new();
    shard.run(set("string", "v"));
    shard.run(xadd("stream", "1-1", "f v"));
    shard.run(xgroup_create("stream", "g", "0"));
    shard.run(xreadgroup("g", "c", "stream", ">"));
    let form = |shard: &Shard, name: &str| {
        let payload = dump(&shard.machine, &key(name)).expect("a payload");
        (payload[0], payload[payload.len() - 10])
    };
    assert_eq!(form(&shard, "string"), (0, 10));
    assert_eq!(form(&shard, "stream"), (19, 10));
    shard.run(Command::Xcfgset { key: key("stream"), duration_s: Some(7), maxsize: None });
    assert_eq!(form(&shard, "stream"), (26, 13));
    shard.run(Command::Xnack(xnack("stream", "g", NackMode::Fail, "1-1")));
    assert_eq!(form(&shard, "stream"), (27, 14));
}

#[test]
fn restore_heeds_what_is_there_and_when_it_ends() {
    let mut shard = Shard::new();
    shard.run(xadd("s", "1-1", "f v"));
    let value = load_dump(&dump(&shard.machine, &key("s")).expect("a payload")).expect("our own");
    let restore =
        |name: &str, ends, replace| Command::Restore { key: key(name), value: value.clone(), ends, replace };
    assert_eq!(shard.run(restore("s", None, false)), "!BUSYKEY Target key name already exists.");
    assert_eq!(shard.run(restore("t", Some(ExpireWhen::In(500)), false)), "OK");
    assert_eq!(shard.woken(), ["t"]);
    assert_eq!(shard.ask(whole("t")), "1-1 f v");
    assert_eq!(shard.ask(Query::Ttl { key: key("t"), seconds: false, absolute: false }), "500");
    assert_eq!(shard.run(restore("u", Some(ExpireWhen::At(5)), true)), "OK");
    assert_eq!(shard.run(restore("t", Some(ExpireWhen::At(5)), true)), "OK");
    assert_eq!(shard.ask(Query::Exists { keys: vec![key("t"), key("u")] }), "0", "over before they began");
    assert_eq!(shard.run(restore("t", Some(ExpireWhen::In(i64::MAX)), true)), "OK");
    assert_eq!(shard.ask(whole("t")), "1-1 f v");
}

#[test]
fn a_payload_that_was_changed_on_its_way_is_refused() {
    for (name, server, payload) in recorded() {
        for at in [0, payload.len() / 2, payload.len() - 9, payload.len() - 1] {
            let mut changed = payload.clone();
            changed[at] ^= 1;
            assert_eq!(load_dump(&changed), Err(DumpError::Footer), "{name} {server} at {at}");
        }
    }
    assert_eq!(load_dump(b"garbage"), Err(DumpError::Footer));
    assert_eq!(load_dump(&[0; 10]), Err(DumpError::Value));
    let unsummed = |value: &[u8], version: u8| [value, &[version, 0], &[0; 8]].concat();
    assert_eq!(load_dump(&unsummed(b"\0\x01x", 16)), Err(DumpError::Footer), "of a newer Redis");
    assert!(load_dump(&unsummed(b"\0\x01x", 80)).is_ok(), "of Valkey");
    assert_eq!(load_dump(&unsummed(b"\x01\x01\x01x", 10)), Err(DumpError::Type(1)), "a list");
    assert_eq!(load_dump(&unsummed(b"\xf8\x01x", 10)), Err(DumpError::Value));
}

/// Sums of zero are not looked at, so these get to the parsers.
#[test]
fn no_damage_makes_a_payload_do_harm() {
    let (mut taken, mut refused) = (0, 0);
    for (name, _, payload) in recorded() {
        let end = payload.len() - 8;
        let mut try_one = |mut bytes: Vec<u8>| {
            let sum = bytes.len() - 8;
            bytes[sum..].fill(0);
            match load_dump(&bytes) {
                Ok(value) => {
                    // What is taken can be applied.
                    let restore = Command::Restore { key: key("k"), value, ends: None, replace: true };
                    let mut shard = Shard::new();
                    assert_eq!(shard.run(restore), "OK", "{name}");
                    shard.run(xadd("k", "*", "f v"));
                    shard.ask(Query::XinfoStream { key: key("k"), full: Some(0) });
                    taken += 1;
                }
                Err(_) => refused += 1,
            }
        };
        for at in (0..end).step_by(1 + end / 300) {
            for bits in [1, 0x80, 0xff] {
                let mut changed = payload.clone();
                changed[at] ^= bits;
                try_one(changed);
            }
            try_one([&payload[..at], &payload[end - 2..]].concat());
        }
    }
    assert!(taken > 1000 && refused > 1000, "{taken} taken, {refused} refused");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A consumer's last delivery has no place in the older form, and a counter above that of all entries none in any;
    /// all else does.
    #[test]
    fn what_is_restored_is_what_was_dumped(steps in prop::collection::vec(any_command(), 1..200)) {
        let mut machine = Machine::new();
        machine.apply(Stamp { now_ms: 1 }, &all_slots(), true);
        for (at, command) in steps.iter().enumerate() {
            machine.apply(Stamp { now_ms: 100 + at as u64 }, command, false);
        }
        for name in ["s", "t", "{s}2"] {
            let name = Bytes::from_static(name.as_bytes());
            let Some(payload) = dump(&machine, &name) else { continue };
            let value = load_dump(&payload);
            prop_assert!(value.is_ok(), "{:?} {:?}", value, payload);
            let restore = Command::Restore { key: name.clone(), value: value.unwrap(), ends: None, replace: true };
            let stream = std::str::from_utf8(&name).expect("ASCII");
            let asked = [whole(stream), pending_rows(stream, "g"), pending_rows(stream, "h")];
            let ask = |machine: &Machine| asked.clone().map(|query| machine.query_as_logged(1000, &query));
            let before = ask(&machine);
            machine.apply(Stamp { now_ms: 500 }, &restore, false);
            prop_assert_eq!(ask(&machine), before);
            // The names of a run's first entry may have gone with it, so that it is written anew once.
            let again = dump(&machine, &name).unwrap();
            let value = load_dump(&again).unwrap();
            machine.apply(Stamp { now_ms: 500 }, &Command::Restore { key: name.clone(), value, ends: None, replace: true }, false);
            prop_assert_eq!(dump(&machine, &name).unwrap(), again);
            let restored = through_a_snapshot(&machine, 1000);
            prop_assert_eq!(restored.state_hash(), machine.state_hash());
        }
    }
}
