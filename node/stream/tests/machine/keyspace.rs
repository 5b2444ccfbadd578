//! Keys of any type, expiry, ownership, transactions and what they wake.

use crate::support::*;
use weir_stream::*;

#[test]
fn a_due_key_is_deleted_by_the_log_and_never_hidden_by_a_clock() {
    let mut shard = Shard::new();
    shard.run(xadd("s", "1-1", "f v"));
    assert_eq!(shard.run(pexpire("s", 80)), "1");
    assert_eq!(shard.machine.next_due_ms(), Some(1_000_080));
    shard.wait_ms(79);
    assert_eq!(shard.ask(xlen("s")), "1");
    assert_eq!(shard.ask(Query::Ttl { key: key("s"), seconds: false, absolute: false }), "1");
    assert!(shard.machine.due_keys(shard.now_ms, 10).is_empty());
    shard.wait_ms(1);
    assert_eq!(shard.ask(xlen("s")), "due: [b\"s\"]");
    assert_eq!(show(&shard.machine.query_as_logged(shard.now_ms, &xlen("s"))), "1");
    assert_eq!(shard.machine.group_ready(shard.now_ms, &key("s"), b"g", None), GroupReady::Nothing);
    let due = shard.machine.due_keys(shard.now_ms, 10);
    assert_eq!(due, [key("s")]);
    shard.run(Command::ExpireDue { keys: due });
    assert_eq!(shard.woken(), ["s"]);
    assert_eq!(shard.ask(xlen("s")), "0");
    assert_eq!(shard.machine.next_due_ms(), None);
    // What is not due at the stamp stays, whoever proposed it.
    shard.run(xadd("s", "1-1", "f v"));
    shard.run(Command::ExpireDue { keys: vec![key("s")] });
    assert_eq!(shard.ask(xlen("s")), "1");
}

#[test]
fn a_command_meets_no_key_that_is_due_at_its_stamp() {
    let mut shard = Shard::new();
    shard.run(xadd("s", "9-1", "f v"));
    shard.run(pexpire("s", 50));
    shard.wait_ms(50);
    assert_eq!(shard.run(xadd("s", "1-1", "f w")), "1-1");
    assert_eq!(shard.ask(whole("s")), "1-1 f w");
    assert_eq!(shard.ask(Query::Ttl { key: key("s"), seconds: true, absolute: false }), "-1");
    // Replicated time does not run back, so the key is not due again later or not due after all.
    shard.run(pexpire("s", 50));
    shard.now_ms = 0;
    assert_eq!(shard.ask(Query::Ttl { key: key("s"), seconds: false, absolute: false }), "50");
}

#[test]
fn expire_conditions_and_deadlines_follow_redis() {
    let mut shard = Shard::new();
    let expire = |when, condition| Command::Expire { key: key("k"), when, condition };
    assert_eq!(shard.run(pexpire("k", 10)), "0");
    shard.run(set("k", "v"));
    use ExpireCondition::*;
    let steps =
        [(100, IfSome, "0"), (100, IfNone, "1"), (100, IfNone, "0"), (50, IfLater, "0"), (200, IfLater, "1")];
    for (ms, condition, reply) in steps {
        assert_eq!(shard.run(expire(ExpireWhen::In(ms), condition)), reply);
    }
    assert_eq!(shard.run(expire(ExpireWhen::At(1_000_300), IfSooner)), "0");
    assert_eq!(shard.run(expire(ExpireWhen::At(1_000_020), IfSooner)), "1");
    assert_eq!(shard.ask(Query::Ttl { key: key("k"), seconds: false, absolute: true }), "1000020");
    assert_eq!(shard.run(Command::Persist { key: key("k") }), "1");
    assert_eq!(shard.run(Command::Persist { key: key("k") }), "0");
    let refusal = "!ERR invalid expire time in 'pexpire' command";
    assert_eq!(shard.run(expire(ExpireWhen::In(i64::MAX), Always)), refusal);
    assert_eq!(shard.run(expire(ExpireWhen::In(i64::MIN), Always)), "1");
    assert_eq!(shard.ask(Query::Exists { keys: vec![key("k")] }), "0");
}

#[test]
fn set_replaces_any_type_and_answers_the_old_string_when_asked() {
    let mut shard = Shard::new();
    let call = |value: &str| Set {
        key: key("k"),
        value: key(value),
        expire: None,
        keep_ttl: false,
        condition: SetCondition::Always,
        get: true,
    };
    assert_eq!(shard.run(Command::Set(call("1"))), "nil");
    assert_eq!(shard.run(Command::Set(Set { condition: SetCondition::IfAbsent, ..call("2") })), "1");
    assert_eq!(shard.run(Command::Set(Set { expire: Some(ExpireWhen::In(500)), ..call("3") })), "1");
    assert_eq!(shard.run(Command::Set(Set { keep_ttl: true, get: false, ..call("4") })), "OK");
    assert_eq!(shard.ask(Query::Ttl { key: key("k"), seconds: false, absolute: false }), "500");
    assert_eq!(shard.ask(Query::Get { key: key("k") }), "4");
    shard.run(del("k"));
    let only_present = Set { condition: SetCondition::IfPresent, get: false, ..call("5") };
    assert_eq!(shard.run(Command::Set(only_present)), "nil");
    shard.run(xadd("k", "1-1", "f v"));
    assert!(shard.run(Command::Set(call("6"))).starts_with("!WRONGTYPE"));
    assert_eq!(shard.run(set("k", "7")), "OK");
    assert_eq!(shard.woken(), ["k"]);
    assert!(shard.run(xadd("k", "1-1", "f v")).starts_with("!WRONGTYPE"));
}

#[test]
fn a_renamed_stream_keeps_groups_and_deadline_and_both_names_wake() {
    let mut shard = Shard::new();
    let rename = |from: &str, to: &str, only_if_absent| Command::Rename {
        from: key(from),
        to: key(to),
        only_if_absent,
    };
    assert_eq!(shard.run(rename("a", "b", false)), "!ERR no such key");
    shard.run(xadd("a", "1-1", "f v"));
    shard.run(xgroup_create("a", "g", "0"));
    shard.run(pexpire("a", 300));
    shard.run(set("b", "v"));
    assert_eq!(shard.run(rename("a", "b", true)), "0");
    assert_eq!(shard.run(rename("a", "b", false)), "OK");
    assert_eq!(shard.woken(), ["a", "b"]);
    assert_eq!(shard.run(xreadgroup("g", "c", "b", ">")), "b: 1-1 f v");
    assert_eq!(shard.ask(Query::Ttl { key: key("b"), seconds: false, absolute: false }), "300");
    assert_eq!(shard.run(rename("b", "b", false)), "OK");
    assert_eq!(shard.machine.due_keys(u64::MAX, 9), [key("b")]);
    assert_eq!(shard.machine.stats().keys, 1);
}

#[test]
fn a_transaction_is_one_unit_that_wakes_once_and_only_for_what_it_leaves() {
    let mut shard = Shard::new();
    let unit = exec(vec![xadd("s", "1-1", "f a"), xadd("s", "0-0", "f v"), xadd("s", "1-2", "f b")]);
    let reply = shard.run(unit);
    assert_eq!(reply, "[1-1 !ERR The ID specified in XADD must be greater than 0-0 1-2]");
    assert_eq!(shard.woken(), ["s"]);
    assert_eq!(shard.run(exec(vec![xadd("s", "2-1", "f v"), xdel("s", "2-1")])), "[2-1 1]");
    assert!(shard.woken().is_empty());
    let seen = Command::Exec(vec![
        Op::Command(xadd("s", "3-1", "f v")),
        Op::Query(xlen("s")),
        Op::Answer(ReadyAnswer::Simple(key("PONG"))),
        Op::Command(exec(vec![])),
    ]);
    assert_eq!(shard.run(seen), "[3-1 3 PONG !ERR MULTI calls can not be nested]");
}

#[test]
fn a_group_destroyed_and_made_again_in_one_unit_goes_unnoticed() {
    let mut shard = Shard::new();
    shard.run(xgroup_create("s", "g", "$"));
    let ready = |shard: &Shard| shard.machine.group_ready(shard.now_ms, &key("s"), b"g", None);
    shard.run(exec(vec![xgroup("s", "g", GroupChange::Destroy), xgroup_create("s", "g", "$")]));
    assert_eq!(shard.woken(), ["s"]);
    assert_eq!(ready(&shard), GroupReady::Nothing);
    shard.run(xadd("s", "1-1", "f v"));
    shard.run(xadd("s", "1-2", "f v"));
    assert_eq!(ready(&shard), GroupReady::Entries(2));
    shard.run(xgroup("s", "g", GroupChange::Destroy));
    let GroupReady::Gone(reply) = ready(&shard) else { panic!("the group is gone") };
    assert_eq!(
        show(&reply),
        "!NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option"
    );
    shard.run(exec(vec![del("s"), set("s", "v")]));
    let GroupReady::Gone(reply) = ready(&shard) else { panic!("the type changed") };
    assert!(show(&reply).starts_with("!WRONGTYPE"));
}

#[test]
fn a_slot_that_is_not_owned_refuses_the_whole_unit() {
    let mut shard = Shard::new();
    shard.run(xadd("s", "1-1", "f v"));
    let slot = key_slot(b"s");
    let rest = vec![
        SlotRange { first: Slot(slot.0 + 1), last: Slot(SLOT_COUNT - 1) },
        SlotRange { first: Slot(0), last: Slot(slot.0 - 1) },
    ];
    shard.run(Command::SetOwnedSlots { ranges: rest });
    assert!(matches!(shard.effects[..], [Effect::SlotMoved(moved)] if moved == slot));
    assert!(!shard.machine.owns(slot));
    assert_eq!(shard.machine.owned_ranges().len(), 2);
    let moved = Reply::Error(Refusal::NotOwned(slot));
    let unit = exec(vec![set("other", "v"), xadd("s", "2-1", "f v")]);
    let outcome = shard.machine.apply(Stamp { now_ms: 0 }, &unit, true);
    assert_eq!(outcome.reply, moved);
    assert_eq!(shard.machine.query(0, &xlen("s")), Answer::Reply(moved.clone()));
    assert_eq!(shard.machine.group_ready(0, &key("s"), b"g", None), GroupReady::Gone(moved));
    assert_eq!(shard.ask(Query::Get { key: key("other") }), "nil");
}

#[test]
fn slots_can_be_counted_and_listed() {
    let mut shard = Shard::new();
    for name in ["{a}1", "{a}2", "{a}3", "b"] {
        shard.run(set(name, "v"));
    }
    let slot = key_slot(b"{a}");
    assert_eq!(shard.ask(Query::CountKeysInSlot { slot }), "3");
    assert_eq!(shard.ask(Query::GetKeysInSlot { slot, count: 2 }), "[{a}1 {a}2]");
    assert_eq!(shard.ask(Query::KeyCount), "4");
    assert_eq!(shard.machine.keys_from(slot, Some(b"{a}2"), 1), [(key("{a}3"), "string")]);
    assert_eq!(shard.machine.keys_from(Slot(0), None, 10).len(), 4);
    let keys = vec![key("b"), key("none"), key("b")];
    assert_eq!(shard.ask(Query::Exists { keys }), "2");
}

#[test]
fn a_flush_leaves_an_empty_shard_that_still_owns_its_slots() {
    let mut shard = Shard::new();
    for at in 0..50 {
        shard.run(xadd(&format!("s{at}"), "1-1", "f v"));
        shard.run(pexpire(&format!("s{at}"), 1000));
    }
    shard.run(Command::Flush);
    let [Effect::WakeAll, Effect::Garbage(garbage)] = &mut shard.effects[..] else { panic!("two effects") };
    let mut slices = 1;
    while garbage.drop_slice(10) {
        slices += 1;
    }
    assert!(slices > 5);
    assert_eq!(shard.machine.stats(), Stats::default());
    assert_eq!(shard.machine.next_due_ms(), None);
    assert_eq!(shard.run(xadd("s1", "1-1", "f v")), "1-1");
}

#[test]
fn a_large_value_leaves_as_garbage_and_a_small_one_at_once() {
    let mut shard = Shard::new();
    shard.run(xgroup_create("s", "g", "0"));
    for at in 1..=10_000 {
        shard.run(xadd("s", &format!("{at}-1"), "field a-value-of-some-forty-bytes-to-fill-the-blocks"));
    }
    shard.run(xreadgroup("g", "c", "s", ">"));
    let view = shard.machine.clone();
    shard.run(xtrim("s", maxlen(10)));
    assert!(shard.effects.iter().any(|effect| matches!(effect, Effect::Garbage(_))));
    shard.run(xgroup("s", "g", GroupChange::Destroy));
    assert!(shard.effects.iter().any(|effect| matches!(effect, Effect::Garbage(_))));
    shard.run(del("s"));
    assert!(matches!(shard.effects[..], [Effect::Wake(_)]));
    assert_eq!(show(&view.query_as_logged(0, &xlen("s"))), "10000");
}

#[test]
fn stream_statistics_page_through_the_streams() {
    let mut shard = Shard::new();
    shard.run(xadd("s", "1-1", "f v"));
    shard.run(xgroup_create("s", "g", "0"));
    shard.run(xreadgroup("g", "c", "s", ">"));
    shard.run(xadd("t", "1-1", "f v"));
    shard.run(set("u", "v"));
    let first = shard.machine.stream_stats(None, 1);
    let second = shard.machine.stream_stats(Some(&first[0].0), 10);
    assert_eq!((first.len(), second.len()), (1, 1));
    let of_s = first.iter().chain(&second).find(|(name, _)| *name == key("s")).unwrap();
    assert_eq!((of_s.1.length, of_s.1.pending), (1, 1));
    assert_eq!(of_s.1.groups[0].oldest_delivery_ms, Some(1_000_000));
    let stats = shard.machine.stats();
    assert_eq!((stats.keys, stats.streams, stats.entries, stats.pending), (3, 2, 2, 1));
}
