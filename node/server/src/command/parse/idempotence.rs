//! IDMP and IDMPAUTO of XADD, XCFGSET and XIDMPRECORD.

use super::*;
use sha2::{Digest, Sha256};
use weir_stream::{Command, Idempotent};

/// IDMP or IDMPAUTO as it is met.
pub(super) enum Idmp {
    /// The client names the add.
    Given(Idempotent),
    /// The fields name it.
    Auto(Bytes),
}

impl Idmp {
    /// The name of an add with these fields and values.
    pub(super) fn name(self, fields: &[Bytes]) -> Idempotent {
        match self {
            Idmp::Given(name) => name,
            Idmp::Auto(producer) => Idempotent { producer, iid: content_id(fields) },
        }
    }
}

/// Reads IDMP or IDMPAUTO at `at`; the position after it, or `None` when something else stands there.
pub(super) fn idmp_option(args: &[Bytes], at: usize, idmp: &mut Option<Idmp>) -> Parsed<Option<usize>> {
    let more = args.len() - at - 1;
    let (values, auto) = match &args[at] {
        arg if is(arg, "IDMP") && more >= 2 => (2, false),
        arg if is(arg, "IDMPAUTO") && more >= 1 => (1, true),
        _ => return Ok(None),
    };
    if idmp.is_some() {
        return Err(Refused::from("ERR syntax error, IDMP/IDMPAUTO specified multiple times"));
    }
    let producer = args[at + 1].clone();
    *idmp = Some(match auto {
        true if producer.is_empty() => {
            return Err(Refused::from("ERR syntax error, IDMPAUTO requires a non-empty producer ID"));
        }
        false if producer.is_empty() => {
            return Err(Refused::from("ERR syntax error, IDMP requires a non-empty producer ID"));
        }
        false if args[at + 2].is_empty() => {
            return Err(Refused::from("ERR syntax error, IDMP requires a non-empty idempotent ID"));
        }
        true => Idmp::Auto(producer),
        false => Idmp::Given(Idempotent { producer, iid: args[at + 2].clone() }),
    });
    Ok(Some(at + 1 + values))
}

/// 16 bytes that stand for fields and values in any order. Permanent: an add may be retried at a node of another
/// version. A digest that cannot be steered, since two adds with the same id are one.
fn content_id(fields: &[Bytes]) -> Bytes {
    let mut pairs: Vec<&[Bytes]> = fields.chunks(2).collect();
    pairs.sort_unstable();
    let mut digest = Sha256::new();
    for string in pairs.into_iter().flatten() {
        digest.update((string.len() as u64).to_le_bytes());
        digest.update(string);
    }
    Bytes::copy_from_slice(&digest.finalize()[..16])
}

pub(crate) fn xcfgset(args: &[Bytes]) -> Parsed {
    let (mut duration_s, mut maxsize) = (None, None);
    if args.len() == 2 {
        return Err(Refused::from("ERR At least one parameter must be specified"));
    }
    for option in args[2..].chunks(2) {
        let (known, name, max, unit) = match option {
            [word, _] if is(word, "IDMP-DURATION") => (&mut duration_s, "IDMP-DURATION", 86_400, "seconds"),
            [word, _] if is(word, "IDMP-MAXSIZE") => (&mut maxsize, "IDMP-MAXSIZE", 10_000, "entries"),
            _ => return Err(Refused::from(SYNTAX)),
        };
        if known.is_some() {
            return Err(Refused::from(format!("ERR {name} specified multiple times")));
        }
        let value = u32::try_from(int(&option[1])?).ok().filter(|value| (1..=max).contains(value));
        *known = Some(value.ok_or_else(|| format!("ERR {name} must be between 1 and {max} {unit}"))?);
    }
    Ok(Request::write(Command::Xcfgset { key: args[1].clone(), duration_s, maxsize }))
}

pub(crate) fn xidmprecord(args: &[Bytes]) -> Parsed {
    let [_, key, producer, iid, entry] = args else { return Err(Refused::from(SYNTAX)) };
    let id = id(entry)?;
    if producer.is_empty() {
        return Err(Refused::from("ERR producer ID must be non-empty"));
    }
    if iid.is_empty() {
        return Err(Refused::from("ERR idempotent ID must be non-empty"));
    }
    let add = Idempotent { producer: producer.clone(), iid: iid.clone() };
    Ok(Request::write(Command::Xidmprecord { key: key.clone(), add, id }))
}
