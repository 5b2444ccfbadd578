//! What operators see and change on one whole node, in the words of Redis 8.10.

use crate::connection::{Server, script};

fn field(info: &str, name: &str) -> Option<String> {
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(|value| value.trim_end().to_owned())
}

#[tokio::test]
async fn settings_change_while_the_node_runs_all_or_none() {
    let server = Server::start().await;
    let failed = |key: &str, why: &str| {
        format!("-ERR CONFIG SET failed (possibly related to argument '{key}') - {why}")
    };
    let mut c = server.connect().await;
    for (line, wanted) in [
        ("CONFIG SET maxmemory", "-ERR wrong number of arguments for 'config|set' command".to_owned()),
        ("CONFIG SET maxmemory 1 x", "-ERR syntax error".to_owned()),
        ("CONFIG SET maxmemory abc", failed("maxmemory", "argument must be a memory value")),
        (
            "CONFIG SET nosuch 1",
            "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'".to_owned(),
        ),
        (
            "CONFIG SET timeout 5 nosuch 1",
            "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'".to_owned(),
        ),
        ("CONFIG SET timeout 1 timeout 2", failed("timeout", "duplicate parameter")),
        ("CONFIG SET timeout -1", failed("timeout", "argument must be between 0 and 2147483647 inclusive")),
        (
            "CONFIG SET timeout 5 maxclients abc",
            failed("maxclients", "argument couldn't be parsed into an integer"),
        ),
        ("CONFIG SET port 1", failed("port", "can't set immutable config")),
        ("CONFIG SET appendonly no", failed("appendonly", "every write goes through a log")),
        (
            "CONFIG SET durability os",
            failed("durability", "the cluster has one durability, fixed when it was first started"),
        ),
        (
            "CONFIG SET notify-keyspace-events KEA",
            failed(
                "notify-keyspace-events",
                "there are no keyspace notifications: read a stream with XREAD BLOCK",
            ),
        ),
        ("CONFIG GET timeout", "[timeout 0]".to_owned()),
        ("CONFIG SET appendonly yes appendfsync always", "OK".to_owned()),
        ("CONFIG SET TIMEOUT 7 maxmemory 2mb", "OK".to_owned()),
        ("CONFIG GET timeout maxmemory", "[timeout 7 maxmemory 2097152]".to_owned()),
        ("CONFIG SET protected-mode no", "OK".to_owned()),
        ("CONFIG GET protected-mode", "[protected-mode no]".to_owned()),
    ] {
        assert_eq!(c.ask(line).await, wanted, "{line}");
    }
    assert_eq!(c.ask("CONFIG SET maxmemory 1").await, "OK");
    assert_eq!(c.ask("SET k v").await, "OK", "there is nothing yet");
    assert_eq!(c.ask("SET k2 v").await, "-OOM command not allowed when used memory > 'maxmemory'.");
    assert_eq!(c.ask("CONFIG SET maxmemory 0").await, "OK");
    assert_eq!(c.ask("SET k2 v").await, "OK");
}

#[tokio::test]
async fn a_shorter_timeout_ends_connections_that_rest_and_no_more_are_let_in_than_set() {
    let server = Server::start().await;
    let (mut c, mut rests) = (server.connect().await, server.connect().await);
    assert_eq!(rests.ask("PING").await, "PONG");
    assert_eq!(c.ask("CONFIG SET maxclients 2").await, "OK");
    let mut third = server.connect().await;
    assert_eq!(third.answers(1).await, ["-ERR max number of clients reached"]);
    assert_eq!(c.ask("CONFIG SET timeout 1000").await, "OK");
    assert_eq!(c.ask("CONFIG SET timeout 1").await, "OK");
    assert!(rests.next().await.is_none());
}

#[tokio::test]
async fn a_password_that_is_set_holds_for_the_cluster() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    assert_eq!(c.ask("CONFIG SET requirepass pw timeout 9").await, "OK");
    let mut other = server.connect().await;
    assert_eq!(other.ask("PING").await, "-NOAUTH Authentication required.");
    assert_eq!(other.ask("AUTH pw").await, "OK");
    assert_eq!(c.ask("CONFIG GET requirepass").await, "[requirepass ]", "it is not told");
    assert_eq!(other.ask("CONFIG GET timeout").await, "[timeout 9]");
}

#[tokio::test]
async fn slow_calls_are_remembered_without_passwords() {
    let server = Server::start_with(&[("slowlog-max-len", "3")]).await;
    let mut c = server.connect().await;
    assert_eq!(c.ask("SLOWLOG GET -2").await, "-ERR count should be greater than or equal to -1");
    assert_eq!(c.ask("CONFIG SET slowlog-log-slower-than 0 latency-monitor-threshold 0").await, "OK");
    assert_eq!(c.ask("SLOWLOG RESET").await, "OK");
    c.send("CLIENT SETNAME me\nAUTH me secret\nSET k v").await;
    c.answers(3).await;
    let log = c.ask("SLOWLOG GET 10").await;
    assert!(log.contains("[SET k v] 127.0.0.1:") && log.contains("[AUTH (redacted) (redacted)]"), "{log}");
    assert!(log.contains(" me 3]") && !log.contains("secret"), "{log}");
    assert_eq!(c.ask("SLOWLOG LEN").await, "3");
    assert_eq!(c.ask("CONFIG SET slowlog-log-slower-than -1").await, "OK");
    assert_eq!(c.ask("SLOWLOG RESET").await, "OK");
    assert_eq!(c.ask("XREAD BLOCK 20 STREAMS s $").await, "nil");
    assert_eq!(c.ask("SLOWLOG LEN").await, "0");
}

#[tokio::test]
async fn spikes_are_noted_by_event_where_it_is_asked_for() {
    let server = Server::start_with(&[("enable-debug-command", "local")]).await;
    let mut c = server.connect().await;
    assert_eq!(c.ask("LATENCY LATEST").await, "[]");
    assert!(c.ask("LATENCY DOCTOR").await.starts_with("Latency monitoring is disabled"));
    assert_eq!(c.ask("LATENCY GRAPH command").await, "-ERR No samples available for event 'command'");
    assert_eq!(c.ask("CONFIG SET latency-monitor-threshold 1").await, "OK");
    c.send("XADD s * a 1\nCONFIG GET x").await;
    c.answers(2).await;
    assert_eq!(c.ask("DEBUG SLEEP 0.01").await, "OK");
    assert_eq!(
        c.ask("DEBUG NOSUCH").await,
        "-ERR unknown subcommand or wrong number of arguments for 'NOSUCH'. Try DEBUG HELP."
    );
    let histogram = c.ask("LATENCY HISTOGRAM xadd nosuch config").await;
    assert!(
        histogram.contains("xadd [calls 1 histogram_usec [") && histogram.contains("config|set [calls 1 "),
        "{histogram}"
    );
    assert!(!histogram.contains("debug"), "{histogram}");
}

#[tokio::test]
async fn a_monitor_is_shown_calls_without_passwords() {
    let server = Server::start().await;
    let (mut eye, mut c) = (server.connect().await, server.connect().await);
    assert_eq!(eye.ask("MONITOR").await, "OK");
    assert_eq!(eye.ask("GET k").await, "-ERR Replica can't interact with the keyspace");
    c.send("AUTH u secret\nCONFIG GET timeout\nMULTI\nSET k \"v\"\nEXEC").await;
    c.answers(5).await;
    let lines = eye.answers(4).await;
    let shown: Vec<&str> = lines.iter().map(|line| line.split_once("] ").expect("a line").1).collect();
    let wanted = [r#""AUTH" "(redacted)" "(redacted)""#, r#""MULTI""#, r#""SET" "k" "\"v\"""#, r#""EXEC""#];
    let mut sorted = shown.clone();
    sorted.sort_unstable();
    let mut all = wanted;
    all.sort_unstable();
    assert_eq!(sorted, all);
    assert!(c.ask("CLIENT LIST").await.contains(" flags=O "));
    assert_eq!(eye.ask("RESET").await, "RESET");
    c.ask("PING").await;
    assert_eq!(eye.ask("GET k").await, "\"v\"", "nothing is shown any more");
}

#[tokio::test]
async fn numbers_start_again_and_sections_are_chosen() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    c.send("SET k v EX 100\nGET k\nNOSUCH\nGET\nINCR k\nSET j v").await;
    c.answers(6).await;
    let info = c.ask("INFO everything").await;
    for section in [
        "Server",
        "Clients",
        "Memory",
        "Persistence",
        "Stats",
        "Replication",
        "CPU",
        "Commandstats",
        "Latencystats",
        "Errorstats",
        "Cluster",
        "Keyspace",
        "Weir",
    ] {
        assert!(info.contains(&format!("# {section}\r\n")), "{section}");
    }
    let get = field(&info, "cmdstat_get").expect("called");
    assert!(get.starts_with("calls=1,") && get.ends_with("rejected_calls=1,failed_calls=0"), "{get}");
    let incr = field(&info, "cmdstat_incr").expect("called");
    assert!(incr.ends_with("rejected_calls=0,failed_calls=1"), "{incr}");
    assert!(field(&info, "latency_percentiles_usec_get").expect("called").starts_with("p50="));
    assert_eq!(field(&info, "errorstat_ERR").as_deref(), Some("count=3"));
    assert_eq!(field(&info, "db0").as_deref(), Some("keys=2,expires=1,avg_ttl=0,subexpiry=0"));
    assert_ne!(field(&info, "total_system_memory").as_deref(), Some("0"));
    let two = c.ask("INFO cpu KEYSPACE").await;
    assert!(
        two.starts_with("# CPU\r\n") && two.contains("# Keyspace\r\n") && !two.contains("# Server"),
        "{two}"
    );
    assert_eq!(c.ask("CONFIG RESETSTAT").await, "OK");
    let info = c.ask("INFO everything").await;
    assert_eq!(field(&info, "cmdstat_get"), None);
    assert_eq!(field(&info, "errorstat_ERR"), None);
    assert_eq!(field(&info, "total_error_replies").as_deref(), Some("0"));
    assert_eq!(field(&info, "total_connections_received").as_deref(), Some("0"));
    assert!(c.ask("MEMORY STATS").await.contains("dataset.bytes"));
    assert!(c.ask("MEMORY DOCTOR").await.starts_with("This node holds too little data"));
}

#[tokio::test]
async fn snapshots_are_taken_when_asked_for() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    let before: i64 = c.ask("LASTSAVE").await.parse().expect("seconds");
    assert_eq!(c.ask("SET k v").await, "OK");
    assert_ne!(field(&c.ask("INFO persistence").await, "rdb_changes_since_last_save").as_deref(), Some("0"));
    assert_eq!(c.ask("SAVE").await, "OK");
    let info = c.ask("INFO persistence").await;
    assert_eq!(field(&info, "rdb_changes_since_last_save").as_deref(), Some("0"), "{info}");
    assert_ne!(field(&info, "rdb_saves").as_deref(), Some("0"));
    assert!(c.ask("LASTSAVE").await.parse::<i64>().expect("seconds") >= before);
    script(
        &server,
        "
        SAVE x => -ERR wrong number of arguments for 'save' command
        BGSAVE x => -ERR syntax error
        BGSAVE => Background saving started
        BGSAVE SCHEDULE => Background saving started
        SHUTDOWN x => -ERR syntax error
        SHUTDOWN SAVE NOSAVE => -ERR syntax error
        SHUTDOWN ABORT => -ERR No shutdown in progress.
        DEBUG SLEEP 0 => -ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\"*
        ",
    )
    .await;
    let mut c = server.connect().await;
    c.send("SHUTDOWN").await;
    server.asked_to_stop().await;
}

#[tokio::test]
async fn paused_clients_wait_and_reads_go_on_where_only_writes_are_meant() {
    let server = Server::start().await;
    let (mut admin, mut c) = (server.connect().await, server.connect().await);
    for (line, wanted) in [
        ("CLIENT PAUSE abc", "-ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "-ERR timeout is negative"),
        ("CLIENT PAUSE 10 FOO", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
        ("CLIENT PAUSE 100000 WRITE", "OK"),
    ] {
        assert_eq!(admin.ask(line).await, wanted, "{line}");
    }
    assert_eq!(c.ask("GET k").await, "nil");
    c.send("SET k v\nGET k").await;
    let mut other = server.connect().await;
    other.send("MULTI\nSET k 2\nEXEC").await;
    assert_eq!(other.answers(2).await, ["OK", "QUEUED"]);
    assert_eq!(admin.ask("GET k").await, "nil", "the write waits");
    assert_eq!(admin.ask("CLIENT UNPAUSE").await, "OK");
    assert_eq!(c.answers(1).await, ["OK"]);
    assert_eq!(other.answers(1).await, ["[OK]"]);
    assert_eq!(admin.ask("CLIENT PAUSE 150").await, "OK");
    let began = weir_env::time::Instant::now();
    assert_eq!(other.ask("PING").await, "PONG");
    assert!(began.elapsed() > std::time::Duration::from_millis(100), "all wait, until the end");
}

#[tokio::test]
async fn what_the_cluster_or_a_client_cannot_be_told_is_answered_clearly() {
    let server = Server::start().await;
    script(
        &server,
        "
        CLIENT TRACKING ON => -ERR CLIENT TRACKING is not supported: *
        CLIENT TRACKING OFF => OK
        CLIENT TRACKING FOO => -ERR syntax error
        CLIENT TRACKINGINFO => [flags [off] redirect -1 prefixes []]
        CLIENT CACHING YES => -ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled
        CLIENT GETREDIR => -1
        CLIENT KILL ID 99999 ID 99998 => 0
        CLIENT KILL TYPE pubsub => 0
        SET {a}1 v => OK
        SET {a}2 v => OK
        SET {b}1 v => OK
        CLUSTER SLOT-STATS => -ERR wrong number of arguments for 'cluster|slot-stats' command
        CLUSTER SLOT-STATS SLOTSRANGE 15494 15495 => [[15494 [key-count 0]] [15495 [key-count 2]]]
        CLUSTER SLOT-STATS ORDERBY key-count LIMIT 2 => [[15495 [key-count 2]] [3300 [key-count 1]]]
        CLUSTER SLOT-STATS ORDERBY key-count LIMIT 1 ASC => [[0 [key-count 0]]]
        CLUSTER BUMPEPOCH => STILL *
        CLUSTER SAVECONFIG => OK
        CLUSTER COUNT-FAILURE-REPORTS abc => -ERR Unknown node abc
        CLUSTER ADDSLOTS => -ERR wrong number of arguments for 'cluster|addslots' command
        CLUSTER ADDSLOTS 1 => -ERR CLUSTER ADDSLOTS is not supported: slots are given to shards when the cluster is founded
        CLUSTER FAILOVER => -ERR CLUSTER FAILOVER is not supported: leadership is per shard*
        CLUSTER MEET 127.0.0.1 7000 => -ERR CLUSTER MEET is not supported: the nodes of a cluster are those of --cluster*
        CLUSTER NOSUCH => -ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP.
        CLUSTER MIGRATION STATUS => -ERR wrong number of arguments for 'cluster|migration' command
        ",
    )
    .await;
    let mut c = server.connect().await;
    let id = c.ask("CLUSTER MYID").await;
    assert_eq!(c.ask(&format!("CLUSTER COUNT-FAILURE-REPORTS {id}")).await, "0");
}
