//! Arguments to requests, one file a family. Nothing here looks at state: what depends on it is decided in apply.
//!
//! Words are compared whatever their case. Errors have the texts of Redis, and come in its order.

pub(super) mod acl;
pub(super) mod client;
pub(super) mod connection;
pub(super) mod dump;
pub(super) mod groups;
pub(super) mod idempotence;
pub(super) mod info;
pub(super) mod keys;
pub(super) mod observe;
pub(super) mod pending;
pub(super) mod pubsub;
pub(super) mod ranges;
pub(super) mod reads;
pub(super) mod refs;
pub(super) mod server;
pub(super) mod strings;
pub(super) mod transaction;
pub(super) mod trims;
pub(super) mod xadd;

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod tests;

use super::Request;
use bytes::Bytes;
use std::borrow::Cow;
use std::time::Duration;
use weir_stream::{EntryId, Reply};

/// The arguments make no sense: the full error text, prefix included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub Cow<'static, str>);

impl From<&'static str> for Refused {
    fn from(text: &'static str) -> Self {
        Refused(Cow::Borrowed(text))
    }
}

impl From<String> for Refused {
    fn from(text: String) -> Self {
        Refused(Cow::Owned(text))
    }
}

pub(super) type Parsed<T = Request> = Result<T, Refused>;

pub(super) const SYNTAX: &str = "ERR syntax error";
pub(super) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(super) const BAD_ID: &str = "ERR Invalid stream ID specified as stream command argument";

/// Whether `arg` is this word.
pub(super) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// As it is shown in an error: up to a byte of zero, as in Redis.
pub(super) fn text(arg: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&arg[..arg.iter().position(|byte| *byte == 0).unwrap_or(arg.len())])
}

pub(super) fn int(arg: &[u8]) -> Parsed<i64> {
    int_or(arg, NOT_AN_INTEGER)
}

pub(super) fn int_or(arg: &[u8], otherwise: &'static str) -> Parsed<i64> {
    weir_resp::parse_i64(arg).ok_or_else(|| Refused::from(otherwise))
}

/// An integer of 32 bits.
pub(super) fn int32(arg: &[u8]) -> Parsed<i32> {
    i32::try_from(int(arg)?).map_err(|_| {
        Refused::from("ERR value is out of range, value must between -2147483648 and 2147483647")
    })
}

/// An integer of which the negative half means zero.
pub(super) fn not_negative(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

/// `ms` or `ms-seq`.
pub(super) fn id(arg: &[u8]) -> Parsed<EntryId> {
    EntryId::parse(arg, 0).map_err(|_| Refused::from(BAD_ID))
}

/// Like [`id`], but `-` and `+` are the smallest and the largest id.
fn id_or_bound(arg: &[u8], missing_seq: u64) -> Parsed<EntryId> {
    match arg {
        b"-" => Ok(EntryId::MIN),
        b"+" => Ok(EntryId::MAX),
        _ => EntryId::parse(arg, missing_seq).map_err(|_| Refused::from(BAD_ID)),
    }
}

/// First id of an interval, made inclusive.
pub(super) fn interval_start(arg: &[u8]) -> Parsed<EntryId> {
    match arg.strip_prefix(b"(") {
        None => id_or_bound(arg, 0),
        Some(open) => EntryId::parse(open, 0)
            .map_err(|_| Refused::from(BAD_ID))?
            .next()
            .ok_or_else(|| Refused::from("ERR invalid start ID for the interval")),
    }
}

/// Last id of an interval, made inclusive.
pub(super) fn interval_end(arg: &[u8]) -> Parsed<EntryId> {
    match arg.strip_prefix(b"(") {
        None => id_or_bound(arg, u64::MAX),
        Some(open) => EntryId::parse(open, u64::MAX)
            .map_err(|_| Refused::from(BAD_ID))?
            .prev()
            .ok_or_else(|| Refused::from("ERR invalid end ID for the interval")),
    }
}

/// Longest wait that can be asked for; anything above could not be added to a clock.
const TIMEOUT_MS_MAX: i64 = i64::MAX - (1 << 43);

/// Milliseconds to wait; `None` is 0, for ever.
pub(super) fn timeout_ms(arg: &[u8]) -> Parsed<Option<Duration>> {
    match int_or(arg, "ERR timeout is not an integer or out of range")? {
        n if n < 0 => Err(Refused::from("ERR timeout is negative")),
        n if n > TIMEOUT_MS_MAX => Err(Refused::from("ERR timeout is out of range")),
        0 => Ok(None),
        n => Ok(Some(Duration::from_millis(n as u64))),
    }
}

/// Options of the container's subcommand that do not fit.
pub(super) fn sub_syntax(args: &[Bytes]) -> Refused {
    Refused::from(format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try {} HELP.",
        text(&args[1][..args[1].len().min(128)]),
        text(&args[0]).to_ascii_uppercase()
    ))
}

/// The answer to `... HELP`.
pub(super) fn help(head: &'static str, lines: &'static [&'static str]) -> Parsed {
    let lines = std::iter::once(&head).chain(lines).map(|line| Reply::Simple(line)).collect();
    Ok(Request::Ready(Reply::Array(lines)))
}
