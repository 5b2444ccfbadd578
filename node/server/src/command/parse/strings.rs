//! Plain strings.

use super::keys::{DELTA_MS_MAX, invalid_expire, scaled};
use super::*;
use crate::command::table::wrong_arity;
use weir_stream::{Command, ExpireWhen, KeepUntil, Query, Set, SetCondition, StringEdit};

pub(crate) fn get(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::Get { key: args[1].clone() }))
}

pub(crate) fn set(args: &[Bytes]) -> Parsed {
    let mut set = Set {
        key: args[1].clone(),
        value: args[2].clone(),
        expire: None,
        keep_ttl: false,
        condition: SetCondition::Always,
        get: false,
    };
    let mut expire: Option<(&[u8], i64, bool)> = None;
    let mut at = 3;
    while let Some(option) = args.get(at) {
        let timed = expire.is_some() || set.keep_ttl;
        let unit = [("EX", 1000, false), ("PX", 1, false), ("EXAT", 1000, true), ("PXAT", 1, true)]
            .into_iter()
            .find(|(word, ..)| is(option, word));
        match (unit, args.get(at + 1)) {
            (Some((_, unit_ms, absolute)), Some(value)) if !timed => {
                expire = Some((value, unit_ms, absolute));
                at += 1;
            }
            _ if is(option, "NX") && set.condition == SetCondition::Always => {
                set.condition = SetCondition::IfAbsent
            }
            _ if is(option, "XX") && set.condition == SetCondition::Always => {
                set.condition = SetCondition::IfPresent
            }
            _ if is(option, "GET") => set.get = true,
            _ if is(option, "KEEPTTL") && !timed => set.keep_ttl = true,
            _ => return Err(Refused::from(SYNTAX)),
        }
        at += 1;
    }
    if let Some((value, unit_ms, absolute)) = expire {
        set.expire = Some(time_to_live(value, unit_ms, absolute, "set")?);
    }
    Ok(Request::write(Command::Set(set)))
}

pub(crate) fn setnx(args: &[Bytes]) -> Parsed {
    let pairs = vec![(args[1].clone(), args[2].clone())];
    Ok(Request::write(Command::SetMany { pairs, only_if_absent: true }))
}

pub(crate) fn setex(args: &[Bytes]) -> Parsed {
    set_with_end(args, "setex", 1000)
}

pub(crate) fn psetex(args: &[Bytes]) -> Parsed {
    set_with_end(args, "psetex", 1)
}

fn set_with_end(args: &[Bytes], name: &'static str, unit_ms: i64) -> Parsed {
    let expire = Some(time_to_live(&args[2], unit_ms, false, name)?);
    let (key, value) = (args[1].clone(), args[3].clone());
    let condition = SetCondition::Always;
    Ok(Request::write(Command::Set(Set { key, value, expire, keep_ttl: false, condition, get: false })))
}

pub(crate) fn getset(args: &[Bytes]) -> Parsed {
    let (key, value) = (args[1].clone(), args[2].clone());
    let condition = SetCondition::Always;
    Ok(Request::write(Command::Set(Set { key, value, expire: None, keep_ttl: false, condition, get: true })))
}

/// A time to live or a deadline above zero.
fn time_to_live(value: &[u8], unit_ms: i64, absolute: bool, name: &'static str) -> Parsed<ExpireWhen> {
    let n = int(value)?;
    if n <= 0 {
        return Err(invalid_expire(name));
    }
    let ms = scaled(n, unit_ms, name)?;
    match absolute {
        true => Ok(ExpireWhen::At(ms)),
        false if ms > DELTA_MS_MAX => Err(invalid_expire(name)),
        false => Ok(ExpireWhen::In(ms)),
    }
}

pub(crate) fn mset(args: &[Bytes]) -> Parsed {
    set_many(args, "mset", false)
}

pub(crate) fn msetnx(args: &[Bytes]) -> Parsed {
    set_many(args, "msetnx", true)
}

fn set_many(args: &[Bytes], name: &'static str, only_if_absent: bool) -> Parsed {
    if args.len().is_multiple_of(2) {
        return Err(wrong_arity(name));
    }
    let pairs = args[1..].chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    Ok(Request::write(Command::SetMany { pairs, only_if_absent }))
}

pub(crate) fn mget(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::GetMany { keys: args[1..].to_vec() }))
}

pub(crate) fn strlen(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::Strlen { key: args[1].clone() }))
}

pub(crate) fn getrange(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::GetRange { key: args[1].clone(), start: int(&args[2])?, end: int(&args[3])? }))
}

fn edit(args: &[Bytes], edit: StringEdit) -> Parsed {
    Ok(Request::write(Command::EditString { key: args[1].clone(), edit }))
}

pub(crate) fn append(args: &[Bytes]) -> Parsed {
    edit(args, StringEdit::Append(args[2].clone()))
}

pub(crate) fn setrange(args: &[Bytes]) -> Parsed {
    let offset = u64::try_from(int(&args[2])?).map_err(|_| Refused::from("ERR offset is out of range"))?;
    edit(args, StringEdit::SetRange { offset, value: args[3].clone() })
}

pub(crate) fn incr(args: &[Bytes]) -> Parsed {
    edit(args, StringEdit::Increment(1))
}

pub(crate) fn decr(args: &[Bytes]) -> Parsed {
    edit(args, StringEdit::Increment(-1))
}

pub(crate) fn incrby(args: &[Bytes]) -> Parsed {
    edit(args, StringEdit::Increment(int(&args[2])?))
}

pub(crate) fn decrby(args: &[Bytes]) -> Parsed {
    let by = int(&args[2])?.checked_neg().ok_or_else(|| Refused::from("ERR decrement would overflow"))?;
    edit(args, StringEdit::Increment(by))
}

pub(crate) fn getdel(args: &[Bytes]) -> Parsed {
    edit(args, StringEdit::GetDelete)
}

pub(crate) fn getex(args: &[Bytes]) -> Parsed {
    let until = match &args[2..] {
        [] => return get(args),
        [word] if is(word, "PERSIST") => KeepUntil::Forever,
        [word, value] => {
            let units = [("EX", 1000, false), ("PX", 1, false), ("EXAT", 1000, true), ("PXAT", 1, true)];
            let unit = units.into_iter().find(|(name, ..)| is(word, name));
            let (_, unit_ms, absolute) = unit.ok_or_else(|| Refused::from(SYNTAX))?;
            KeepUntil::Deadline(time_to_live(value, unit_ms, absolute, "getex")?)
        }
        _ => return Err(Refused::from(SYNTAX)),
    };
    edit(args, StringEdit::GetExpire(until))
}
