//! XREAD and XREADGROUP.

use super::*;
use crate::command::Block;
use weir_stream::{Command, GroupReadId, Query, ReadId, ReadLimits, Xreadgroup};

/// Options of both.
#[derive(Default)]
struct Options {
    count: Option<u64>,
    block: Option<Block>,
    group: Option<(Bytes, Bytes)>,
    noack: bool,
    claim_min_idle_ms: Option<u64>,
    limits: ReadLimits,
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
    let (count, limits) = (options.count, options.limits);
    let query = match limits == ReadLimits::default() {
        true => Query::Xread { keys, count },
        false => Query::XreadWithin { keys, count, limits },
    };
    Ok(Request::Read(query, options.block))
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
    let read = Xreadgroup { group, consumer, count, noack, keys, woken: false };
    let command = match (options.claim_min_idle_ms, options.limits) {
        (None, limits) if limits == ReadLimits::default() => Command::Xreadgroup(read),
        (claim_min_idle_ms, limits) => Command::XreadgroupWithin { read, claim_min_idle_ms, limits },
    };
    Ok(Request::Write(command, block))
}

/// Keys in the first half, ids in the second.
fn pairs<T>(streams: &[Bytes], id: impl Fn(&[u8]) -> Parsed<T>) -> Parsed<Vec<(Bytes, T)>> {
    let (keys, ids) = streams.split_at(streams.len() / 2);
    keys.iter().zip(ids).map(|(key, arg)| Ok((key.clone(), id(arg)?))).collect()
}

/// A bound of at least one.
fn positive(arg: &[u8], name: &str) -> Parsed<u64> {
    let value = u64::try_from(int(arg)?).ok().filter(|value| *value > 0);
    value.ok_or_else(|| Refused::from(format!("ERR {name} must be a positive integer")))
}

fn max_below_count(options: &Options) -> bool {
    options.limits.max_count.is_some_and(|max| options.count.is_some_and(|count| max < count))
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
        } else if is(arg, "MAXCOUNT") && more > 0 {
            options.limits.max_count = Some(positive(&args[at + 1], "MAXCOUNT")?);
            at += 2;
        } else if is(arg, "MAXSIZE") && more > 0 {
            options.limits.max_size = Some(positive(&args[at + 1], "MAXSIZE")?);
            at += 2;
        } else if is(arg, "CLAIM") && more > 0 {
            if !group_read {
                return Err(Refused::from(
                    "ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            let min_idle_ms = int_or(&args[at + 1], "ERR min-idle-time is not an integer or out of range")?;
            let min_idle_ms = u64::try_from(min_idle_ms)
                .map_err(|_| Refused::from("ERR min-idle-time must be a positive integer"))?;
            options.claim_min_idle_ms = Some(min_idle_ms);
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
                _ if max_below_count(&options) => {
                    Err(Refused::from("ERR MAXCOUNT must be greater than or equal to COUNT"))
                }
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
