//! The node, the cluster and the command table.

use super::*;
use crate::command::{Control, ScanCall, introspect};

fn control(control: Control) -> Parsed {
    Ok(Request::Control(control))
}

pub(crate) fn info(args: &[Bytes]) -> Parsed {
    control(Control::Info(args[1..].to_vec()))
}

pub(crate) fn role(_: &[Bytes]) -> Parsed {
    control(Control::Role)
}

pub(crate) fn time(_: &[Bytes]) -> Parsed {
    control(Control::Time)
}

pub(crate) fn scan(args: &[Bytes]) -> Parsed {
    let cursor = weir_stream::parse_u64(&args[1]).map_err(|_| Refused::from("ERR invalid cursor"))?;
    let mut call = ScanCall { cursor, pattern: None, count: 10, type_name: None };
    for option in args[2..].chunks(2) {
        match option {
            [word, count] if is(word, "COUNT") => {
                let count = u64::try_from(int(count)?).ok().filter(|count| *count > 0);
                call.count = count.ok_or_else(|| Refused::from(SYNTAX))?;
            }
            [word, pattern] if is(word, "MATCH") => call.pattern = Some(pattern.clone()),
            [word, name] if is(word, "TYPE") => call.type_name = Some(name.clone()),
            _ => return Err(Refused::from(SYNTAX)),
        }
    }
    Ok(Request::Control(Control::Scan(call)))
}

pub(crate) fn keys(args: &[Bytes]) -> Parsed {
    Ok(Request::Control(Control::Keys(args[1].clone())))
}

pub(crate) fn randomkey(_: &[Bytes]) -> Parsed {
    Ok(Request::Control(Control::RandomKey))
}

pub(crate) fn dbsize(_: &[Bytes]) -> Parsed {
    control(Control::DbSize)
}

pub(crate) fn flush(args: &[Bytes]) -> Parsed {
    match &args[1..] {
        [] => control(Control::Flush),
        [word] if is(word, "ASYNC") || is(word, "SYNC") => control(Control::Flush),
        _ => Err(Refused::from(SYNTAX)),
    }
}

pub(crate) fn wait(args: &[Bytes]) -> Parsed {
    let replicas = not_negative(int(&args[1])?) as usize;
    control(Control::Wait { replicas, timeout: timeout_ms(&args[2])? })
}

pub(crate) fn waitaof(args: &[Bytes]) -> Parsed {
    let local = match int(&args[1])? {
        n @ (0 | 1) => n as usize,
        _ => return Err(Refused::from("ERR value is out of range, must be between 0 and 1")),
    };
    let replicas = match int(&args[2])? {
        n if n >= 0 => n as usize,
        _ => return Err(Refused::from("ERR value is out of range, must be positive")),
    };
    control(Control::WaitAof { local, replicas, timeout: timeout_ms(&args[3])? })
}

pub(crate) fn cluster(args: &[Bytes]) -> Parsed {
    control(Control::Cluster(args.to_vec()))
}

pub(crate) fn readonly(_: &[Bytes]) -> Parsed {
    control(Control::ReadOnly(true))
}

pub(crate) fn readwrite(_: &[Bytes]) -> Parsed {
    control(Control::ReadOnly(false))
}

pub(crate) fn asking(_: &[Bytes]) -> Parsed {
    control(Control::Asking)
}

pub(crate) fn config_get(args: &[Bytes]) -> Parsed {
    control(Control::ConfigGet(args[2..].to_vec()))
}

pub(crate) fn config_set(args: &[Bytes]) -> Parsed {
    if !args.len().is_multiple_of(2) {
        return Err(Refused::from(SYNTAX));
    }
    control(Control::ConfigSet(args[2..].chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()))
}

pub(crate) fn config_resetstat(_: &[Bytes]) -> Parsed {
    control(Control::ConfigResetStat)
}

pub(crate) fn config_rewrite(_: &[Bytes]) -> Parsed {
    Err(Refused::from("ERR CONFIG REWRITE is not supported: the settings file belongs to the operator"))
}

pub(crate) fn config_help(_: &[Bytes]) -> Parsed {
    super::help(
        "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        &[
            "GET <pattern>",
            "    Return parameters matching the glob-like <pattern> and their values.",
            "SET <directive> <value>",
            "    Set the configuration <directive> to <value>.",
            "RESETSTAT",
            "    Reset statistics reported by the INFO command.",
            "REWRITE",
            "    Rewrite the configuration file.",
            "HELP",
            "    Print this help.",
        ],
    )
}

pub(crate) fn command(_: &[Bytes]) -> Parsed {
    Ok(Request::Ready(introspect::all()))
}

pub(crate) fn command_count(_: &[Bytes]) -> Parsed {
    Ok(Request::Ready(introspect::count()))
}

pub(crate) fn command_docs(args: &[Bytes]) -> Parsed {
    Ok(Request::Ready(introspect::docs(&args[2..])))
}

pub(crate) fn command_getkeys(args: &[Bytes]) -> Parsed {
    introspect::get_keys(&args[2..], false).map(Request::Ready)
}

pub(crate) fn command_getkeysandflags(args: &[Bytes]) -> Parsed {
    introspect::get_keys(&args[2..], true).map(Request::Ready)
}

pub(crate) fn command_info(args: &[Bytes]) -> Parsed {
    Ok(Request::Ready(introspect::info(&args[2..])))
}

pub(crate) fn command_list(args: &[Bytes]) -> Parsed {
    introspect::list(&args[2..]).map(Request::Ready)
}

pub(crate) fn command_help(_: &[Bytes]) -> Parsed {
    super::help(
        "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        &[
            "(no subcommand)",
            "    Describe all commands.",
            "COUNT",
            "    Answer the number of commands.",
            "DOCS [<command-name> [<command-name> ...]]",
            "    Answer the documentation of commands, of all by default.",
            "GETKEYS <full-command>",
            "    Answer the keys of a command line.",
            "GETKEYSANDFLAGS <full-command>",
            "    Answer the keys of a command line and what is done to them.",
            "INFO [<command-name> ...]",
            "    Describe commands, all by default.",
            "LIST [FILTERBY (MODULE <module-name>|ACLCAT <category>|PATTERN <pattern>)]",
            "    Answer the names of commands.",
            "HELP",
            "    Print this help.",
        ],
    )
}
