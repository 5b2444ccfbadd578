//! Lines as a client types them, and what becomes of them.

use crate::command::table;
use crate::command::{Block, Request, parse};
use bytes::Bytes;
use std::time::Duration;
use weir_stream::*;

fn words(line: &str) -> Vec<Bytes> {
    line.split(' ')
        .map(|word| Bytes::copy_from_slice(if word == "''" { b"" } else { word.as_bytes() }))
        .collect()
}

fn request(line: &str) -> Request {
    parse(&words(line)).unwrap_or_else(|refused| panic!("{line}: {}", refused.0)).1
}

fn write(line: &str) -> Command {
    match request(line) {
        Request::Write(command, _) => command,
        other => panic!("{line}: {other:?}"),
    }
}

fn read(line: &str) -> Query {
    match request(line) {
        Request::Read(query, _) => query,
        other => panic!("{line}: {other:?}"),
    }
}

fn refused(line: &str) -> String {
    match parse(&words(line)) {
        Err(refused) => refused.0.into_owned(),
        Ok((_, request)) => panic!("{line}: {request:?}"),
    }
}

const INT: &str = "ERR value is not an integer or out of range";
const ID: &str = "ERR Invalid stream ID specified as stream command argument";
const SYNTAX: &str = "ERR syntax error";

/// What is wrong, and the text of Redis for it.
const REFUSED: &[(&str, &str)] = &[
    ("NOSUCH", "ERR unknown command 'NOSUCH'"),
    ("nosuch a bc", "ERR unknown command 'nosuch', with args beginning with: 'a' 'bc' "),
    ("XGROUP", "ERR wrong number of arguments for 'xgroup' command"),
    ("XGROUP CREATE k", "ERR wrong number of arguments for 'xgroup|create' command"),
    ("XGROUP DESTROY k g extra", "ERR wrong number of arguments for 'xgroup|destroy' command"),
    ("XGROUP HELP extra", "ERR wrong number of arguments for 'xgroup|help' command"),
    ("XGROUP nope", "ERR unknown subcommand 'nope'. Try XGROUP HELP."),
    ("XINFO NOPE k", "ERR unknown subcommand 'NOPE'. Try XINFO HELP."),
    ("CLIENT NOPE", "ERR unknown subcommand 'NOPE'. Try CLIENT HELP."),
    ("PING a b", "ERR wrong number of arguments for 'ping' command"),
    ("ECHO", "ERR wrong number of arguments for 'echo' command"),
    ("HELLO 4", "NOPROTO unsupported protocol version"),
    ("HELLO abc", "ERR Protocol version is not an integer or out of range"),
    ("HELLO 2 NOPE", "ERR Syntax error in HELLO option 'NOPE'"),
    ("HELLO 3 SETNAME", "ERR Syntax error in HELLO option 'SETNAME'"),
    ("HELLO 3 AUTH user", "ERR Syntax error in HELLO option 'AUTH'"),
    ("SELECT 1", "ERR SELECT is not allowed in cluster mode"),
    ("SELECT 99999999", "ERR SELECT is not allowed in cluster mode"),
    ("SELECT abc", INT),
    ("CLIENT SETINFO FOO bar", "ERR Unrecognized option 'FOO'"),
    ("CLIENT NO-EVICT maybe", SYNTAX),
    ("CLIENT UNBLOCK x", INT),
    ("XADD k", "ERR wrong number of arguments for 'xadd' command"),
    ("XADD k * f v g", "ERR wrong number of arguments for 'xadd' command"),
    ("XADD k MAXLEN 10 * f", "ERR wrong number of arguments for 'xadd' command"),
    ("XADD k MAXLEN 5 1-1", "ERR wrong number of arguments for 'xadd' command"),
    ("XADD k NOMKSTREAM MAXLEN 5", "ERR wrong number of arguments for 'xadd' command"),
    ("XADD k 0-0 f", "ERR wrong number of arguments for 'xadd' command"),
    ("XADD k 0-0 f v", "ERR The ID specified in XADD must be greater than 0-0"),
    ("XADD k 0 f v", "ERR The ID specified in XADD must be greater than 0-0"),
    ("XADD k abc f v", ID),
    ("XADD k '' f v", ID),
    ("XADD k - f v", ID),
    ("XADD k -5 f v", ID),
    ("XADD k 1-2-3 f v", ID),
    ("XADD k 1-2-* f v", ID),
    ("XADD k *-1 f v", ID),
    ("XADD k 18446744073709551616-0 f v", ID),
    ("XADD k FOO 1-1 f v", ID),
    ("XADD k MAXLEN -1 * f v", "ERR The MAXLEN argument must be >= 0."),
    ("XADD k MAXLEN abc * f v", INT),
    ("XADD k MAXLEN ~ * f v", INT),
    ("XADD k MAXLEN 10 LIMIT 5 * f v", "ERR syntax error, LIMIT cannot be used without the special ~ option"),
    (
        "XADD k MINID = 10 LIMIT 5 * f v",
        "ERR syntax error, LIMIT cannot be used without the special ~ option",
    ),
    ("XADD k LIMIT 5 * f v", "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
    ("XADD k MAXLEN ~ 10 LIMIT -1 * f v", "ERR The LIMIT argument must be >= 0."),
    ("XADD k MAXLEN ~ 10 LIMIT x * f v", INT),
    ("XADD k MINID - * f v", ID),
    (
        "XADD k MAXLEN 5 MINID 3 * f v",
        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
    ),
    ("XADD k IDMP p *", "ERR wrong number of arguments for 'xadd' command"),
    ("XADD k IDMPAUTO p *", "ERR wrong number of arguments for 'xadd' command"),
    ("XADD k IDMP '' i * f v", "ERR syntax error, IDMP requires a non-empty producer ID"),
    ("XADD k IDMP p '' * f v", "ERR syntax error, IDMP requires a non-empty idempotent ID"),
    ("XADD k IDMPAUTO '' * f v", "ERR syntax error, IDMPAUTO requires a non-empty producer ID"),
    ("XADD k IDMP p i IDMPAUTO p * f v", "ERR syntax error, IDMP/IDMPAUTO specified multiple times"),
    ("XADD k IDMP p i 5 f v", "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"),
    ("XCFGSET k IDMP-DURATION", SYNTAX),
    ("XCFGSET k IDMP-DURATION 0", "ERR IDMP-DURATION must be between 1 and 86400 seconds"),
    ("XCFGSET k IDMP-MAXSIZE 4294967297", "ERR IDMP-MAXSIZE must be between 1 and 10000 entries"),
    ("XIDMPRECORD k p i x", ID),
    ("XIDMPRECORD k '' i 1-1", "ERR producer ID must be non-empty"),
    ("XADD k KEEPREF DELREF 2-1 f v", ID),
    ("XTRIM k MAXLEN 5 ACKED DELREF", SYNTAX),
    ("XDELEX k IDS 1", "ERR wrong number of arguments for 'xdelex' command"),
    ("XDELEX k DELREF IDS 1", "ERR The `numids` parameter must match the number of arguments"),
    ("XDELEX k IDS 1 1-1 2-1", SYNTAX),
    ("XDELEX k IDS 1 1-1 IDS 2 1-1", "ERR The `numids` parameter must match the number of arguments"),
    ("XDELEX k KEEPREF ACKED DELREF", SYNTAX),
    ("XACKDEL k g IDS 99999999999999999999 1-1", "ERR Number of IDs must be a positive integer"),
    ("XNACK k g NOPE IDS 1 1-1", "ERR mode must be SILENT, FAIL, or FATAL"),
    ("XNACK k g FAIL IDS 2 1-1", "ERR number of IDs doesn't match numids"),
    ("XNACK k g FAIL IDS 1 1-1 RETRYCOUNT", "ERR Unrecognized XNACK option 'RETRYCOUNT'"),
    ("XNACK k g FAIL IDS 1 1-1 RETRYCOUNT -1", "ERR Invalid RETRYCOUNT value, must be >= 0"),
    ("XREAD COUNT 5 MAXCOUNT 4 STREAMS k 0", "ERR MAXCOUNT must be greater than or equal to COUNT"),
    ("XREAD MAXSIZE 0 STREAMS k 0", "ERR MAXSIZE must be a positive integer"),
    (
        "XREAD CLAIM 0 STREAMS k 0",
        "ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
    ),
    ("XREADGROUP GROUP g c CLAIM -1 STREAMS k >", "ERR min-idle-time must be a positive integer"),
    ("MSET a 1 b", "ERR wrong number of arguments for 'mset' command"),
    ("SETEX k 0 v", "ERR invalid expire time in 'setex' command"),
    ("SETRANGE k -1 v", "ERR offset is out of range"),
    ("DECRBY k -9223372036854775808", "ERR decrement would overflow"),
    ("GETEX k EX", SYNTAX),
    ("GETEX k PERSIST EX", SYNTAX),
    ("COPY a a", "ERR source and destination objects are the same"),
    ("COPY a b DB 1", "ERR DB index is out of range"),
    ("SCAN abc", "ERR invalid cursor"),
    ("SCAN 0 COUNT 0", SYNTAX),
    ("SCAN 0 TYPE", SYNTAX),
    ("OBJECT NOPE k", "ERR unknown subcommand 'NOPE'. Try OBJECT HELP."),
    ("MEMORY USAGE k SAMPLES -1", SYNTAX),
    ("XTRIM k MAXLEN", "ERR wrong number of arguments for 'xtrim' command"),
    ("XTRIM k FOO 5", SYNTAX),
    ("XTRIM k 5 MAXLEN", SYNTAX),
    ("XTRIM k MAXLEN 5 FOO", SYNTAX),
    ("XTRIM k MAXLEN ~ 5 LIMIT", SYNTAX),
    ("XTRIM k LIMIT 10", "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
    ("XTRIM k MAXLEN = 5 LIMIT 10", "ERR syntax error, LIMIT cannot be used without the special ~ option"),
    ("XDEL k 1-1 bad", ID),
    ("XDEL k -", ID),
    ("XSETID k $", ID),
    ("XSETID k 10-0 ENTRIESADDED -5", "ERR entries_added must be positive"),
    ("XSETID k 10-0 ENTRIESADDED x", INT),
    (
        "XSETID k 10-0 ENTRIESADDED 5 MAXDELETEDID 11-0",
        "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
    ),
    ("XSETID k 10-0 FOO 3", SYNTAX),
    ("XRANGE k -", "ERR wrong number of arguments for 'xrange' command"),
    ("XRANGE k - + COUNT", SYNTAX),
    ("XRANGE k - + LIMIT 1", SYNTAX),
    ("XRANGE k - + COUNT 1.5", INT),
    ("XRANGE k (18446744073709551615-18446744073709551615 +", "ERR invalid start ID for the interval"),
    ("XREVRANGE k (0-0 -", "ERR invalid end ID for the interval"),
    ("XRANGE k (- +", ID),
    ("XRANGE k $ +", ID),
    ("XREAD STREAMS k", "ERR wrong number of arguments for 'xread' command"),
    (
        "XREAD STREAMS k l 0",
        "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.",
    ),
    (
        "XREADGROUP GROUP g c STREAMS k l >",
        "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.",
    ),
    ("XREAD COUNT STREAMS k 0", INT),
    ("XREAD k 0 0", SYNTAX),
    ("XREAD COUNT 1 k 0", SYNTAX),
    ("XREAD STREAMS k (1-1", ID),
    ("XREAD STREAMS k 1-", ID),
    (
        "XREAD GROUP g c STREAMS k 0",
        "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
    ),
    (
        "XREAD NOACK STREAMS k 0",
        "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
    ),
    (
        "XREAD STREAMS k >",
        "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
    ),
    ("XREAD BLOCK -1 STREAMS k 0", "ERR timeout is negative"),
    ("XREAD BLOCK 1.5 STREAMS k 0", "ERR timeout is not an integer or out of range"),
    ("XREAD BLOCK 9223372036854775807 STREAMS k 0", "ERR timeout is out of range"),
    (
        "XREADGROUP GROUP g c STREAMS k $",
        "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
         specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
    ),
    ("XREADGROUP COUNT 1 BLOCK 1 STREAMS k >", "ERR Missing GROUP option for XREADGROUP"),
    ("XREADGROUP GROUP g STREAMS k >", "ERR wrong number of arguments for 'xreadgroup' command"),
    ("XCLAIM k g c 0", "ERR wrong number of arguments for 'xclaim' command"),
    ("XCLAIM k g c abc 1-1", "ERR Invalid min-idle-time argument for XCLAIM"),
    ("XCLAIM k g c 0 bad", "ERR Unrecognized XCLAIM option 'bad'"),
    ("XCLAIM k g c 0 1-1 IDLE", "ERR Unrecognized XCLAIM option 'IDLE'"),
    ("XCLAIM k g c 0 1-1 IDLE x", "ERR Invalid IDLE option argument for XCLAIM"),
    ("XCLAIM k g c 0 1-1 TIME x", "ERR Invalid TIME option argument for XCLAIM"),
    ("XCLAIM k g c 0 1-1 RETRYCOUNT x", "ERR Invalid RETRYCOUNT option argument for XCLAIM"),
    ("XCLAIM k g c 0 1-1 LASTID x", ID),
    ("XAUTOCLAIM k g c x 0", "ERR Invalid min-idle-time argument for XAUTOCLAIM"),
    ("XAUTOCLAIM k g c 0 bad", ID),
    ("XAUTOCLAIM k g c 0 0 COUNT", SYNTAX),
    ("XAUTOCLAIM k g c 0 0 COUNT 0", "ERR COUNT must be > 0"),
    ("XAUTOCLAIM k g c 0 0 COUNT x", "ERR COUNT must be > 0"),
    ("XPENDING k g -", SYNTAX),
    ("XPENDING k g - + x", INT),
    ("XPENDING k g IDLE", SYNTAX),
    ("XPENDING k g IDLE 5 - +", SYNTAX),
    ("XPENDING k g IDLE abc - + 10", INT),
    ("XPENDING k g a b 10", ID),
    ("XPENDING k g - (0-0 10", "ERR invalid end ID for the interval"),
    (
        "XGROUP CREATE k g $ FOO",
        "ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP.",
    ),
    (
        "XGROUP SETID k g 0 MKSTREAM",
        "ERR unknown subcommand or wrong number of arguments for 'SETID'. Try XGROUP HELP.",
    ),
    ("XGROUP CREATE k g $ ENTRIESREAD -2", "ERR value for ENTRIESREAD must be positive or -1"),
    ("XGROUP CREATE k g $ ENTRIESREAD abc", INT),
    ("XGROUP CREATE k g >", ID),
    (
        "XINFO STREAM k FULL COUNT",
        "ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.",
    ),
    (
        "XINFO STREAM k COUNT 5",
        "ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.",
    ),
    ("XINFO STREAM k FULL COUNT x", INT),
    ("EXPIRE k 10 NX XX", "ERR NX and XX, GT or LT options at the same time are not compatible"),
    ("EXPIRE k 10 GT LT", "ERR GT and LT options at the same time are not compatible"),
    ("EXPIRE k 10 FOO", "ERR Unsupported option FOO"),
    ("EXPIRE k 9223372036854775807", "ERR invalid expire time in 'expire' command"),
    ("PEXPIRE k 9223372036854775807", "ERR invalid expire time in 'pexpire' command"),
    ("PEXPIRE k 9223372036854775808", INT),
    ("SET k v EX 0", "ERR invalid expire time in 'set' command"),
    ("SET k v EX 1 PX 1", SYNTAX),
    ("SET k v NX XX", SYNTAX),
    ("SET k v KEEPTTL EX 1", SYNTAX),
    ("WAITAOF 2 0 0", "ERR value is out of range, must be between 0 and 1"),
    ("COMMAND GETKEYS PING", "ERR The command has no key arguments"),
    ("COMMAND GETKEYS NOPE a", "ERR Invalid command specified"),
    ("COMMAND GETKEYS XADD k", "ERR Invalid number of arguments specified for command"),
    ("COMMAND GETKEYS XREAD a b c", "ERR Invalid arguments specified for command"),
];

#[test]
fn what_makes_no_sense_is_refused_in_the_words_of_redis() {
    for (line, text) in REFUSED {
        assert_eq!(refused(line), *text, "{line}");
    }
}

#[test]
fn the_preview_of_an_unknown_command_stops_at_128_bytes() {
    let line = format!("FOOBAR {} {} {} {}", "a".repeat(50), "b".repeat(50), "c".repeat(50), "d".repeat(50));
    let shown = format!("'{}' '{}' '{}' ", "a".repeat(50), "b".repeat(50), "c".repeat(22));
    assert_eq!(refused(&line), format!("ERR unknown command 'FOOBAR', with args beginning with: {shown}"));
}

#[test]
fn xadd_takes_its_options_in_any_order_before_the_id() {
    let Command::Xadd(xadd) = write("xadd k nomkstream LIMIT 7 maxlen ~ 1000 5-* f v g w") else { panic!() };
    assert!(xadd.no_mkstream);
    assert_eq!(xadd.trim, Some(Trim { to: TrimTo::MaxLen(1000), approximate: true, limit: Some(7) }));
    assert_eq!(xadd.id, AddId::AutoSeq(5));
    assert_eq!(xadd.fields.len(), 4);
    let id = |line: &str| match write(line) {
        Command::Xadd(xadd) => xadd.id,
        other => panic!("{other:?}"),
    };
    assert_eq!(id("XADD k * f v"), AddId::Auto);
    assert_eq!(id("XADD k 55 f v"), AddId::Given(EntryId::new(55, 0)));
    assert_eq!(id("XADD k 007-003 f v"), AddId::Given(EntryId::new(7, 3)));
    assert_eq!(id("XADD k 0-* f v"), AddId::AutoSeq(0));
    assert_eq!(id("XADD k MINID = 3-1 9-9 f v"), AddId::Given(EntryId::new(9, 9)));
}

#[test]
fn an_idempotent_add_is_named_by_the_client_or_by_its_fields_in_any_order() {
    let named = |line: &str| match write(line) {
        Command::Xadd(Xadd { id: AddId::Once(once), .. }) => (once.producer, once.iid),
        other => panic!("{line}: {other:?}"),
    };
    let (producer, iid) = named("XADD k idmp p i NOMKSTREAM * f v");
    assert_eq!((&producer[..], &iid[..]), (&b"p"[..], &b"i"[..]));
    let (producer, iid) = named("XADD k MAXLEN 5 IDMPAUTO p * a 1 b 2");
    assert_eq!((&producer[..], iid.len()), (&b"p"[..], 16));
    // Permanent: retries may meet a node of another version.
    assert_eq!(iid[..4], [143, 59, 56, 250], "{iid:x?}");
    assert_eq!(named("XADD k IDMPAUTO p * b 2 a 1"), (producer, iid.clone()));
    for other in ["a 2 b 1", "a 1 b 3", "a 1", "a1 b 2 ''", "a 1 b 2 b 2"] {
        assert_ne!(named(&format!("XADD k IDMPAUTO p * {other}")).1, iid, "{other}");
    }
}

#[test]
fn only_what_needs_them_is_written_with_references_claims_and_limits() {
    assert!(matches!(write("XADD k KEEPREF MAXLEN 5 * f v"), Command::Xadd(_)));
    assert!(matches!(write("XADD k ACKED * f v"), Command::Xadd(_)));
    let Command::WithRefs { refs: Refs::Acked, command } = write("XTRIM k MAXLEN ~ 5 ACKED LIMIT 9") else {
        panic!()
    };
    assert!(matches!(*command, Command::Xtrim { trim: Trim { limit: Some(9), .. }, .. }));
    assert!(matches!(write("XREADGROUP GROUP g c STREAMS k >"), Command::Xreadgroup(_)));
    let Command::XreadgroupWithin { claim_min_idle_ms, limits, .. } =
        write("XREADGROUP GROUP g c COUNT 4 CLAIM 7 MAXCOUNT 4 STREAMS k >")
    else {
        panic!()
    };
    assert_eq!((claim_min_idle_ms, limits), (Some(7), ReadLimits { max_count: Some(4), max_size: None }));
    // Values that read like the word behind which the keys stand.
    let keys = |line: &str| {
        let args = words(line);
        let row = table::resolve(&args).expect("a command");
        row.key_positions(&args).collect::<Vec<_>>()
    };
    assert_eq!(
        keys("XREADGROUP GROUP streams streams CLAIM 5 MAXCOUNT 9 MAXSIZE 9 STREAMS a b > >"),
        [11, 12]
    );
}

#[test]
fn ranges_are_inclusive_after_parsing() {
    let Query::Xrange { start, end, count, reverse, .. } = read("XRANGE k (5 (5 COUNT -3") else { panic!() };
    assert_eq!((start, end), (EntryId::new(5, 1), EntryId::new(5, u64::MAX - 1)));
    assert_eq!((count, reverse), (Some(0), false));
    let Query::Xrange { start, end, count, reverse, .. } = read("XREVRANGE k + 7") else { panic!() };
    assert_eq!((start, end, count, reverse), (EntryId::new(7, 0), EntryId::MAX, None, true));
}

#[test]
fn reads_pair_keys_with_ids_and_know_how_long_to_wait() {
    let Request::Read(Query::Xread { keys, count }, block) =
        request("XREAD COUNT 0 BLOCK 0 STREAMS a b c $ + 3")
    else {
        panic!()
    };
    let ids: Vec<ReadId> = keys.iter().map(|(_, id)| *id).collect();
    assert_eq!(ids, [ReadId::Last, ReadId::LastEntry, ReadId::After(EntryId::new(3, 0))]);
    assert_eq!((count, block), (None, Some(Block(None))));

    let Request::Write(Command::Xreadgroup(read), block) =
        request("XREADGROUP NOACK GROUP g c BLOCK 1500 COUNT 10 STREAMS a >")
    else {
        panic!()
    };
    assert!(read.noack && !read.woken);
    assert_eq!((read.count, block), (Some(10), Some(Block(Some(Duration::from_millis(1500))))));
    let Request::Write(_, block) = request("XREADGROUP GROUP g c BLOCK 1500 STREAMS a b > 0") else {
        panic!()
    };
    assert_eq!(block, None, "history never waits");
}

#[test]
fn claims_end_their_ids_at_the_first_option() {
    let line = "XCLAIM k g c -5 1-1 2-2 IDLE 3 TIME 9 RETRYCOUNT 4 FORCE JUSTID LASTID 7";
    let Command::Xclaim(claim) = write(line) else { panic!() };
    assert_eq!(claim.ids, [EntryId::new(1, 1), EntryId::new(2, 2)]);
    assert_eq!((claim.min_idle_ms, claim.delivery_time), (0, ClaimTime::At(9)));
    assert_eq!((claim.retry_count, claim.force, claim.justid), (Some(4), true, true));
    assert_eq!(claim.last_id, Some(EntryId::new(7, 0)));
}

#[test]
fn set_knows_its_options() {
    let Command::Set(set) = write("SET k v px 1500 NX GET") else { panic!() };
    assert_eq!(
        (set.expire, set.condition, set.get),
        (Some(ExpireWhen::In(1500)), SetCondition::IfAbsent, true)
    );
    let Command::Set(set) = write("SET k v EXAT 2 XX") else { panic!() };
    assert_eq!((set.expire, set.condition), (Some(ExpireWhen::At(2000)), SetCondition::IfPresent));
}

fn keys_of(line: &str) -> Vec<String> {
    let args = words(line);
    let row = table::resolve(&args).unwrap();
    row.key_positions(&args).map(|at| String::from_utf8_lossy(&args[at]).into_owned()).collect()
}

#[test]
fn keys_are_found_without_parsing() {
    for (line, keys) in [
        ("XADD k * f v", "k"),
        ("DEL a b c", "a b c"),
        ("RENAME a b", "a b"),
        ("XGROUP CREATE k g $", "k"),
        ("XINFO STREAM k FULL", "k"),
        ("XREAD COUNT 1 BLOCK 5 STREAMS a b 0 0", "a b"),
        ("xread streams streams 0", "streams"),
        ("XREADGROUP GROUP streams c COUNT 5 NOACK STREAMS a >", "a"),
        ("PING", ""),
        ("XREAD FOO a b", ""),
    ] {
        assert_eq!(keys_of(line).join(" "), keys, "{line}");
    }
}

/// The keys that the table finds are those that the parsed request carries.
#[test]
fn the_table_and_the_parsers_agree_on_keys() {
    for line in [
        "XADD k * f v",
        "XDEL k 1",
        "XTRIM k MAXLEN 1",
        "XSETID k 1",
        "XACK k g 1",
        "XCLAIM k g c 0 1",
        "XAUTOCLAIM k g c 0 0",
        "XGROUP DESTROY k g",
        "XREADGROUP GROUP g c COUNT 1 STREAMS a b > >",
        "DEL a b",
        "SET k v",
        "RENAME a b",
        "PERSIST k",
        "EXPIRE k 1",
        "XCFGSET k IDMP-MAXSIZE 1",
        "XIDMPRECORD k p i 1",
        "XTRIM k MAXLEN 1 ACKED",
        "XDELEX k IDS 1 1",
        "XACKDEL k g IDS 1 1",
        "XNACK k g FAIL IDS 1 1",
        "XREADGROUP GROUP g c CLAIM 5 MAXCOUNT 1 STREAMS a b > >",
        "COPY a b REPLACE",
        "MSET a 1 b 2",
        "MSETNX a 1 b 2",
        "SETNX k v",
        "APPEND k v",
        "GETEX k EX 1",
        "DECRBY k 1",
    ] {
        let command = write(line);
        let keys: Vec<String> = command.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
        assert_eq!(keys_of(line), keys, "{line}");
    }
}

#[test]
fn every_row_is_documented_and_consistent() {
    let mut rows = Vec::new();
    for row in table::rows() {
        rows.extend(std::iter::once(*row).chain(row.subs.iter()));
    }
    assert!(rows.len() > 80);
    for row in rows {
        let name = row.name;
        assert!(!row.summary.is_empty() && !row.since.is_empty() && !row.group.is_empty(), "{name}");
        assert!(!row.complexity.is_empty(), "{name}");
        assert!(row.parse.is_some() != (row.subs.len() > 1 && name != "command"), "{name}");
        assert_eq!(row.has_keys(), row.syntax.split([' ', '[']).any(|w| w == "key"), "{name}");
        assert!(!(row.is(table::WRITE) && row.is(table::READONLY)), "{name}");
        for sub in row.subs {
            assert_eq!(sub.name.split_once('|').map(|(head, _)| head), Some(name), "{}", sub.name);
        }
        assert_eq!(table::find_full(name.to_uppercase().as_bytes()).map(|row| row.name), Some(name));
    }
}

#[test]
fn command_info_has_ten_fields_and_docs_are_maps() {
    use crate::command::introspect;
    let Reply::Array(all) = introspect::all() else { panic!() };
    for row in &all {
        let Reply::Array(fields) = row else { panic!() };
        assert_eq!(fields.len(), 10);
    }
    assert_eq!(introspect::info(&words("nosuch")), Reply::Array(vec![Reply::NilBulk]));
    let Reply::Map(docs) = introspect::docs(&[]) else { panic!() };
    assert_eq!(docs.len(), table::rows().len());
    let Reply::Map(docs) = introspect::docs(&words("xadd nosuch xgroup|create")) else { panic!() };
    assert_eq!(docs.len(), 2);
}

/// A plain generator: the same lines in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

/// Every word that means something somewhere, and some that mean nothing anywhere.
const WORDS: &[&str] = &[
    "",
    "*",
    "$",
    "+",
    "-",
    ">",
    "(",
    "(1",
    "=",
    "~",
    "0",
    "1",
    "-1",
    "5-5",
    "5-*",
    "1-2-3",
    "k",
    "{a}b",
    "g",
    "c",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615-18446744073709551615",
    "STREAMS",
    "COUNT",
    "BLOCK",
    "GROUP",
    "NOACK",
    "MAXLEN",
    "MINID",
    "LIMIT",
    "NOMKSTREAM",
    "FULL",
    "MKSTREAM",
    "ENTRIESREAD",
    "ENTRIESADDED",
    "MAXDELETEDID",
    "IDLE",
    "TIME",
    "RETRYCOUNT",
    "FORCE",
    "JUSTID",
    "LASTID",
    "NX",
    "XX",
    "GT",
    "LT",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "GET",
    "AUTH",
    "SETNAME",
    "ID",
    "TYPE",
    "NORMAL",
    "ADDR",
    "SKIPME",
    "YES",
    "FILTERBY",
    "ACLCAT",
    "PATTERN",
    "xadd",
    "xgroup|create",
    "\u{fffd}\0\r\n",
];

#[test]
fn no_line_of_words_makes_a_parser_panic() {
    let mut names: Vec<Vec<&str>> = Vec::new();
    for row in table::rows() {
        names.push(vec![row.name]);
        names.extend(row.subs.iter().map(|sub| vec![row.name, sub.short_name()]));
    }
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let (mut parsed, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let mut args: Vec<Bytes> =
            names[dice.roll(names.len())].iter().map(|name| Bytes::from_static(name.as_bytes())).collect();
        for _ in 0..dice.roll(10) {
            args.push(Bytes::from_static(WORDS[dice.roll(WORDS.len())].as_bytes()));
        }
        if let Ok(row) = table::resolve(&args) {
            assert!(row.key_positions(&args).all(|at| at < args.len()));
        }
        match parse(&args) {
            Ok(_) => parsed += 1,
            Err(text) => {
                assert!(
                    text.0.split(' ').next().is_some_and(|code| code.bytes().all(|b| b.is_ascii_uppercase()))
                );
                refused += 1;
            }
        }
    }
    assert!(
        parsed > 10_000 && refused > 10_000,
        "{parsed} parsed, {refused} refused: the words miss the point"
    );
}
