//! Rows of connections and transactions.

use super::*;
use crate::command::parse::{acl, client, connection, transaction};

const CONNECTION: &str = "connection";
const TRANSACTIONS: &str = "transactions";
const ANYTIME: Flags = NOSCRIPT | LOADING | STALE;

pub(super) const ROWS: &[Row] = &[
    plain("ping", -1, FAST, connection::ping).doc(
        CONNECTION,
        "1.0.0",
        "O(1)",
        "Answers PONG, or the message.",
        "[message]",
    ),
    plain("echo", 2, LOADING | STALE | FAST, connection::echo).doc(
        CONNECTION,
        "1.0.0",
        "O(1)",
        "Answers the message.",
        "message",
    ),
    plain("quit", -1, ANYTIME | FAST | NO_AUTH, connection::quit).doc(
        CONNECTION,
        "1.0.0",
        "O(1)",
        "Closes the connection after the answers before it.",
        "",
    ),
    plain("reset", 1, ANYTIME | FAST | NO_AUTH, connection::reset).doc(
        CONNECTION,
        "6.2.0",
        "O(1)",
        "Returns the connection to how it was when it was opened.",
        "",
    ),
    plain("select", 2, LOADING | STALE | FAST, connection::select).doc(
        CONNECTION,
        "1.0.0",
        "O(1)",
        "Chooses the database; a cluster has only number 0.",
        "index",
    ),
    plain("hello", -1, ANYTIME | FAST | NO_AUTH, connection::hello).doc(
        CONNECTION,
        "6.0.0",
        "O(1)",
        "Chooses the protocol version and describes the server.",
        "[protover [AUTH username password] [SETNAME clientname]]",
    ),
    plain("auth", -2, ANYTIME | FAST | NO_AUTH, acl::auth).doc(
        CONNECTION,
        "1.0.0",
        "O(1)",
        "Authenticates the connection.",
        "[username] password",
    ),
    container("client", CLIENT).doc(
        CONNECTION,
        "2.4.0",
        "depends on the subcommand",
        "Describes and steers client connections.",
        "",
    ),
    plain("multi", 1, ANYTIME | FAST, transaction::multi).doc(
        TRANSACTIONS,
        "1.2.0",
        "O(1)",
        "Starts a transaction: what follows is queued.",
        "",
    ),
    plain("exec", 1, ANYTIME, transaction::exec).doc(
        TRANSACTIONS,
        "1.2.0",
        "depends on what is queued",
        "Runs the queued commands as one unit.",
        "",
    ),
    plain("discard", 1, ANYTIME | FAST, transaction::discard).doc(
        TRANSACTIONS,
        "2.0.0",
        "O(N), N being the queued commands",
        "Forgets the queued commands.",
        "",
    ),
    row("watch", -2, ANYTIME | FAST | NO_MULTI | LEADER_ONLY, ALL, KeyUse::Read, transaction::watch).doc(
        TRANSACTIONS,
        "2.2.0",
        "O(1) for each key",
        "Makes the next transaction depend on keys staying as they are.",
        "key [key ...]",
    ),
    plain("unwatch", 1, ANYTIME | FAST, transaction::unwatch).doc(
        TRANSACTIONS,
        "2.2.0",
        "O(1)",
        "Forgets the watched keys.",
        "",
    ),
];

const CLIENT: &[Row] = &[
    plain("client|id", 2, ANYTIME, client::id).doc(
        CONNECTION,
        "5.0.0",
        "O(1)",
        "Answers the number of this connection.",
        "",
    ),
    plain("client|info", 2, ANYTIME, client::info).doc(
        CONNECTION,
        "6.2.0",
        "O(1)",
        "Describes this connection on one line.",
        "",
    ),
    plain("client|list", -2, ANYTIME | ADMIN, client::list).doc(
        CONNECTION,
        "2.4.0",
        "O(N), N being the connections",
        "Describes all connections of this node, one a line.",
        "[TYPE client-type] [ID client-id [client-id ...]]",
    ),
    plain("client|kill", -3, ANYTIME | ADMIN, client::kill).doc(
        CONNECTION,
        "2.4.0",
        "O(N), N being the connections",
        "Closes connections of this node.",
        "[ID client-id] [TYPE client-type] [USER username] [ADDR addr] [LADDR addr] [SKIPME yes-no] [MAXAGE maxage]",
    ),
    plain("client|unblock", -3, ANYTIME | ADMIN, client::unblock).doc(
        CONNECTION,
        "5.0.0",
        "O(1)",
        "Ends the wait of a blocked connection of this node.",
        "client-id [TIMEOUT|ERROR]",
    ),
    plain("client|getname", 2, ANYTIME, client::getname).doc(
        CONNECTION,
        "2.6.9",
        "O(1)",
        "Answers the name of this connection.",
        "",
    ),
    plain("client|setname", 3, ANYTIME, client::setname).doc(
        CONNECTION,
        "2.6.9",
        "O(1)",
        "Names this connection.",
        "connection-name",
    ),
    plain("client|setinfo", 4, ANYTIME, client::setinfo).doc(
        CONNECTION,
        "7.2.0",
        "O(1)",
        "Notes the library at the other end.",
        "LIB-NAME|LIB-VER value",
    ),
    plain("client|no-evict", 3, ANYTIME | ADMIN, client::no_evict).doc(
        CONNECTION,
        "7.0.0",
        "O(1)",
        "Accepted; connections are never evicted.",
        "ON|OFF",
    ),
    plain("client|no-touch", 3, ANYTIME, client::no_touch).doc(
        CONNECTION,
        "7.2.0",
        "O(1)",
        "Accepted; keys carry no access time.",
        "ON|OFF",
    ),
    plain("client|reply", 3, ANYTIME, client::reply).doc(
        CONNECTION,
        "3.2.0",
        "O(1)",
        "Turns the answers of this connection on or off, or skips one.",
        "ON|OFF|SKIP",
    ),
    plain("client|help", 2, LOADING | STALE, client::help).doc(
        CONNECTION,
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];
