//! Every command of the table against users who may not touch its keys.

use super::check::{Checked, Denied, named_keys_were_checked};
use super::user::User;
use crate::command::syntax;
use crate::command::table::{self, Row};
use crate::command::{Request, parse_as};
use bytes::Bytes;
use std::collections::BTreeSet;

fn user(rules: &str) -> Checked {
    let rules: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
    Checked::new(Bytes::from_static(b"u"), User::new().with_rules(&rules).unwrap())
}

fn call(line: &str) -> (&'static Row, Vec<Bytes>) {
    let args: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
    (table::resolve(&args).unwrap_or_else(|e| panic!("{line}: {}", e.0)), args)
}

fn all_rows() -> Vec<&'static Row> {
    table::rows().iter().flat_map(|row| std::iter::once(*row).chain(row.subs.iter())).collect()
}

/// A small generator: the same numbers each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

const KEYS: [&str; 4] = ["mine:1", "mine:2", "theirs", "STREAMS"];

/// A call as the row's notation describes it: optional parts are there or not, alternatives are chosen, and now and
/// then a word stands where it should not.
fn made_up(row: &Row, dice: &mut Dice) -> Vec<Bytes> {
    let mut words: Vec<String> = row.name.split('|').map(str::to_owned).collect();
    fill(&syntax::arguments(row.syntax), dice, &mut words);
    let wanted = row.arity.unsigned_abs() as usize;
    while words.len() < wanted {
        words.push(dice.pick(&KEYS).to_owned());
    }
    if dice.roll(4) == 0 && words.len() > 1 {
        let at = 1 + dice.roll(words.len() - 1);
        let odd = ["STREAMS", "COUNT", "1", "theirs", "GROUP", "BLOCK", "mine:1", "NOACK"];
        words.insert(at, dice.pick(&odd).to_owned());
    }
    words.into_iter().map(Bytes::from).collect()
}

fn fill(arguments: &[syntax::Argument], dice: &mut Dice, words: &mut Vec<String>) {
    for argument in arguments {
        if argument.optional && dice.roll(2) == 0 {
            continue;
        }
        for _ in 0..if argument.multiple { 1 + dice.roll(2) } else { 1 } {
            words.extend(argument.token.iter().cloned());
            match &argument.kind {
                syntax::Kind::Block(parts) => fill(parts, dice, words),
                syntax::Kind::OneOf(choices) => {
                    let at = dice.roll(choices.len());
                    fill(&choices[at..=at], dice, words);
                }
                syntax::Kind::Word => {}
                syntax::Kind::Value(_) if argument.name.contains("key") => {
                    words.push(dice.pick(&KEYS).to_owned())
                }
                syntax::Kind::Value(_) => words
                    .push(dice.pick(&["1", "1-1", "0", "*", "g", "theirs", "mine:1", "$", ">"]).to_owned()),
            }
        }
    }
}

/// Commands that say why they do nothing, whatever their arguments.
const REFUSED: [&str; 4] = ["migrate", "move", "object|freq", "object|idletime"];

#[test]
fn no_command_reaches_a_key_that_its_user_may_not() {
    let limited = user("on nopass +@all ~mine:*");
    let (mut dice, mut reached) = (Dice(1), BTreeSet::new());
    let mut denied = 0;
    for row in all_rows() {
        for _ in 0..1500 {
            let mut args = made_up(row, &mut dice);
            if !row.arity_fits(args.len()) {
                continue;
            }
            if row.name == "restore" {
                // A string without a checksum: nothing that is made up would be taken.
                args[2] = Bytes::from_static(b"0");
                args[3] = Bytes::from_static(b"\x00\x01x\x0a\0\0\0\0\0\0\0\0\0");
                args.truncate(4);
            }
            let verdict = limited.check(row, &args);
            denied += usize::from(verdict.is_err());
            let Ok(request) = parse_as(row, &args) else { continue };
            let named: Vec<Bytes> = match &request {
                Request::Write(command, _) => command.keys().cloned().collect(),
                Request::Read(query, _) => query.keys().cloned().collect(),
                Request::Control(_) | Request::Ready(_) => continue,
            };
            reached.insert(row.name);
            let shown = || args.iter().map(|arg| String::from_utf8_lossy(arg)).collect::<Vec<_>>().join(" ");
            assert!(!named.is_empty(), "{} names no key, so nothing was checked", shown());
            assert!(named_keys_were_checked(row, &args, named.iter()), "{} names {named:?}", shown());
            let all_mine = named.iter().all(|key| key.starts_with(b"mine:"));
            assert_eq!(verdict.is_ok(), all_mine, "{}: {verdict:?}", shown());
        }
    }
    let with_keys: BTreeSet<&str> =
        all_rows().iter().filter(|r| r.has_keys() && !REFUSED.contains(&r.name)).map(|r| r.name).collect();
    assert_eq!(reached, with_keys, "every command with keys was tried");
    assert!(denied > 1000, "{denied}");
}

#[test]
fn every_command_is_denied_to_who_may_run_none_except_those_before_login() {
    let nobody = user("on nopass ~* &*");
    for row in all_rows() {
        let args = made_up(row, &mut Dice(7));
        let before_login = row.is(table::NO_AUTH);
        let denied = nobody.check(row, &args) == Err(Denied::Command);
        assert_eq!(denied, !before_login, "{}", row.name);
    }
}

#[test]
fn reading_and_writing_are_told_apart_as_in_redis() {
    let reader = user("+@all %R~k*");
    let writer = user("+@all %W~k*");
    let both = user("+@all %RW~k*");
    for (line, reads, writes) in [
        ("GET k", true, false),
        ("SET k v", false, true),
        ("SET k v GET", false, false),
        ("STRLEN k", true, true),
        ("EXISTS k", true, true),
        ("TYPE k", true, true),
        ("XADD k * a 1", false, true),
        ("XLEN k", true, true),
        ("XRANGE k - +", true, false),
        ("XREAD STREAMS k 0", true, false),
        ("XREADGROUP GROUP g c STREAMS k >", true, false),
        ("XACK k g 1-1", false, true),
        ("XDEL k 1-1", false, true),
        ("XINFO STREAM k", true, false),
        ("GETDEL k", false, false),
        ("APPEND k v", false, true),
        ("DEL k", false, true),
        ("RENAME k k2", false, false),
        ("COPY k k2", false, false),
        ("WATCH k", true, true),
    ] {
        let (row, args) = call(line);
        assert_eq!(reader.check(row, &args).is_ok(), reads, "%R: {line}");
        assert_eq!(writer.check(row, &args).is_ok(), writes, "%W: {line}");
        assert_eq!(both.check(row, &args), Ok(()), "{line}");
    }
    // The one key to read, the other to write.
    let mover = user("+@all %R~from %W~to");
    let (row, args) = call("COPY from to");
    assert_eq!(mover.check(row, &args), Ok(()));
    let (row, args) = call("COPY to from");
    assert_eq!(mover.check(row, &args), Err(Denied::Key(1)));
}

#[test]
fn rules_are_worked_out_in_their_order_and_selectors_stand_for_themselves() {
    for (rules, may, may_not) in [
        ("+@read -get ~*", "STRLEN k|XLEN k|AUTH x", "GET k|SET k v|PING"),
        (
            "-@all +@all -@write ~*",
            "GET k|CLIENT ID|XREAD STREAMS k 0",
            "XREADGROUP GROUP g c STREAMS k >|SET k v",
        ),
        ("+client -client|kill ~*", "CLIENT ID|CLIENT LIST", "CLIENT KILL ID 1|CONFIG GET x"),
        ("+client|id", "CLIENT ID", "CLIENT LIST|CLIENT INFO"),
        ("+select|0", "SELECT 0", "SELECT 1"),
        ("+select|0 -select", "AUTH x", "SELECT 0"),
        ("+@stream ~s:*", "XADD s:1 * a 1|XINFO STREAM s:1|XGROUP CREATE s:1 g 0", "XADD t * a 1|DEL s:1"),
        ("+get ~a (+set ~b)", "GET a|SET b 1", "GET b|SET a 1"),
        ("+xread ~a ~b", "XREAD STREAMS a b 0 0", "XREAD STREAMS a c 0 0|XREAD COUNT 1 STREAMS c 0"),
    ] {
        let checked = user(rules);
        for (lines, wanted) in [(may, true), (may_not, false)] {
            for line in lines.split('|').map(|line| line.trim()) {
                // `|` also separates subcommands in rules, never in calls.
                let (row, args) = call(line);
                assert_eq!(checked.check(row, &args).is_ok(), wanted, "{rules}: {line}");
            }
        }
    }
    assert!(user("+@all ~* &*").may_all());
    assert!(!user("+@all ~*").may_all() && !user("+@all -get ~* &*").may_all());
}

#[test]
fn of_several_selectors_the_refusal_that_came_furthest_is_told() {
    let checked = user("+get ~a (+set ~b)");
    let denied = |line: &str| {
        let (row, args) = call(line);
        checked.check(row, &args).unwrap_err()
    };
    assert_eq!(denied("GET x"), Denied::Key(1));
    assert_eq!(denied("SET x 1"), Denied::Key(1));
    assert_eq!(denied("XLEN x"), Denied::Command);
}
