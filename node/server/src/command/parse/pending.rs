//! The pending entries of a group: XACK, XNACK, XPENDING, XCLAIM, XAUTOCLAIM.

use super::*;
use weir_stream::{ClaimTime, Command, NackMode, PendingRange, Query, Xclaim, Xnack};

pub(crate) fn xack(args: &[Bytes]) -> Parsed {
    Ok(Request::write(Command::Xack {
        key: args[1].clone(),
        group: args[2].clone(),
        ids: args[3..].to_vec(),
    }))
}

pub(crate) fn xnack(args: &[Bytes]) -> Parsed {
    let modes = [("SILENT", NackMode::Silent), ("FAIL", NackMode::Fail), ("FATAL", NackMode::Fatal)];
    let mode = modes.into_iter().find(|(word, _)| is(&args[3], word)).map(|(_, mode)| mode);
    let mode = mode.ok_or_else(|| Refused::from("ERR mode must be SILENT, FAIL, or FATAL"))?;
    let (key, group) = (args[1].clone(), args[2].clone());
    let mut nack = Xnack { key, group, mode, ids: Vec::new(), retry_count: None, force: false };
    let mut ids: Option<&[Bytes]> = None;
    let mut at = 4;
    while let Some(option) = args.get(at) {
        match args.get(at + 1) {
            Some(count) if is(option, "IDS") => {
                let count = int(count).ok().and_then(|count| i32::try_from(count).ok());
                let count = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
                let count = count.ok_or_else(|| Refused::from("ERR numids must be a positive integer"))?;
                let given = args[at + 2..].get(..count);
                ids = Some(given.ok_or_else(|| Refused::from("ERR number of IDs doesn't match numids"))?);
                at += 1 + count;
            }
            _ if is(option, "FORCE") => nack.force = true,
            Some(count) if is(option, "RETRYCOUNT") => {
                let count = u64::try_from(int(count)?);
                nack.retry_count =
                    Some(count.map_err(|_| Refused::from("ERR Invalid RETRYCOUNT value, must be >= 0"))?);
                at += 1;
            }
            _ => return Err(Refused::from(format!("ERR Unrecognized XNACK option '{}'", text(option)))),
        }
        at += 1;
    }
    let ids = ids.ok_or_else(|| Refused::from("ERR syntax error, expected IDS keyword"))?;
    nack.ids = ids.iter().map(|arg| id(arg)).collect::<Parsed<_>>()?;
    Ok(Request::write(Command::Xnack(nack)))
}

pub(crate) fn xpending(args: &[Bytes]) -> Parsed {
    let (key, group) = (args[1].clone(), args[2].clone());
    if args.len() == 3 {
        return Ok(Request::read(Query::Xpending { key, group, range: None }));
    }
    if !(6..=9).contains(&args.len()) {
        return Err(Refused::from(SYNTAX));
    }
    let mut min_idle_ms = 0;
    let mut at = 3;
    if is(&args[3], "IDLE") {
        min_idle_ms = not_negative(int(&args[4])?);
        if args.len() < 8 {
            return Err(Refused::from(SYNTAX));
        }
        at = 5;
    }
    let count = not_negative(int(&args[at + 2])?);
    let (start, end) = (interval_start(&args[at])?, interval_end(&args[at + 1])?);
    let consumer = args.get(at + 3).cloned();
    let range = Some(PendingRange { min_idle_ms, start, end, count, consumer });
    Ok(Request::read(Query::Xpending { key, group, range }))
}

pub(crate) fn xclaim(args: &[Bytes]) -> Parsed {
    let min_idle_ms = not_negative(int_or(&args[4], "ERR Invalid min-idle-time argument for XCLAIM")?);
    // Ids run up to the first word that is none; the rest are options.
    let ids: Vec<EntryId> = args[5..].iter().map_while(|arg| id(arg).ok()).collect();
    let mut claim = Xclaim {
        key: args[1].clone(),
        group: args[2].clone(),
        consumer: args[3].clone(),
        min_idle_ms,
        delivery_time: ClaimTime::Now,
        retry_count: None,
        force: false,
        justid: false,
        last_id: None,
        ids,
    };
    let mut at = 5 + claim.ids.len();
    while let Some(option) = args.get(at) {
        let value = args.get(at + 1);
        at += 2;
        match value {
            _ if is(option, "FORCE") => {
                claim.force = true;
                at -= 1;
            }
            _ if is(option, "JUSTID") => {
                claim.justid = true;
                at -= 1;
            }
            Some(ms) if is(option, "IDLE") => {
                claim.delivery_time =
                    ClaimTime::Idle(int_or(ms, "ERR Invalid IDLE option argument for XCLAIM")?);
            }
            Some(ms) if is(option, "TIME") => {
                claim.delivery_time =
                    ClaimTime::At(int_or(ms, "ERR Invalid TIME option argument for XCLAIM")?);
            }
            Some(count) if is(option, "RETRYCOUNT") => {
                let count = int_or(count, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                claim.retry_count = u64::try_from(count).ok();
            }
            Some(last) if is(option, "LASTID") => claim.last_id = Some(id(last)?),
            _ => return Err(Refused::from(format!("ERR Unrecognized XCLAIM option '{}'", text(option)))),
        }
    }
    Ok(Request::write(Command::Xclaim(claim)))
}

/// Entries that XAUTOCLAIM takes without COUNT.
const AUTOCLAIM_COUNT_DEFAULT: u64 = 100;

pub(crate) fn xautoclaim(args: &[Bytes]) -> Parsed {
    let min_idle_ms = not_negative(int_or(&args[4], "ERR Invalid min-idle-time argument for XAUTOCLAIM")?);
    let start = interval_start(&args[5])?;
    let (mut count, mut justid) = (AUTOCLAIM_COUNT_DEFAULT, false);
    let mut at = 6;
    while at < args.len() {
        if is(&args[at], "COUNT") && at + 1 < args.len() {
            // Sixteen bytes an id and ten looks an entry must stay countable.
            count = match weir_resp::parse_i64(&args[at + 1]) {
                Some(n) if n > 0 && n <= i64::MAX / 16 => n as u64,
                _ => return Err(Refused::from("ERR COUNT must be > 0")),
            };
            at += 2;
        } else if is(&args[at], "JUSTID") {
            justid = true;
            at += 1;
        } else {
            return Err(Refused::from(SYNTAX));
        }
    }
    let (key, group, consumer) = (args[1].clone(), args[2].clone(), args[3].clone());
    Ok(Request::write(Command::Xautoclaim { key, group, consumer, min_idle_ms, start, count, justid }))
}
