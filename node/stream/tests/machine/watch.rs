//! WATCH: the version of a key rises with what counts as a change of it, and with nothing else.

use crate::support::*;
use weir_stream::*;

fn version(shard: &Shard, name: &str) -> u64 {
    shard.ask(Query::Versions { keys: vec![key(name)] }).trim_matches(['[', ']']).parse().expect("a version")
}

fn exec_watched(name: &str, seen: u64) -> Command {
    let ops = vec![Op::Command(xadd(name, "*", "f v")), Op::Query(xlen(name))];
    Command::ExecWatched { watched: vec![(key(name), seen)], ops }
}

/// Whether the command changes the version of `s`.
fn touches(shard: &mut Shard, command: Command) -> bool {
    let before = version(shard, "s");
    shard.run(command);
    version(shard, "s") != before
}

fn busy() -> Shard {
    let mut shard = Shard::new();
    for at in 1..=9 {
        shard.run(xadd("s", &format!("{at}-1"), "f v"));
    }
    shard.run(xgroup_create("s", "g", "0"));
    shard
}

#[test]
fn changes_of_entries_and_of_the_end_of_a_key_are_seen() {
    let once = || {
        let name = Idempotent { producer: key("p"), iid: key("1") };
        let id = AddId::Once(Box::new(name));
        Command::Xadd(Xadd { key: key("s"), no_mkstream: false, trim: None, id, fields: words("f v") })
    };
    let seen = [
        xadd("s", "*", "f v"),
        xadd_trimmed("s", "*", "f v", Some(maxlen(0))),
        xdel("s", "1-1"),
        xtrim("s", maxlen(3)),
        Command::Xdelex { key: key("s"), refs: Refs::Keep, ids: ids("2-1") },
        pexpire("s", 1000),
        set("s", "text"),
        del("s"),
        Command::Rename { from: key("s"), to: key("{s}2"), only_if_absent: false },
        Command::Flush,
        once(),
    ];
    for command in seen {
        assert!(touches(&mut busy(), command.clone()), "{command:?}");
    }
    let mut shard = busy();
    shard.run(once());
    assert!(!touches(&mut shard, once()), "a repetition");
    assert!(touches(&mut Shard::new(), xgroup_create("s", "g", "$")), "MKSTREAM");
}

#[test]
fn reads_the_work_of_groups_and_what_changes_nothing_are_not_seen() {
    let not_seen = [
        xadd("s", "1-1", "f v"),
        xdel("s", "77-7"),
        xtrim("s", maxlen(100)),
        xgroup_create("s", "h", "0"),
        xreadgroup("g", "c", "s", ">"),
        xreadgroup_claim("g", "c", "s", 0),
        xack("s", "g", "1-1"),
        Command::Xclaim(xclaim("s", "g", "d", 0, "1-1")),
        Command::Xnack(xnack("s", "g", NackMode::Fail, "1-1")),
        xgroup("s", "g", GroupChange::SetId { at: GroupStart::Last, entries_read: None }),
        xgroup("s", "g", GroupChange::Destroy),
        Command::Xsetid { key: key("s"), last_id: id("99-1"), entries_added: Some(70), max_deleted_id: None },
        Command::Xcfgset { key: key("s"), duration_s: Some(7), maxsize: None },
        Command::Persist { key: key("s") },
        xadd("{s}2", "*", "f v"),
    ];
    let mut shard = busy();
    for command in not_seen {
        assert!(!touches(&mut shard, command.clone()), "{command:?}");
    }
}

#[test]
fn a_transaction_runs_if_its_keys_are_as_they_were_seen() {
    let mut shard = busy();
    let seen = version(&shard, "s");
    assert_eq!(shard.run(exec_watched("s", seen)), "[1000000-0 10]");
    assert_eq!(shard.run(exec_watched("s", seen)), "nil-array");
    assert!(shard.woken().is_empty());
    assert_eq!(shard.ask(xlen("s")), "10");
    // A key that is not there, and stays so.
    assert_eq!(version(&shard, "{s}2"), 0);
    shard.run(del("{s}2"));
    assert_eq!(shard.run(exec_watched("{s}2", 0)), "[1000000-0 1]");
    assert_eq!(shard.run(exec_watched("{s}2", 0)), "nil-array");
}

#[test]
fn expiry_between_watch_and_exec_ends_the_transaction() {
    let mut shard = busy();
    shard.run(pexpire("s", 100));
    let seen = version(&shard, "s");
    shard.wait_ms(99);
    assert_ne!(
        shard.machine.clone().apply(Stamp { now_ms: shard.now_ms }, &exec_watched("s", seen), true).reply,
        Reply::NilArray
    );
    shard.wait_ms(1);
    // The expiry is not in the log yet: this very entry carries it out.
    assert_eq!(shard.ask(Query::Versions { keys: vec![key("s")] }), "due: [b\"s\"]");
    assert_eq!(shard.run(exec_watched("s", seen)), "nil-array");
    assert_eq!(shard.woken(), ["s"]);
}

#[test]
fn no_key_comes_back_with_a_version_that_was_seen() {
    let mut shard = busy();
    let seen = version(&shard, "s");
    for undo in [del("s"), Command::Flush] {
        shard.run(undo);
        for at in 1..=9 {
            shard.run(xadd("s", &format!("{at}-1"), "f v"));
        }
        assert_eq!(shard.run(exec_watched("s", seen)), "nil-array");
    }
}

#[test]
fn versions_are_the_same_after_a_snapshot_and_go_on_from_there() {
    let mut shard = busy();
    shard.run(set("{s}2", "text"));
    shard.run(xadd("{s}3", "*", "f v"));
    shard.run(del("{s}3"));
    let seen = [version(&shard, "s"), version(&shard, "{s}2")];
    shard.machine = through_a_snapshot(&shard.machine, 100);
    assert_eq!([version(&shard, "s"), version(&shard, "{s}2")], seen);
    shard.run(xadd("{s}3", "*", "f v"));
    assert_eq!(version(&shard, "{s}3"), seen[1] + 4);
    assert_eq!(shard.run(exec_watched("s", seen[0])), "[1000000-0 10]");
}
