//! KEEPREF, DELREF and ACKED.

use crate::support::*;
use weir_stream::*;

/// Entries 1-1 .. 6-1; `g` has four of them pending, `h` two.
fn held() -> Shard {
    let mut shard = Shard::new();
    for at in 1..=6 {
        shard.run(xadd("s", &format!("{at}-1"), "f v"));
    }
    for (group, count) in [("g", 4), ("h", 2)] {
        shard.run(xgroup_create("s", group, "0"));
        let read = Xreadgroup { count: Some(count), ..xreadgroup_call(group, "c", "s", ">") };
        shard.run(Command::Xreadgroup(read));
    }
    shard
}

fn trim(refs: Refs, trim: Trim) -> Command {
    Command::WithRefs { refs, command: Box::new(xtrim("s", trim)) }
}

fn xdelex(refs: Refs, deleted: &str) -> Command {
    Command::Xdelex { key: key("s"), refs, ids: ids(deleted) }
}

fn xackdel(group: &str, refs: Refs, acked: &str) -> Command {
    Command::Xackdel { key: key("s"), group: key(group), refs, ids: words(acked) }
}

#[test]
fn a_trim_of_acked_entries_leaves_what_groups_hold_and_says_how_many_went() {
    let mut shard = held();
    assert_eq!(shard.run(trim(Refs::Acked, maxlen(0))), "0");
    shard.run(xack("s", "g", "1-1 2-1 3-1"));
    shard.run(xack("s", "h", "2-1"));
    // 1-1 is pending in h, 3-1 not yet reached by it.
    assert_eq!(shard.run(trim(Refs::Acked, minid("5"))), "1");
    assert_eq!(shard.ask(whole("s")), "1-1 f v, 3-1 f v, 4-1 f v, 5-1 f v, 6-1 f v");
    shard.run(xgroup("s", "h", GroupChange::Destroy));
    assert_eq!(shard.run(trim(Refs::Acked, maxlen(4))), "1");
    assert_eq!(shard.run(trim(Refs::Acked, maxlen(0))), "1");
    assert_eq!(shard.ask(whole("s")), "4-1 f v, 5-1 f v, 6-1 f v");
    // A trim leaves no tombstone behind.
    assert!(shard.ask(Query::XinfoStream { key: key("s"), full: None }).contains("max-deleted-entry-id=0-0"));
    shard.run(xgroup("s", "g", GroupChange::Destroy));
    assert_eq!(shard.run(trim(Refs::Acked, maxlen(1))), "2");
}

#[test]
fn an_approximate_trim_of_acked_entries_looks_at_whole_blocks_and_at_its_limit() {
    let mut shard = Shard::new();
    shard.run(Command::Configure(Settings { stream_node_max_entries: 10, stream_node_max_bytes: 0 }));
    for at in 1..=95 {
        shard.run(xadd("s", &format!("{at}-1"), "f v"));
    }
    shard.run(xgroup_create("s", "g", "0"));
    shard.run(xreadgroup("g", "c", "s", ">"));
    shard.run(xack("s", "g", &(1..=50).map(|at| format!("{at}-1 ")).collect::<String>()));
    let about = |limit| Trim { to: TrimTo::MaxLen(70), approximate: true, limit };
    assert_eq!(shard.run(trim(Refs::Acked, about(Some(7)))), "7");
    assert_eq!(shard.run(trim(Refs::Acked, about(None))), "13");
    assert_eq!(shard.run(trim(Refs::Acked, about(None))), "0");
    assert_eq!(shard.ask(xlen("s")), "75");
}

#[test]
fn a_trim_that_deletes_references_clears_every_group_of_what_it_took_and_of_nothing_else() {
    let mut shard = held();
    shard.run(xdel("s", "1-1"));
    assert_eq!(shard.run(trim(Refs::Delete, maxlen(3))), "2");
    // 1-1 went before, by another command.
    assert_eq!(shard.ask(xpending("s", "g")), "[2 1-1 4-1 [[c 2]]]");
    assert_eq!(shard.ask(xpending("s", "h")), "[1 1-1 1-1 [[c 1]]]");
    let add = xadd_trimmed("s", "7-1", "f v", Some(maxlen(0)));
    assert_eq!(shard.run(Command::WithRefs { refs: Refs::Delete, command: Box::new(add) }), "7-1");
    assert_eq!(shard.ask(xpending("s", "g")), "[1 1-1 1-1 [[c 1]]]");
    assert_eq!(shard.machine.stats().pending, 2);
}

#[test]
fn entries_are_deleted_one_by_one_as_their_references_allow() {
    let mut shard = held();
    assert_eq!(shard.run(xdelex(Refs::Acked, "1-1 5-1 9-9")), "[2 2 2]");
    assert_eq!(shard.run(xdelex(Refs::Delete, "1-1 1-1")), "[1 -1]");
    assert_eq!(shard.ask(xpending("s", "h")), "[1 2-1 2-1 [[c 1]]]");
    assert_eq!(shard.run(xdelex(Refs::Keep, "2-1")), "[1]");
    assert_eq!(shard.run(xdelex(Refs::Delete, "2-1")), "[-1]");
    assert_eq!(shard.ask(xpending("s", "h")), "[0 nil nil nil-array]");
    assert_eq!(shard.run(xackdel("g", Refs::Acked, "3-1")), "[2]");
    shard.run(xgroup("s", "h", GroupChange::Destroy));
    assert_eq!(shard.run(xackdel("g", Refs::Acked, "4-1 3-1")), "[1 -1]");
    assert_eq!(shard.run(xackdel("x", Refs::Acked, "4-1 bad")), "[-1 -1]");
    assert!(shard.run(xackdel("g", Refs::Keep, "3-1 bad")).starts_with("!ERR Invalid stream ID"));
    assert_eq!(shard.ask(whole("s")), "3-1 f v, 5-1 f v, 6-1 f v");
}
