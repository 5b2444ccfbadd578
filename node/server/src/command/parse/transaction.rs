//! MULTI, EXEC, DISCARD, WATCH.

use super::*;
use crate::command::Control;

pub(crate) fn multi(_: &[Bytes]) -> Parsed {
    Ok(Request::Control(Control::Multi))
}

pub(crate) fn exec(_: &[Bytes]) -> Parsed {
    Ok(Request::Control(Control::Exec))
}

pub(crate) fn discard(_: &[Bytes]) -> Parsed {
    Ok(Request::Control(Control::Discard))
}

pub(crate) fn watch(_: &[Bytes]) -> Parsed {
    Err(Refused::from("ERR WATCH is not supported yet"))
}

pub(crate) fn unwatch(_: &[Bytes]) -> Parsed {
    Ok(Request::Ready(Reply::Ok))
}
