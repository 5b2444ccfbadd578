//! Idempotent adds: a retry is answered with the first id and does nothing else.

use crate::support::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_stream::*;

fn once(stream: &str, producer: &str, iid: &str) -> Command {
    once_trimmed(stream, producer, iid, None)
}

fn once_trimmed(stream: &str, producer: &str, iid: &str, trim: Option<Trim>) -> Command {
    let named = Idempotent { producer: key(producer), iid: key(iid) };
    let id = AddId::Once(Box::new(named));
    Command::Xadd(Xadd { key: key(stream), no_mkstream: false, trim, id, fields: words("f v") })
}

fn xcfgset(stream: &str, duration_s: Option<u32>, maxsize: Option<u32>) -> Command {
    Command::Xcfgset { key: key(stream), duration_s, maxsize }
}

fn record(stream: &str, producer: &str, iid: &str, entry: &str) -> Command {
    let add = Idempotent { producer: key(producer), iid: key(iid) };
    Command::Xidmprecord { key: key(stream), add, id: id(entry) }
}

/// pids tracked, iids tracked, iids added, duplicates.
fn tracked(shard: &Shard, stream: &str) -> [String; 4] {
    let info = shard.ask(Query::XinfoStream { key: key(stream), full: None });
    ["pids-tracked=", "iids-tracked=", "iids-added=", "iids-duplicates="].map(|name| {
        let (_, rest) = info.split_once(name).expect(name);
        rest.split([' ', '}']).next().expect("a value").to_string()
    })
}

#[test]
fn a_repeated_add_answers_the_first_id_and_neither_adds_nor_trims_nor_wakes() {
    let mut shard = Shard::new();
    assert_eq!(shard.run(once("s", "p", "1")), "1000000-0");
    assert_eq!(shard.woken(), ["s"]);
    shard.wait_ms(5);
    assert_eq!(shard.run(once_trimmed("s", "p", "1", Some(maxlen(0)))), "1000000-0");
    assert!(shard.woken().is_empty());
    assert_eq!(shard.run(once("s", "q", "1")), "1000005-0");
    assert_eq!(shard.run(once("s", "p", "2")), "1000005-1");
    assert_eq!(shard.run(once("t", "p", "1")), "1000005-0");
    assert_eq!(shard.ask(xlen("s")), "3");
    // Also when the entry is gone.
    shard.run(xdel("s", "1000000-0"));
    assert_eq!(shard.run(once("s", "p", "1")), "1000000-0");
    assert_eq!(tracked(&shard, "s"), ["2", "3", "3", "2"]);
}

#[test]
fn a_refused_add_is_not_remembered() {
    let mut shard = Shard::new();
    let no_stream = match once("s", "p", "1") {
        Command::Xadd(add) => Command::Xadd(Xadd { no_mkstream: true, ..add }),
        other => other,
    };
    assert_eq!(shard.run(no_stream), "nil");
    shard.run(xadd("s", "18446744073709551615-18446744073709551615", "f v"));
    assert!(shard.run(once("s", "p", "1")).contains("exhausted"));
    assert_eq!(tracked(&shard, "s"), ["0", "0", "0", "0"]);
    shard.run(set("text", "v"));
    assert!(shard.run(once("text", "p", "1")).starts_with("!WRONGTYPE"));
    assert!(shard.run(xcfgset("text", Some(1), None)).starts_with("!WRONGTYPE"));
    assert_eq!(shard.run(xcfgset("none", Some(1), None)), "!ERR no such key");
}

#[test]
fn an_add_is_forgotten_after_the_duration_and_what_is_old_leaves_in_passing() {
    let mut shard = Shard::new();
    shard.run(xadd("s", "1-1", "f v"));
    shard.run(xcfgset("s", Some(2), None));
    for iid in 0..60 {
        shard.run(once("s", &format!("p{}", iid % 3), &iid.to_string()));
    }
    shard.wait_ms(1_999);
    assert_eq!(shard.run(once("s", "p0", "0")), "1000000-0");
    shard.wait_ms(1);
    assert_eq!(shard.run(once("s", "p0", "0")), "1002000-0");
    for iid in 0..4 {
        shard.run(once("s", "other", &iid.to_string()));
    }
    assert_eq!(tracked(&shard, "s"), ["2", "5", "65", "1"]);
}

#[test]
fn a_producer_is_remembered_up_to_the_maximum_and_others_do_not_count() {
    let mut shard = Shard::new();
    shard.run(once("s", "p", "0"));
    assert_eq!(shard.run(xcfgset("s", None, Some(2))), "OK");
    for iid in ["1", "2", "3"] {
        shard.run(once("s", "p", iid));
        shard.run(once("s", "q", iid));
    }
    assert_eq!(shard.run(once("s", "p", "3")), "1000000-5");
    assert_eq!(shard.run(once("s", "p", "2")), "1000000-3");
    assert_eq!(shard.run(once("s", "p", "1")), "1000000-7");
    assert_eq!(tracked(&shard, "s"), ["2", "4", "8", "2"]);
}

#[test]
fn a_change_of_the_settings_forgets_all_and_the_same_settings_nothing() {
    let mut shard = Shard::new();
    shard.run(once("s", "p", "1"));
    shard.run(xcfgset("s", Some(100), Some(100)));
    assert_eq!(shard.run(once("s", "p", "1")), "1000000-0");
    shard.run(xcfgset("s", Some(101), None));
    assert_eq!(shard.run(once("s", "p", "1")), "1000000-1");
}

#[test]
fn a_stream_takes_what_it_remembers_along_and_a_deleted_one_forgets() {
    let mut shard = Shard::new();
    shard.run(once("s", "p", "1"));
    shard.run(Command::Rename { from: key("s"), to: key("{s}2"), only_if_absent: false });
    assert_eq!(shard.run(once("{s}2", "p", "1")), "1000000-0");
    shard.run(del("{s}2"));
    shard.wait_ms(1);
    assert_eq!(shard.run(once("{s}2", "p", "1")), "1000001-0");
}

#[test]
fn an_entry_can_be_recorded_as_an_add_once() {
    let mut shard = Shard::new();
    assert_eq!(shard.run(record("s", "p", "1", "1-1")), "!ERR no such key");
    shard.run(xadd("s", "1-1", "f v"));
    shard.run(xadd("s", "2-1", "f v"));
    let gone = "!ERR No such message in stream";
    assert_eq!(shard.run(record("s", "p", "1", "1-2")), gone);
    assert_eq!(shard.run(record("s", "p", "1", "1-1")), "OK");
    assert_eq!(shard.run(record("s", "p", "1", "1-1")), "OK");
    assert!(shard.run(record("s", "p", "1", "2-1")).contains("with a different stream ID"));
    assert_eq!(shard.run(once("s", "p", "1")), "1-1");
    assert_eq!(tracked(&shard, "s"), ["1", "1", "1", "1"]);
}

#[test]
fn what_is_remembered_has_a_bound_and_counts_as_memory() {
    let mut shard = Shard::new();
    shard.run(once("s", "p", "1"));
    let before = shard.machine.stats().memory_bytes;
    let long = "x".repeat(1 << 20);
    let mut refused = None;
    for at in 0..70 {
        let reply = shard.run(once("s", "p", &format!("{long}{at}")));
        if reply.starts_with('!') {
            refused = Some((at, reply));
            break;
        }
    }
    let (at, reply) = refused.expect("a bound");
    assert_eq!(at, 63, "{reply}");
    assert!(reply.starts_with("!ERR the stream remembers as many idempotent IDs as it may"));
    assert_eq!(shard.ask(xlen("s")), "64");
    assert!(shard.machine.stats().memory_bytes - before >= 63 << 20);
    // Repetitions are still known, and time makes room.
    assert_eq!(shard.run(once("s", "p", "1")), "1000000-0");
    shard.wait_ms(100_000);
    assert!(!shard.run(once("s", "p", &format!("{long}63"))).starts_with('!'));
    shard.run(del("s"));
    assert_eq!(shard.machine.stats(), Stats::default());
}

#[test]
fn a_restored_machine_knows_every_add_and_counts_the_same_memory() {
    let mut shard = Shard::new();
    shard.run(xadd("s", "1-1", "f v"));
    shard.run(xcfgset("s", Some(30), Some(300)));
    for at in 0..700 {
        shard.run(once("s", &format!("p{}", at % 3), &format!("an idempotent id {at}")));
        shard.wait_ms(1);
    }
    shard.run(once("{s}2", "p", "1"));
    let old_hash = shard.machine.state_hash();
    for piece in [1, 100, 100_000] {
        let mut restored = Shard {
            machine: through_a_snapshot(&shard.machine, piece),
            now_ms: shard.now_ms,
            effects: Vec::new(),
        };
        assert_eq!(restored.machine.state_hash(), old_hash);
        assert_eq!(restored.machine.stats(), shard.machine.stats());
        assert_eq!(tracked(&restored, "s"), tracked(&shard, "s"));
        for at in 0..700 {
            let entry = format!("{}-0", 1_000_000 + at);
            let add = once("s", &format!("p{}", at % 3), &format!("an idempotent id {at}"));
            assert_eq!(restored.run(add), entry);
        }
        // The oldest of each producer is still the next to go.
        for more in 0..70 {
            restored.run(once("s", "p0", &format!("more {more}")));
        }
        assert_ne!(restored.run(once("s", "p0", "an idempotent id 0")), "1000000-0");
        assert_eq!(restored.run(once("s", "p1", "an idempotent id 1")), "1000001-0");
    }
}

#[test]
fn a_snapshot_and_a_log_entry_of_version_1_are_read() {
    let mut shard = Shard::new();
    shard.run(xadd("s", "1-1", "f v"));
    let mut now = Vec::new();
    shard.machine.snapshot().next_chunk(usize::MAX, &mut now);
    assert_eq!(now[8], 4);
    // As version 1 wrote it: no version of a key behind the records of shard, string and stream. All numbers here
    // take one byte.
    let mut bytes = b"WEIRSHRD\x01".to_vec();
    let mut records = &now[9..];
    while let [tag, len, rest @ ..] = records {
        let (payload, rest) = rest.split_at(usize::from(*len));
        let payload = if *tag <= 3 { &payload[..payload.len() - 1] } else { payload };
        bytes.extend([*tag, payload.len() as u8]);
        bytes.extend(payload);
        records = rest;
    }
    let mut restore = Machine::restore();
    restore.push(&bytes).expect("version 1");
    shard.machine = restore.finish().expect("whole");
    assert_eq!(shard.ask(whole("s")), "1-1 f v");
    let batch = Batch { stamp: Stamp { now_ms: 1 }, commands: vec![xadd("s", "*", "f v"), Command::Flush] };
    let mut bytes = batch.encode();
    bytes[0] = 1;
    assert_eq!(Batch::decode(&bytes), Ok(batch));
}

/// All adds ever, in order, with their producer, name, time and id.
type Model = Vec<(u8, u8, u64, EntryId)>;

/// What the model says was answered before: the latest add of that name, if it is young enough and among the last
/// `maxsize` of its producer.
fn known(
    model: &Model,
    producer: u8,
    iid: u8,
    now_ms: u64,
    duration_ms: u64,
    maxsize: usize,
) -> Option<EntryId> {
    let own = model.iter().rev().filter(|(p, ..)| *p == producer).take(maxsize);
    let young = own.take_while(|(_, _, at_ms, _)| at_ms + duration_ms > now_ms);
    young.into_iter().find(|(_, i, ..)| *i == iid).map(|(.., id)| *id)
}

#[derive(Debug, Clone)]
enum Step {
    Add(u8, u8),
    Configure(u32, u32),
    Pass(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => (0..3u8, 0..12u8).prop_map(|(producer, iid)| Step::Add(producer, iid)),
        1 => (1..4u32, 1..9u32).prop_map(|(duration_s, maxsize)| Step::Configure(duration_s, maxsize)),
        8 => (0..1500u64).prop_map(Step::Pass),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn adds_are_remembered_like_in_the_model(steps in prop::collection::vec(step(), 1..300)) {
        let mut shard = Shard::new();
        shard.run(xadd("s", "1-1", "f v"));
        shard.run(xcfgset("s", Some(2), Some(4)));
        let (mut model, mut settings, mut length) = (Model::new(), (2u32, 4u32), 1u64);
        let mut names: BTreeMap<EntryId, (u8, u8)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Add(producer, iid) => {
                    let (duration_ms, maxsize) = (u64::from(settings.0) * 1000, settings.1 as usize);
                    let first = known(&model, producer, iid, shard.now_ms, duration_ms, maxsize);
                    let reply = shard.run(once("s", &producer.to_string(), &iid.to_string()));
                    match first {
                        Some(first) => prop_assert_eq!(reply, first.to_string()),
                        None => {
                            let new = id(&reply);
                            prop_assert!(names.insert(new, (producer, iid)).is_none(), "{} twice", new);
                            // An add that is too old stands at its new place alone.
                            model.retain(|(p, i, ..)| (*p, *i) != (producer, iid));
                            model.push((producer, iid, shard.now_ms, new));
                            length += 1;
                        }
                    }
                }
                Step::Configure(duration_s, maxsize) => {
                    shard.run(xcfgset("s", Some(duration_s), Some(maxsize)));
                    if settings != (duration_s, maxsize) {
                        model.clear();
                    }
                    settings = (duration_s, maxsize);
                }
                Step::Pass(ms) => shard.wait_ms(ms),
                Step::Restart => shard.machine = through_a_snapshot(&shard.machine, 999),
            }
            prop_assert_eq!(shard.ask(xlen("s")), length.to_string());
        }
    }
}
