//! CLAIM of XREADGROUP, XNACK, and the bounds of reads.

use crate::support::*;
use weir_stream::*;

/// Entries 1-1 .. `n`-1, all pending with `a`, one millisecond apart.
fn pending(n: u64) -> Shard {
    let mut shard = Shard::new();
    shard.run(xgroup_create("s", "g", "0"));
    for at in 1..=n {
        shard.run(xadd("s", &format!("{at}-1"), "f v"));
        shard.run(xreadgroup("g", "a", "s", ">"));
        shard.wait_ms(1);
    }
    shard
}

#[test]
fn a_claiming_read_takes_the_longest_idle_first_then_new_ones() {
    let mut shard = pending(3);
    shard.run(xadd("s", "4-1", "f v"));
    shard.run(Command::Xclaim(Xclaim {
        delivery_time: ClaimTime::Idle(500),
        justid: true,
        ..xclaim("s", "g", "a", 0, "2-1")
    }));
    assert_eq!(shard.run(xreadgroup_claim("g", "b", "s", 501)), "s: 4-1 f v idle 0 after 0");
    assert_eq!(
        shard.run(xreadgroup_claim("g", "b", "s", 2)),
        "s: 2-1 f v idle 500 after 1, 1-1 f v idle 3 after 1"
    );
    assert_eq!(shard.ask(xpending("s", "g")), "[4 1-1 4-1 [[a 1] [b 3]]]");
    assert_eq!(shard.run(xreadgroup_claim("g", "b", "s", 2)), "nil-array");
}

#[test]
fn what_was_given_back_comes_first_in_the_order_of_release_whatever_its_age() {
    let mut shard = pending(4);
    assert_eq!(shard.run(Command::Xnack(xnack("s", "g", NackMode::Fail, "3-1 9-9"))), "1");
    assert_eq!(shard.woken(), ["s"]);
    assert_eq!(shard.run(Command::Xnack(xnack("s", "g", NackMode::Silent, "2-1"))), "1");
    assert_eq!(shard.run(Command::Xnack(xnack("s", "g", NackMode::Fail, "8-1"))), "0");
    assert!(shard.woken().is_empty());
    assert_eq!(shard.ask(pending_rows("s", "g")), "[[1-1 a 4 1] [2-1  -1 0] [3-1  -1 1] [4-1 a 1 1]]");
    // Deleting a consumer leaves them.
    assert_eq!(shard.run(xgroup("s", "g", GroupChange::DelConsumer { consumer: key("a") })), "2");
    let read = xreadgroup_claim("g", "b", "s", u64::MAX);
    let ever = shard.now_ms;
    let shown = format!("s: 3-1 f v idle {ever} after 1, 2-1 f v idle {ever} after 0");
    assert_eq!(shard.run(read), shown, "since the beginning of time, as in Redis");
    assert_eq!(shard.ask(pending_rows("s", "g")), "[[2-1 b 0 1] [3-1 b 0 2]]");
}

#[test]
fn a_reader_that_claims_is_told_when_to_look_again() {
    let mut shard = pending(2);
    let due = |shard: &Shard, age| shard.machine.claim_due_ms(&key("s"), b"g", age);
    let ready = |shard: &Shard, age| shard.machine.group_ready(shard.now_ms, &key("s"), b"g", age);
    assert_eq!(due(&shard, 300), Some(1_000_300));
    assert_eq!(ready(&shard, Some(300)), GroupReady::Nothing);
    shard.wait_ms(298);
    assert_eq!(ready(&shard, Some(300)), GroupReady::Entries(1));
    assert_eq!(ready(&shard, None), GroupReady::Nothing);
    // An entry that is gone is nothing to wait for.
    shard.run(xdel("s", "1-1"));
    assert_eq!(due(&shard, 300), Some(1_000_301));
    shard.run(Command::Xnack(xnack("s", "g", NackMode::Fail, "2-1")));
    assert_eq!(due(&shard, 300), Some(0));
    assert_eq!(ready(&shard, Some(u64::MAX)), GroupReady::Entries(1));
    shard.run(xack("s", "g", "2-1"));
    assert_eq!(due(&shard, 300), None);
}

#[test]
fn many_vanished_entries_do_not_make_a_claim_long() {
    let mut shard = pending(1);
    for at in 2..10_000 {
        shard.run(xadd("s", &format!("{at}-1"), "f v"));
    }
    shard.run(xreadgroup("g", "a", "s", ">"));
    shard.run(xtrim("s", maxlen(1)));
    shard.run(xadd("s", "10001-1", "f v"));
    shard.wait_ms(50);
    // It gives up on the old ones, and still delivers what is new.
    assert_eq!(shard.run(xreadgroup_claim("g", "b", "s", 10)), "s: 10001-1 f v idle 0 after 0");
    // XAUTOCLAIM drops them; then the old one that is left can be claimed.
    assert!(shard.run(xautoclaim("s", "g", "b", 10, "0", 9_000)).starts_with("[9001-1 []"));
    assert_eq!(shard.run(xreadgroup_claim("g", "b", "s", 10)), "s: 9999-1 f v idle 50 after 1");
}

#[test]
fn a_read_keeps_to_its_budget_over_all_its_streams() {
    let mut shard = Shard::new();
    for stream in ["s", "{s}2"] {
        shard.run(xgroup_create(stream, "g", "0"));
        for at in 1..=3 {
            shard.run(xadd(stream, &format!("{at}-1"), &format!("f {}", "v".repeat(100))));
        }
    }
    fn keys<Id: Copy>(from: Id) -> Vec<(Key, Id)> {
        vec![(key("s"), from), (key("{s}2"), from)]
    }
    let read = |max_count, max_size| {
        let limits = ReadLimits { max_count, max_size };
        Query::XreadWithin { keys: keys(ReadId::After(EntryId::MIN)), count: None, limits }
    };
    let entries = |shard: &Shard, query| shard.ask(query).matches("-1 f").count();
    assert_eq!(entries(&shard, read(Some(4), None)), 4);
    assert_eq!(entries(&shard, read(Some(3), None)), 3);
    assert_eq!(entries(&shard, read(None, Some(1))), 1);
    assert_eq!(entries(&shard, read(None, Some(300))), 3);
    assert_eq!(entries(&shard, read(None, Some(1_000_000))), 6);
    let mut deliver = |max_count, max_size| {
        let limits = ReadLimits { max_count, max_size };
        let read = Xreadgroup { keys: keys(GroupReadId::New), ..xreadgroup_call("g", "c", "s", ">") };
        let reply = shard.run(Command::XreadgroupWithin { read, claim_min_idle_ms: None, limits });
        (reply.matches("-1 f").count(), shard.ask(xpending("{s}2", "g")).starts_with("[0 "))
    };
    // What was not answered is not pending, and its stream was not looked at.
    assert_eq!(deliver(Some(2), None), (2, true));
    assert_eq!(deliver(None, Some(1)), (1, true));
    assert_eq!(deliver(None, Some(150)), (2, false));
}
