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
    let mut expire: Option<Given<'_>> = None;
    let mut at = 3;
    while let Some(option) = args.get(at) {
        let given = if set.keep_ttl { None } else { end_option(&args[at..], expire.as_ref()) };
        if let Some(given) = given {
            expire = Some(given);
            at += 1;
        } else if let Some(condition) = condition_option(&args[at..], &set.condition) {
            let plain = [SetCondition::IfAbsent, SetCondition::IfPresent].contains(&condition);
            at += usize::from(!plain);
            set.condition = condition;
        } else if is(option, "GET") {
            set.get = true;
        } else if is(option, "KEEPTTL") && expire.is_none() {
            set.keep_ttl = true;
        } else {
            return Err(Refused::from(SYNTAX));
        }
        at += 1;
    }
    if let Some(given) = expire {
        set.expire = Some(given.end("set")?);
    }
    Ok(Request::write(Command::Set(set)))
}

/// The condition at hand. It may be repeated, but not joined by another.
fn condition_option(args: &[Bytes], before: &SetCondition) -> Option<SetCondition> {
    let condition = match (&args[0], args.get(1)) {
        (word, _) if is(word, "NX") => SetCondition::IfAbsent,
        (word, _) if is(word, "XX") => SetCondition::IfPresent,
        (word, Some(value)) if is(word, "IFEQ") => SetCondition::IfEqual(value.clone()),
        (word, Some(value)) if is(word, "IFNE") => SetCondition::IfNotEqual(value.clone()),
        (word, Some(value)) if is(word, "IFDEQ") => SetCondition::IfDigest(value.clone()),
        (word, Some(value)) if is(word, "IFDNE") => SetCondition::IfNotDigest(value.clone()),
        _ => return None,
    };
    let same = std::mem::discriminant(&condition) == std::mem::discriminant(before);
    (same || *before == SetCondition::Always).then_some(condition)
}

pub(crate) fn delex(args: &[Bytes]) -> Parsed {
    let condition = match &args[2..] {
        [] => return Ok(Request::write(Command::Del { keys: vec![args[1].clone()] })),
        [_, _] => match condition_option(&args[2..], &SetCondition::Always) {
            Some(SetCondition::IfAbsent | SetCondition::IfPresent) | None => {
                return Err(Refused::from("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"));
            }
            Some(condition) => condition,
        },
        _ => return Err(crate::command::table::wrong_arity("delex")),
    };
    Ok(Request::write(Command::EditString { key: args[1].clone(), edit: StringEdit::DeleteIf(condition) }))
}

pub(crate) fn digest(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::Digest { key: args[1].clone() }))
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

/// EX, PX, EXAT or PXAT with its value.
struct Given<'a> {
    word: &'static str,
    value: &'a [u8],
    unit_ms: i64,
    absolute: bool,
}

impl Given<'_> {
    fn end(&self, name: &'static str) -> Parsed<ExpireWhen> {
        time_to_live(self.value, self.unit_ms, self.absolute, name)
    }
}

/// The option at hand if it is one of those. It may be repeated, but not joined by another.
fn end_option<'a>(args: &'a [Bytes], before: Option<&Given<'a>>) -> Option<Given<'a>> {
    let units = [("EX", 1000, false), ("PX", 1, false), ("EXAT", 1000, true), ("PXAT", 1, true)];
    let [option, value, ..] = args else { return None };
    let (word, unit_ms, absolute) = units.into_iter().find(|(word, ..)| is(option, word))?;
    let fits = before.is_none_or(|before| before.word == word);
    fits.then_some(Given { word, value, unit_ms, absolute })
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
    if args.len() == 2 {
        return get(args);
    }
    let (mut expire, mut forever) = (None, false);
    let mut at = 2;
    while let Some(option) = args.get(at) {
        let given = if forever { None } else { end_option(&args[at..], expire.as_ref()) };
        if let Some(given) = given {
            expire = Some(given);
            at += 1;
        } else if is(option, "PERSIST") && expire.is_none() {
            forever = true;
        } else {
            return Err(Refused::from(SYNTAX));
        }
        at += 1;
    }
    let until = match expire {
        Some(given) => KeepUntil::Deadline(given.end("getex")?),
        None => KeepUntil::Forever,
    };
    edit(args, StringEdit::GetExpire(until))
}
