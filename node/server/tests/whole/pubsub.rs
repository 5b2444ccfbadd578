//! Publishing and subscribing on one whole node, as a Redis 8.10 answers.

use crate::connection::{Client, Server, script};

/// What came, push by push.
async fn heard(c: &mut Client, count: usize) -> Vec<String> {
    c.answers(count).await
}

#[tokio::test]
async fn a_listening_client_of_version_2_hears_messages_and_may_do_little_else() {
    let server = Server::start().await;
    let (mut c, mut other) = (server.connect().await, server.connect().await);
    c.send("SUBSCRIBE a b").await;
    assert_eq!(heard(&mut c, 2).await, ["[subscribe a 1]", "[subscribe b 2]"]);
    assert_eq!(c.ask("PSUBSCRIBE a*").await, "[psubscribe a* 3]");
    assert_eq!(c.ask("SSUBSCRIBE {x}1").await, "[ssubscribe {x}1 1]");
    assert_eq!(other.ask("PUBLISH a hello").await, "2");
    assert_eq!(heard(&mut c, 2).await, ["[message a hello]", "[pmessage a* a hello]"]);
    assert_eq!(other.ask("SPUBLISH {x}1 m").await, "1");
    assert_eq!(other.ask("SPUBLISH a m").await, "0", "another world of channels");
    assert_eq!(heard(&mut c, 1).await, ["[smessage {x}1 m]"]);
    let context = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
    assert_eq!(c.ask("GET x").await, format!("-ERR Can't execute 'get': {context}"));
    assert_eq!(c.ask("CLIENT INFO").await, format!("-ERR Can't execute 'client|info': {context}"));
    assert_eq!(c.ask("HELLO 3").await, format!("-ERR Can't execute 'hello': {context}"));
    assert_eq!(c.ask("GET").await, "-ERR wrong number of arguments for 'get' command");
    assert_eq!(c.ask("PING").await, "[pong ]");
    assert_eq!(c.ask("PING hi").await, "[pong hi]");
    assert_eq!(c.ask("UNSUBSCRIBE nosuch").await, "[unsubscribe nosuch 3]");
    c.send("UNSUBSCRIBE").await;
    assert_eq!(heard(&mut c, 2).await, ["[unsubscribe a 2]", "[unsubscribe b 1]"]);
    assert_eq!(c.ask("UNSUBSCRIBE").await, "[unsubscribe nil 1]");
    assert_eq!(c.ask("PUNSUBSCRIBE a*").await, "[punsubscribe a* 0]");
    assert_eq!(c.ask("SUNSUBSCRIBE").await, "[sunsubscribe {x}1 0]");
    assert_eq!(c.ask("GET x").await, "nil", "it listens no longer");
    assert_eq!(c.ask("SUBSCRIBE a").await, "[subscribe a 1]");
    assert_eq!(c.ask("RESET").await, "RESET");
    assert_eq!(other.ask("PUBLISH a m").await, "0");
    assert_eq!(c.ask("PING").await, "PONG");
}

#[tokio::test]
async fn a_listening_client_of_version_3_does_all_else_too() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    assert!(c.ask("HELLO 3").await.starts_with("{server: redis"));
    c.send("SUBSCRIBE a\nPUBLISH a 1\nSET k v\nPUBLISH a 2\nGET k").await;
    let answers = heard(&mut c, 7).await;
    let without = |what: &str| answers.iter().filter(|a| !a.contains(what)).cloned().collect::<Vec<_>>();
    assert_eq!(without("message"), ["[subscribe a 1]", "1", "OK", "1", "v"]);
    let messages: Vec<_> = answers.iter().filter(|a| a.contains("message")).collect();
    assert_eq!(messages, ["[message a 1]", "[message a 2]"]);
    c.send("CLIENT REPLY OFF\nSET k 2\nPUBLISH a 3\nCLIENT REPLY ON").await;
    let mut last = heard(&mut c, 2).await;
    last.sort();
    assert_eq!(last, ["OK", "[message a 3]"], "messages are no answers");
}

#[tokio::test]
async fn questions_and_wrong_calls() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    c.send("SUBSCRIBE news.1 news.2\nPSUBSCRIBE n*\nSSUBSCRIBE sh").await;
    heard(&mut c, 4).await;
    script(
        &server,
        "
        PUBSUB CHANNELS => [news.1 news.2]
        PUBSUB CHANNELS *2 => [news.2]
        PUBSUB CHANNELS N* => []
        PUBSUB NUMSUB => []
        PUBSUB NUMSUB news.1 nosuch => [news.1 1 nosuch 0]
        PUBSUB NUMPAT => 1
        PUBSUB SHARDCHANNELS => [sh]
        PUBSUB SHARDNUMSUB sh news.1 => [sh 1 news.1 0]
        PUBSUB CHANNELS a b => -ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.
        PUBSUB NOSUCH => -ERR unknown subcommand 'NOSUCH'. Try PUBSUB HELP.
        PUBSUB => -ERR wrong number of arguments for 'pubsub' command
        PUBLISH a => -ERR wrong number of arguments for 'publish' command
        SUBSCRIBE => -ERR wrong number of arguments for 'subscribe' command
        SSUBSCRIBE a b => -CROSSSLOT Keys in request don't hash to the same slot
        COMMAND GETKEYS SPUBLISH a b => -ERR The command has no key arguments
        SUNSUBSCRIBE => [sunsubscribe nil 0]
        UNSUBSCRIBE => [unsubscribe nil 0]
        ",
    )
    .await;
    let listed = server.connect().await.ask("CLIENT LIST TYPE pubsub").await;
    assert!(listed.contains(" flags=P ") && listed.contains(" sub=2 psub=1 ssub=1 "), "{listed}");
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let info = server.connect().await.ask("INFO").await;
    for line in ["pubsub_clients:1", "pubsub_channels:2", "pubsub_patterns:1", "pubsubshard_channels:1"] {
        assert!(info.lines().any(|l| l == line), "{line}\n{info}");
    }
    drop(c);
    let mut c = server.connect().await;
    while c.ask("PUBSUB NUMPAT").await != "0" {}
    assert_eq!(c.ask("PUBSUB CHANNELS").await, "[]", "a connection takes its subscriptions along");
}

#[tokio::test]
async fn a_publish_of_a_transaction_comes_after_it_and_only_if_it_is_done() {
    let server = Server::start().await;
    let (mut c, mut ear) = (server.connect().await, server.connect().await);
    assert_eq!(ear.ask("SUBSCRIBE a").await, "[subscribe a 1]");
    c.send("SET {t}k 1\nWATCH {t}k\nMULTI\nSET {t}k 2\nPUBLISH a done\nPUBSUB NUMSUB a\nEXEC").await;
    assert_eq!(c.answers(7).await[6], "[OK 1 [a 1]]");
    assert_eq!(heard(&mut ear, 1).await, ["[message a done]"]);
    c.send("WATCH {t}k\nSET {t}k 3\nMULTI\nSET {t}k 4\nPUBLISH a no\nEXEC").await;
    assert_eq!(c.answers(6).await[5], "nil");
    c.send("MULTI\nSUBSCRIBE a\nEXEC").await;
    let answers = c.answers(3).await;
    assert_eq!(answers[1], "-ERR Command not allowed inside a transaction");
    assert_eq!(c.ask("PUBLISH a yes").await, "1");
    assert_eq!(heard(&mut ear, 1).await, ["[message a yes]"], "nothing of the transaction that was given up");
}

#[tokio::test]
async fn channels_are_refused_and_taken_away() {
    let server = Server::start().await;
    let mut admin = server.connect().await;
    assert_eq!(admin.ask("ACL SETUSER u on nopass +@all ~k* &mine:* &other").await, "OK");
    let mut c = server.connect().await;
    assert_eq!(c.ask("AUTH u x").await, "OK");
    let refused = "-NOPERM No permissions to access a channel";
    for line in [
        "SUBSCRIBE mine:1 theirs",
        "PUBLISH theirs x",
        "SPUBLISH theirs x",
        "PSUBSCRIBE *",
        "PSUBSCRIBE mine:1",
    ] {
        assert_eq!(c.ask(line).await, refused, "{line}");
    }
    assert_eq!(c.ask("SPUBLISH mine:2 x").await, "0", "a channel is no key");
    assert_eq!(c.ask("PSUBSCRIBE mine:*").await, "[psubscribe mine:* 1]");
    assert_eq!(c.ask("SUBSCRIBE other").await, "[subscribe other 2]");
    assert_eq!(admin.ask("ACL SETUSER u resetchannels &mine:* &new").await, "OK");
    assert!(c.next().await.is_none(), "it may not hear `other` any more");
    assert_eq!(admin.ask("PUBLISH mine:1 x").await, "0");
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_is_closed() {
    let server = Server::start_with(&[("pubsub-output-buffer-limit", "100000")]).await;
    let (mut deaf, mut c) = (server.connect().await, server.connect().await);
    assert_eq!(deaf.ask("SUBSCRIBE a").await, "[subscribe a 1]");
    let message = "x".repeat(50_000);
    let mut published = 0;
    // The sockets between take some megabytes.
    while c.ask(&format!("PUBLISH a {message}")).await == "1" {
        published += 1;
        assert!(published < 2_000, "it is never closed");
    }
    let info = c.ask("INFO stats").await;
    assert!(info.contains("client_output_buffer_limit_disconnections:1\r\n"), "{info}");
}
