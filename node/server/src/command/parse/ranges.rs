//! XRANGE, XREVRANGE, XLEN, XDEL.

use super::*;
use weir_stream::{Command, Query};

pub(crate) fn xlen(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::Xlen { key: args[1].clone() }))
}

pub(crate) fn xrange(args: &[Bytes]) -> Parsed {
    range(args, &args[2], &args[3], false)
}

pub(crate) fn xrevrange(args: &[Bytes]) -> Parsed {
    range(args, &args[3], &args[2], true)
}

fn range(args: &[Bytes], start: &[u8], end: &[u8], reverse: bool) -> Parsed {
    let (start, end) = (interval_start(start)?, interval_end(end)?);
    let mut count = None;
    for option in args[4..].chunks(2) {
        match option {
            [word, value] if is(word, "COUNT") => count = Some(not_negative(int(value)?)),
            _ => return Err(Refused::from(SYNTAX)),
        }
    }
    Ok(Request::read(Query::Xrange { key: args[1].clone(), start, end, count, reverse }))
}

pub(crate) fn xdel(args: &[Bytes]) -> Parsed {
    let ids = args[2..].iter().map(|arg| id(arg)).collect::<Parsed<_>>()?;
    Ok(Request::write(Command::Xdel { key: args[1].clone(), ids }))
}
