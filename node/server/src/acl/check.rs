//! A user against the command table of this build.

use super::facts;
use super::user::{KeyPattern, Selector, User};
use crate::command::glob;
use crate::command::table::{self, KeyUse, Keys, NO_AUTH, Row};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A user whose rules were worked out. Never changes: a change of the user makes a new one.
#[derive(Debug)]
pub struct Checked {
    /// Its name.
    pub name: Bytes,
    /// As it was agreed on.
    pub user: User,
    selectors: Vec<Worked>,
    may_all: bool,
}

/// One selector, worked out.
#[derive(Debug)]
struct Worked {
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Vec<u8>>,
    /// By number of the command's row.
    commands: Vec<bool>,
    /// What the first argument may be where the command is not allowed at large.
    first_arguments: BTreeMap<usize, Vec<String>>,
}

/// What a call is refused for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// The command.
    Command,
    /// The key at this position.
    Key(usize),
    /// The channel at this position.
    Channel(usize),
}

/// What is done to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Its value, or something that tells of it, is answered.
    pub read: bool,
    /// It is changed.
    pub write: bool,
}

impl Checked {
    /// Works out the rules of a user.
    pub fn new(name: Bytes, user: User) -> Checked {
        let selectors: Vec<Worked> =
            std::iter::once(&user.root).chain(&user.selectors).map(Worked::new).collect();
        let may_all = selectors.iter().any(Worked::may_all);
        Checked { name, user, selectors, may_all }
    }

    /// Whether nothing has to be checked.
    pub fn may_all(&self) -> bool {
        self.may_all
    }

    /// Whether it may hear a channel, or subscribe to a pattern.
    pub fn may_hear(&self, name: &[u8], is_pattern: bool) -> bool {
        self.selectors.iter().any(|selector| selector.all_channels || selector.may_hear(name, is_pattern))
    }

    /// Whether it may run this call.
    ///
    /// # Errors
    /// What it may not. Of several selectors the one that came furthest counts, as in Redis.
    pub fn check(&self, row: &'static Row, args: &[Bytes]) -> Result<(), Denied> {
        if self.may_all {
            return Ok(());
        }
        let mut denied = Denied::Command;
        for selector in &self.selectors {
            match selector.check(row, args) {
                Ok(()) => return Ok(()),
                Err(further) => denied = denied.max(further),
            }
        }
        Err(denied)
    }
}

impl Worked {
    fn new(selector: &Selector) -> Worked {
        let mut commands = vec![selector.all_commands; ALL.len()];
        let mut first_arguments: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for rule in &selector.rules {
            let allow = rule.starts_with('+');
            let name = &rule[1..];
            // A category says the same of all its commands, and a command of all its subcommands.
            let meant = |row: &Row| match name.starts_with('@') {
                true => row.categories().contains(&name),
                false => row.name == name,
            };
            for (at, row) in ALL.iter().enumerate() {
                if !meant(row) {
                    continue;
                }
                // Subcommands stand right behind their command.
                let end = at + 1 + row.subs.len();
                commands[at..end].fill(allow);
                first_arguments.retain(|number, _| !(at..end).contains(number));
            }
            if allow
                && let Some((command, first)) = name.split_once('|')
                && let Some(at) = ALL.iter().position(|row| row.name == command && row.subs.is_empty())
            {
                first_arguments.entry(at).or_default().push(first.to_owned());
            }
        }
        Worked {
            all_keys: selector.all_keys,
            keys: selector.keys.clone(),
            all_channels: selector.all_channels,
            channels: selector.channels.clone(),
            commands,
            first_arguments,
        }
    }

    fn may_all(&self) -> bool {
        self.all_keys && self.all_channels && self.commands.iter().all(|may| *may)
    }

    fn check(&self, row: &'static Row, args: &[Bytes]) -> Result<(), Denied> {
        if !row.is(NO_AUTH) && !self.may_run(row, args) {
            return Err(Denied::Command);
        }
        if !self.all_keys && row.has_keys() {
            for (ordinal, at) in row.key_positions(args).enumerate() {
                if !self.may_touch(&args[at], need(row, args, ordinal)) {
                    return Err(Denied::Key(at));
                }
            }
        }
        if !self.all_channels {
            for (at, is_pattern) in channels(row, args) {
                if !self.may_hear(&args[at], is_pattern) {
                    return Err(Denied::Channel(at));
                }
            }
        }
        Ok(())
    }

    fn may_run(&self, row: &'static Row, args: &[Bytes]) -> bool {
        let number = number_of(row);
        let by_first_argument = || {
            let allowed = self.first_arguments.get(&number)?;
            Some(
                allowed
                    .iter()
                    .any(|first| args.get(1).is_some_and(|arg| arg.eq_ignore_ascii_case(first.as_bytes()))),
            )
        };
        self.commands.get(number).copied().unwrap_or(false) || by_first_argument().unwrap_or(false)
    }

    fn may_touch(&self, key: &[u8], need: Need) -> bool {
        self.keys.iter().any(|known| {
            (known.read || !need.read) && (known.write || !need.write) && glob::fits_key(&known.pattern, key)
        })
    }

    fn may_hear(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.channels.iter().any(|known| match is_pattern {
            true => known == channel,
            false => glob::fits_key(known, channel),
        })
    }
}

/// All rows, each before its subcommands.
static ALL: LazyLock<Vec<&'static Row>> = LazyLock::new(|| {
    table::rows().iter().flat_map(|row| std::iter::once(*row).chain(row.subs.iter())).collect()
});

/// Numbers of rows by their place in memory: rows are never copied.
static NUMBERS: LazyLock<BTreeMap<usize, usize>> =
    LazyLock::new(|| ALL.iter().enumerate().map(|(at, row)| (place(row), at)).collect());

fn place(row: &'static Row) -> usize {
    std::ptr::from_ref(row) as usize
}

/// Larger than every number if the row is not in the table.
fn number_of(row: &'static Row) -> usize {
    NUMBERS.get(&place(row)).copied().unwrap_or(usize::MAX)
}

/// What the call does to its key with this ordinal. A command that Redis does not know needs all that it might do.
pub fn need(row: &Row, args: &[Bytes], ordinal: usize) -> Need {
    let Some(specified) = facts::of(row.name).map(|fact| &fact.keys).filter(|keys| !keys.is_empty()) else {
        return Need { read: true, write: row.key_use != KeyUse::Read };
    };
    // All keys of a range share one specification.
    let flags = &specified[ordinal.min(specified.len() - 1)];
    let has = |flag| flags.contains(&flag);
    let mut need = Need { read: has("access"), write: has("insert") || has("update") || has("delete") };
    if row.name == "set" {
        need.read = args.iter().skip(3).any(|arg| arg.eq_ignore_ascii_case(b"GET"));
    } else if has("variable_flags") {
        need.read = true;
    }
    need
}

/// Positions of channels in a call, and whether each is a pattern.
fn channels(row: &Row, args: &[Bytes]) -> impl Iterator<Item = (usize, bool)> {
    let (range, is_pattern) = match row.name {
        "publish" | "spublish" => (1..2, false),
        "subscribe" | "ssubscribe" => (1..args.len(), false),
        "psubscribe" => (1..args.len(), true),
        _ => (0..0, false),
    };
    range.map(move |at| (at, is_pattern))
}

/// Whether keys that a parsed call names were all at the positions that were checked.
pub fn named_keys_were_checked<'a>(
    row: &Row,
    args: &[Bytes],
    mut named: impl Iterator<Item = &'a Bytes>,
) -> bool {
    row.keys != Keys::None && named.all(|key| row.key_positions(args).any(|at| args[at] == key))
}

/// The words of a refusal, without their prefix. `told` also names the key or channel, for DRYRUN.
pub fn refusal(denied: Denied, user: &Checked, row: &Row, args: &[Bytes], told: bool) -> String {
    let name = String::from_utf8_lossy(&user.name);
    let at = |at: usize| String::from_utf8_lossy(&args[at]).into_owned();
    match denied {
        Denied::Command => format!("User {name} has no permissions to run the '{}' command", row.name),
        Denied::Key(key) if told => {
            format!("User {name} has no permissions to access the '{}' key", at(key))
        }
        Denied::Key(_) => "No permissions to access a key".to_owned(),
        Denied::Channel(channel) if told => {
            format!("User {name} has no permissions to access the '{}' channel", at(channel))
        }
        Denied::Channel(_) => "No permissions to access a channel".to_owned(),
    }
}
