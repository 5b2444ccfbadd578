//! XGROUP, XREADGROUP, XACK, XCLAIM, XAUTOCLAIM, XPENDING, XINFO GROUPS and CONSUMERS.

use crate::support::*;
use weir_stream::*;

/// Entries 1-1 .. n-1 and a group g that starts before them.
fn shard_with(entries: u64) -> Shard {
    let mut shard = Shard::new();
    for at in 1..=entries {
        shard.run(xadd("s", &format!("{at}-1"), "f v"));
    }
    shard.run(xgroup_create("s", "g", "0"));
    shard
}

#[test]
fn an_entry_goes_to_one_consumer_and_an_acknowledged_one_leaves_the_pending_list() {
    let mut shard = shard_with(3);
    let two = Xreadgroup { count: Some(2), ..xreadgroup_call("g", "a", "s", ">") };
    assert_eq!(shard.run(Command::Xreadgroup(two)), "s: 1-1 f v, 2-1 f v");
    assert_eq!(shard.run(xreadgroup("g", "b", "s", ">")), "s: 3-1 f v");
    assert_eq!(shard.run(xreadgroup("g", "b", "s", ">")), "nil-array");
    assert_eq!(shard.ask(xpending("s", "g")), "[3 1-1 3-1 [[a 2] [b 1]]]");
    assert_eq!(shard.run(xack("s", "g", "1-1 1-1 9-9")), "1");
    assert_eq!(shard.run(xreadgroup("g", "a", "s", "0")), "s: 2-1 f v");
    assert_eq!(shard.run(xack("s", "g", "2-1 3-1")), "2");
    assert_eq!(shard.ask(xpending("s", "g")), "[0 nil nil nil-array]");
    assert_eq!(shard.run(xreadgroup("g", "a", "s", "0")), "s: ");
}

#[test]
fn acknowledging_without_key_or_group_looks_at_no_id_and_with_them_at_all_first() {
    let mut shard = shard_with(1);
    shard.run(xreadgroup("g", "a", "s", ">"));
    assert_eq!(shard.run(xack("none", "g", "bad")), "0");
    assert_eq!(shard.run(xack("s", "none", "bad")), "0");
    assert!(shard.run(xack("s", "g", "1-1 bad")).starts_with("!ERR Invalid stream ID"));
    assert_eq!(shard.machine.stats().pending, 1);
}

#[test]
fn history_counts_as_a_delivery_of_what_is_still_there() {
    let mut shard = shard_with(2);
    shard.run(xreadgroup("g", "a", "s", ">"));
    shard.run(xdel("s", "2-1"));
    shard.wait_ms(500);
    assert_eq!(shard.run(xreadgroup("g", "a", "s", "0")), "s: 1-1 f v, 2-1 gone");
    assert_eq!(shard.ask(pending_rows("s", "g")), "[[1-1 a 0 2] [2-1 a 500 1]]");
}

#[test]
fn nothing_is_delivered_unless_every_key_has_the_group() {
    let mut shard = shard_with(1);
    shard.run(xadd("t", "1-1", "f v"));
    let mut read = xreadgroup_call("g", "a", "s", ">");
    read.keys.push((key("t"), GroupReadId::New));
    let refusal = "!NOGROUP No such key 't' or consumer group 'g' in XREADGROUP with GROUP option";
    assert_eq!(shard.run(Command::Xreadgroup(read.clone())), refusal);
    shard.run(set("t", "v"));
    assert!(shard.run(Command::Xreadgroup(read)).starts_with("!WRONGTYPE"));
    assert_eq!(shard.machine.stats().pending, 0);
    assert_eq!(shard.machine.stats().consumers, 0);
}

#[test]
fn after_a_rewind_entries_move_to_the_new_reader_and_count_from_one() {
    let mut shard = shard_with(2);
    shard.run(xreadgroup("g", "a", "s", ">"));
    shard.run(xreadgroup("g", "a", "s", "0"));
    let rewind = GroupChange::SetId { at: GroupStart::Id(EntryId::MIN), entries_read: None };
    shard.run(xgroup("s", "g", rewind));
    assert_eq!(shard.run(xreadgroup("g", "b", "s", ">")), "s: 1-1 f v, 2-1 f v");
    assert_eq!(shard.ask(pending_rows("s", "g")), "[[1-1 b 0 1] [2-1 b 0 1]]");
    assert_eq!(shard.ask(xpending("s", "g")), "[2 1-1 2-1 [[b 2]]]");
}

#[test]
fn noack_moves_the_cursor_and_leaves_nothing_pending() {
    let mut shard = shard_with(2);
    let read = Xreadgroup { noack: true, ..xreadgroup_call("g", "a", "s", ">") };
    assert_eq!(shard.run(Command::Xreadgroup(read)), "s: 1-1 f v, 2-1 f v");
    assert_eq!(
        shard.ask(xinfo_groups("s")),
        "[{name=g consumers=1 pending=0 last-delivered-id=2-1 entries-read=2 lag=0}]"
    );
}

#[test]
fn a_claim_respects_idle_time_counts_deliveries_and_drops_what_left_the_stream() {
    let mut shard = shard_with(3);
    shard.run(xreadgroup("g", "a", "s", ">"));
    shard.wait_ms(100);
    shard.run(xdel("s", "2-1"));
    assert_eq!(shard.run(Command::Xclaim(xclaim("s", "g", "b", 101, "1-1 2-1"))), "");
    assert_eq!(shard.ask(xpending("s", "g")), "[2 1-1 3-1 [[a 2]]]");
    assert_eq!(shard.run(Command::Xclaim(xclaim("s", "g", "b", 100, "3-1 1-1"))), "3-1 f v, 1-1 f v");
    assert_eq!(shard.ask(pending_rows("s", "g")), "[[1-1 b 0 2] [3-1 b 0 2]]");
    let special = Xclaim {
        justid: true,
        retry_count: Some(9),
        delivery_time: ClaimTime::Idle(70),
        last_id: Some(id("2-0")),
        ..xclaim("s", "g", "a", 0, "1-1 8-8")
    };
    assert_eq!(shard.run(Command::Xclaim(special)), "[1-1]");
    assert_eq!(shard.ask(pending_rows("s", "g")), "[[1-1 a 70 9] [3-1 b 0 2]]");
    let future = Xclaim { delivery_time: ClaimTime::At(i64::MAX), ..xclaim("s", "g", "a", 0, "1-1") };
    shard.run(Command::Xclaim(future));
    assert_eq!(shard.ask(pending_rows_of("s", "g", Some("a"), 0)), "[[1-1 a 0 10]]");
}

#[test]
fn force_makes_a_row_for_an_entry_that_exists_but_does_not_move_the_cursor() {
    let mut shard = shard_with(1);
    let force = Xclaim { force: true, ..xclaim("s", "g", "b", 1000, "1-1 5-5") };
    assert_eq!(shard.run(Command::Xclaim(force)), "1-1 f v");
    assert_eq!(shard.ask(pending_rows("s", "g")), "[[1-1 b 0 2]]");
    assert_eq!(shard.run(xreadgroup("g", "c", "s", ">")), "s: 1-1 f v");
    assert_eq!(shard.ask(pending_rows("s", "g")), "[[1-1 c 0 1]]");
}

#[test]
fn autoclaim_looks_at_ten_times_count_and_answers_where_to_go_on() {
    let mut shard = shard_with(25);
    shard.run(xreadgroup("g", "a", "s", ">"));
    let old = Xclaim { delivery_time: ClaimTime::Idle(90_000), ..xclaim("s", "g", "a", 0, "22-1") };
    shard.run(Command::Xclaim(Xclaim { justid: true, ..old }));
    assert_eq!(shard.run(xautoclaim("s", "g", "b", 60_000, "0", 1)), "[11-1 [] []]");
    assert_eq!(shard.run(xautoclaim("s", "g", "b", 60_000, "11-1", 1)), "[21-1 [] []]");
    assert_eq!(shard.run(xautoclaim("s", "g", "b", 60_000, "21-1", 1)), "[23-1 [22-1] []]");
    assert_eq!(shard.run(xautoclaim("s", "g", "b", 60_000, "23-1", 1)), "[0-0 [] []]");
    shard.run(xdel("s", "1-1 3-1"));
    assert_eq!(shard.run(xautoclaim("s", "g", "b", 0, "0", 4)), "[5-1 [2-1 4-1] [1-1 3-1]]");
    assert_eq!(shard.machine.stats().pending, 23);
}

#[test]
fn a_deleted_consumer_takes_its_pending_entries_along() {
    let mut shard = shard_with(3);
    let two = Xreadgroup { count: Some(2), ..xreadgroup_call("g", "a", "s", ">") };
    shard.run(Command::Xreadgroup(two));
    shard.run(xreadgroup("g", "b", "s", ">"));
    let delete = |name: &str| xgroup("s", "g", GroupChange::DelConsumer { consumer: key(name) });
    assert_eq!(shard.run(delete("a")), "2");
    assert_eq!(shard.run(delete("a")), "0");
    assert_eq!(shard.ask(xpending("s", "g")), "[1 3-1 3-1 [[b 1]]]");
}

#[test]
fn group_refusals_name_what_is_missing() {
    let mut shard = Shard::new();
    let destroy = |stream: &str| xgroup(stream, "g", GroupChange::Destroy);
    assert!(shard.run(destroy("none")).starts_with("!ERR The XGROUP subcommand requires the key to exist."));
    shard.run(xadd("s", "1-1", "f v"));
    assert_eq!(shard.run(destroy("s")), "0");
    let set_id = GroupChange::SetId { at: GroupStart::Last, entries_read: None };
    assert_eq!(shard.run(xgroup("s", "g", set_id)), "!NOGROUP No such consumer group 'g' for key name 's'");
    assert_eq!(
        shard.run(Command::Xclaim(xclaim("s", "g\r\n", "c", 0, "1-1"))),
        "!NOGROUP No such key 's' or consumer group 'g  '"
    );
    assert_eq!(shard.run(xgroup_create("s", "g", "$")), "OK");
    assert_eq!(shard.run(xgroup_create("s", "g", "$")), "!BUSYGROUP Consumer Group name already exists");
}

#[test]
fn lag_is_told_exactly_or_not_at_all() {
    let lag = |shard: &Shard| {
        let shown = shard.ask(xinfo_groups("s"));
        shown[shown.find("entries-read").unwrap()..].trim_end_matches("}]").to_string()
    };
    let read_one =
        || Command::Xreadgroup(Xreadgroup { count: Some(1), ..xreadgroup_call("g", "c", "s", ">") });
    let mut shard = shard_with(5);
    assert_eq!(lag(&shard), "entries-read=nil lag=5");
    shard.run(read_one());
    assert_eq!(lag(&shard), "entries-read=1 lag=4");
    // A tombstone ahead: unknown until the group has read to the end.
    shard.run(xdel("s", "3-1"));
    assert_eq!(lag(&shard), "entries-read=1 lag=nil");
    shard.run(read_one());
    assert_eq!(lag(&shard), "entries-read=nil lag=nil");
    shard.run(read_one());
    shard.run(read_one());
    assert_eq!(lag(&shard), "entries-read=5 lag=0");
    // A tombstone behind does not matter.
    shard.run(xadd("s", "6-1", "f v"));
    assert_eq!(lag(&shard), "entries-read=5 lag=1");
    // Trimmed past the cursor: what is left is what is ahead.
    shard.run(xadd("s", "7-1", "f v"));
    shard.run(xtrim("s", maxlen(1)));
    assert_eq!(lag(&shard), "entries-read=5 lag=1");
    shard.run(read_one());
    assert_eq!(lag(&shard), "entries-read=7 lag=0");
    let arbitrary = GroupChange::SetId { at: GroupStart::Id(id("6-5")), entries_read: Some(99) };
    shard.run(xgroup("s", "g", arbitrary));
    assert_eq!(lag(&shard), "entries-read=7 lag=1");
}

#[test]
fn idle_restarts_with_every_attempt_and_inactive_only_with_a_delivery() {
    let mut shard = shard_with(1);
    let consumers = |shard: &Shard| shard.ask(Query::XinfoConsumers { key: key("s"), group: key("g") });
    shard.run(xgroup("s", "g", GroupChange::CreateConsumer { consumer: key("c") }));
    shard.wait_ms(10);
    assert_eq!(consumers(&shard), "[{name=c pending=0 idle=10 inactive=-1}]");
    shard.run(xreadgroup("g", "c", "s", ">"));
    shard.wait_ms(10);
    shard.run(xreadgroup("g", "c", "s", ">"));
    shard.run(xreadgroup("g", "c", "s", "0"));
    shard.wait_ms(5);
    shard.run(xack("s", "g", "1-1"));
    assert_eq!(consumers(&shard), "[{name=c pending=0 idle=5 inactive=15}]");
    // A reader that goes on waiting is seen; one that was woken for nothing is not.
    let woken = Xreadgroup { woken: true, ..xreadgroup_call("g", "c", "s", ">") };
    assert_eq!(shard.run(Command::Xreadgroup(woken)), "nil-array");
    assert_eq!(consumers(&shard), "[{name=c pending=0 idle=5 inactive=15}]");
    let touch = Command::TouchConsumer { key: key("s"), group: key("g"), consumer: key("c") };
    assert_eq!(shard.run(touch), "nothing");
    assert_eq!(consumers(&shard), "[{name=c pending=0 idle=0 inactive=15}]");
}

#[test]
fn pending_entries_can_be_asked_for_by_age_and_owner() {
    let mut shard = shard_with(2);
    let one =
        |who: &str| Command::Xreadgroup(Xreadgroup { count: Some(1), ..xreadgroup_call("g", who, "s", ">") });
    shard.run(one("a"));
    shard.wait_ms(100);
    shard.run(one("b"));
    assert_eq!(shard.ask(pending_rows_of("s", "g", None, 50)), "[[1-1 a 100 1]]");
    assert_eq!(shard.ask(pending_rows_of("s", "g", Some("b"), 0)), "[[2-1 b 0 1]]");
    assert_eq!(shard.ask(pending_rows_of("s", "g", Some("nobody"), 0)), "[]");
    assert_eq!(shard.ask(pending_rows_of("s", "g", None, u64::MAX)), "[]");
}
