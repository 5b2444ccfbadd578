//! DUMP, RESTORE and what is asked for in their place.

use super::*;
use weir_stream::{Command, ExpireWhen, Query, load_dump};

pub(crate) fn dump(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::Dump { key: args[1].clone() }))
}

/// Options of RESTORE. Access times and counts are checked and forgotten: nothing is evicted by them.
pub(crate) struct RestoreOptions {
    pub(crate) replace: bool,
    absolute: bool,
}

pub(crate) fn restore_options(args: &[Bytes]) -> Parsed<RestoreOptions> {
    let mut options = RestoreOptions { replace: false, absolute: false };
    let (mut idle, mut freq) = (false, false);
    let mut at = 4;
    while let Some(option) = args.get(at) {
        match args.get(at + 1) {
            _ if is(option, "REPLACE") => options.replace = true,
            _ if is(option, "ABSTTL") => options.absolute = true,
            Some(value) if is(option, "IDLETIME") && !freq => {
                if int(value)? < 0 {
                    return Err(Refused::from("ERR Invalid IDLETIME value, must be >= 0"));
                }
                idle = true;
                at += 1;
            }
            Some(value) if is(option, "FREQ") && !idle => {
                if !(0..=255).contains(&int(value)?) {
                    return Err(Refused::from("ERR Invalid FREQ value, must be >= 0 and <= 255"));
                }
                freq = true;
                at += 1;
            }
            _ => return Err(Refused::from(SYNTAX)),
        }
        at += 1;
    }
    Ok(options)
}

pub(crate) fn restore(args: &[Bytes]) -> Parsed {
    let options = restore_options(args)?;
    let ends = match int(&args[2])? {
        ..0 => return Err(Refused::from("ERR Invalid TTL value, must be >= 0")),
        0 => None,
        ms if options.absolute => Some(ExpireWhen::At(ms)),
        ms => Some(ExpireWhen::In(ms)),
    };
    let value = load_dump(&args[3]).map_err(|error| Refused::from(error.to_string()))?;
    Ok(Request::write(Command::Restore { key: args[1].clone(), value, ends, replace: options.replace }))
}

pub(crate) fn migrate(_: &[Bytes]) -> Parsed {
    Err(Refused::from("ERR MIGRATE is not supported: ask for DUMP here and RESTORE there instead"))
}
