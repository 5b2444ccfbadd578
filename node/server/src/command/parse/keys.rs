//! Keys of any type.

use super::*;
use weir_stream::{Command, ExpireCondition, ExpireWhen, Query};

pub(crate) fn del(args: &[Bytes]) -> Parsed {
    Ok(Request::write(Command::Del { keys: args[1..].to_vec() }))
}

pub(crate) fn exists(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::Exists { keys: args[1..].to_vec() }))
}

pub(crate) fn type_(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::Type { key: args[1].clone() }))
}

pub(crate) fn rename(args: &[Bytes]) -> Parsed {
    Ok(Request::write(Command::Rename { from: args[1].clone(), to: args[2].clone(), only_if_absent: false }))
}

pub(crate) fn renamenx(args: &[Bytes]) -> Parsed {
    Ok(Request::write(Command::Rename { from: args[1].clone(), to: args[2].clone(), only_if_absent: true }))
}

pub(crate) fn expire(args: &[Bytes]) -> Parsed {
    expire_in(args, "expire", 1000)
}

pub(crate) fn pexpire(args: &[Bytes]) -> Parsed {
    expire_in(args, "pexpire", 1)
}

pub(crate) fn expireat(args: &[Bytes]) -> Parsed {
    let condition = condition(&args[3..])?;
    let at = scaled(int(&args[2])?, 1000, "expireat")?;
    Ok(Request::write(Command::Expire { key: args[1].clone(), when: ExpireWhen::At(at), condition }))
}

pub(crate) fn pexpireat(args: &[Bytes]) -> Parsed {
    let condition = condition(&args[3..])?;
    let at = int(&args[2])?;
    Ok(Request::write(Command::Expire { key: args[1].clone(), when: ExpireWhen::At(at), condition }))
}

fn expire_in(args: &[Bytes], name: &'static str, unit_ms: i64) -> Parsed {
    let condition = condition(&args[3..])?;
    let delta = scaled(int(&args[2])?, unit_ms, name)?;
    if delta > DELTA_MS_MAX {
        return Err(invalid_expire(name));
    }
    Ok(Request::write(Command::Expire { key: args[1].clone(), when: ExpireWhen::In(delta), condition }))
}

/// Longest time to live; a little more could not be added to a clock.
pub(super) const DELTA_MS_MAX: i64 = i64::MAX - (1 << 43);

/// Seconds or milliseconds as milliseconds.
pub(super) fn scaled(n: i64, unit_ms: i64, name: &'static str) -> Parsed<i64> {
    n.checked_mul(unit_ms).ok_or_else(|| invalid_expire(name))
}

pub(super) fn invalid_expire(name: &'static str) -> Refused {
    Refused::from(format!("ERR invalid expire time in '{name}' command"))
}

fn condition(options: &[Bytes]) -> Parsed<ExpireCondition> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in options {
        match option {
            _ if is(option, "NX") => nx = true,
            _ if is(option, "XX") => xx = true,
            _ if is(option, "GT") => gt = true,
            _ if is(option, "LT") => lt = true,
            _ => return Err(Refused::from(format!("ERR Unsupported option {}", text(option)))),
        }
    }
    if nx && (xx || gt || lt) {
        return Err(Refused::from("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    match (nx, xx, gt, lt) {
        (_, _, true, true) => Err(Refused::from("ERR GT and LT options at the same time are not compatible")),
        (_, true, _, true) => Ok(ExpireCondition::IfSomeAndSooner),
        (true, ..) => Ok(ExpireCondition::IfNone),
        // A key without an end counts as infinitely late, so GT implies XX.
        (_, _, true, _) => Ok(ExpireCondition::IfLater),
        (_, _, _, true) => Ok(ExpireCondition::IfSooner),
        (_, true, ..) => Ok(ExpireCondition::IfSome),
        _ => Ok(ExpireCondition::Always),
    }
}

pub(crate) fn persist(args: &[Bytes]) -> Parsed {
    Ok(Request::write(Command::Persist { key: args[1].clone() }))
}

fn time_left(args: &[Bytes], seconds: bool, absolute: bool) -> Parsed {
    Ok(Request::read(Query::Ttl { key: args[1].clone(), seconds, absolute }))
}

pub(crate) fn ttl(args: &[Bytes]) -> Parsed {
    time_left(args, true, false)
}

pub(crate) fn pttl(args: &[Bytes]) -> Parsed {
    time_left(args, false, false)
}

pub(crate) fn expiretime(args: &[Bytes]) -> Parsed {
    time_left(args, true, true)
}

pub(crate) fn pexpiretime(args: &[Bytes]) -> Parsed {
    time_left(args, false, true)
}

pub(crate) fn copy(args: &[Bytes]) -> Parsed {
    let mut replace = false;
    let mut at = 3;
    while let Some(option) = args.get(at) {
        match args.get(at + 1) {
            _ if is(option, "REPLACE") => replace = true,
            Some(db) if is(option, "DB") => {
                if int32(db)? != 0 {
                    return Err(Refused::from("ERR DB index is out of range"));
                }
                at += 1;
            }
            _ => return Err(Refused::from(SYNTAX)),
        }
        at += 1;
    }
    let (from, to) = (args[1].clone(), args[2].clone());
    if from == to {
        return Err(Refused::from("ERR source and destination objects are the same"));
    }
    Ok(Request::write(Command::Copy { from, to, replace }))
}

pub(crate) fn move_(_: &[Bytes]) -> Parsed {
    Err(Refused::from("ERR MOVE is not allowed in cluster mode"))
}

pub(crate) fn swapdb(_: &[Bytes]) -> Parsed {
    Err(Refused::from("ERR SWAPDB is not allowed in cluster mode"))
}

pub(crate) fn object_encoding(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::Encoding { key: args[2].clone() }))
}

pub(crate) fn object_refcount(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::RefCount { key: args[2].clone() }))
}

/// What Redis says without an eviction policy that counts.
pub(crate) fn object_freq(_: &[Bytes]) -> Parsed {
    Err(Refused::from(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
         between policies at runtime LRU and LFU data will take some time to adjust.",
    ))
}

pub(crate) fn object_idletime(_: &[Bytes]) -> Parsed {
    Err(Refused::from(
        "ERR OBJECT IDLETIME is not supported: keys carry no access time, since nothing is evicted",
    ))
}

pub(crate) fn object_help(_: &[Bytes]) -> Parsed {
    help(
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        &[
            "ENCODING <key>",
            "    Return the kind of internal representation used in order to store the value",
            "    associated with a <key>.",
            "REFCOUNT <key>",
            "    Return the number of references of the value associated with the specified",
            "    <key>.",
            "HELP",
            "    Print this help.",
        ],
    )
}

pub(crate) fn memory_usage(args: &[Bytes]) -> Parsed {
    for option in args[3..].chunks(2) {
        match option {
            // The estimate looks at everything, so it takes no samples.
            [word, samples] if is(word, "SAMPLES") && int(samples)? >= 0 => {}
            _ => return Err(Refused::from(SYNTAX)),
        }
    }
    Ok(Request::read(Query::MemoryUsage { key: args[2].clone() }))
}

pub(crate) fn memory_help(_: &[Bytes]) -> Parsed {
    help(
        "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        &[
            "DOCTOR",
            "    Return memory problems reports.",
            "MALLOC-STATS",
            "    Return internal statistics report from the memory allocator.",
            "PURGE",
            "    Attempt to purge dirty pages for reclamation by the allocator.",
            "STATS",
            "    Return information about the memory usage of the server.",
            "USAGE <key> [SAMPLES <count>]",
            "    Return memory in bytes used by <key> and its value. Nested values are",
            "    sampled up to <count> times (default: 5, 0 means sample all).",
            "HELP",
            "    Print this help.",
        ],
    )
}
