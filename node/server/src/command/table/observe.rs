//! Rows of what operators look at, and of snapshots and the end.

use super::*;
use crate::command::parse::{keys, observe};

const SERVER: &str = "server";
const OPERATOR: Flags = ADMIN | LOADING | STALE;

pub(super) const ROWS: &[Row] = &[
    container("slowlog", SLOWLOG).doc(
        SERVER,
        "2.2.12",
        "depends on the subcommand",
        "Shows the calls to this node that took long.",
        "",
    ),
    container("latency", LATENCY).doc(
        SERVER,
        "2.8.13",
        "depends on the subcommand",
        "Shows spikes of latency of this node.",
        "",
    ),
    container("memory", MEMORY).doc(SERVER, "4.0.0", "depends on the subcommand", "Looks at memory.", ""),
    plain("monitor", 1, ADMIN | NOSCRIPT | LOADING | STALE, observe::monitor).doc(
        SERVER,
        "1.0.0",
        "O(1) for each call that is shown",
        "Shows every call to this node, passwords left out, until the connection ends.",
        "",
    ),
    plain("lastsave", 1, LOADING | STALE | FAST | ADMIN, observe::lastsave).doc(
        SERVER,
        "1.0.0",
        "O(1)",
        "Answers when this node last had a snapshot on disk, in Unix seconds.",
        "",
    ),
    plain("bgsave", -1, ADMIN | NOSCRIPT, observe::bgsave).doc(
        SERVER,
        "1.0.0",
        "O(1)",
        "Has all replicas of this node take a snapshot.",
        "[SCHEDULE]",
    ),
    plain("save", 1, ADMIN | NOSCRIPT | NO_MULTI, observe::save).doc(
        SERVER,
        "1.0.0",
        "O(N), N being the keys; others are served meanwhile",
        "Has all replicas of this node take a snapshot, and answers when they are on disk.",
        "",
    ),
    plain("debug", -2, ADMIN | NOSCRIPT | LOADING | STALE, observe::debug).doc(
        SERVER,
        "1.0.0",
        "depends on the subcommand",
        "SLEEP lets this connection wait; refused unless enable-debug-command allows it.",
        "subcommand [argument [argument ...]]",
    ),
    plain("shutdown", -1, ADMIN | NOSCRIPT | LOADING | STALE | NO_MULTI, observe::shutdown).doc(
        SERVER,
        "1.0.0",
        "O(1), with SAVE that of SAVE",
        "Stops the process of this node in order: leadership is handed over, everything answered is on disk.",
        "[NOSAVE|SAVE] [NOW] [FORCE] [ABORT]",
    ),
];

const SLOWLOG: &[Row] = &[
    plain("slowlog|get", -2, OPERATOR, observe::slowlog_get).doc(
        SERVER,
        "2.2.12",
        "O(N), N being the entries answered",
        "Answers the newest slow calls.",
        "[count]",
    ),
    plain("slowlog|len", 2, OPERATOR, observe::slowlog_len).doc(
        SERVER,
        "2.2.12",
        "O(1)",
        "Answers how many slow calls are remembered.",
        "",
    ),
    plain("slowlog|reset", 2, OPERATOR, observe::slowlog_reset).doc(
        SERVER,
        "2.2.12",
        "O(N), N being the entries",
        "Forgets the slow calls.",
        "",
    ),
    plain("slowlog|help", 2, LOADING | STALE, observe::slowlog_help).doc(
        SERVER,
        "6.2.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];

const LATENCY_FLAGS: Flags = OPERATOR | NOSCRIPT;

const LATENCY: &[Row] = &[
    plain("latency|doctor", 2, LATENCY_FLAGS, observe::latency_doctor).doc(
        SERVER,
        "2.8.13",
        "O(1)",
        "Tells in words what spikes there were.",
        "",
    ),
    plain("latency|graph", 3, LATENCY_FLAGS, observe::latency_graph).doc(
        SERVER,
        "2.8.13",
        "O(1)",
        "Draws the spikes of an event.",
        "event",
    ),
    plain("latency|histogram", -2, LATENCY_FLAGS, observe::latency_histogram).doc(
        SERVER,
        "7.0.0",
        "O(N), N being the commands",
        "Answers how long calls took, cumulated.",
        "[command [command ...]]",
    ),
    plain("latency|history", 3, LATENCY_FLAGS, observe::latency_history).doc(
        SERVER,
        "2.8.13",
        "O(1)",
        "Answers the spikes of an event.",
        "event",
    ),
    plain("latency|latest", 2, LATENCY_FLAGS, observe::latency_latest).doc(
        SERVER,
        "2.8.13",
        "O(1)",
        "Answers the latest spike of each event.",
        "",
    ),
    plain("latency|reset", -2, LATENCY_FLAGS, observe::latency_reset).doc(
        SERVER,
        "2.8.13",
        "O(1)",
        "Forgets the spikes.",
        "[event [event ...]]",
    ),
    plain("latency|help", 2, LOADING | STALE, observe::latency_help).doc(
        SERVER,
        "2.8.13",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];

const MEMORY: &[Row] = &[
    row("memory|usage", -3, READONLY, SECOND, KeyUse::Read, keys::memory_usage).doc(
        SERVER,
        "4.0.0",
        "O(N), N being the runs of entries",
        "Estimates the memory of a key and its value in bytes.",
        "key [SAMPLES count]",
    ),
    plain("memory|stats", 2, 0, observe::memory_stats).doc(
        SERVER,
        "4.0.0",
        "O(1)",
        "Tells what the memory of this node is used for.",
        "",
    ),
    plain("memory|doctor", 2, 0, observe::memory_doctor).doc(
        SERVER,
        "4.0.0",
        "O(1)",
        "Tells in words what is wrong with the memory of this node.",
        "",
    ),
    plain("memory|purge", 2, 0, observe::memory_purge).doc(
        SERVER,
        "4.0.0",
        "O(1)",
        "Accepted: the allocator gives memory back by itself.",
        "",
    ),
    plain("memory|malloc-stats", 2, 0, observe::memory_malloc_stats).doc(
        SERVER,
        "4.0.0",
        "O(1)",
        "Says that the allocator keeps no report.",
        "",
    ),
    plain("memory|help", 2, LOADING | STALE, keys::memory_help).doc(
        SERVER,
        "4.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];
