//! The connection itself: HELLO, PING and their like.

use super::*;
use crate::command::Control;
use crate::command::table::wrong_arity;
use weir_resp::Proto;

pub(crate) fn ping(args: &[Bytes]) -> Parsed {
    if args.len() > 2 {
        return Err(wrong_arity("ping"));
    }
    Ok(Request::Control(Control::Ping(args.get(1).cloned())))
}

pub(crate) fn echo(args: &[Bytes]) -> Parsed {
    Ok(Request::Control(Control::Echo(args[1].clone())))
}

pub(crate) fn quit(_: &[Bytes]) -> Parsed {
    Ok(Request::Control(Control::Quit))
}

pub(crate) fn reset(_: &[Bytes]) -> Parsed {
    Ok(Request::Control(Control::Reset))
}

pub(crate) fn select(args: &[Bytes]) -> Parsed {
    match int32(&args[1])? {
        0 => Ok(Request::Ready(Reply::Ok)),
        _ => Err(Refused::from("ERR SELECT is not allowed in cluster mode")),
    }
}

pub(crate) fn hello(args: &[Bytes]) -> Parsed {
    let proto = match args.get(1) {
        None => None,
        Some(version) => match int_or(version, "ERR Protocol version is not an integer or out of range")? {
            2 => Some(Proto::Resp2),
            3 => Some(Proto::Resp3),
            _ => return Err(Refused::from("NOPROTO unsupported protocol version")),
        },
    };
    let (mut auth, mut name) = (None, None);
    let mut at = 2;
    while let Some(option) = args.get(at) {
        let more = args.len() - at - 1;
        if is(option, "AUTH") && more >= 2 {
            auth = Some((args[at + 1].clone(), args[at + 2].clone()));
            at += 3;
        } else if is(option, "SETNAME") && more >= 1 {
            name = Some(client_name(&args[at + 1])?);
            at += 2;
        } else {
            return Err(Refused::from(format!("ERR Syntax error in HELLO option '{}'", text(option))));
        }
    }
    Ok(Request::Control(Control::Hello { proto, auth, name }))
}

/// A name that `CLIENT LIST` can show; empty takes the name away.
pub(super) fn client_name(arg: &Bytes) -> Parsed<Bytes> {
    if printable(arg) {
        Ok(arg.clone())
    } else {
        Err(Refused::from("ERR Client names cannot contain spaces, newlines or special characters."))
    }
}

/// Whether all bytes are visible ASCII.
pub(super) fn printable(arg: &[u8]) -> bool {
    arg.iter().all(u8::is_ascii_graphic)
}
