//! XINFO.

use super::*;
use weir_stream::Query;

/// Entries and pending rows that FULL shows without COUNT.
const FULL_COUNT_DEFAULT: u64 = 10;

pub(crate) fn stream(args: &[Bytes]) -> Parsed {
    let full = match &args[3..] {
        [] => None,
        [full] if is(full, "FULL") => Some(FULL_COUNT_DEFAULT),
        [full, word, count] if is(full, "FULL") && is(word, "COUNT") => {
            Some(u64::try_from(int(count)?).unwrap_or(FULL_COUNT_DEFAULT))
        }
        _ => return Err(sub_syntax(args)),
    };
    Ok(Request::read(Query::XinfoStream { key: args[2].clone(), full }))
}

pub(crate) fn groups(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::XinfoGroups { key: args[2].clone() }))
}

pub(crate) fn consumers(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::XinfoConsumers { key: args[2].clone(), group: args[3].clone() }))
}

pub(crate) fn help(_: &[Bytes]) -> Parsed {
    super::help(
        "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        &[
            "CONSUMERS <key> <group>",
            "    Show the consumers of a group.",
            "GROUPS <key>",
            "    Show the groups of a stream.",
            "STREAM <key> [FULL [COUNT <count>]]",
            "    Show a stream; with FULL also its entries, groups, consumers and pending entries.",
            "HELP",
            "    Print this help.",
        ],
    )
}
