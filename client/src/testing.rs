//! A scripted cluster in memory, for tests: each address is a function from commands to what happens.

use crate::{Client, Error, Options};
use async_trait::async_trait;
use bytes::BytesMut;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use weir_env::time::Instant;
use weir_env::{BoxStream, Clock, Env, Listener, Net, Stream};
use weir_resp::Decoder;

/// What a scripted node does with a command.
pub(crate) enum Act {
    /// Answers these bytes (line ends may be written `|`).
    Say(String),
    /// Says nothing any more on this connection.
    Ignore,
    /// Closes the connection.
    Close,
}

pub(crate) fn say(text: impl AsRef<str>) -> Act {
    Act::Say(text.as_ref().replace('|', "\r\n"))
}

type Script = Arc<dyn Fn(&[String]) -> Act + Send + Sync>;

enum Host {
    Runs(Script),
    /// Connects, and nothing more is heard.
    Silent,
}

/// The scripted cluster. An address without a script refuses connections.
#[derive(Clone, Default)]
pub(crate) struct World {
    hosts: Arc<Mutex<BTreeMap<String, Host>>>,
    log: Arc<Mutex<Vec<String>>>,
    pub(crate) wall_ahead_ms: Arc<Mutex<u64>>,
}

impl World {
    pub(crate) fn node(&self, addr: &str, script: impl Fn(&[String]) -> Act + Send + Sync + 'static) {
        self.hosts.lock().insert(addr.into(), Host::Runs(Arc::new(script)));
    }

    pub(crate) fn silent(&self, addr: &str) {
        self.hosts.lock().insert(addr.into(), Host::Silent);
    }

    /// A node that knows the map (see [`slots`]) and answers all else by `script`.
    pub(crate) fn cluster_node(
        &self,
        addr: &str,
        map: &'static str,
        script: impl Fn(&[String]) -> Act + Send + Sync + 'static,
    ) {
        self.node(addr, move |words| match words[0].as_str() {
            "HELLO" => say("%1|+proto|:3|"),
            "CLUSTER" => say(map),
            _ => script(words),
        });
    }

    /// What was received so far, greetings and maps left out: `addr COMMAND words`.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }

    pub(crate) fn options(&self) -> Options {
        let start = Instant::now();
        let clock = TestClock { start, wall_ahead_ms: self.wall_ahead_ms.clone() };
        let net = TestNet { world: self.clone() };
        let env = Env { clock: Arc::new(clock), net: Arc::new(net), ..Env::system() };
        Options::default().env(env)
    }

    pub(crate) async fn connect(&self, seeds: &[&str]) -> Result<Client, Error> {
        Client::connect_with(seeds.iter().copied(), self.options()).await
    }

    async fn serve(self, addr: String, script: Script, mut stream: DuplexStream) {
        let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
        loop {
            while let Ok(Some(args)) = decoder.next(&mut input) {
                let words: Vec<String> =
                    args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
                if !["HELLO", "CLUSTER"].contains(&words[0].as_str()) {
                    self.log.lock().push(format!("{addr} {}", words.join(" ")));
                }
                match script(&words) {
                    Act::Say(text) => {
                        if stream.write_all(text.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                    Act::Ignore => while stream.read_buf(&mut input).await.unwrap_or(0) > 0 {},
                    Act::Close => return,
                }
            }
            if stream.read_buf(&mut input).await.unwrap_or(0) == 0 {
                return;
            }
        }
    }
}

/// A reply to CLUSTER SLOTS with one row a range: `first last host port`.
pub(crate) fn slots(rows: &[(u16, u16, &str, u16)]) -> &'static str {
    let mut text = format!("*{}|", rows.len());
    for (first, last, host, port) in rows {
        text += &format!("*3|:{first}|:{last}|*2|${}|{host}|:{port}|", host.len());
    }
    text.leak()
}

struct TestClock {
    start: Instant,
    wall_ahead_ms: Arc<Mutex<u64>>,
}

impl Clock for TestClock {
    fn wall_ms(&self) -> u64 {
        1_700_000_000_000 + self.mono().as_millis() as u64 + *self.wall_ahead_ms.lock()
    }

    fn mono(&self) -> Duration {
        self.start.elapsed()
    }
}

struct TestNet {
    world: World,
}

#[async_trait]
impl Net for TestNet {
    async fn bind(&self, _: SocketAddr) -> io::Result<Box<dyn Listener>> {
        Err(ErrorKind::Unsupported.into())
    }

    async fn connect(&self, addr: &str) -> io::Result<BoxStream> {
        let script = match self.world.hosts.lock().get(addr) {
            None => return Err(ErrorKind::ConnectionRefused.into()),
            Some(Host::Silent) => None,
            Some(Host::Runs(script)) => Some(script.clone()),
        };
        let (here, there) = tokio::io::duplex(64 * 1024);
        match script {
            Some(script) => {
                tokio::spawn(self.world.clone().serve(addr.to_owned(), script, there));
            }
            None => {
                tokio::spawn(async move {
                    let _open = there;
                    std::future::pending::<()>().await;
                });
            }
        }
        Ok(Box::new(TestStream(here)))
    }
}

struct TestStream(DuplexStream);

impl Stream for TestStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Err(ErrorKind::Unsupported.into())
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Err(ErrorKind::Unsupported.into())
    }
}

impl AsyncRead for TestStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for TestStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
