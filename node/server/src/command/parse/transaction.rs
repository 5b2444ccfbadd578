//! MULTI, EXEC, DISCARD, WATCH.

use super::*;
use crate::command::Control;
use weir_stream::Query;

pub(crate) fn multi(_: &[Bytes]) -> Parsed {
    Ok(Request::Control(Control::Multi))
}

pub(crate) fn exec(_: &[Bytes]) -> Parsed {
    Ok(Request::Control(Control::Exec))
}

pub(crate) fn discard(_: &[Bytes]) -> Parsed {
    Ok(Request::Control(Control::Discard))
}

pub(crate) fn watch(args: &[Bytes]) -> Parsed {
    Ok(Request::read(Query::Versions { keys: args[1..].to_vec() }))
}

pub(crate) fn unwatch(_: &[Bytes]) -> Parsed {
    Ok(Request::Control(Control::Unwatch))
}
