//! Plain strings: SET and GET.

use super::keys::{DELTA_MS_MAX, invalid_expire, scaled};
use super::*;
use weir_stream::{Command, ExpireWhen, Query, Set, SetCondition};

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
        let n = int(value)?;
        if n <= 0 {
            return Err(invalid_expire("set"));
        }
        let ms = scaled(n, unit_ms, "set")?;
        set.expire = Some(match absolute {
            true => ExpireWhen::At(ms),
            false if ms > DELTA_MS_MAX => return Err(invalid_expire("set")),
            false => ExpireWhen::In(ms),
        });
    }
    Ok(Request::write(Command::Set(set)))
}
