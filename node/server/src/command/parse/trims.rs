//! XTRIM, XSETID, and the trim options that XADD shares.

use super::refs::{refs_option, with_refs};
use super::*;
use weir_stream::{Command, Trim, TrimTo};

/// MAXLEN / MINID with `=`, `~` and LIMIT as they are met.
#[derive(Default)]
pub(super) struct TrimOptions {
    to: Option<TrimTo>,
    approximate: bool,
    limit: Option<u64>,
}

impl TrimOptions {
    /// What can only be judged when all options are read.
    pub(super) fn finish(self) -> Parsed<Option<Trim>> {
        let limited = self.limit.is_some_and(|limit| limit > 0);
        match self.to {
            None if limited => Err(Refused::from(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            )),
            _ if self.limit.is_some() && !self.approximate => {
                Err(Refused::from("ERR syntax error, LIMIT cannot be used without the special ~ option"))
            }
            None => Ok(None),
            Some(to) => Ok(Some(Trim { to, approximate: self.approximate, limit: self.limit })),
        }
    }
}

/// Reads one trim option at `at`; the position after it, or `None` when something else stands there.
pub(super) fn trim_option(args: &[Bytes], at: usize, options: &mut TrimOptions) -> Parsed<Option<usize>> {
    let (arg, more) = (&args[at], args.len() - at - 1);
    if more == 0 {
        return Ok(None);
    }
    if is(arg, "LIMIT") {
        let limit = int(&args[at + 1])?;
        options.limit =
            Some(u64::try_from(limit).map_err(|_| Refused::from("ERR The LIMIT argument must be >= 0."))?);
        return Ok(Some(at + 2));
    }
    let by_length = is(arg, "MAXLEN");
    if !by_length && !is(arg, "MINID") {
        return Ok(None);
    }
    if options.to.is_some() {
        return Err(Refused::from(
            "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
        ));
    }
    let mark = (more >= 2).then(|| args[at + 1].as_ref()).filter(|mark| matches!(*mark, b"~" | b"="));
    options.approximate = mark == Some(b"~");
    let value_at = at + 1 + usize::from(mark.is_some());
    let value = &args[value_at];
    options.to = Some(if by_length {
        let len = int(value)?;
        TrimTo::MaxLen(
            u64::try_from(len).map_err(|_| Refused::from("ERR The MAXLEN argument must be >= 0."))?,
        )
    } else {
        TrimTo::MinId(id(value)?)
    });
    Ok(Some(value_at + 1))
}

pub(crate) fn xtrim(args: &[Bytes]) -> Parsed {
    let mut options = TrimOptions::default();
    let mut refs = None;
    let mut at = 2;
    while at < args.len() {
        if let Some(next) = trim_option(args, at, &mut options)? {
            at = next;
        } else if let Some(word) = refs_option(&args[at]).filter(|_| refs.is_none()) {
            refs = Some(word);
            at += 1;
        } else {
            return Err(Refused::from(SYNTAX));
        }
    }
    let trim = options.finish()?.ok_or_else(|| Refused::from(SYNTAX))?;
    Ok(Request::write(with_refs(refs, Command::Xtrim { key: args[1].clone(), trim })))
}

pub(crate) fn xsetid(args: &[Bytes]) -> Parsed {
    let last_id = id(&args[2])?;
    let (mut entries_added, mut max_deleted_id) = (None, None);
    let mut at = 3;
    while at < args.len() {
        let value = args.get(at + 1).ok_or_else(|| Refused::from(SYNTAX))?;
        if is(&args[at], "ENTRIESADDED") {
            let n = int(value)?;
            entries_added =
                Some(u64::try_from(n).map_err(|_| Refused::from("ERR entries_added must be positive"))?);
        } else if is(&args[at], "MAXDELETEDID") {
            let max = id(value)?;
            if last_id < max {
                return Err(Refused::from(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
            max_deleted_id = Some(max);
        } else {
            return Err(Refused::from(SYNTAX));
        }
        at += 2;
    }
    Ok(Request::write(Command::Xsetid { key: args[1].clone(), last_id, entries_added, max_deleted_id }))
}
