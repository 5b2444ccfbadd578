//! XREAD and XREADGROUP.

use super::*;
use crate::command::Block;
use weir_stream::{Command, GroupReadId, Query, ReadId, Xreadgroup};

/// Options of both.
#[derive(Default)]
struct Options {
    count: Option<u64>,
    block: Option<Block>,
    group: Option<(Bytes, Bytes)>,
    noack: bool,
}

pub(crate) fn xread(args: &[Bytes]) -> Parsed {
    let (options, streams) = options(args, false)?;
    let keys = pairs(streams, |arg| match arg {
        b"$" => Ok(ReadId::Last),
        b"+" => Ok(ReadId::LastEntry),
        b">" => Err(Refused::from(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
        )),
        _ => Ok(ReadId::After(id(arg)?)),
    })?;
    Ok(Request::Read(Query::Xread { keys, count: options.count }, options.block))
}

pub(crate) fn xreadgroup(args: &[Bytes]) -> Parsed {
    let (options, streams) = options(args, true)?;
    let (group, consumer) =
        options.group.ok_or_else(|| Refused::from("ERR Missing GROUP option for XREADGROUP"))?;
    let meaningless = |id: char| {
        Refused::from(format!(
            "ERR The {id} ID is meaningless in the context of XREADGROUP: you want to read the history of this \
             consumer by specifying a proper ID, or use the > ID to get new messages. The {id} ID would just return \
             an empty result set."
        ))
    };
    let keys = pairs(streams, |arg| match arg {
        b">" => Ok(GroupReadId::New),
        b"$" => Err(meaningless('$')),
        b"+" => Err(meaningless('+')),
        _ => Ok(GroupReadId::After(id(arg)?)),
    })?;
    // Only new entries are waited for.
    let block = options.block.filter(|_| keys.iter().all(|(_, id)| *id == GroupReadId::New));
    let (count, noack) = (options.count, options.noack);
    Ok(Request::Write(
        Command::Xreadgroup(Xreadgroup { group, consumer, count, noack, keys, woken: false }),
        block,
    ))
}

/// Keys in the first half, ids in the second.
fn pairs<T>(streams: &[Bytes], id: impl Fn(&[u8]) -> Parsed<T>) -> Parsed<Vec<(Bytes, T)>> {
    let (keys, ids) = streams.split_at(streams.len() / 2);
    keys.iter().zip(ids).map(|(key, arg)| Ok((key.clone(), id(arg)?))).collect()
}

/// Everything before the keys, and keys with ids.
fn options(args: &[Bytes], group_read: bool) -> Parsed<(Options, &[Bytes])> {
    let mut options = Options::default();
    let mut at = 1;
    while let Some(arg) = args.get(at) {
        let more = args.len() - at - 1;
        if is(arg, "BLOCK") && more > 0 {
            options.block = Some(Block(timeout_ms(&args[at + 1])?));
            at += 2;
        } else if is(arg, "COUNT") && more > 0 {
            let count = int(&args[at + 1])?;
            options.count = u64::try_from(count).ok().filter(|count| *count > 0);
            at += 2;
        } else if is(arg, "STREAMS") && more > 0 {
            let streams = &args[at + 1..];
            return match (streams.len() % 2, group_read) {
                (1, false) => Err(Refused::from(
                    "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.",
                )),
                (1, true) => Err(Refused::from(
                    "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.",
                )),
                _ => Ok((options, streams)),
            };
        } else if is(arg, "GROUP") && more >= 2 {
            if !group_read {
                return Err(Refused::from(
                    "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            options.group = Some((args[at + 1].clone(), args[at + 2].clone()));
            at += 3;
        } else if is(arg, "NOACK") {
            if !group_read {
                return Err(Refused::from(
                    "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            options.noack = true;
            at += 1;
        } else {
            return Err(Refused::from(SYNTAX));
        }
    }
    Err(Refused::from(SYNTAX))
}
