//! Rows of the stream family.

use super::KeyUse::{Delete, Insert, Read, Update};
use super::*;
use crate::command::parse::{groups, idempotence, info, pending, ranges, reads, refs, trims, xadd};

const STREAM: &str = "stream";

pub(super) const ROWS: &[Row] = &[
    row("xadd", -5, WRITE | DENYOOM | FAST, ONE, Insert, xadd::xadd).doc(
        STREAM,
        "5.0.0",
        "O(1) to append; O(N) more when it trims N entries",
        "Appends an entry to a stream; creates the stream if it is missing.",
        "key [NOMKSTREAM] [KEEPREF|DELREF|ACKED] [IDMPAUTO producer-id | IDMP producer-id idempotent-id] \
         [MAXLEN|MINID [=|~] threshold [LIMIT count]] *|id field value [field value ...]",
    ),
    row("xdel", -3, WRITE | FAST, ONE, Delete, ranges::xdel).doc(
        STREAM,
        "5.0.0",
        "O(1) for each id",
        "Removes entries by id and answers how many were there.",
        "key id [id ...]",
    ),
    row("xdelex", -5, WRITE | FAST, ONE, Delete, refs::xdelex).doc(
        STREAM,
        "8.2.0",
        "O(1) for each id; with DELREF and ACKED O(G) for each id, G being the groups",
        "Removes entries by id, heeding or clearing what groups hold of them.",
        "key [KEEPREF|DELREF|ACKED] IDS numids id [id ...]",
    ),
    row("xtrim", -4, WRITE, ONE, Delete, trims::xtrim).doc(
        STREAM,
        "5.0.0",
        "O(N), N being the entries removed",
        "Removes the oldest entries of a stream down to a length or an id.",
        "key MAXLEN|MINID [=|~] threshold [LIMIT count] [KEEPREF|DELREF|ACKED]",
    ),
    row("xsetid", -3, WRITE | DENYOOM | FAST, ONE, Update, trims::xsetid).doc(
        STREAM,
        "5.0.0",
        "O(1)",
        "Sets the last id of a stream, and on request its counters.",
        "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
    ),
    row("xcfgset", -2, WRITE | DENYOOM | FAST, ONE, Update, idempotence::xcfgset).doc(
        STREAM,
        "8.6.0",
        "O(1); O(N) if it makes the stream forget N idempotent ids",
        "Sets how long and how many adds of each producer a stream remembers.",
        "key [IDMP-DURATION seconds] [IDMP-MAXSIZE maxsize]",
    ),
    row("xidmprecord", 5, WRITE | DENYOOM | FAST, ONE, Update, idempotence::xidmprecord).doc(
        STREAM,
        "8.6.2",
        "O(1)",
        "Makes a stream remember an entry as an idempotent add.",
        "key producer-id idempotent-id id",
    ),
    row("xlen", 2, READONLY | FAST, ONE, Read, ranges::xlen).doc(
        STREAM,
        "5.0.0",
        "O(1)",
        "Answers the number of entries of a stream.",
        "key",
    ),
    row("xrange", -4, READONLY, ONE, Read, ranges::xrange).doc(
        STREAM,
        "5.0.0",
        "O(N), N being the entries answered",
        "Answers the entries between two ids, oldest first.",
        "key start end [COUNT count]",
    ),
    row("xrevrange", -4, READONLY, ONE, Read, ranges::xrevrange).doc(
        STREAM,
        "5.0.0",
        "O(N), N being the entries answered",
        "Answers the entries between two ids, newest first.",
        "key end start [COUNT count]",
    ),
    row("xread", -4, READONLY | BLOCKING | MOVABLEKEYS, Keys::Streams, Read, reads::xread).doc(
        STREAM,
        "5.0.0",
        "O(N), N being the entries answered",
        "Answers entries after the given ids, of one or more streams; waits for them with BLOCK.",
        "[COUNT count] [BLOCK milliseconds] [MAXCOUNT maxcount] [MAXSIZE maxsize] STREAMS key [key ...] id [id ...]",
    ),
    row("xreadgroup", -7, WRITE | BLOCKING | MOVABLEKEYS, Keys::Streams, Read, reads::xreadgroup).doc(
        STREAM,
        "5.0.0",
        "O(N), N being the entries answered",
        "Delivers new or already pending entries to a consumer of a group; waits for them with BLOCK.",
        "GROUP group consumer [COUNT count] [BLOCK milliseconds] [CLAIM min-idle-time] [NOACK] [MAXCOUNT maxcount] \
         [MAXSIZE maxsize] STREAMS key [key ...] id [id ...]",
    ),
    row("xack", -4, WRITE | FAST, ONE, Update, pending::xack).doc(
        STREAM,
        "5.0.0",
        "O(1) for each id",
        "Acknowledges pending entries of a group and answers how many were pending.",
        "key group id [id ...]",
    ),
    row("xackdel", -6, WRITE | FAST, ONE, Delete, refs::xackdel).doc(
        STREAM,
        "8.2.0",
        "O(1) for each id; with DELREF and ACKED O(G) for each id, G being the groups",
        "Acknowledges pending entries of a group and removes them.",
        "key group [KEEPREF|DELREF|ACKED] IDS numids id [id ...]",
    ),
    row("xnack", -7, WRITE | FAST, ONE, Update, pending::xnack).doc(
        STREAM,
        "8.8.0",
        "O(1) for each id",
        "Gives pending entries of a group back, for any consumer to claim at once.",
        "key group SILENT|FAIL|FATAL IDS numids id [id ...] [RETRYCOUNT count] [FORCE]",
    ),
    row("xclaim", -6, WRITE | FAST, ONE, Update, pending::xclaim).doc(
        STREAM,
        "5.0.0",
        "O(log N), N being the pending entries of the group",
        "Hands pending entries to another consumer of the group.",
        "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] \
         [FORCE] [JUSTID] [LASTID lastid]",
    ),
    row("xautoclaim", -6, WRITE | FAST, ONE, Delete, pending::xautoclaim).doc(
        STREAM,
        "6.2.0",
        "O(1) for a small COUNT",
        "Walks the pending entries of a group and hands those idle long enough to a consumer.",
        "key group consumer min-idle-time start [COUNT count] [JUSTID]",
    ),
    row("xpending", -3, READONLY | LEADER_ONLY, ONE, Read, pending::xpending).doc(
        STREAM,
        "5.0.0",
        "O(N), N being the entries answered; the summary O(C), C being the consumers",
        "Answers the pending entries of a group, as a summary or one by one.",
        "key group [[IDLE min-idle-time] start end count [consumer]]",
    ),
    container("xgroup", XGROUP).doc(STREAM, "5.0.0", "depends on the subcommand", "Manages consumer groups.", ""),
    container("xinfo", XINFO).doc(STREAM, "5.0.0", "depends on the subcommand", "Looks into streams.", ""),
];

const XGROUP: &[Row] = &[
    row("xgroup|create", -5, WRITE | DENYOOM, SECOND, Insert, groups::create).doc(
        STREAM,
        "5.0.0",
        "O(1)",
        "Creates a consumer group that starts after an id.",
        "key group id|$ [MKSTREAM] [ENTRIESREAD entries-read]",
    ),
    row("xgroup|setid", -5, WRITE, SECOND, Update, groups::setid).doc(
        STREAM,
        "5.0.0",
        "O(1)",
        "Moves the position of a consumer group.",
        "key group id|$ [ENTRIESREAD entries-read]",
    ),
    row("xgroup|destroy", 4, WRITE, SECOND, Delete, groups::destroy).doc(
        STREAM,
        "5.0.0",
        "O(N), N being the pending entries of the group",
        "Removes a consumer group with all it remembers.",
        "key group",
    ),
    row("xgroup|createconsumer", 5, WRITE | DENYOOM, SECOND, Insert, groups::createconsumer).doc(
        STREAM,
        "6.2.0",
        "O(1)",
        "Creates a consumer in a group.",
        "key group consumer",
    ),
    row("xgroup|delconsumer", 5, WRITE, SECOND, Delete, groups::delconsumer).doc(
        STREAM,
        "5.0.0",
        "O(N), N being the pending entries of the consumer",
        "Removes a consumer and its pending entries; answers how many those were.",
        "key group consumer",
    ),
    plain("xgroup|help", 2, LOADING | STALE, groups::help).doc(
        STREAM,
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];

const XINFO: &[Row] = &[
    row("xinfo|stream", -3, READONLY, SECOND, Read, info::stream).doc(
        STREAM,
        "5.0.0",
        "O(1); with FULL O(N), N being what is shown",
        "Describes a stream.",
        "key [FULL [COUNT count]]",
    ),
    row("xinfo|groups", 3, READONLY, SECOND, Read, info::groups).doc(
        STREAM,
        "5.0.0",
        "O(N), N being the groups",
        "Lists the consumer groups of a stream.",
        "key",
    ),
    row("xinfo|consumers", 4, READONLY, SECOND, Read, info::consumers).doc(
        STREAM,
        "5.0.0",
        "O(N), N being the consumers",
        "Lists the consumers of a group.",
        "key group",
    ),
    plain("xinfo|help", 2, LOADING | STALE, info::help).doc(
        STREAM,
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];
