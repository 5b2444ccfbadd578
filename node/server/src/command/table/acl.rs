//! Rows of users and their rights.

use super::*;
use crate::command::parse::acl;

const SERVER: &str = "server";
const ANYTIME: Flags = NOSCRIPT | LOADING | STALE;

pub(super) const ROWS: &[Row] = &[container("acl", ACL).doc(
    SERVER,
    "6.0.0",
    "depends on the subcommand",
    "Manages users and what they may do.",
    "",
)];

const ACL: &[Row] = &[
    plain("acl|cat", -2, ANYTIME, acl::cat).doc(
        SERVER,
        "6.0.0",
        "O(1)",
        "Lists the categories of commands, or the commands of one.",
        "[category]",
    ),
    plain("acl|deluser", -3, ANYTIME | ADMIN, acl::deluser).doc(
        SERVER,
        "6.0.0",
        "O(1) for each user, and a round among the nodes",
        "Removes users from the cluster and ends their connections.",
        "username [username ...]",
    ),
    plain("acl|dryrun", -4, ANYTIME | ADMIN, acl::dryrun).doc(
        SERVER,
        "7.0.0",
        "O(1)",
        "Answers whether a user may run a command, without running it.",
        "username command [arg ...]",
    ),
    plain("acl|genpass", -2, ANYTIME, acl::genpass).doc(
        SERVER,
        "6.0.0",
        "O(1)",
        "Draws a password.",
        "[bits]",
    ),
    plain("acl|getuser", 3, ANYTIME | ADMIN, acl::getuser).doc(
        SERVER,
        "6.0.0",
        "O(N), N being the rules of the user",
        "Answers the rules of a user.",
        "username",
    ),
    plain("acl|list", 2, ANYTIME | ADMIN, acl::list).doc(
        SERVER,
        "6.0.0",
        "O(N), N being the users",
        "Lists the users with their rules, one a line.",
        "",
    ),
    plain("acl|load", 2, ANYTIME | ADMIN, acl::load_save).doc(
        SERVER,
        "6.0.0",
        "O(1)",
        "Refused: users are part of the cluster, not of a file.",
        "",
    ),
    plain("acl|log", -2, ANYTIME | ADMIN, acl::log).doc(
        SERVER,
        "6.0.0",
        "O(N), N being the entries answered",
        "Lists what was refused lately on this node.",
        "[count|RESET]",
    ),
    plain("acl|save", 2, ANYTIME | ADMIN, acl::load_save).doc(
        SERVER,
        "6.0.0",
        "O(1)",
        "Refused: users are part of the cluster, not of a file.",
        "",
    ),
    plain("acl|setuser", -3, ANYTIME | ADMIN, acl::setuser).doc(
        SERVER,
        "6.0.0",
        "O(N), N being the rules, and a round among the nodes",
        "Makes a user or changes its rules, on all nodes of the cluster.",
        "username [rule [rule ...]]",
    ),
    plain("acl|users", 2, ANYTIME | ADMIN, acl::users).doc(
        SERVER,
        "6.0.0",
        "O(N), N being the users",
        "Lists the names of the users.",
        "",
    ),
    plain("acl|whoami", 2, ANYTIME, acl::whoami).doc(
        SERVER,
        "6.0.0",
        "O(1)",
        "Answers the user of this connection.",
        "",
    ),
    plain("acl|help", 2, LOADING | STALE, acl::help).doc(
        SERVER,
        "6.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];
