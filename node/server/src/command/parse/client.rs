//! CLIENT.

use super::connection::{client_name, printable};
use super::*;
use crate::clients::{ClientFilter, ClientType};
use crate::command::{ClientCall, Control, ReplyMode};

fn call(call: ClientCall) -> Parsed {
    Ok(Request::Control(Control::Client(call)))
}

pub(crate) fn id(_: &[Bytes]) -> Parsed {
    call(ClientCall::Id)
}

pub(crate) fn info(_: &[Bytes]) -> Parsed {
    call(ClientCall::Info)
}

pub(crate) fn getname(_: &[Bytes]) -> Parsed {
    call(ClientCall::GetName)
}

pub(crate) fn setname(args: &[Bytes]) -> Parsed {
    call(ClientCall::SetName(client_name(&args[2])?))
}

pub(crate) fn setinfo(args: &[Bytes]) -> Parsed {
    let (option, value) = (&args[2], args[3].clone());
    let checked = |name: &str| {
        if printable(&args[3]) {
            Ok(())
        } else {
            Err(Refused::from(format!("ERR {name} cannot contain spaces, newlines or special characters.")))
        }
    };
    if is(option, "LIB-NAME") {
        checked("LIB-NAME")?;
        call(ClientCall::SetLibraryName(value))
    } else if is(option, "LIB-VER") {
        checked("LIB-VER")?;
        call(ClientCall::SetLibraryVersion(value))
    } else {
        Err(Refused::from(format!("ERR Unrecognized option '{}'", text(option))))
    }
}

pub(crate) fn no_evict(args: &[Bytes]) -> Parsed {
    on_off(&args[2]).map(|_| Request::Ready(Reply::Ok))
}

pub(crate) fn no_touch(args: &[Bytes]) -> Parsed {
    on_off(&args[2]).map(|_| Request::Ready(Reply::Ok))
}

fn on_off(arg: &[u8]) -> Parsed<bool> {
    match arg {
        _ if is(arg, "ON") => Ok(true),
        _ if is(arg, "OFF") => Ok(false),
        _ => Err(Refused::from(SYNTAX)),
    }
}

pub(crate) fn reply(args: &[Bytes]) -> Parsed {
    let mode = match &args[2] {
        arg if is(arg, "SKIP") => ReplyMode::Skip,
        arg if on_off(arg)? => ReplyMode::On,
        _ => ReplyMode::Off,
    };
    call(ClientCall::Reply(mode))
}

pub(crate) fn list(args: &[Bytes]) -> Parsed {
    let mut filter = ClientFilter::default();
    match &args[2..] {
        [] => {}
        [word, kind] if is(word, "TYPE") => filter.kind = Some(client_type(kind)?),
        [word, ids @ ..] if is(word, "ID") && !ids.is_empty() => {
            let ids: Parsed<Vec<u64>> = ids
                .iter()
                .map(|arg| match weir_resp::parse_i64(arg) {
                    Some(n) if n > 0 => Ok(n as u64),
                    _ => Err(Refused::from("ERR Invalid client ID")),
                })
                .collect();
            filter.ids = Some(ids?);
        }
        _ => return Err(Refused::from(SYNTAX)),
    }
    call(ClientCall::List(Box::new(filter)))
}

fn client_type(arg: &[u8]) -> Parsed<ClientType> {
    match arg {
        _ if is(arg, "NORMAL") => Ok(ClientType::Normal),
        _ if is(arg, "PUBSUB") => Ok(ClientType::PubSub),
        _ if ["MASTER", "REPLICA", "SLAVE"].iter().any(|word| is(arg, word)) => Ok(ClientType::Other),
        _ => Err(Refused::from(format!("ERR Unknown client type '{}'", text(arg)))),
    }
}

pub(crate) fn kill(args: &[Bytes]) -> Parsed {
    if let [_, _, addr] = args {
        let filter = ClientFilter { addr: Some(text(addr).into_owned()), ..ClientFilter::default() };
        return call(ClientCall::KillAddress(Box::new(filter)));
    }
    let mut filter = ClientFilter { skip_me: true, ..ClientFilter::default() };
    if !args.len().is_multiple_of(2) {
        return Err(Refused::from(SYNTAX));
    }
    for option in args[2..].chunks(2) {
        let (word, value) = (&option[0], &option[1]);
        if is(word, "ID") {
            match weir_resp::parse_i64(value) {
                Some(n) if n > 0 => filter.ids = Some(vec![n as u64]),
                _ => return Err(Refused::from("ERR client-id should be greater than 0")),
            }
        } else if is(word, "TYPE") {
            filter.kind = Some(client_type(value)?);
        } else if is(word, "ADDR") {
            filter.addr = Some(text(value).into_owned());
        } else if is(word, "LADDR") {
            filter.local_addr = Some(text(value).into_owned());
        } else if is(word, "USER") {
            filter.user = Some(value.clone());
        } else if is(word, "SKIPME") {
            filter.skip_me = match value {
                _ if is(value, "YES") => true,
                _ if is(value, "NO") => false,
                _ => return Err(Refused::from(SYNTAX)),
            };
        } else if is(word, "MAXAGE") {
            match int_or(value, "ERR maxage is not an integer or out of range")? {
                n if n > 0 => filter.age_s_min = n as u64,
                _ => return Err(Refused::from("ERR maxage should be greater than 0")),
            }
        } else {
            return Err(Refused::from(SYNTAX));
        }
    }
    call(ClientCall::Kill(Box::new(filter)))
}

pub(crate) fn unblock(args: &[Bytes]) -> Parsed {
    let error = match &args[3..] {
        [] => false,
        [word] if is(word, "TIMEOUT") => false,
        [word] if is(word, "ERROR") => true,
        [_] => return Err(Refused::from("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
        _ => return Err(crate::command::table::wrong_arity("client|unblock")),
    };
    call(ClientCall::Unblock { id: not_negative(int(&args[2])?), error })
}

pub(crate) fn pause(args: &[Bytes]) -> Parsed {
    let writes_only = match &args[3..] {
        [] => false,
        [word] if is(word, "WRITE") => true,
        [word] if is(word, "ALL") => false,
        [_] => return Err(Refused::from("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(crate::command::table::wrong_arity("client|pause")),
    };
    let limit = timeout_ms(&args[2])?.unwrap_or_default();
    call(ClientCall::Pause { limit, writes_only })
}

pub(crate) fn unpause(_: &[Bytes]) -> Parsed {
    call(ClientCall::Unpause)
}

pub(crate) fn tracking(args: &[Bytes]) -> Parsed {
    match on_off(&args[2])? {
        false => Ok(Request::Ready(Reply::Ok)),
        true => Err(Refused::from(
            "ERR CLIENT TRACKING is not supported: the cluster does not tell which keys change; read a stream with XREAD \
             BLOCK instead",
        )),
    }
}

pub(crate) fn trackinginfo(_: &[Bytes]) -> Parsed {
    let word = |text: &'static [u8]| Reply::Bulk(Bytes::from_static(text));
    Ok(Request::Ready(Reply::Map(vec![
        (word(b"flags"), Reply::Set(vec![word(b"off")])),
        (word(b"redirect"), Reply::Int(-1)),
        (word(b"prefixes"), Reply::Array(Vec::new())),
    ])))
}

pub(crate) fn caching(args: &[Bytes]) -> Parsed {
    match &args[2] {
        word if is(word, "YES") || is(word, "NO") => Err(Refused::from(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        )),
        _ => Err(Refused::from(SYNTAX)),
    }
}

pub(crate) fn getredir(_: &[Bytes]) -> Parsed {
    Ok(Request::Ready(Reply::Int(-1)))
}

pub(crate) fn help(_: &[Bytes]) -> Parsed {
    super::help(
        "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        &[
            "CACHING (YES|NO)",
            "    Refused: nothing is tracked.",
            "GETREDIR",
            "    Answer -1: nothing is tracked.",
            "GETNAME",
            "    Answer the name of this connection.",
            "ID",
            "    Answer the number of this connection.",
            "INFO",
            "    Describe this connection.",
            "KILL <ip:port>",
            "    Close the connection from that address.",
            "KILL <option> <value> [<option> <value> [...]]",
            "    Close the connections that fit all options: ID, TYPE, USER, ADDR, LADDR, SKIPME, MAXAGE.",
            "LIST [options ...]",
            "    Describe the connections of this node. Options: TYPE, ID.",
            "NO-EVICT (ON|OFF)",
            "    Accepted; connections are never evicted.",
            "NO-TOUCH (ON|OFF)",
            "    Accepted; keys carry no access time.",
            "PAUSE <timeout> [WRITE|ALL]",
            "    Let all clients of this node, or their writes, wait for <timeout> milliseconds.",
            "REPLY (ON|OFF|SKIP)",
            "    Turn the answers of this connection on or off, or skip one.",
            "SETINFO <option> <value>",
            "    Note the library at the other end: LIB-NAME, LIB-VER.",
            "SETNAME <name>",
            "    Name this connection.",
            "TRACKING (ON|OFF) ...",
            "    OFF is accepted, ON refused: nothing is tracked.",
            "TRACKINGINFO",
            "    Say that nothing is tracked.",
            "UNPAUSE",
            "    End the wait of PAUSE.",
            "UNBLOCK <clientid> [TIMEOUT|ERROR]",
            "    End the wait of a blocked connection.",
            "HELP",
            "    Print this help.",
        ],
    )
}
