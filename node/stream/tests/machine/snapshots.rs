//! Snapshots and log entries as bytes: what comes back, and what is refused.

use crate::support::*;
use weir_stream::*;

fn busy_shard() -> Shard {
    let mut shard = Shard::new();
    shard.run(Command::Configure(Settings { stream_node_max_entries: 7, stream_node_max_bytes: 0 }));
    for at in 1..=200 {
        shard.run(xadd(&format!("s{}", at % 3), &format!("{at}-1"), "name value other v"));
    }
    shard.run(xgroup_create("s0", "g", "0"));
    shard.run(xgroup_create("s0", "h", "$"));
    shard.run(xreadgroup("g", "a", "s0", ">"));
    shard.run(Command::Xclaim(xclaim("s0", "g", "b", 0, "3-1 6-1")));
    let odd = Xclaim {
        retry_count: Some(u64::MAX),
        delivery_time: ClaimTime::At(5),
        ..xclaim("s0", "g", "b", 0, "6-1")
    };
    shard.run(Command::Xclaim(odd));
    shard.run(xdel("s0", "9-1"));
    for at in 0..60 {
        let once =
            Idempotent { producer: key(["p", "q"][at % 2]), iid: key(&format!("a name that is long {at}")) };
        let id = AddId::Once(Box::new(once));
        let fields = words("name v");
        shard.run(Command::Xadd(Xadd { key: key("s0"), no_mkstream: false, trim: None, id, fields }));
    }
    shard.run(xdel("s0", &(0..60).map(|seq| format!("1000000-{seq} ")).collect::<String>()));
    shard.run(Command::Xnack(xnack("s0", "g", NackMode::Fail, "30-1 15-1 18-1")));
    shard.run(pexpire("s1", 5_000));
    shard.run(set("text", "value"));
    shard
}

fn bytes_of(machine: &Machine) -> Vec<u8> {
    let mut out = Vec::new();
    while machine_chunk(machine, &mut out) {}
    out
}

fn machine_chunk(machine: &Machine, out: &mut Vec<u8>) -> bool {
    let mut snapshot = machine.snapshot();
    snapshot.next_chunk(usize::MAX, out)
}

#[test]
fn a_restored_machine_goes_on_like_the_one_it_was_taken_from() {
    let mut shard = busy_shard();
    for piece in [1, 2, 13, 100_000] {
        let mut restored = through_a_snapshot(&shard.machine, piece);
        assert_eq!(restored.state_hash(), shard.machine.state_hash());
        assert_eq!(restored.stats(), shard.machine.stats());
        assert_eq!(restored.last_stamp_ms(), shard.machine.last_stamp_ms());
        // The hash is made of the snapshot's bytes, so it is blind to what a snapshot forgets; replies are not.
        for query in [Query::XinfoStream { key: key("s0"), full: Some(0) }, xinfo_groups("s0"), whole("s1")] {
            assert_eq!(show(&restored.query_as_logged(shard.now_ms, &query)), shard.ask(query));
        }
        let next = [
            xreadgroup_claim("g", "a", "s0", 600_000),
            xautoclaim("s0", "g", "a", 0, "0", 1000),
            xadd("s0", "*", "name v"),
            xtrim("s0", maxlen(20)),
        ];
        for command in next {
            let reply = restored.apply(Stamp { now_ms: shard.now_ms }, &command, true).reply;
            assert_eq!(show(&reply), shard.run(command));
        }
        assert_eq!(restored.state_hash(), shard.machine.state_hash());
    }
}

#[test]
fn a_snapshot_shows_the_moment_it_was_taken_while_the_machine_goes_on() {
    let mut shard = busy_shard();
    let hash = shard.machine.state_hash();
    let mut snapshot = shard.machine.snapshot();
    let mut restore = Machine::restore();
    let mut more = true;
    while more {
        let mut chunk = Vec::new();
        more = snapshot.next_chunk(64, &mut chunk);
        restore.push(&chunk).unwrap();
        shard.run(xadd("s0", "*", "f v"));
        shard.run(xtrim("s0", maxlen(30)));
        shard.run(del("s2"));
    }
    assert_eq!(restore.finish().unwrap().state_hash(), hash);
    assert_ne!(shard.machine.state_hash(), hash);
}

#[test]
fn chunks_keep_to_their_budget_but_for_one_record() {
    let shard = busy_shard();
    let mut snapshot = shard.machine.snapshot();
    let mut more = true;
    while more {
        let mut chunk = Vec::new();
        more = snapshot.next_chunk(100, &mut chunk);
        assert!(chunk.len() < 100 + 4096, "{}", chunk.len());
    }
}

#[test]
fn the_hash_tells_states_apart_that_differ_in_one_small_thing() {
    let shard = busy_shard();
    let hash = shard.machine.state_hash();
    let small_things = [
        xack("s0", "g", "3-1"),
        xreadgroup("g", "b", "s0", "0"),
        xgroup("s0", "h", GroupChange::CreateConsumer { consumer: key("c") }),
        Command::Persist { key: key("s1") },
        Command::Configure(Settings::default()),
        xdel("s0", "12-1"),
        Command::Xnack(xnack("s0", "g", NackMode::Fail, "12-1")),
        Command::SetOwnedSlots { ranges: vec![] },
        Command::Xcfgset { key: key("s0"), duration_s: Some(99), maxsize: None },
        Command::Xcfgset { key: key("s1"), duration_s: Some(99), maxsize: None },
        Command::Xsetid {
            key: key("s0"),
            last_id: id("2000000-1"),
            entries_added: None,
            max_deleted_id: None,
        },
    ];
    for command in small_things {
        let mut other = shard.machine.clone();
        other.apply(Stamp { now_ms: shard.now_ms }, &command, false);
        assert_ne!(other.state_hash(), hash, "{command:?}");
    }
    let mut later = shard.machine.clone();
    later.apply(Stamp { now_ms: shard.now_ms + 1 }, &Command::ExpireDue { keys: vec![] }, false);
    assert_ne!(later.state_hash(), hash);
}

#[test]
fn a_damaged_snapshot_is_refused_or_harmless_but_never_a_panic() {
    let shard = busy_shard();
    let bytes = bytes_of(&shard.machine);
    let restored = |bytes: &[u8]| {
        let mut restore = Machine::restore();
        restore.push(bytes)?;
        restore.finish()
    };
    let shown = |bytes: &[u8]| restored(bytes).map(|machine| machine.state_hash());
    assert_eq!(shown(&bytes), Ok(shard.machine.state_hash()));
    assert_eq!(shown(b"something else"), Err(RestoreError::NotASnapshot));
    let mut newer = bytes.clone();
    newer[8] = 200;
    let refusal = shown(&newer).unwrap_err();
    assert_eq!(refusal.to_string(), "snapshot of format version 200, this node reads version 4");
    for cut in 0..bytes.len() {
        assert!(shown(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    assert!(shown(&[&bytes[..], b"x"].concat()).is_err());
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x41;
        if let Ok(machine) = restored(&flipped) {
            machine.state_hash();
            for name in ["s0", "s1", "s2"] {
                machine.query_as_logged(0, &Query::XinfoStream { key: key(name), full: Some(0) });
            }
        }
    }
}

#[test]
fn a_batch_comes_back_as_it_was_and_an_unknown_version_is_named() {
    let commands = vec![
        xadd_trimmed("s", "5-*", "f v", Some(maxlen(3))),
        xreadgroup("g", "c", "s", ">"),
        exec(vec![set("k", "v"), del("k")]),
        Command::Xclaim(Xclaim { delivery_time: ClaimTime::Idle(-3), ..xclaim("s", "g", "c", 1, "1-1") }),
    ];
    let batch = Batch { stamp: Stamp { now_ms: 77 }, commands };
    let bytes = batch.encode();
    assert_eq!(Batch::decode(&bytes), Ok(batch));
    for cut in 0..bytes.len() {
        assert!(Batch::decode(&bytes[..cut]).is_err());
    }
    assert_eq!(Batch::decode(&[&bytes[..], b"x"].concat()), Err(DecodeError::Malformed));
    let newer = [&[9], &bytes[1..]].concat();
    assert_eq!(Batch::decode(&newer), Err(DecodeError::Version(9)));
    assert!(Batch::decode(&newer).unwrap_err().to_string().contains("version 9"));
}

/// The positions of variants and fields are permanent: logs of older nodes hold them.
#[test]
fn the_bytes_of_a_log_entry_do_not_change() {
    let add = Command::Xadd(Xadd {
        key: key("k"),
        no_mkstream: false,
        trim: Some(Trim { to: TrimTo::MaxLen(9), approximate: true, limit: None }),
        id: AddId::Auto,
        fields: words("f v"),
    });
    let batch = Batch { stamp: Stamp { now_ms: 300 }, commands: vec![add, Command::Flush] };
    let expected = [6, 0xac, 2, 2, 0, 1, b'k', 0, 1, 0, 9, 1, 0, 0, 2, 1, b'f', 1, b'v', 18];
    assert_eq!(batch.encode(), expected);
    let touch = Command::TouchConsumer { key: key("k"), group: key("g"), consumer: key("c") };
    let batch = Batch { stamp: Stamp { now_ms: 0 }, commands: vec![touch] };
    assert_eq!(batch.encode(), [6, 0, 1, 19, 1, b'k', 1, b'g', 1, b'c']);
    let once = Idempotent { producer: key("p"), iid: key("i") };
    let add = Command::Xadd(Xadd {
        key: key("k"),
        no_mkstream: true,
        trim: None,
        id: AddId::Once(Box::new(once.clone())),
        fields: vec![],
    });
    let configure = Command::Xcfgset { key: key("k"), duration_s: Some(7), maxsize: None };
    let record = Command::Xidmprecord { key: key("k"), add: once, id: id("1-2") };
    let batch = Batch { stamp: Stamp { now_ms: 0 }, commands: vec![add, configure, record] };
    let expected = [
        &[6, 0, 3, 0, 1, b'k', 1, 0, 3, 1, b'p', 1, b'i', 0][..],
        &[20, 1, b'k', 1, 7, 0],
        &[21, 1, b'k', 1, b'p', 1, b'i', 1, 2],
    ];
    assert_eq!(batch.encode(), expected.concat());
    let trim = Command::Xtrim { key: key("k"), trim: maxlen(9) };
    let limits = ReadLimits { max_count: Some(4), max_size: None };
    let read = xreadgroup_call("g", "c", "k", ">");
    let commands = vec![
        Command::WithRefs { refs: Refs::Acked, command: Box::new(trim) },
        Command::Xdelex { key: key("k"), refs: Refs::Delete, ids: ids("1-2") },
        Command::Xackdel { key: key("k"), group: key("g"), refs: Refs::Keep, ids: words("1") },
        Command::Xnack(Xnack { retry_count: Some(7), ..xnack("k", "g", NackMode::Fatal, "1-2") }),
        Command::XreadgroupWithin { read, claim_min_idle_ms: Some(5), limits },
        Command::ExecWatched { watched: vec![(key("k"), 300)], ops: vec![Op::Command(Command::Flush)] },
        Command::Copy { from: key("a"), to: key("b"), replace: true },
        Command::EditString {
            key: key("k"),
            edit: StringEdit::GetExpire(KeepUntil::Deadline(ExpireWhen::At(1))),
        },
        Command::SetMany { pairs: vec![(key("a"), key("v"))], only_if_absent: false },
        Command::Restore { key: key("k"), value: key("v"), ends: Some(ExpireWhen::At(1)), replace: true },
    ];
    let expected = [
        &[6, 0, 10, 22, 2, 2, 1, b'k', 0, 9, 0, 0][..],
        &[23, 1, b'k', 1, 1, 1, 2],
        &[24, 1, b'k', 1, b'g', 0, 1, 1, b'1'],
        &[25, 1, b'k', 1, b'g', 2, 1, 1, 2, 1, 7, 0],
        &[26, 1, b'g', 1, b'c', 0, 0, 1, 1, b'k', 0, 0, 1, 5, 1, 4, 0],
        &[27, 1, 1, b'k', 0xac, 2, 1, 0, 18],
        &[28, 1, b'a', 1, b'b', 1],
        &[29, 1, b'k', 4, 1, 1, 2],
        &[30, 1, 1, b'a', 1, b'v', 0],
        &[31, 1, b'k', 1, b'v', 1, 1, 2, 1],
    ];
    assert_eq!(Batch { stamp: Stamp { now_ms: 0 }, commands }.encode(), expected.concat());
}

#[test]
fn commands_name_their_keys() {
    let names = |command: &Command| {
        command.keys().map(|k| String::from_utf8_lossy(k).into_owned()).collect::<Vec<_>>()
    };
    let rename = Command::Rename { from: key("a"), to: key("b"), only_if_absent: false };
    let read = Query::Xread { keys: vec![(key("e"), ReadId::Last), (key("f"), ReadId::Last)], count: None };
    let unit =
        Command::Exec(vec![Op::Command(rename), Op::Query(read), Op::Answer(ReadyAnswer::Simple(key("x")))]);
    assert_eq!(names(&unit), ["a", "b", "e", "f"]);
    assert!(names(&Command::Flush).is_empty());
    assert_eq!(names(&Command::Del { keys: words("x y x") }), ["x", "y", "x"]);
}
