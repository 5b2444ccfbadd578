//! Shared by the tests in `tests/`: small clusters in temporary directories and short calls.

use crate::client::slot_map;
use crate::connection::{Connection, show, words};
use crate::process::{Cluster, ClusterOptions, weir_binary};
use crate::slots::slot_of;
use std::ops::{Deref, DerefMut};
use std::time::Duration;
use tempfile::TempDir;
use weir_resp::Value;

/// A cluster whose data goes with it.
#[derive(Debug)]
pub struct TestCluster {
    cluster: Cluster,
    /// Where its data and logs are.
    pub dir: TempDir,
}

impl Deref for TestCluster {
    type Target = Cluster;
    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for TestCluster {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

/// Ports and directories for `nodes` nodes with these further arguments; nothing runs yet.
///
/// # Panics
/// No temporary directory, no program.
pub fn prepare(nodes: u16, arguments: &str) -> TestCluster {
    let dir = tempfile::Builder::new().prefix("weir-test-").tempdir().expect("a temporary directory");
    let options = ClusterOptions {
        weir: weir_binary().expect("the weir program"),
        dir: dir.path().to_owned(),
        nodes,
        arguments: words(arguments),
        hosts: Vec::new(),
    };
    TestCluster { cluster: Cluster::prepare(options).expect("a directory"), dir }
}

/// As [`prepare`], running and ready.
///
/// # Panics
/// It does not get ready.
pub async fn start(nodes: u16, arguments: &str) -> TestCluster {
    let mut cluster = prepare(nodes, arguments);
    cluster.start_all().await.expect("the cluster gets ready");
    cluster
}

/// A connection to a node.
///
/// # Panics
/// It is refused.
pub async fn connect(cluster: &Cluster, node: usize) -> Connection {
    Connection::open(&cluster.address(node), Duration::from_secs(5)).await.expect("a connection")
}

/// A reply in one line (see [`show`]) to a command line without spaces in its arguments.
///
/// # Panics
/// No reply within 10 s.
pub async fn ask(connection: &mut Connection, command: &str) -> String {
    show(&ask_value(connection, command).await)
}

/// As [`ask`], as a value.
///
/// # Panics
/// No reply within 10 s.
pub async fn ask_value(connection: &mut Connection, command: &str) -> Value {
    let reply = connection.call(&words(command), Duration::from_secs(10)).await;
    reply.unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// Asks again and again until the reply is as wanted.
///
/// # Panics
/// It is not, for 15 s.
pub async fn ask_until(connection: &mut Connection, command: &str, wanted: impl Fn(&str) -> bool) -> String {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(15);
    loop {
        let reply = ask(connection, command).await;
        if wanted(&reply) {
            return reply;
        }
        assert!(tokio::time::Instant::now() < deadline, "{command} still answers {reply}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One HTTP GET; status line and body.
///
/// # Panics
/// No answer within 5 s.
pub async fn http_get(port: u16, path: &str) -> (String, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let exchange = async {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer =
        tokio::time::timeout(Duration::from_secs(5), exchange).await.expect("in time").expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

/// A key whose slot is led by `node`.
///
/// # Panics
/// It leads nothing.
pub async fn key_led_by(cluster: &Cluster, node: usize) -> String {
    let rows = slot_map(&cluster.addresses()).await.expect("a slot map");
    let leads = |key: &String| {
        let slot = slot_of(key.as_bytes());
        rows.iter().any(|(first, last, at)| (*first..=*last).contains(&slot) && *at == cluster.address(node))
    };
    (0..10_000).map(|n| format!("k{n}")).find(leads).expect("each node leads something")
}

/// A number on the page of `/metrics` of a node, by its name and label values (in the order of the page).
///
/// # Panics
/// No page.
pub async fn metric(cluster: &Cluster, node: usize, name: &str, labels: &[&str]) -> Option<f64> {
    let (_, page) = http_get(cluster.port(node) + 20_000, "/metrics").await;
    metric_in(&page, name, labels)
}

/// As [`metric`], from a page.
pub fn metric_in(page: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let fits = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| {
            rest.starts_with(['{', ' ']) && labels.iter().all(|v| rest.contains(&format!("=\"{v}\"")))
        })
    };
    page.lines().find(fits)?.rsplit(' ').next()?.parse().ok()
}

/// Plays a script of lines `COMMAND => REPLY`, the reply in the notation of [`show`]; a `?` stands for any number.
///
/// # Panics
/// A reply differs.
pub async fn script(connection: &mut Connection, text: &str) {
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (command, expected) = line.split_once(" => ").unwrap_or_else(|| panic!("no `=>` in {line:?}"));
        let reply = ask(connection, command.trim()).await;
        assert!(
            fits(expected.trim(), &reply),
            "{}\n  expected {}\n  got      {reply}",
            command.trim(),
            expected.trim()
        );
    }
}

/// Whether a reply is as expected, where each `?` may be any run of digits.
fn fits(expected: &str, reply: &str) -> bool {
    match expected.split_once('?') {
        None => expected == reply,
        Some((before, after)) => reply.strip_prefix(before).is_some_and(|rest| {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            digits > 0 && fits(after, &rest[digits..])
        }),
    }
}
