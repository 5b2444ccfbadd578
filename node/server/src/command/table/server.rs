//! Rows of the node, the cluster and the command table itself.

use super::*;
use crate::command::parse::server;

const SERVER: &str = "server";
const CLUSTER: &str = "cluster";

pub(super) const ROWS: &[Row] = &[
    plain("info", -1, LOADING | STALE | DANGEROUS, server::info).doc(
        SERVER,
        "1.0.0",
        "O(1)",
        "Describes the node, section by section.",
        "[section [section ...]]",
    ),
    plain("role", 1, NOSCRIPT | LOADING | STALE | FAST | ADMIN, server::role).doc(
        SERVER,
        "2.8.12",
        "O(1)",
        "Answers the role of the node, as CLUSTER NODES shows it.",
        "",
    ),
    plain("time", 1, LOADING | STALE | FAST, server::time).doc(
        SERVER,
        "2.6.0",
        "O(1)",
        "Answers the node's Unix time in seconds and microseconds.",
        "",
    ),
    plain("dbsize", 1, READONLY | FAST, server::dbsize).doc(
        SERVER,
        "1.0.0",
        "O(S), S being the shards led here",
        "Answers the number of keys in the shards that this node leads.",
        "",
    ),
    plain("scan", -2, READONLY, server::scan).doc(
        "generic",
        "2.8.0",
        "O(N) a call, N being the keys of a slot",
        "Walks the keys of the shards that this node leads, a stretch at a time.",
        "cursor [MATCH pattern] [COUNT count] [TYPE type]",
    ),
    plain("keys", 2, READONLY | DANGEROUS, server::keys).doc(
        "generic",
        "1.0.0",
        "O(N), N being the keys of the shards led here",
        "Answers the keys of the shards that this node leads whose names fit a pattern.",
        "pattern",
    ),
    plain("randomkey", 1, READONLY, server::randomkey).doc(
        "generic",
        "1.0.0",
        "O(N), N being the keys of a slot",
        "Answers some key of the shards that this node leads.",
        "",
    ),
    plain("flushall", -1, WRITE | DANGEROUS, server::flush).doc(
        SERVER,
        "1.0.0",
        "O(S), S being the shards led here; memory is freed afterwards",
        "Removes every key of the shards that this node leads.",
        "[ASYNC|SYNC]",
    ),
    plain("flushdb", -1, WRITE | DANGEROUS, server::flush).doc(
        SERVER,
        "1.0.0",
        "O(S), S being the shards led here; memory is freed afterwards",
        "Removes every key of the shards that this node leads.",
        "[ASYNC|SYNC]",
    ),
    plain("wait", 3, BLOCKING, server::wait).doc(
        "generic",
        "3.0.0",
        "O(1)",
        "Waits until other voters hold this connection's writes, and answers how many do.",
        "numreplicas timeout",
    ),
    plain("waitaof", 4, BLOCKING, server::waitaof).doc(
        "generic",
        "7.2.0",
        "O(1)",
        "Waits until this node and others have this connection's writes on disk, and answers both counts.",
        "numlocal numreplicas timeout",
    ),
    container("config", CONFIG).doc(SERVER, "2.0.0", "depends on the subcommand", "Shows the settings.", ""),
    plain("command", -1, LOADING | STALE, server::command).with(COMMAND).doc(
        SERVER,
        "2.8.13",
        "O(N), N being the commands",
        "Describes all commands.",
        "",
    ),
    container("cluster", CLUSTER_SUBS).doc(
        CLUSTER,
        "3.0.0",
        "depends on the subcommand",
        "Describes the cluster.",
        "",
    ),
    plain("readonly", 1, LOADING | STALE | FAST, server::readonly).doc(
        CLUSTER,
        "3.0.0",
        "O(1)",
        "Lets followers answer the reads of this connection, a little late at most.",
        "",
    ),
    plain("readwrite", 1, LOADING | STALE | FAST, server::readwrite).doc(
        CLUSTER,
        "3.0.0",
        "O(1)",
        "Sends the reads of this connection to leaders again.",
        "",
    ),
    plain("asking", 1, FAST, server::asking).doc(
        CLUSTER,
        "3.0.0",
        "O(1)",
        "Marks the next command as sent here by an ASK redirect.",
        "",
    ),
];

const CONFIG: &[Row] = &[
    plain("config|get", -3, ADMIN | NOSCRIPT | LOADING | STALE, server::config_get).doc(
        SERVER,
        "2.0.0",
        "O(N), N being the settings",
        "Answers the settings that match the patterns.",
        "parameter [parameter ...]",
    ),
    plain("config|set", -4, ADMIN | NOSCRIPT | LOADING | STALE, server::config_set).doc(
        SERVER,
        "2.0.0",
        "O(N), N being the settings",
        "Changes settings of this node until it is started again, all or none; those that the cluster agreed on are refused.",
        "parameter value [parameter value ...]",
    ),
    plain("config|resetstat", 2, ADMIN | NOSCRIPT | LOADING | STALE, server::config_resetstat).doc(
        SERVER,
        "2.0.0",
        "O(1)",
        "INFO counts from here; metrics keep counting.",
        "",
    ),
    plain("config|rewrite", 2, ADMIN | NOSCRIPT | LOADING | STALE, server::config_rewrite).doc(
        SERVER,
        "2.8.0",
        "O(1)",
        "Refused: the settings file belongs to the operator.",
        "",
    ),
    plain("config|help", 2, LOADING | STALE, server::config_help).doc(
        SERVER,
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];

const COMMAND: &[Row] = &[
    plain("command|count", 2, LOADING | STALE, server::command_count).doc(
        SERVER,
        "2.8.13",
        "O(1)",
        "Answers the number of commands.",
        "",
    ),
    plain("command|docs", -2, LOADING | STALE, server::command_docs).doc(
        SERVER,
        "7.0.0",
        "O(N), N being the commands asked for",
        "Answers the documentation of commands.",
        "[command-name [command-name ...]]",
    ),
    plain("command|getkeys", -3, LOADING | STALE, server::command_getkeys).doc(
        SERVER,
        "2.8.13",
        "O(N), N being the arguments",
        "Answers the keys of a command line.",
        "command [arg ...]",
    ),
    plain("command|getkeysandflags", -3, LOADING | STALE, server::command_getkeysandflags).doc(
        SERVER,
        "7.0.0",
        "O(N), N being the arguments",
        "Answers the keys of a command line and what is done to them.",
        "command [arg ...]",
    ),
    plain("command|info", -2, LOADING | STALE, server::command_info).doc(
        SERVER,
        "2.8.13",
        "O(N), N being the commands asked for",
        "Describes the commands named.",
        "[command-name [command-name ...]]",
    ),
    plain("command|list", -2, LOADING | STALE, server::command_list).doc(
        SERVER,
        "7.0.0",
        "O(N), N being the commands",
        "Answers the names of the commands.",
        "[FILTERBY (MODULE module-name | ACLCAT category | PATTERN pattern)]",
    ),
    plain("command|help", 2, LOADING | STALE, server::command_help).doc(
        SERVER,
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];

const CLUSTER_SUBS: &[Row] = &[
    cluster(
        "cluster|countkeysinslot",
        3,
        "3.0.0",
        "Answers the number of keys in a slot, where it is led.",
        "slot",
    ),
    cluster("cluster|getkeysinslot", 4, "3.0.0", "Answers keys of a slot, where it is led.", "slot count"),
    cluster("cluster|help", 2, "5.0.0", "Lists the subcommands.", ""),
    cluster("cluster|info", 2, "3.0.0", "Describes the cluster as this node sees it.", ""),
    cluster("cluster|keyslot", 3, "3.0.0", "Answers the slot of a key.", "key-name"),
    cluster("cluster|links", 2, "7.0.0", "Lists the connections to other nodes.", ""),
    cluster("cluster|myid", 2, "3.0.0", "Answers the id of this node.", ""),
    cluster("cluster|myshardid", 2, "7.2.0", "Answers the id of this node's shard.", ""),
    cluster("cluster|nodes", 2, "3.0.0", "Lists the nodes, one a line.", ""),
    cluster("cluster|replicas", 3, "5.0.0", "Lists the replicas of a node.", "node-id"),
    cluster("cluster|shards", 2, "7.0.0", "Lists the shards with their slots and nodes.", ""),
    cluster("cluster|slaves", 3, "3.0.0", "Lists the replicas of a node.", "node-id"),
    cluster(
        "cluster|slot-stats",
        -4,
        "8.2.0",
        "Answers how many keys the slots that this node leads have.",
        "SLOTSRANGE start-slot end-slot|ORDERBY metric [LIMIT limit] [ASC|DESC]",
    ),
    operate("cluster|bumpepoch", 2, "3.0.0", "Answers the epoch, which is always agreed on.", ""),
    operate("cluster|saveconfig", 2, "3.0.0", "Accepted: the map is on disk.", ""),
    operate(
        "cluster|count-failure-reports",
        3,
        "3.0.0",
        "Answers 1 if this node cannot reach another.",
        "node-id",
    ),
    operate("cluster|addslots", -3, "3.0.0", REFUSED, "slot [slot ...]"),
    operate("cluster|addslotsrange", -4, "7.0.0", REFUSED, "start-slot end-slot [start-slot end-slot ...]"),
    operate("cluster|delslots", -3, "3.0.0", REFUSED, "slot [slot ...]"),
    operate("cluster|delslotsrange", -4, "7.0.0", REFUSED, "start-slot end-slot [start-slot end-slot ...]"),
    operate("cluster|failover", -2, "3.0.0", REFUSED, "[FORCE|TAKEOVER]"),
    operate("cluster|flushslots", 2, "3.0.0", REFUSED, ""),
    operate("cluster|forget", 3, "3.0.0", REFUSED, "node-id"),
    operate("cluster|meet", -4, "3.0.0", REFUSED, "ip port [cluster-bus-port]"),
    operate("cluster|migration", -4, "8.4.0", REFUSED, "subcommand argument [argument ...]"),
    operate("cluster|replicate", 3, "3.0.0", REFUSED, "node-id"),
    operate("cluster|reset", -2, "3.0.0", REFUSED, "[HARD|SOFT]"),
    operate("cluster|set-config-epoch", 3, "3.0.0", REFUSED, "config-epoch"),
    operate("cluster|setslot", -4, "3.0.0", REFUSED, "slot state [node-id]"),
    operate("cluster|syncslots", -3, "8.4.0", REFUSED, "argument [argument ...]"),
    cluster("cluster|slots", 2, "3.0.0", "Lists the slot ranges with their nodes.", ""),
];

const REFUSED: &str = "Refused, and why.";

/// For operators.
const fn operate(
    name: &'static str,
    arity: i32,
    since: &'static str,
    summary: &'static str,
    syntax: &'static str,
) -> Row {
    plain(name, arity, ADMIN | STALE, server::cluster).doc(CLUSTER, since, "O(1)", summary, syntax)
}

const fn cluster(
    name: &'static str,
    arity: i32,
    since: &'static str,
    summary: &'static str,
    syntax: &'static str,
) -> Row {
    plain(name, arity, LOADING | STALE, server::cluster).doc(
        CLUSTER,
        since,
        "O(N), N being what is shown",
        summary,
        syntax,
    )
}
