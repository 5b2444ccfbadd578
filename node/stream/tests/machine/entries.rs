//! XADD, XLEN, XRANGE, XDEL, XTRIM, XSETID.

use crate::support::*;
use weir_stream::*;

#[test]
fn automatic_ids_rise_even_when_the_clock_falls_back() {
    let mut shard = Shard::new();
    assert_eq!(shard.run(xadd("s", "*", "f v")), "1000000-0");
    assert_eq!(shard.run(xadd("s", "*", "f v")), "1000000-1");
    shard.now_ms = 5;
    assert_eq!(shard.run(xadd("s", "*", "f v")), "1000000-2");
    assert_eq!(shard.run(xadd("s", "2000000-7", "f v")), "2000000-7");
    assert_eq!(shard.run(xadd("s", "*", "f v")), "2000000-8");
    assert_eq!(shard.run(xadd("s", "2000000-18446744073709551615", "f v")), "2000000-18446744073709551615");
    assert_eq!(shard.run(xadd("s", "*", "f v")), "2000001-0");
    assert_eq!(shard.run(xadd("t", "*", "f v")), "1000000-0");
}

#[test]
fn an_id_that_is_not_above_the_last_one_is_refused_and_changes_nothing() {
    let too_small = "!ERR The ID specified in XADD is equal or smaller than the target stream top item";
    let mut shard = Shard::new();
    assert_eq!(shard.run(xadd("s", "0-0", "f v")), "!ERR The ID specified in XADD must be greater than 0-0");
    assert_eq!(shard.machine.stats().keys, 0);
    assert_eq!(shard.run(xadd("s", "0-*", "f v")), "0-1");
    assert_eq!(shard.run(xadd("s", "5-18446744073709551615", "f v")), "5-18446744073709551615");
    let hash = shard.machine.state_hash();
    for refused in ["5-18446744073709551615", "5-3", "4-*", "5-*"] {
        assert_eq!(shard.run(xadd_trimmed("s", refused, "f v", Some(maxlen(0)))), too_small);
    }
    assert_eq!(shard.machine.state_hash(), hash);
    let last = "18446744073709551615-18446744073709551615";
    assert_eq!(shard.run(xadd("s", last, "f v")), last);
    for at in ["*", last, "1-1"] {
        let reply = shard.run(xadd("s", at, "f v"));
        assert_eq!(reply, "!ERR The stream has exhausted the last possible ID, unable to add more items");
    }
}

#[test]
fn fields_come_back_in_order_and_byte_for_byte_whatever_names_the_block_shares() {
    let mut shard = Shard::new();
    let added = ["a 1 b 2", "a 3 b 4", "b 5 a 6", "a 7", "a 8 b 9 a 10", "a 11 b 12"];
    for (at, fields) in added.iter().enumerate() {
        shard.run(xadd("s", &format!("{}-1", at + 1), fields));
    }
    let shown: Vec<String> = added.iter().enumerate().map(|(at, f)| format!("{}-1 {f}", at + 1)).collect();
    assert_eq!(shard.ask(whole("s")), shown.join(", "));
    let reversed: Vec<String> = shown.iter().rev().cloned().collect();
    assert_eq!(shard.ask(whole_reversed("s")), reversed.join(", "));
    let odd = Command::Xadd(Xadd {
        key: key("s"),
        no_mkstream: false,
        trim: None,
        id: AddId::Given(id("9-9")),
        fields: vec![key(""), key(""), bytes::Bytes::from_static(b"\0\r\n\xff"), key("")],
    });
    shard.run(odd);
    assert_eq!(shard.ask(xrange("s", "9-9", "9-9")), "9-9   \0\r\n\u{fffd} ");
}

#[test]
fn an_emptied_stream_keeps_its_key_its_last_id_and_its_groups() {
    let mut shard = Shard::new();
    shard.run(xadd("s", "5-1", "f v"));
    shard.run(xgroup_create("s", "g", "0"));
    assert_eq!(shard.run(xdel("s", "5-1 5-1 6-6")), "1");
    assert_eq!(shard.ask(xlen("s")), "0");
    assert_eq!(shard.ask(Query::Type { key: key("s") }), "stream");
    assert!(shard.run(xadd("s", "5-1", "f v")).starts_with("!ERR The ID"));
    assert_eq!(
        shard.ask(Query::XinfoStream { key: key("s"), full: None }),
        "{length=0 radix-tree-keys=0 radix-tree-nodes=1 last-generated-id=5-1 max-deleted-entry-id=5-1 \
         entries-added=1 recorded-first-entry-id=0-0 idmp-duration=100 idmp-maxsize=100 pids-tracked=0 \
         iids-tracked=0 iids-added=0 iids-duplicates=0 groups=1 first-entry=nil last-entry=nil}"
    );
}

#[test]
fn a_trim_takes_whole_blocks_first_and_single_entries_only_when_exact() {
    let mut shard = Shard::new();
    shard.run(Command::Configure(Settings { stream_node_max_entries: 10, stream_node_max_bytes: 0 }));
    for at in 1..=95 {
        shard.run(xadd("s", &format!("{at}-1"), "f v"));
    }
    let about = |max: u64, limit| Trim { to: TrimTo::MaxLen(max), approximate: true, limit };
    assert_eq!(shard.run(xtrim("s", about(42, None))), "50");
    assert_eq!(shard.run(xtrim("s", about(0, Some(9)))), "0");
    assert_eq!(shard.run(xtrim("s", about(0, Some(19)))), "10");
    assert_eq!(shard.run(xtrim("s", maxlen(32))), "3");
    assert_eq!(shard.ask(xrange("s", "0", "65")), "64-1 f v");
    assert_eq!(shard.run(xtrim("s", Trim { approximate: true, ..minid("75-1") })), "7");
    assert_eq!(shard.run(xtrim("s", minid("75-1"))), "4");
    assert_eq!(shard.ask(xrange("s", "0", "76-0")), "75-1 f v");
    assert_eq!(shard.run(xtrim("s", about(15, None))), "6");
    assert_eq!(shard.run(xtrim("s", maxlen(0))), "15");
    assert_eq!(shard.machine.stats().entries, 0);
    assert_eq!(shard.run(xadd("s", "96-1", "f v")), "96-1");
}

#[test]
fn maxlen_zero_takes_the_entry_just_added_and_wakes_nobody() {
    let mut shard = Shard::new();
    assert_eq!(shard.run(xadd_trimmed("s", "5-1", "f v", Some(maxlen(0)))), "5-1");
    assert!(shard.woken().is_empty());
    assert_eq!(shard.ask(xlen("s")), "0");
    assert!(shard.run(xadd("s", "5-1", "f v")).starts_with("!ERR The ID"));
}

#[test]
fn the_last_id_can_move_down_to_the_last_entry_but_not_below_what_was_deleted() {
    let mut shard = Shard::new();
    let xsetid = |last: &str, added, deleted: Option<&str>| Command::Xsetid {
        key: key("s"),
        last_id: id(last),
        entries_added: added,
        max_deleted_id: deleted.map(id),
    };
    assert_eq!(shard.run(xsetid("1-1", None, None)), "!ERR no such key");
    shard.run(xadd("s", "5-1", "f v"));
    shard.run(xadd("s", "6-1", "f v"));
    shard.run(xdel("s", "6-1"));
    assert!(shard.run(xsetid("5-5", None, None)).contains("smaller than current max_deleted_entry_id"));
    assert!(shard.run(xsetid("9-0", Some(0), None)).contains("entries_added specified"));
    assert!(shard.run(xsetid("9-0", None, Some("9-1"))).contains("provided max_deleted_entry_id"));
    // With the mark of deletion lowered, the deleted tail is forgotten, and ids may use the room again.
    assert_eq!(shard.run(xsetid("6-1", None, Some("2-0"))), "OK");
    assert_eq!(shard.run(xsetid("5-3", Some(7), None)), "OK");
    assert_eq!(shard.run(xadd("s", "5-4", "f w")), "5-4");
    assert_eq!(shard.ask(whole("s")), "5-1 f v, 5-4 f w");
    assert!(shard.run(xsetid("5-3", None, None)).contains("target stream top item"));
    let restored = through_a_snapshot(&shard.machine, 7);
    assert_eq!(restored.state_hash(), shard.machine.state_hash());
}

#[test]
fn a_count_of_zero_tells_an_existing_key_from_a_missing_one() {
    let mut shard = Shard::new();
    shard.run(xadd("s", "1-1", "f v"));
    let none = |stream: &str| Query::Xrange {
        key: key(stream),
        start: EntryId::MIN,
        end: EntryId::MAX,
        count: Some(0),
        reverse: false,
    };
    assert_eq!(shard.ask(none("s")), "nil-array");
    assert_eq!(shard.ask(none("missing")), "");
}

#[test]
fn plus_reads_the_last_entry_still_there_and_dollar_only_what_comes_later() {
    let mut shard = Shard::new();
    for at in ["1-1", "2-1", "3-1"] {
        shard.run(xadd("s", at, "f v"));
    }
    shard.run(xdel("s", "3-1"));
    assert_eq!(shard.ask(xread("s", ReadId::LastEntry)), "s: 2-1 f v");
    assert_eq!(shard.ask(xread("s", ReadId::Last)), "nil-array");
    let resolved = |shard: &Shard, name: &str, from| shard.machine.resolve_read(&[(key(name), from)])[0].1;
    assert_eq!(resolved(&shard, "s", ReadId::Last), ReadId::After(id("3-1")));
    assert_eq!(resolved(&shard, "none", ReadId::Last), ReadId::After(EntryId::MIN));
    shard.run(xdel("s", "1-1 2-1"));
    assert_eq!(resolved(&shard, "s", ReadId::LastEntry), ReadId::After(EntryId::MIN));
}
