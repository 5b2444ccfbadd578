//! `COMMAND` and its subcommands, answered from the table.

use super::glob;
use super::parse::{Parsed, Refused, SYNTAX, is};
use super::syntax;
use super::table::{self, FLAG_NAMES, KeyUse, Keys, LEADER_ONLY, Row};
use bytes::Bytes;
use weir_stream::Reply;

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

fn words(words: impl IntoIterator<Item = &'static str>) -> Reply {
    Reply::Array(words.into_iter().map(Reply::Simple).collect())
}

/// COMMAND.
pub fn all() -> Reply {
    Reply::Array(table::rows().iter().map(|row| describe(row)).collect())
}

/// COMMAND COUNT.
pub fn count() -> Reply {
    Reply::Int(table::rows().len() as i64)
}

/// COMMAND INFO; no name means all.
pub fn info(names: &[Bytes]) -> Reply {
    if names.is_empty() {
        return all();
    }
    Reply::Array(names.iter().map(|name| table::find_full(name).map_or(Reply::NilBulk, describe)).collect())
}

/// COMMAND LIST.
pub(super) fn list(args: &[Bytes]) -> Parsed<Reply> {
    let names = |keep: &dyn Fn(&Row) -> bool| {
        let mut names = Vec::new();
        for row in table::rows() {
            names.extend(
                std::iter::once(*row)
                    .chain(row.subs.iter())
                    .filter(|row| keep(row))
                    .map(|row| bulk(row.name)),
            );
        }
        Reply::Array(names)
    };
    match args {
        [] => Ok(Reply::Array(table::rows().iter().map(|row| bulk(row.name)).collect())),
        [filter, by, what] if is(filter, "FILTERBY") => match by {
            _ if is(by, "MODULE") => Ok(Reply::Array(Vec::new())),
            _ if is(by, "ACLCAT") => {
                Ok(names(&|row| row.categories().iter().any(|category| is(what, &category[1..]))))
            }
            _ if is(by, "PATTERN") => Ok(names(&|row| glob::fits(what, row.name.as_bytes()))),
            _ => Err(Refused::from(SYNTAX)),
        },
        _ => Err(Refused::from(SYNTAX)),
    }
}

/// COMMAND GETKEYS and GETKEYSANDFLAGS.
pub(super) fn get_keys(args: &[Bytes], with_flags: bool) -> Parsed<Reply> {
    let invalid = || Refused::from("ERR Invalid command specified");
    let mut row = table::find(&args[0]).ok_or_else(invalid)?;
    if !row.subs.is_empty() && args.len() > 1 {
        row = table::find_sub(row, &args[1]).ok_or_else(invalid)?;
    }
    if !row.has_keys() {
        return Err(Refused::from("ERR The command has no key arguments"));
    }
    if !row.arity_fits(args.len()) {
        return Err(Refused::from("ERR Invalid number of arguments specified for command"));
    }
    let keys: Vec<Reply> = row
        .key_positions(args)
        .map(|at| {
            let key = Reply::Bulk(args[at].clone());
            if with_flags { Reply::Array(vec![key, words(key_flags(row))]) } else { key }
        })
        .collect();
    if keys.is_empty() {
        return Err(Refused::from("ERR Invalid arguments specified for command"));
    }
    Ok(Reply::Array(keys))
}

/// COMMAND DOCS; no name means all. Unknown names are left out.
pub fn docs(names: &[Bytes]) -> Reply {
    if names.is_empty() {
        return Reply::Map(table::rows().iter().map(|row| (bulk(row.name), document(row))).collect());
    }
    let found = names.iter().filter_map(|name| table::find_full(name));
    Reply::Map(found.map(|row| (bulk(row.name), document(row))).collect())
}

fn document(row: &'static Row) -> Reply {
    let mut map = vec![
        (bulk("summary"), bulk(row.summary)),
        (bulk("since"), bulk(row.since)),
        (bulk("group"), bulk(row.group)),
        (bulk("complexity"), bulk(row.complexity)),
    ];
    let arguments = syntax::arguments(row.syntax);
    if !arguments.is_empty() {
        map.push((bulk("arguments"), Reply::Array(arguments.iter().map(syntax::Argument::reply).collect())));
    }
    if !row.subs.is_empty() {
        let subs = row.subs.iter().map(|sub| (bulk(sub.name), document(sub))).collect();
        map.push((bulk("subcommands"), Reply::Map(subs)));
    }
    Reply::Map(map)
}

/// The ten fields of `COMMAND INFO`.
fn describe(row: &'static Row) -> Reply {
    let (first, last, step) = match row.keys {
        Keys::None | Keys::Streams => (0, 0, 0),
        Keys::Range { first, last, step } => (first as i64, last as i64, step as i64),
    };
    Reply::Array(vec![
        bulk(row.name),
        Reply::Int(i64::from(row.arity)),
        words(FLAG_NAMES.iter().filter(|(flag, _)| row.is(*flag)).map(|(_, name)| *name)),
        Reply::Int(first),
        Reply::Int(last),
        Reply::Int(step),
        words(row.categories()),
        Reply::Array(tips(row).iter().map(|tip| bulk(tip)).collect()),
        Reply::Array(key_specification(row).into_iter().collect()),
        Reply::Array(row.subs.iter().map(describe).collect()),
    ])
}

/// What cluster clients may assume about the answer.
fn tips(row: &Row) -> &'static [&'static str] {
    match row.name {
        "xadd" | "xreadgroup" | "xclaim" | "xautoclaim" | "xinfo|stream" | "xinfo|groups"
        | "xinfo|consumers" | "ttl" | "pttl" | "info" | "time" => &["nondeterministic_output"],
        _ if row.is(LEADER_ONLY) => &["nondeterministic_output"],
        "dbsize" => &["request_policy:all_shards", "response_policy:agg_sum"],
        "flushall" | "flushdb" => &["request_policy:all_shards", "response_policy:all_succeeded"],
        "wait" | "waitaof" => &["request_policy:all_shards", "response_policy:agg_min"],
        "del" | "unlink" | "exists" | "touch" => &["request_policy:multi_shard", "response_policy:agg_sum"],
        _ => &[],
    }
}

fn key_flags(row: &Row) -> Vec<&'static str> {
    match row.key_use {
        KeyUse::Read => vec!["RO", "ACCESS"],
        KeyUse::Insert => vec!["RW", "INSERT"],
        KeyUse::Update => vec!["RW", "UPDATE"],
        KeyUse::Delete => vec!["RW", "DELETE"],
        KeyUse::Overwrite => vec!["OW", "UPDATE"],
        KeyUse::Channel => vec!["not_key"],
    }
}

fn key_specification(row: &Row) -> Option<Reply> {
    let spec = |kind: &str, fields: Vec<(&str, Reply)>| {
        let fields = fields.into_iter().map(|(name, value)| (bulk(name), value)).collect();
        Reply::Map(vec![(bulk("type"), bulk(kind)), (bulk("spec"), Reply::Map(fields))])
    };
    let range = |last: i64, step: i64, limit: i64| {
        spec(
            "range",
            vec![("lastkey", Reply::Int(last)), ("keystep", Reply::Int(step)), ("limit", Reply::Int(limit))],
        )
    };
    let (begin, find) = match row.keys {
        Keys::None => return None,
        Keys::Range { first, last, step } => {
            // Relative to the first key.
            let last = if last < 0 { last as i64 } else { last as i64 - first as i64 };
            (spec("index", vec![("index", Reply::Int(first as i64))]), range(last, step as i64, 0))
        }
        Keys::Streams => {
            let start = if row.is(table::WRITE) { 4 } else { 1 };
            (
                spec("keyword", vec![("keyword", bulk("STREAMS")), ("startfrom", Reply::Int(start))]),
                range(-1, 1, 2),
            )
        }
    };
    Some(Reply::Map(vec![
        (bulk("flags"), words(key_flags(row))),
        (bulk("begin_search"), begin),
        (bulk("find_keys"), find),
    ]))
}
