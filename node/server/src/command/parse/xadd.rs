//! XADD.

use super::idempotence::idmp_option;
use super::refs::{refs_option, with_refs};
use super::trims::{TrimOptions, trim_option};
use super::*;
use crate::command::table::wrong_arity;
use weir_stream::{AddId, Command, Xadd};

pub(crate) fn xadd(args: &[Bytes]) -> Parsed {
    let mut no_mkstream = false;
    let mut trim = TrimOptions::default();
    let mut id = AddId::Auto;
    let mut idmp = None;
    let mut refs = None;
    let mut at = 2;
    while let Some(arg) = args.get(at) {
        if arg.as_ref() == b"*" {
            break;
        } else if let Some(next) = trim_option(args, at, &mut trim)? {
            at = next;
        } else if let Some(next) = idmp_option(args, at, &mut idmp)? {
            at = next;
        } else if let Some(word) = refs_option(arg).filter(|_| refs.is_none()) {
            refs = Some(word);
            at += 1;
        } else if is(arg, "NOMKSTREAM") {
            no_mkstream = true;
            at += 1;
        } else {
            id = add_id(arg)?;
            break;
        }
    }
    let trim = trim.finish()?;
    let fields = args.get(at + 1..).unwrap_or_default();
    if fields.is_empty() || fields.len() % 2 == 1 {
        return Err(wrong_arity("xadd"));
    }
    if id == AddId::Given(EntryId::MIN) && idmp.is_none() {
        return Err(Refused::from("ERR The ID specified in XADD must be greater than 0-0"));
    }
    if let Some(idmp) = idmp {
        if id != AddId::Auto {
            return Err(Refused::from(
                "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs",
            ));
        }
        id = AddId::Once(Box::new(idmp.name(fields)));
    }
    let refs = refs.filter(|_| trim.is_some());
    let add = Xadd { key: args[1].clone(), no_mkstream, trim, id, fields: fields.to_vec() };
    Ok(Request::write(with_refs(refs, Command::Xadd(add))))
}

/// `ms-*`, `ms-seq` or `ms`.
fn add_id(arg: &[u8]) -> Parsed<AddId> {
    match arg.strip_suffix(b"-*") {
        // A number alone: "1-2-*" has a dash left over and fails.
        Some(ms) if !ms.contains(&b'-') => Ok(AddId::AutoSeq(id(ms)?.ms)),
        _ => Ok(AddId::Given(id(arg)?)),
    }
}
