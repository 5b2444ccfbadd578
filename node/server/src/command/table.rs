//! One row a command: all that is known about it without looking at its arguments.
//!
//! Arity errors, routing, `COMMAND` and its subcommands, and later access rules and documentation come from here.
//! Subcommands are rows of their own, named `xgroup|create`.

mod acl;
mod connections;
mod keys;
mod observe;
mod pubsub;
mod server;
mod streams;

use super::Request;
use super::parse::Refused;
use crate::acl::facts;
use bytes::Bytes;
use std::sync::LazyLock;

/// Facts about a command, as bits; [`FLAG_NAMES`] spells those that `COMMAND` shows.
pub type Flags = u32;

/// Goes into the log.
pub const WRITE: Flags = 1;
/// Reads keys only.
pub const READONLY: Flags = 1 << 1;
/// May grow memory: refused when it is full.
pub const DENYOOM: Flags = 1 << 2;
/// Constant or logarithmic work.
pub const FAST: Flags = 1 << 3;
/// May wait.
pub const BLOCKING: Flags = 1 << 4;
/// Keys stand after a keyword, not at fixed places.
pub const MOVABLEKEYS: Flags = 1 << 5;
/// For operators.
pub const ADMIN: Flags = 1 << 6;
/// Not from scripts.
pub const NOSCRIPT: Flags = 1 << 7;
/// Answered while data is loading.
pub const LOADING: Flags = 1 << 8;
/// Answered by a replica that lost its leader.
pub const STALE: Flags = 1 << 9;
/// Before authentication.
pub const NO_AUTH: Flags = 1 << 10;
/// Refused inside a transaction.
pub const NO_MULTI: Flags = 1 << 11;
/// Not shown in `COMMAND`: only adds the `@dangerous` category.
pub const DANGEROUS: Flags = 1 << 12;
/// Not shown in `COMMAND`: answered by the shard's leader even on a `READONLY` connection.
pub const LEADER_ONLY: Flags = 1 << 13;

/// Publishes or subscribes.
pub const PUBSUB: Flags = 1 << 14;

/// Names of the shown flags, in bit order.
pub const FLAG_NAMES: [(Flags, &str); 13] = [
    (WRITE, "write"),
    (READONLY, "readonly"),
    (DENYOOM, "denyoom"),
    (FAST, "fast"),
    (BLOCKING, "blocking"),
    (MOVABLEKEYS, "movablekeys"),
    (ADMIN, "admin"),
    (PUBSUB, "pubsub"),
    (NOSCRIPT, "noscript"),
    (LOADING, "loading"),
    (STALE, "stale"),
    (NO_AUTH, "no_auth"),
    (NO_MULTI, "no_multi"),
];

/// Where the keys of a command stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// No key.
    None,
    /// At `first`, `first + step` ... up to `last`; a negative `last` counts from the end.
    Range {
        /// Position of the first key; the name is 0.
        first: usize,
        /// Position of the last key.
        last: isize,
        /// Distance.
        step: usize,
    },
    /// The first half of what follows the word `STREAMS`.
    Streams,
}

/// One key at position 1.
pub const ONE: Keys = Keys::Range { first: 1, last: 1, step: 1 };
/// One key at position 2, after a subcommand.
pub const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };
/// Two keys.
pub const TWO: Keys = Keys::Range { first: 1, last: 2, step: 1 };
/// Every other argument is a key, from the first on.
pub const PAIRS: Keys = Keys::Range { first: 1, last: -1, step: 2 };
/// All arguments are keys.
pub const ALL: Keys = Keys::Range { first: 1, last: -1, step: 1 };

/// What the command does to its keys, for `COMMAND`'s key specifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyUse {
    /// Reads.
    Read,
    /// Adds to a value or creates it.
    Insert,
    /// Changes a value.
    Update,
    /// Removes parts or all of it.
    Delete,
    /// Replaces it.
    Overwrite,
    /// Nothing: it is the name of a shard channel, routed like a key.
    Channel,
}

/// Turns arguments (the name is the first) into a request.
pub type Parse = fn(&[Bytes]) -> Result<Request, Refused>;

/// One command or subcommand.
#[derive(Debug)]
pub struct Row {
    /// Lower case; `container|sub` for a subcommand.
    pub name: &'static str,
    /// Number of arguments with the name(s); negative: at least that many.
    pub arity: i32,
    /// See the constants of this module.
    pub flags: Flags,
    /// Where its keys stand.
    pub keys: Keys,
    /// What it does to them.
    pub key_use: KeyUse,
    /// Argument parser; `None` for a pure container.
    pub parse: Option<Parse>,
    /// Family: `stream`, `generic`, `string`, `connection`, `server`, `transactions`, `cluster`.
    pub group: &'static str,
    /// First Redis version that had it.
    pub since: &'static str,
    /// Cost in big O.
    pub complexity: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Arguments in the usual notation: `[optional]`, `a|b`, `repeated ...`, capitals for literal words.
    pub syntax: &'static str,
    /// Subcommands.
    pub subs: &'static [Row],
}

/// A row before its documentation.
const fn row(name: &'static str, arity: i32, flags: Flags, keys: Keys, key_use: KeyUse, parse: Parse) -> Row {
    Row {
        name,
        arity,
        flags,
        keys,
        key_use,
        parse: Some(parse),
        group: "",
        since: "",
        complexity: "",
        summary: "",
        syntax: "",
        subs: &[],
    }
}

/// A command without keys.
const fn plain(name: &'static str, arity: i32, flags: Flags, parse: Parse) -> Row {
    row(name, arity, flags, Keys::None, KeyUse::Read, parse)
}

/// A command that only holds subcommands.
const fn container(name: &'static str, subs: &'static [Row]) -> Row {
    Row {
        name,
        arity: -2,
        flags: 0,
        keys: Keys::None,
        key_use: KeyUse::Read,
        parse: None,
        group: "",
        since: "",
        complexity: "depends on the subcommand",
        summary: "",
        syntax: "",
        subs,
    }
}

impl Row {
    const fn doc(
        self,
        group: &'static str,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
        syntax: &'static str,
    ) -> Row {
        Row { group, since, complexity, summary, syntax, ..self }
    }

    const fn with(self, subs: &'static [Row]) -> Row {
        Row { subs, ..self }
    }

    /// Whether `args` has an allowed number of arguments.
    pub fn arity_fits(&self, args: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { args >= wanted } else { args == wanted }
    }

    /// Whether all of `flags` are set.
    pub fn is(&self, flags: Flags) -> bool {
        self.flags & flags == flags
    }

    /// Name of the subcommand, or of the command.
    pub fn short_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, sub)| sub)
    }

    /// Whether keys stand in its arguments, and not shard channels.
    pub fn has_keys(&self) -> bool {
        self.keys != Keys::None && self.key_use != KeyUse::Channel
    }

    /// Positions of the keys in `args`. Nothing if the arguments make no sense; parsing then says why.
    pub fn key_positions(&self, args: &[Bytes]) -> KeyPositions {
        let none = KeyPositions { next: 0, end: 0, step: 1 };
        match self.keys {
            Keys::None => none,
            Keys::Range { first, last, step } => {
                let end = if last < 0 {
                    (args.len() as isize + last + 1).max(0) as usize
                } else {
                    last as usize + 1
                };
                KeyPositions { next: first, end: end.min(args.len()), step }
            }
            Keys::Streams => {
                // Options before STREAMS take values that may themselves read "streams".
                let mut at = 1;
                while let Some(arg) = args.get(at) {
                    if arg.eq_ignore_ascii_case(b"STREAMS") {
                        let count = args.len() - at - 1;
                        let keys = if count.is_multiple_of(2) { count / 2 } else { 0 };
                        return KeyPositions { next: at + 1, end: at + 1 + keys, step: 1 };
                    }
                    at += match arg.len() {
                        5 if arg.eq_ignore_ascii_case(b"COUNT") || arg.eq_ignore_ascii_case(b"BLOCK") => 2,
                        5 if arg.eq_ignore_ascii_case(b"CLAIM") => 2,
                        7 if arg.eq_ignore_ascii_case(b"MAXSIZE") => 2,
                        8 if arg.eq_ignore_ascii_case(b"MAXCOUNT") => 2,
                        5 if arg.eq_ignore_ascii_case(b"GROUP") => 3,
                        5 if arg.eq_ignore_ascii_case(b"NOACK") => 1,
                        _ => return none,
                    };
                }
                none
            }
        }
    }

    /// Access categories: those of Redis, or for a command that Redis lacks those it would derive from flags and
    /// family.
    pub fn categories(&self) -> Vec<&'static str> {
        if let Some(fact) = facts::of(self.name) {
            return fact.categories.clone();
        }
        let mut all = Vec::new();
        let mut add = |yes: bool, name: &'static str| {
            if yes {
                all.push(name);
            }
        };
        add(
            self.group == "generic" && self.keys != Keys::None
                || matches!(self.name, "flushall" | "flushdb" | "dbsize"),
            "@keyspace",
        );
        add(self.is(READONLY), "@read");
        add(self.is(WRITE), "@write");
        add(self.group == "stream", "@stream");
        add(self.group == "string", "@string");
        add(self.is(ADMIN), "@admin");
        add(self.is(FAST), "@fast");
        add(!self.is(FAST), "@slow");
        add(self.is(BLOCKING), "@blocking");
        add(self.is(ADMIN) || self.is(DANGEROUS), "@dangerous");
        add(self.is(PUBSUB), "@pubsub");
        add(self.group == "connection", "@connection");
        add(self.group == "transactions", "@transaction");
        all
    }
}

/// Positions of keys, in order.
#[derive(Debug, Clone)]
pub struct KeyPositions {
    next: usize,
    end: usize,
    step: usize,
}

impl Iterator for KeyPositions {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        (self.next < self.end).then(|| {
            let at = self.next;
            self.next += self.step;
            at
        })
    }
}

/// All commands, by name.
static SORTED: LazyLock<Vec<&'static Row>> = LazyLock::new(|| {
    let mut rows: Vec<&'static Row> =
        [streams::ROWS, keys::ROWS, connections::ROWS, observe::ROWS, pubsub::ROWS, server::ROWS, acl::ROWS]
            .into_iter()
            .flatten()
            .collect();
    rows.sort_by_key(|row| row.name);
    rows
});

/// All commands in the order of their names; subcommands stand in their container's row.
pub fn rows() -> &'static [&'static Row] {
    &SORTED
}

/// The longest name that is looked up.
const NAME_BYTES_MAX: usize = 32;

/// The row of a command, whatever its case.
pub fn find(name: &[u8]) -> Option<&'static Row> {
    let mut lower = [0u8; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    SORTED.binary_search_by(|row| row.name.as_bytes().cmp(lower)).ok().map(|at| SORTED[at])
}

/// The row of a subcommand, whatever its case.
pub fn find_sub(container: &'static Row, name: &[u8]) -> Option<&'static Row> {
    container.subs.iter().find(|row| row.short_name().as_bytes().eq_ignore_ascii_case(name))
}

/// The row for `container|sub` or a plain name, as `COMMAND INFO` and `COMMAND DOCS` take them.
pub fn find_full(name: &[u8]) -> Option<&'static Row> {
    match name.iter().position(|&b| b == b'|') {
        None => find(name),
        Some(at) => find_sub(find(&name[..at])?, &name[at + 1..]),
    }
}

/// The row that `args` calls, after the checks that need no parsing: known command, known subcommand, arity.
///
/// # Errors
/// [`Refused`] with the text of Redis.
pub fn resolve(args: &[Bytes]) -> Result<&'static Row, Refused> {
    let name = &args[0];
    let Some(mut row) = find(name) else { return Err(unknown_command(args)) };
    if !row.subs.is_empty() && args.len() > 1 {
        match find_sub(row, &args[1]) {
            Some(sub) => row = sub,
            None => {
                let text = format!(
                    "ERR unknown subcommand '{}'. Try {} HELP.",
                    preview(&args[1], 128),
                    row.name.to_ascii_uppercase()
                );
                return Err(Refused::from(text));
            }
        }
    }
    if row.arity_fits(args.len()) { Ok(row) } else { Err(wrong_arity(row.name)) }
}

/// The arity error of the command called `name`.
pub fn wrong_arity(name: &str) -> Refused {
    Refused::from(format!("ERR wrong number of arguments for '{name}' command"))
}

fn unknown_command(args: &[Bytes]) -> Refused {
    const PREVIEW_BYTES_MAX: usize = 128;
    let mut text = format!("ERR unknown command '{}'", preview(&args[0], PREVIEW_BYTES_MAX));
    if args.len() > 1 {
        text.push_str(", with args beginning with: ");
    }
    let mut used = 0;
    for arg in &args[1..] {
        if used >= PREVIEW_BYTES_MAX {
            break;
        }
        let shown = preview_of(arg, PREVIEW_BYTES_MAX - used);
        text.push('\'');
        text.push_str(&String::from_utf8_lossy(shown));
        // Each argument is shown with two quotes and a space.
        text.push_str("' ");
        used += shown.len() + 3;
    }
    Refused::from(text)
}

/// At most `max` bytes of `arg` as text.
fn preview(arg: &[u8], max: usize) -> String {
    String::from_utf8_lossy(preview_of(arg, max)).into_owned()
}

/// At most `max` bytes of `arg`. A byte of zero ends what Redis shows.
fn preview_of(arg: &[u8], max: usize) -> &[u8] {
    let arg = &arg[..arg.len().min(max)];
    &arg[..arg.iter().position(|byte| *byte == 0).unwrap_or(arg.len())]
}
