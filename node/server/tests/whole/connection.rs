//! What one connection may rely on, against a whole node in this process: order, versions in the middle of a
//! pipeline, transactions, and what becomes of a client that goes away.

use bytes::BytesMut;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_env::time::{sleep, timeout};
use weir_env::{BoxStream, Env};
use weir_resp::{Value, decode_value, encode_command};
use weir_server::config::{Config, Sources};
use weir_server::node::Node;
use weir_server::run::{RunningNode, start_node};

/// A cluster of one node.
pub(crate) struct Server {
    node: RunningNode,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Server {
    pub(crate) async fn start() -> Server {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Server {
        let env = Env::system();
        for _ in 0..50 {
            // Peer and admin ports lie 10,000 and 20,000 above; all stay below those of outgoing connections.
            let port = 12_100 + (env.rng.u64() % 600) as u16;
            let dir = tempfile::tempdir().expect("a directory");
            let flags = [
                ("name", "n1".to_owned()),
                ("dir", dir.path().display().to_string()),
                ("port", port.to_string()),
                ("cluster", format!("n1=127.0.0.1:{port}")),
            ];
            let settings = settings.iter().map(|(key, value)| (*key, (*value).to_owned()));
            let flags = flags.into_iter().chain(settings);
            let flags = flags.map(|(key, value)| (key.to_owned(), value)).collect();
            let config = Config::load(&Sources { flags, ..Sources::default() }).expect("settings");
            if let Ok(node) = start_node(env.clone(), config).await {
                timeout(Duration::from_secs(30), node.ready()).await.expect("ready in time");
                return Server { node, port, _dir: dir };
            }
        }
        panic!("no free port");
    }

    fn node(&self) -> &Arc<Node> {
        self.node.node()
    }

    /// Returns when a client called SHUTDOWN.
    pub(crate) async fn asked_to_stop(&self) {
        timeout(Duration::from_secs(10), self.node.asked_to_stop()).await.expect("asked");
    }

    pub(crate) async fn connect(&self) -> Client {
        let stream =
            self.node().env.net.connect(&format!("127.0.0.1:{}", self.port)).await.expect("connected");
        Client { stream, input: BytesMut::new() }
    }

    /// Waits until as many readers are parked.
    async fn parked(&self, readers: usize) {
        let now = || self.node().shards.all().iter().map(|shard| shard.parked()).sum::<usize>();
        let reached = async {
            while now() != readers {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(Duration::from_secs(10), reached).await.unwrap_or_else(|_| panic!("{} parked", now()));
    }
}

pub(crate) struct Client {
    stream: BoxStream,
    input: BytesMut,
}

impl Client {
    /// Sends one command a line.
    pub(crate) async fn send(&mut self, lines: &str) {
        let mut bytes = Vec::new();
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            encode_command(line.split(' ').collect::<Vec<_>>(), &mut bytes);
        }
        self.stream.write_all(&bytes).await.expect("sent");
    }

    /// Sends bytes as they are.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("sent");
    }

    /// The next answer; `None` when the server has closed.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(value) = decode_value(&mut self.input).expect("a reply") {
                return Some(value);
            }
            let read = timeout(Duration::from_secs(10), self.stream.read_buf(&mut self.input)).await;
            if matches!(read.expect("an answer in time"), Ok(0) | Err(_)) {
                return None;
            }
        }
    }

    pub(crate) async fn answers(&mut self, count: usize) -> Vec<String> {
        let mut answers = Vec::new();
        for _ in 0..count {
            answers.push(show(&self.next().await.expect("still open")));
        }
        answers
    }

    pub(crate) async fn ask(&mut self, line: &str) -> String {
        self.send(line).await;
        self.answers(1).await.remove(0)
    }
}

/// Lines `COMMAND => REPLY` on one connection; `*` at the end of a reply stands for the rest.
pub(crate) async fn script(server: &Server, lines: &str) {
    let mut c = server.connect().await;
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (command, wanted) = line.split_once(" => ").expect("COMMAND => REPLY");
        let got = c.ask(command.trim()).await;
        let fits = match wanted.strip_suffix('*') {
            Some(start) => got.starts_with(start),
            None => got == wanted,
        };
        assert!(fits, "{command}\n  wanted {wanted}\n  got    {got}");
    }
}

/// A reply on one line: `-error`, `[a b]`, `{a: b}`, `nil`.
fn show(value: &Value) -> String {
    let list = |items: &[Value]| items.iter().map(show).collect::<Vec<_>>().join(" ");
    match value {
        Value::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        Value::Int(n) => n.to_string(),
        Value::Array(items) | Value::Set(items) | Value::Push(items) => format!("[{}]", list(items)),
        Value::Map(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{}: {}", show(key), show(value))).collect();
            format!("{{{}}}", pairs.join(" "))
        }
        value if value.is_nil() => "nil".to_owned(),
        value => value
            .bytes()
            .map_or_else(|| format!("{value:?}"), |text| String::from_utf8_lossy(text).into_owned()),
    }
}

#[tokio::test]
async fn answers_keep_the_order_of_commands_of_every_kind() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    c.send("XADD s 1-1 a 1\nXADD s 1-1 a 1\nXLEN s\nNOSUCH\nXADD s 2-1 a 1\nPING x\nXADD s abc a 1\nXLEN s\nDEL s").await;
    assert_eq!(
        c.answers(9).await,
        [
            "1-1",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
            "1",
            "-ERR unknown command 'NOSUCH'",
            "2-1",
            "x",
            "-ERR Invalid stream ID specified as stream command argument",
            "2",
            "1",
        ]
    );
}

#[tokio::test]
async fn a_change_of_version_divides_the_answers_of_a_pipeline() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    c.send("XADD s 1-1 a 1\nXREAD STREAMS s 0\nHELLO 3\nXREAD STREAMS s 0\nRESET\nXREAD STREAMS s 0").await;
    let mut answers = c.answers(6).await;
    assert!(answers.remove(2).starts_with("{server: redis version: 8.10.0 proto: 3"), "HELLO is a map");
    assert_eq!(answers, ["1-1", "[[s [[1-1 [a 1]]]]]", "{s: [[1-1 [a 1]]]}", "RESET", "[[s [[1-1 [a 1]]]]]"]);
}

#[tokio::test]
async fn a_transaction_answers_each_of_its_commands_in_place() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    c.send("MULTI\nPING\nXADD s 1-1 a 1\nXADD s abc a 1\nXREAD BLOCK 0 STREAMS s $\nECHO e\nXLEN s\nEXEC\nXLEN s").await;
    let queued = c.answers(7).await;
    assert_eq!(queued[1..], ["QUEUED"; 6]);
    let id = "-ERR Invalid stream ID specified as stream command argument";
    assert_eq!(c.answers(2).await, [format!("[PONG 1-1 {id} nil e 1]"), "1".to_owned()]);
    // Nothing of these is done.
    c.send("MULTI\nXADD {a}s * a 1\nXADD {b}s * a 1\nEXEC\nMULTI\nDEL {a}s {b}s\nEXEC\nEXISTS {a}s").await;
    let answers = c.answers(8).await;
    assert_eq!(answers[3], "-CROSSSLOT Keys in request don't hash to the same slot");
    assert_eq!(answers[5], "-CROSSSLOT Keys in request don't hash to the same slot");
    assert_eq!(answers[6..], ["-EXECABORT Transaction discarded because of previous errors.", "0"]);
}

#[tokio::test]
async fn a_blocked_client_that_goes_away_gets_no_delivery() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    assert_eq!(c.ask("XGROUP CREATE s g $ MKSTREAM").await, "OK");
    let mut gone = server.connect().await;
    gone.send("XREADGROUP GROUP g one BLOCK 0 STREAMS s >").await;
    server.parked(1).await;
    drop(gone);
    server.parked(0).await;
    c.ask("XADD s 1-1 a 1").await;
    assert_eq!(c.ask("XPENDING s g").await, "[0 nil nil nil]");
    assert_eq!(c.ask("XREADGROUP GROUP g two STREAMS s >").await, "[[s [[1-1 [a 1]]]]]");
    assert_eq!(server.node().metrics.clients_blocked.get(), 0);
}

#[tokio::test]
async fn a_blocked_client_that_goes_away_behind_much_input_gets_no_delivery() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    assert_eq!(c.ask("XGROUP CREATE s g $ MKSTREAM").await, "OK");
    let mut gone = server.connect().await;
    gone.send("XREADGROUP GROUP g one BLOCK 0 STREAMS s >").await;
    server.parked(1).await;
    // More than is read ahead and than the system holds.
    let line = format!("PING {}\n", "x".repeat(20_000));
    timeout(Duration::from_secs(20), gone.send(&line.repeat(1_000))).await.expect("it is read");
    drop(gone);
    server.parked(0).await;
    c.ask("XADD s 1-1 a 1").await;
    assert_eq!(c.ask("XREADGROUP GROUP g two STREAMS s >").await, "[[s [[1-1 [a 1]]]]]");
}

#[tokio::test]
async fn too_much_input_behind_a_blocked_command_ends_the_connection() {
    let server = Server::start_with(&[("client-query-buffer-limit", "2000000")]).await;
    let mut c = server.connect().await;
    c.send("XREAD BLOCK 0 STREAMS s $").await;
    server.parked(1).await;
    let line = format!("PING {}\n", "x".repeat(20_000));
    let mut bytes = Vec::new();
    encode_command(["PING", &line], &mut bytes);
    let mut sent = 0;
    let ended = Duration::from_secs(20);
    while timeout(ended, c.stream.write_all(&bytes)).await.expect("it is read or closed").is_ok() {
        sent += bytes.len();
        assert!(sent < 100 << 20, "it takes everything");
    }
    server.parked(0).await;
}

#[tokio::test]
async fn what_is_sent_behind_a_blocked_command_waits_for_it() {
    let server = Server::start().await;
    let (mut reader, mut writer) = (server.connect().await, server.connect().await);
    reader.send("XREAD BLOCK 0 STREAMS s $\nXLEN s\nPING").await;
    server.parked(1).await;
    assert_eq!(writer.ask("XADD s 1-1 a 1").await, "1-1");
    assert_eq!(reader.answers(3).await, ["[[s [[1-1 [a 1]]]]]", "1", "PONG"]);
}

#[tokio::test]
async fn a_killed_client_is_closed_even_while_it_waits_and_the_caller_after_its_answer() {
    let server = Server::start().await;
    let (mut c, mut blocked) = (server.connect().await, server.connect().await);
    let id = blocked.ask("CLIENT ID").await;
    blocked.send("XREAD BLOCK 0 STREAMS s $").await;
    server.parked(1).await;
    assert_eq!(c.ask(&format!("CLIENT KILL ID {id}")).await, "1");
    assert_eq!(blocked.next().await, None);
    server.parked(0).await;
    let id = c.ask("CLIENT ID").await;
    assert_eq!(c.ask(&format!("CLIENT KILL ID {id} SKIPME NO")).await, "1");
    assert_eq!(c.next().await, None);
}

#[tokio::test]
async fn what_was_sent_before_the_end_is_answered() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    c.send("XADD s 1-1 a 1\nXLEN s\nQUIT\nXADD s 2-1 a 1").await;
    assert_eq!(c.answers(3).await, ["1-1", "1", "OK"]);
    assert_eq!(c.next().await, None);
    let mut half = server.connect().await;
    half.send("XADD s 3-1 a 1\nXLEN s\nPING").await;
    half.stream.shutdown().await.expect("half closed");
    assert_eq!(half.answers(3).await, ["3-1", "2", "PONG"]);
    assert_eq!(half.next().await, None);
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_not_served_further_and_harms_nobody() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    let value = "v".repeat(3_000);
    for n in 0..100 {
        c.send(&format!("XADD s * a {n}{value}")).await;
    }
    c.answers(100).await;
    // 300 answers of 300 KB each.
    let mut deaf = server.connect().await;
    deaf.send(&"XRANGE s - +\n".repeat(300)).await;
    let sent = || server.node().metrics.output_bytes.get();
    let mut before = 0;
    while sent() != before {
        before = sent();
        sleep(Duration::from_millis(300)).await;
    }
    assert!(sent() < 30 << 20, "{} bytes were pushed at a client that reads none", sent());
    assert_eq!(c.ask("XLEN s").await, "100");
    for _ in 0..300 {
        assert!(matches!(deaf.next().await, Some(Value::Array(entries)) if entries.len() == 100));
    }
}

/// The bytes of finished answers that wait for the client, as CLIENT LIST shows them.
async fn waiting_bytes(c: &mut Client, id: &str) -> usize {
    let line = c.ask(&format!("CLIENT LIST ID {id}")).await;
    let (_, rest) = line.split_once(" omem=").expect("omem");
    rest.split(' ').next().expect("a number").parse().expect("a number")
}

#[tokio::test]
async fn reads_with_large_answers_wait_for_their_turn() {
    let server = Server::start().await;
    let (mut c, mut many) = (server.connect().await, server.connect().await);
    let value = "v".repeat(4 << 20);
    assert_eq!(c.ask(&format!("XADD s 1-1 a {value}")).await, "1-1");
    let id = many.ask("CLIENT ID").await;
    many.send(&"XRANGE s - +\n".repeat(60)).await;
    many.send("XADD s 2-1 a 1\nXLEN s").await;
    // Until nothing moves any more: the client reads nothing yet.
    let sent = || server.node().metrics.output_bytes.get();
    let mut before = 0;
    while sent() != before {
        before = sent();
        sleep(Duration::from_millis(500)).await;
    }
    let waiting = waiting_bytes(&mut c, &id).await;
    assert!(waiting <= 16 << 20, "{waiting} bytes of answers wait in memory");
    for n in 0..60 {
        let Some(Value::Array(entries)) = many.next().await else { panic!("answer {n}") };
        assert_eq!(entries.len(), 1, "answer {n} sees the add after it");
    }
    assert_eq!(many.answers(2).await, ["2-1", "2"]);
    assert_eq!(waiting_bytes(&mut c, &id).await, 0);
}

#[tokio::test]
async fn writes_with_too_large_answers_end_the_connection() {
    let server = Server::start_with(&[("client-output-buffer-limit", "10000000")]).await;
    let (mut c, mut many) = (server.connect().await, server.connect().await);
    let value = "v".repeat(1 << 20);
    assert_eq!(c.ask(&format!("XADD s 1-1 a {value}")).await, "1-1");
    assert_eq!(c.ask("XGROUP CREATE s g 0").await, "OK");
    c.ask("XREADGROUP GROUP g c STREAMS s >").await;
    many.send(&"XREADGROUP GROUP g c STREAMS s 0\n".repeat(200)).await;
    let mut answered = 0;
    while many.next().await.is_some() {
        answered += 1;
    }
    assert!(answered < 200, "all of 200 MB was kept");
    assert_eq!(c.ask("XLEN s").await, "1");
}

/// As a Redis 7.0.15 answers.
#[tokio::test]
async fn a_malformed_id_is_told_after_what_is_missing() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    c.send("SET str x\nXADD s 1-1 a 1\nXGROUP CREATE s g 0").await;
    c.answers(3).await;
    let bad_id = "-ERR Invalid stream ID specified as stream command argument";
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let in_xreadgroup = "in XREADGROUP with GROUP option";
    for (command, answer) in [
        ("XDEL missing abc", "0".to_owned()),
        ("XDEL missing 1-1 abc", "0".to_owned()),
        ("XDEL str abc", wrong_type.to_owned()),
        ("XDEL s abc", bad_id.to_owned()),
        ("XCLAIM missing g c 0 abc", "-NOGROUP No such key 'missing' or consumer group 'g'".to_owned()),
        ("XCLAIM s nog c x 1-1", "-NOGROUP No such key 's' or consumer group 'nog'".to_owned()),
        ("XCLAIM str g c 0 abc", wrong_type.to_owned()),
        ("XCLAIM s g c 0 abc", "-ERR Unrecognized XCLAIM option 'abc'".to_owned()),
        ("XCLAIM s g c 0 1-1 LASTID abc", bad_id.to_owned()),
        (
            "XREADGROUP GROUP g c STREAMS missing abc",
            format!("-NOGROUP No such key 'missing' or consumer group 'g' {in_xreadgroup}"),
        ),
        (
            "XREADGROUP GROUP nog c STREAMS s s abc >",
            format!("-NOGROUP No such key 's' or consumer group 'nog' {in_xreadgroup}"),
        ),
        ("XREADGROUP GROUP g c STREAMS str abc", wrong_type.to_owned()),
        ("XREADGROUP GROUP g c STREAMS s s > abc", bad_id.to_owned()),
    ] {
        assert_eq!(c.ask(command).await, answer, "{command}");
    }
}

#[tokio::test]
async fn what_cannot_run_in_a_transaction_is_refused_when_it_is_queued() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    for command in ["WAIT 0 0", "WAITAOF 0 0 0", "DBSIZE", "FLUSHALL", "CLUSTER INFO"] {
        c.send(&format!("MULTI\nXADD s * a 1\n{command}\nEXEC")).await;
        let answers = c.answers(4).await;
        assert_eq!(answers[2], "-ERR Command not allowed inside a transaction", "{command}");
        assert_eq!(answers[3], "-EXECABORT Transaction discarded because of previous errors.", "{command}");
    }
    assert_eq!(c.ask("XLEN s").await, "0");
    c.send("MULTI\nINFO server\nEXEC").await;
    let answers = c.answers(3).await;
    assert!(answers[2].contains("redis_version"), "{}", answers[2]);
}
