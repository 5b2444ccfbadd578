//! What clients that cannot be installed here say when they connect, by their documentation and source, over a plain
//! socket: go-redis, Lettuce, StackExchange.Redis. None of it may fail, or only in the way those clients expect.

use weir_tests::testing::{ask, connect, start};

/// Each command must be answered, without an error unless its line begins with `?`.
async fn shake(name: &str, lines: &str) {
    let cluster = start(3, "").await;
    for node in 0..3 {
        let mut c = connect(&cluster, node).await;
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (command, tolerated) = line.strip_prefix('?').map_or((line, false), |rest| (rest, true));
            let reply = ask(&mut c, command).await;
            assert!(tolerated || !reply.starts_with('-'), "{name}: {command} was answered {reply}");
        }
        assert_eq!(ask(&mut c, "PING").await, "PONG");
    }
}

#[tokio::test]
async fn go_redis_connects() {
    shake(
        "go-redis",
        "
        HELLO 3
        CLIENT SETINFO LIB-NAME go-redis(,go1.23)
        CLIENT SETINFO LIB-VER 9.7.0
        ?CLIENT MAINT_NOTIFICATIONS ON
        CLUSTER SLOTS
        COMMAND
        READONLY
        READWRITE
        ",
    )
    .await;
}

#[tokio::test]
async fn lettuce_connects() {
    shake(
        "Lettuce",
        "
        HELLO 3
        CLIENT SETNAME worker
        CLIENT SETINFO lib-name Lettuce
        CLIENT SETINFO lib-ver 6.5.0
        CLUSTER MYID
        CLUSTER NODES
        CLUSTER INFO
        INFO CLIENTS
        INFO REPLICATION
        READONLY
        ",
    )
    .await;
}

#[tokio::test]
async fn stackexchange_connects() {
    shake(
        "StackExchange.Redis",
        "
        HELLO 3
        CLIENT SETNAME worker
        CLIENT SETINFO lib-name SE.Redis
        CLIENT SETINFO lib-ver 2.8.0
        CLIENT ID
        CONFIG GET timeout
        CONFIG GET replica-read-only
        CONFIG GET databases
        INFO replication
        INFO server
        CLUSTER NODES
        ECHO tie-breaker
        ",
    )
    .await;
}
