//! One connection to one node: a task that writes requests in order, without waiting for answers, and hands each
//! answer to whoever asked.
//!
//! The task ends when the connection breaks or when nobody holds a handle any more. What it knows about a request at
//! its end is what the caller must know: a request whose last byte was never written was certainly not done.

use crate::command::Args;
use crate::error::{Error, ServerError, shortened};
use crate::options::Options;
use crate::tls::Secure;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use weir_env::time::{Instant, timeout, timeout_at};
use weir_env::{BoxStream, Clock};
use weir_resp::{Value, decode_value};

/// Requests gathered into one write, in bytes.
const WRITE_BYTES: usize = 64 * 1024;
/// Room made for answers at least, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It was not sent whole, so it was not done.
    NotSent(String),
    /// It was sent.
    Lost(String),
    /// What came back is not RESP.
    Garbage(String),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::NotSent(why) | Broken::Lost(why) | Broken::Garbage(why) => f.write_str(why),
        }
    }
}

/// Why a connection could not be made. Nothing was sent on it but a greeting.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OpenError {
    /// May pass.
    Later(String),
    /// Will not pass.
    Never(Error),
}

/// The moment after which a request must not be sent any more, on both clocks: the monotonic one may stand still
/// while the machine sleeps, the wall clock may be set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotAfter {
    pub(crate) mono: Duration,
    pub(crate) wall_ms: u64,
}

impl NotAfter {
    /// `window` from now.
    pub(crate) fn within(clock: &dyn Clock, window: Duration) -> NotAfter {
        let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        NotAfter { mono: clock.mono() + window, wall_ms: clock.wall_ms().saturating_add(window_ms) }
    }

    pub(crate) fn is_over(&self, clock: &dyn Clock) -> bool {
        clock.mono() >= self.mono || clock.wall_ms() >= self.wall_ms
    }
}

/// A handle; clones share the connection.
#[derive(Clone)]
pub(crate) struct Connection {
    requests: mpsc::Sender<Request>,
    addr: Arc<str>,
}

/// Stages of a request, so that a caller who gives up knows whether it was sent.
const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const GIVEN_UP: u8 = 2;

struct Request {
    frame: Bytes,
    replies: usize,
    not_after: Option<NotAfter>,
    stage: Arc<AtomicU8>,
    done: oneshot::Sender<Result<Vec<Value>, Broken>>,
}

impl Connection {
    /// Connects and greets, within the connect timeout, and starts the task.
    pub(crate) async fn open(
        options: &Options,
        secure: Option<&Secure>,
        addr: &Arc<str>,
    ) -> Result<Connection, OpenError> {
        let opened = timeout(options.connect_timeout, greet(options, secure, addr)).await;
        let result = opened.unwrap_or_else(|_| Err(OpenError::Later("no connection in time".into())));
        let (stream, input) = match result {
            Ok(opened) => opened,
            Err(error) => {
                let why = match &error {
                    OpenError::Later(why) => why.clone(),
                    OpenError::Never(error) => error.to_string(),
                };
                options.observer.disconnected(addr, &why);
                tracing::debug!(target: "weir_client", addr = %addr, why, "no connection");
                return Err(error);
            }
        };
        options.observer.connected(addr);
        let (requests, queue) = mpsc::channel(options.in_flight_max);
        let task = Task {
            addr: addr.clone(),
            clock: options.env.clock.clone(),
            observer: options.observer.clone(),
            queue,
            in_flight_max: options.in_flight_max,
            input,
            output: Vec::new(),
            unflushed: false,
            written: 0,
            queued: 0,
            in_flight: VecDeque::new(),
            not_after: None,
        };
        options.env.spawn.spawn("weir-client connection", Box::pin(task.run(stream)));
        Ok(Connection { requests, addr: addr.clone() })
    }

    /// `host:port`.
    pub(crate) fn addr(&self) -> &Arc<str> {
        &self.addr
    }

    /// Whether the task has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    /// Whether both are handles of one connection.
    pub(crate) fn is(&self, other: &Connection) -> bool {
        self.requests.same_channel(&other.requests)
    }

    /// Sends a frame and waits for its replies until `until`.
    pub(crate) async fn call(
        &self,
        frame: Bytes,
        replies: usize,
        not_after: Option<NotAfter>,
        until: Instant,
    ) -> Result<Vec<Value>, Broken> {
        let (done, answer) = oneshot::channel();
        let stage = Arc::new(AtomicU8::new(WAITING));
        let request = Request { frame, replies, not_after, stage: stage.clone(), done };
        match timeout_at(until, self.requests.send(request)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(Broken::NotSent(format!("{}: the connection is closed", self.addr))),
            Err(_) => return Err(Broken::NotSent(format!("{}: too many calls wait", self.addr))),
        }
        match timeout_at(until, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Broken::Lost(format!("{}: the connection's task is gone", self.addr))),
            Err(_) => {
                let waiting =
                    stage.compare_exchange(WAITING, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_ok();
                let why = format!("{}: no answer in time", self.addr);
                Err(if waiting { Broken::NotSent(why) } else { Broken::Lost(why) })
            }
        }
    }
}

/// Connects and says hello. Answers the stream and what was read too much (nothing, from an honest server).
async fn greet(
    options: &Options,
    secure: Option<&Secure>,
    addr: &Arc<str>,
) -> Result<(BoxStream, BytesMut), OpenError> {
    let mut stream = options.env.net.connect(addr).await.map_err(|e| OpenError::Later(e.to_string()))?;
    if let Some(secure) = secure {
        stream = secure.connect(stream, addr).await.map_err(|error| not_secured(addr, error))?;
    }
    let mut input = BytesMut::new();
    let mut hello = Args::default();
    hello.push("HELLO").push("3");
    if let Some((user, password)) = &options.user {
        hello.push("AUTH").push(user.as_deref().unwrap_or("default")).push(password);
    }
    if let Some(name) = &options.name {
        hello.push("SETNAME").push(name);
    }
    let mut reply = exchange(&mut stream, &mut input, &hello, addr).await?;
    let knows_no_hello = |reply: &Value| {
        let text = reply.error().map(|text| String::from_utf8_lossy(text).to_ascii_lowercase());
        text.is_some_and(|text| text.starts_with("err unknown command") || text.starts_with("noproto"))
    };
    if knows_no_hello(&reply) {
        // A server from before version 6: it speaks version 2 and takes the password alone.
        reply = match &options.user {
            Some((user, password)) => {
                let mut auth = Args::default();
                auth.push("AUTH");
                user.as_ref().map(|user| auth.push(user));
                auth.push(password);
                exchange(&mut stream, &mut input, &auth, addr).await?
            }
            None => exchange(&mut stream, &mut input, Args::default().push("PING"), addr).await?,
        };
    }
    match reply {
        Value::Error(text) => Err(refused(&text, options.user.is_some())),
        Value::Map(_) | Value::Array(_) | Value::Simple(_) => Ok((stream, input)),
        other => Err(OpenError::Never(Error::Protocol {
            addr: addr.to_string(),
            detail: format!("the greeting was answered {}", shortened(&other)),
        })),
    }
}

fn not_secured(addr: &str, error: weir_tls::Error) -> OpenError {
    match error.reason {
        weir_tls::Reason::Broken => OpenError::Later(error.to_string()),
        _ => OpenError::Never(Error::Tls { addr: Some(addr.to_owned()), error }),
    }
}

/// What an error reply to the greeting means.
fn refused(text: &[u8], with_password: bool) -> OpenError {
    let error = ServerError::new(text);
    let about_users = matches!(error.code(), "WRONGPASS" | "NOAUTH" | "NOPERM" | "DENIED")
        || (with_password && error.code() == "ERR" && error.message().contains("AUTH"));
    if about_users {
        OpenError::Never(Error::Auth(error))
    } else if error.is_passing() || error.message().starts_with("max number of clients") {
        OpenError::Later(error.to_string())
    } else {
        OpenError::Never(Error::Server(error))
    }
}

async fn exchange(
    stream: &mut BoxStream,
    input: &mut BytesMut,
    args: &Args,
    addr: &str,
) -> Result<Value, OpenError> {
    // A server may refuse our certificate only after the handshake.
    let later = |e: std::io::Error| match weir_tls::Error::of_io(&e) {
        Some(error) => not_secured(addr, error),
        None => OpenError::Later(e.to_string()),
    };
    let mut frame = Vec::new();
    args.encode(&mut frame);
    stream.write_all(&frame).await.map_err(later)?;
    stream.flush().await.map_err(later)?;
    loop {
        if weir_tls::is_alert(input) {
            return Err(not_secured(addr, weir_tls::Error::wants_tls()));
        }
        match decode_value(input) {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => {}
            Err(error) => {
                let got = String::from_utf8_lossy(&input[..input.len().min(40)]).escape_debug().to_string();
                let detail = format!("{error}, read {got:?}");
                return Err(OpenError::Never(Error::Protocol { addr: addr.to_owned(), detail }));
            }
        }
        if stream.read_buf(input).await.map_err(later)? == 0 {
            return Err(OpenError::Later("closed by the other side".into()));
        }
    }
}

struct Task {
    addr: Arc<str>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn crate::Observer>,
    queue: mpsc::Receiver<Request>,
    in_flight_max: usize,
    input: BytesMut,
    /// Frames being written.
    output: Vec<u8>,
    /// What was written may still wait inside the stream.
    unflushed: bool,
    /// Bytes written since the connection was made.
    written: u64,
    /// Bytes of all frames taken so far.
    queued: u64,
    in_flight: VecDeque<InFlight>,
    /// The earliest bound among the frames being written.
    not_after: Option<NotAfter>,
}

struct InFlight {
    /// `Task::queued` with this frame: it is sent when as much is written.
    ends_at: u64,
    replies: usize,
    got: Vec<Value>,
    done: oneshot::Sender<Result<Vec<Value>, Broken>>,
}

impl Task {
    async fn run(mut self, stream: BoxStream) {
        let end = self.serve(stream).await;
        let (why, garbage) = match end {
            Ok(()) => ("closed: not used any more".to_owned(), false),
            Err(End::Io(error)) => (error.to_string(), false),
            Err(End::Garbage(what)) => (what, true),
        };
        self.observer.disconnected(&self.addr, &why);
        tracing::debug!(target: "weir_client", addr = %self.addr, why, "connection ended");
        let why = format!("{}: {why}", self.addr);
        for call in self.in_flight.drain(..) {
            let broken = if call.ends_at > self.written {
                Broken::NotSent(why.clone())
            } else if garbage {
                Broken::Garbage(why.clone())
            } else {
                Broken::Lost(why.clone())
            };
            let _ = call.done.send(Err(broken));
        }
        self.queue.close();
        while let Ok(request) = self.queue.try_recv() {
            let _ = request.done.send(Err(Broken::NotSent(why.clone())));
        }
    }

    async fn serve(&mut self, stream: BoxStream) -> Result<(), End> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        loop {
            let sent = self.output.len() - self.unsent();
            let may_take = self.unsent() == 0 && self.in_flight.len() < self.in_flight_max;
            tokio::select! {
                biased;
                read = read_some(&mut reader, &mut self.input) => {
                    if read? == 0 {
                        return Err(End::Io(std::io::ErrorKind::UnexpectedEof.into()));
                    }
                    self.deliver()?;
                }
                written = write_some(&mut writer, &self.output[sent..], self.not_after, &*self.clock),
                    if sent < self.output.len() || self.unflushed =>
                {
                    let (written, flushed) = written?;
                    if written == 0 && sent < self.output.len() {
                        return Err(End::Io(std::io::ErrorKind::WriteZero.into()));
                    }
                    self.written += written as u64;
                    self.unflushed = !flushed;
                }
                request = self.queue.recv(), if may_take => match request {
                    Some(request) => self.gather(request),
                    None => return Ok(()),
                },
            }
        }
    }

    fn unsent(&self) -> usize {
        usize::try_from(self.queued - self.written).unwrap_or(usize::MAX)
    }

    /// Takes a request and those that wait behind it.
    fn gather(&mut self, first: Request) {
        self.output.clear();
        self.output.shrink_to(WRITE_BYTES);
        self.not_after = None;
        let mut next = Some(first);
        while let Some(request) = next {
            self.take(request);
            let room = self.output.len() < WRITE_BYTES && self.in_flight.len() < self.in_flight_max;
            next = if room { self.queue.try_recv().ok() } else { None };
        }
    }

    fn take(&mut self, request: Request) {
        if request.stage.compare_exchange(WAITING, TAKEN, Ordering::AcqRel, Ordering::Acquire).is_err()
            || request.done.is_closed()
        {
            return;
        }
        if let Some(bound) = request.not_after {
            if bound.is_over(&*self.clock) {
                let _ = request.done.send(Err(Broken::NotSent("its time is over".into())));
                return;
            }
            let earlier = self.not_after.filter(|other| other.mono <= bound.mono);
            self.not_after = Some(earlier.unwrap_or(bound));
        }
        self.output.extend_from_slice(&request.frame);
        self.queued += request.frame.len() as u64;
        self.in_flight.push_back(InFlight {
            ends_at: self.queued,
            replies: request.replies,
            got: Vec::with_capacity(request.replies),
            done: request.done,
        });
    }

    /// Hands out the answers that have arrived.
    fn deliver(&mut self) -> Result<(), End> {
        loop {
            let value = match decode_value(&mut self.input) {
                Ok(Some(Value::Push(_))) => continue,
                Ok(Some(value)) => value,
                Ok(None) => break,
                Err(error) => return Err(End::Garbage(format!("the answer is not RESP: {error}"))),
            };
            let Some(front) = self.in_flight.front_mut() else {
                return Err(End::Garbage(format!("an answer nobody asked for: {}", shortened(&value))));
            };
            front.got.push(value);
            if front.got.len() == front.replies
                && let Some(call) = self.in_flight.pop_front()
            {
                let _ = call.done.send(Ok(call.got));
            }
        }
        if self.input.is_empty() && self.input.capacity() > WRITE_BYTES {
            self.input = BytesMut::new();
        }
        Ok(())
    }
}

/// Reads once. Room grows with what has arrived, so that a large answer is not looked at over and over.
async fn read_some(
    reader: &mut tokio::io::ReadHalf<BoxStream>,
    input: &mut BytesMut,
) -> std::io::Result<usize> {
    input.reserve(READ_BYTES.max(input.len() / 2));
    reader.read_buf(input).await
}

/// Writes once, and says how much and whether all of it has left the stream; with nothing to write, waits for that. A frame whose time is over does not go out, nor what is left of it; the clocks are looked at right
/// before the system is called, since the process may have been stopped at any point before.
async fn write_some(
    writer: &mut tokio::io::WriteHalf<BoxStream>,
    output: &[u8],
    not_after: Option<NotAfter>,
    clock: &dyn Clock,
) -> std::io::Result<(usize, bool)> {
    poll_fn(|cx| {
        if not_after.is_some_and(|bound| bound.is_over(clock)) {
            return Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()));
        }
        if output.is_empty() {
            return Pin::new(&mut *writer).poll_flush(cx).map_ok(|()| (0, true));
        }
        let written = std::task::ready!(Pin::new(&mut *writer).poll_write(cx, output))?;
        let flushed = Pin::new(&mut *writer).poll_flush(cx)?.is_ready();
        Poll::Ready(Ok((written, flushed)))
    })
    .await
}

enum End {
    Io(std::io::Error),
    Garbage(String),
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> End {
        End::Io(error)
    }
}
