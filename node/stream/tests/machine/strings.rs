//! Plain strings, copies, and the order of SCAN.

use crate::support::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use weir_stream::*;

fn edit(name: &str, edit: StringEdit) -> Command {
    Command::EditString { key: key(name), edit }
}

fn copy(from: &str, to: &str, replace: bool) -> Command {
    Command::Copy { from: key(from), to: key(to), replace }
}

#[test]
fn edits_keep_the_end_of_a_key_and_refuse_what_is_no_string() {
    let mut shard = Shard::new();
    assert_eq!(shard.run(edit("k", StringEdit::Append(key("ab")))), "2");
    shard.run(pexpire("k", 5_000));
    assert_eq!(shard.run(edit("k", StringEdit::SetRange { offset: 4, value: key("x") })), "5");
    assert_eq!(shard.ask(Query::Get { key: key("k") }), "ab\0\0x");
    assert_eq!(shard.run(edit("k", StringEdit::SetRange { offset: 9, value: key("") })), "5");
    assert_eq!(shard.ask(Query::Ttl { key: key("k"), seconds: false, absolute: true }), "1005000");
    let far = StringEdit::SetRange { offset: 600 << 20, value: key("x") };
    assert!(shard.run(edit("k", far)).starts_with("!ERR string exceeds"));
    shard.run(xadd("s", "1-1", "f v"));
    let any = [StringEdit::Append(key("x")), StringEdit::Increment(1), StringEdit::GetDelete];
    for one in any {
        assert!(shard.run(edit("s", one)).starts_with("!WRONGTYPE"));
    }
    assert_eq!(shard.run(edit("n", StringEdit::SetRange { offset: 5, value: key("") })), "0");
    assert_eq!(shard.ask(Query::Exists { keys: vec![key("n")] }), "0");
    assert_eq!(shard.run(edit("n", StringEdit::Append(key("")))), "0");
    assert_eq!(shard.ask(Query::Exists { keys: vec![key("n")] }), "1");
}

#[test]
fn numbers_are_counted_in_their_one_usual_form_and_within_64_bits() {
    let mut shard = Shard::new();
    assert_eq!(shard.run(edit("n", StringEdit::Increment(-5))), "-5");
    assert_eq!(
        shard.run(edit("n", StringEdit::Increment(i64::MIN))),
        "!ERR increment or decrement would overflow"
    );
    for odd in ["+5", "05", "5 ", "", "-0", "9223372036854775808", "1.0"] {
        shard.run(set("n", odd));
        let reply = shard.run(edit("n", StringEdit::Increment(1)));
        assert_eq!(reply, "!ERR value is not an integer or out of range", "{odd:?}");
    }
    for (value, encoding) in
        [("12", "int"), ("012", "embstr"), (&*"x".repeat(44), "embstr"), (&*"x".repeat(45), "raw")]
    {
        shard.run(set("n", value));
        assert_eq!(shard.ask(Query::Encoding { key: key("n") }), encoding);
    }
}

#[test]
fn a_read_that_deletes_or_ends_a_key_answers_what_was_there() {
    let mut shard = Shard::new();
    let ending = |when| StringEdit::GetExpire(KeepUntil::Deadline(when));
    assert_eq!(shard.run(edit("k", ending(ExpireWhen::In(5)))), "nil");
    shard.run(set("k", "v"));
    assert_eq!(shard.run(edit("k", ending(ExpireWhen::In(5)))), "v");
    assert_eq!(shard.machine.next_due_ms(), Some(1_000_005));
    assert_eq!(shard.run(edit("k", StringEdit::GetExpire(KeepUntil::Forever))), "v");
    assert_eq!(shard.machine.next_due_ms(), None);
    assert_eq!(shard.run(edit("k", ending(ExpireWhen::At(5)))), "v");
    assert_eq!(shard.run(edit("k", StringEdit::GetDelete)), "nil");
    shard.run(set("k", "v"));
    assert_eq!(shard.run(edit("k", StringEdit::GetDelete)), "v");
    assert_eq!(shard.machine.stats(), Stats::default());
}

#[test]
fn many_strings_are_set_together_or_not_at_all() {
    let mut shard = Shard::new();
    let pairs = |names: &[&str]| names.iter().map(|name| (key(name), key("v"))).collect::<Vec<_>>();
    let many = |names, only_if_absent| Command::SetMany { pairs: pairs(names), only_if_absent };
    assert_eq!(shard.run(many(&["a", "{a}2"], true)), "1");
    assert_eq!(shard.run(many(&["{a}3", "{a}2"], true)), "0");
    shard.run(xadd("{a}4", "1-1", "f v"));
    let values = Query::GetMany { keys: words("a {a}3 {a}4 a") };
    assert_eq!(shard.ask(values), "[v nil nil v]");
    // A reader that waits on an overwritten stream looks again.
    assert_eq!(shard.run(many(&["{a}4"], false)), "OK");
    assert_eq!(shard.woken(), ["{a}4"]);
}

#[test]
fn parts_of_strings_are_cut_as_redis_cuts_them() {
    let mut shard = Shard::new();
    shard.run(set("k", "hello"));
    let part = |start, end| shard.ask(Query::GetRange { key: key("k"), start, end });
    for (start, end, wanted) in [
        (0, -1, "hello"),
        (1, 3, "ell"),
        (-3, -2, "ll"),
        (3, 1, ""),
        (-2, -3, ""),
        (-100, 1, "he"),
        (0, 100, "hello"),
        (5, 9, ""),
        (0, -100, "h"),
        (-100, -100, "h"),
        (i64::MIN, i64::MAX, "hello"),
    ] {
        assert_eq!(part(start, end), wanted, "{start} {end}");
    }
    assert_eq!(shard.ask(Query::GetRange { key: key("none"), start: 0, end: -1 }), "");
}

#[test]
fn a_copy_takes_all_along_and_goes_its_own_way() {
    let mut shard = Shard::new();
    let once = || {
        let name = Idempotent { producer: key("p"), iid: key("1") };
        let id = AddId::Once(Box::new(name));
        Command::Xadd(Xadd { key: key("{s}2"), no_mkstream: false, trim: None, id, fields: words("f v") })
    };
    shard.run(Command::Rename { from: key("{s}2"), to: key("s"), only_if_absent: false });
    shard.run(once());
    shard.run(Command::Rename { from: key("{s}2"), to: key("s"), only_if_absent: false });
    shard.run(xgroup_create("s", "g", "0"));
    shard.run(xreadgroup("g", "c", "s", ">"));
    shard.run(pexpire("s", 5_000));
    assert_eq!(shard.run(copy("none", "{s}2", false)), "0");
    assert_eq!(shard.run(copy("s", "{s}2", false)), "1");
    assert_eq!(shard.woken(), ["{s}2"]);
    assert_eq!(shard.run(copy("s", "{s}2", false)), "0");
    assert_eq!(shard.machine.stats().pending, 2);
    assert_eq!(shard.ask(Query::Ttl { key: key("{s}2"), seconds: false, absolute: true }), "1005000");
    assert_eq!(shard.run(once()), "1000000-0", "what was added before is remembered");
    shard.run(xack("{s}2", "g", "1000000-0"));
    assert_eq!(shard.ask(xpending("s", "g")), "[1 1000000-0 1000000-0 [[c 1]]]");
    shard.run(set("{s}3", "text"));
    assert_eq!(shard.run(copy("s", "{s}3", true)), "1");
    shard.run(del("s"));
    shard.run(del("{s}2"));
    assert_eq!(shard.ask(whole("{s}3")), "1000000-0 f v");
    shard.run(del("{s}3"));
    assert_eq!(shard.machine.stats(), Stats::default());
}

/// One whole iteration; the most keys that one call answered.
fn scan_all(shard: &Shard, count: u64, mut between: impl FnMut(usize)) -> (Vec<String>, usize) {
    let (mut keys, mut cursor, mut most) = (Vec::new(), 0, 0);
    for at in 0.. {
        let Answer::Reply(Reply::Array(rows)) =
            shard.machine.query(shard.now_ms, &Query::Scan { cursor, count })
        else {
            panic!("no rows")
        };
        let Reply::Int(next) = rows[0] else { panic!("no cursor") };
        most = most.max(rows.len() / 2);
        keys.extend(rows[1..].chunks(2).map(|pair| show(&pair[0])));
        between(at);
        if next == 0 {
            break;
        }
        assert!(next as u64 > cursor);
        cursor = next as u64;
    }
    (keys, most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_scan_answers_every_key_once_whatever_its_count(
        names in prop::collection::btree_set((0..40u32, prop::bool::weighted(0.7)), 0..60),
        count in 1..20u64,
    ) {
        let mut shard = Shard::new();
        let names: BTreeSet<String> = names
            .into_iter()
            .map(|(n, tagged)| if tagged { format!("{{tag}}{n}") } else { format!("k{n}") })
            .collect();
        for name in &names {
            shard.run(set(name, "v"));
        }
        let (mut keys, most) = scan_all(&shard, count, |_| {});
        prop_assert!(most as u64 <= count);
        let positions: Vec<u64> = keys.iter().map(|key| scan_position(key.as_bytes())).collect();
        prop_assert!(positions.is_sorted());
        keys.sort();
        prop_assert_eq!(keys, names.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_scan_of_one_slot_takes_a_share_of_it_at_a_time_and_leaves_out_what_is_due() {
    let mut shard = Shard::new();
    for n in 0..6_400 {
        shard.run(set(&format!("{{tag}}{n}"), "v"));
    }
    let mut calls = 0;
    let (keys, most) = scan_all(&shard, 1, |_| calls += 1);
    assert_eq!((keys.len(), most), (6_400, 100));
    assert!(calls <= 65, "{calls}");
    shard.run(pexpire("{tag}7", 10));
    shard.wait_ms(10);
    assert_eq!(scan_all(&shard, 1_000, |_| {}).0.len(), 6_399);
    // Where a key stands never changes: cursors are handed out to clients.
    assert_eq!(scan_position(b"foo"), 3_428_952_205_398_467_999);
}
