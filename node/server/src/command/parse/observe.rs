//! SLOWLOG, LATENCY, MEMORY, MONITOR, SAVE and their like.

use super::*;
use crate::command::Control;
use crate::command::observe::ObserveCall;

fn call(call: ObserveCall) -> Parsed {
    Ok(Request::Control(Control::Observe(call)))
}

pub(crate) fn slowlog_get(args: &[Bytes]) -> Parsed {
    let count = match &args[2..] {
        [] => 10,
        [count] => match weir_resp::parse_i64(count) {
            Some(-1) => usize::MAX,
            Some(count) if count >= 0 => count as usize,
            _ => return Err(Refused::from("ERR count should be greater than or equal to -1")),
        },
        _ => return Err(crate::command::table::wrong_arity("slowlog|get")),
    };
    call(ObserveCall::SlowLog(count))
}

pub(crate) fn slowlog_len(_: &[Bytes]) -> Parsed {
    call(ObserveCall::SlowLogLen)
}

pub(crate) fn slowlog_reset(_: &[Bytes]) -> Parsed {
    call(ObserveCall::SlowLogReset)
}

pub(crate) fn slowlog_help(_: &[Bytes]) -> Parsed {
    super::help(
        "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        &[
            "GET [<count>]",
            "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
            "    Entries are made of:",
            "    id, timestamp, time in microseconds, arguments array, client IP and port,",
            "    client name",
            "LEN",
            "    Return the length of the slowlog.",
            "RESET",
            "    Reset the slowlog.",
            "HELP",
            "    Print this help.",
        ],
    )
}

pub(crate) fn latency_latest(_: &[Bytes]) -> Parsed {
    call(ObserveCall::Latest)
}

pub(crate) fn latency_history(args: &[Bytes]) -> Parsed {
    call(ObserveCall::History(args[2].clone()))
}

pub(crate) fn latency_graph(args: &[Bytes]) -> Parsed {
    call(ObserveCall::Graph(args[2].clone()))
}

pub(crate) fn latency_reset(args: &[Bytes]) -> Parsed {
    call(ObserveCall::LatencyReset(args[2..].to_vec()))
}

pub(crate) fn latency_doctor(_: &[Bytes]) -> Parsed {
    call(ObserveCall::LatencyDoctor)
}

pub(crate) fn latency_histogram(args: &[Bytes]) -> Parsed {
    call(ObserveCall::Histogram(args[2..].to_vec()))
}

pub(crate) fn latency_help(_: &[Bytes]) -> Parsed {
    super::help(
        "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        &[
            "DOCTOR",
            "    Return a human readable latency analysis report.",
            "GRAPH <event>",
            "    Return an ASCII latency graph for the <event> class.",
            "HISTORY <event>",
            "    Return time-latency samples for the <event> class.",
            "LATEST",
            "    Return the latest latency samples for all events.",
            "RESET [<event> ...]",
            "    Reset latency data of one or more <event> classes.",
            "    (default: reset all data for all event classes)",
            "HISTOGRAM [COMMAND ...]",
            "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
            "    If no commands are specified then all histograms are replied.",
            "HELP",
            "    Print this help.",
        ],
    )
}

pub(crate) fn monitor(_: &[Bytes]) -> Parsed {
    call(ObserveCall::Monitor)
}

pub(crate) fn memory_stats(_: &[Bytes]) -> Parsed {
    call(ObserveCall::MemoryStats)
}

pub(crate) fn memory_doctor(_: &[Bytes]) -> Parsed {
    call(ObserveCall::MemoryDoctor)
}

pub(crate) fn memory_purge(_: &[Bytes]) -> Parsed {
    Ok(Request::Ready(Reply::Ok))
}

pub(crate) fn memory_malloc_stats(_: &[Bytes]) -> Parsed {
    Ok(Request::Ready(Reply::Bulk(Bytes::from_static(b"Stats not supported for the current allocator"))))
}

pub(crate) fn lastsave(_: &[Bytes]) -> Parsed {
    call(ObserveCall::LastSave)
}

pub(crate) fn bgsave(args: &[Bytes]) -> Parsed {
    match &args[1..] {
        [] => call(ObserveCall::BgSave),
        [word] if is(word, "SCHEDULE") => call(ObserveCall::BgSave),
        _ => Err(Refused::from(SYNTAX)),
    }
}

pub(crate) fn save(_: &[Bytes]) -> Parsed {
    call(ObserveCall::Save)
}

pub(crate) fn debug(args: &[Bytes]) -> Parsed {
    call(ObserveCall::Debug(args.to_vec()))
}

pub(crate) fn shutdown(args: &[Bytes]) -> Parsed {
    let (mut save, mut nosave, mut other, mut abort) = (false, false, false, false);
    for word in &args[1..] {
        match word {
            _ if is(word, "SAVE") => save = true,
            _ if is(word, "NOSAVE") => nosave = true,
            _ if is(word, "NOW") || is(word, "FORCE") => other = true,
            _ if is(word, "ABORT") => abort = true,
            _ => return Err(Refused::from(SYNTAX)),
        }
    }
    if save && nosave || abort && (save || nosave || other) {
        return Err(Refused::from(SYNTAX));
    }
    if abort {
        return Err(Refused::from("ERR No shutdown in progress."));
    }
    call(ObserveCall::Shutdown { save })
}
