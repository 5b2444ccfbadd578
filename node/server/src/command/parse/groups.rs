//! XGROUP.

use super::*;
use weir_stream::{Command, GroupChange, GroupStart};

fn change(args: &[Bytes], change: GroupChange) -> Parsed {
    Ok(Request::write(Command::Xgroup { key: args[2].clone(), group: args[3].clone(), change }))
}

pub(crate) fn create(args: &[Bytes]) -> Parsed {
    let options = options(args, true)?;
    let at = start(&args[4])?;
    change(args, GroupChange::Create { at, mkstream: options.mkstream, entries_read: options.entries_read })
}

pub(crate) fn setid(args: &[Bytes]) -> Parsed {
    let options = options(args, false)?;
    // Unlike CREATE it takes the smallest and the largest id by their signs.
    let at = match &args[4][..] {
        b"$" => GroupStart::Last,
        arg => GroupStart::Id(id_or_bound(arg, 0)?),
    };
    change(args, GroupChange::SetId { at, entries_read: options.entries_read })
}

pub(crate) fn destroy(args: &[Bytes]) -> Parsed {
    change(args, GroupChange::Destroy)
}

pub(crate) fn createconsumer(args: &[Bytes]) -> Parsed {
    change(args, GroupChange::CreateConsumer { consumer: args[4].clone() })
}

pub(crate) fn delconsumer(args: &[Bytes]) -> Parsed {
    change(args, GroupChange::DelConsumer { consumer: args[4].clone() })
}

fn start(arg: &[u8]) -> Parsed<GroupStart> {
    if arg == b"$" { Ok(GroupStart::Last) } else { Ok(GroupStart::Id(id(arg)?)) }
}

#[derive(Default)]
struct Options {
    mkstream: bool,
    /// `None` also for -1, which means "unknown".
    entries_read: Option<i64>,
}

/// Whether all options are known, but there are too many.
pub(in crate::command) fn are_too_many(args: &[Bytes], create: bool) -> bool {
    args.len() > most(create) && known_options(args, create).is_ok()
}

/// Arguments of CREATE, and of SETID.
fn most(create: bool) -> usize {
    if create { 8 } else { 7 }
}

fn options(args: &[Bytes], create: bool) -> Parsed<Options> {
    let options = known_options(args, create)?;
    if args.len() > most(create) { Err(sub_syntax(args)) } else { Ok(options) }
}

fn known_options(args: &[Bytes], create: bool) -> Parsed<Options> {
    let mut options = Options::default();
    let mut at = 5;
    while at < args.len() {
        if create && is(&args[at], "MKSTREAM") {
            options.mkstream = true;
            at += 1;
        } else if is(&args[at], "ENTRIESREAD") && at + 1 < args.len() {
            let n = int(&args[at + 1])?;
            if n < -1 {
                return Err(Refused::from("ERR value for ENTRIESREAD must be positive or -1"));
            }
            options.entries_read = (n >= 0).then_some(n);
            at += 2;
        } else {
            return Err(sub_syntax(args));
        }
    }
    Ok(options)
}

pub(crate) fn help(_: &[Bytes]) -> Parsed {
    super::help(
        "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        &[
            "CREATE <key> <group> <id|$> [option]",
            "    Create a group that starts after <id>. Options:",
            "    * MKSTREAM",
            "      Create an empty stream if the key is missing.",
            "    * ENTRIESREAD entries-read",
            "      Set the counter of entries read by the group.",
            "CREATECONSUMER <key> <group> <consumer>",
            "    Create a consumer in the group.",
            "DELCONSUMER <key> <group> <consumer>",
            "    Remove a consumer and its pending entries.",
            "DESTROY <key> <group>",
            "    Remove the group.",
            "SETID <key> <group> <id|$> [ENTRIESREAD entries-read]",
            "    Move the position of the group.",
            "HELP",
            "    Print this help.",
        ],
    )
}
