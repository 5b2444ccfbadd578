//! One client connection, from its first byte to its last. Started by `listener.rs`, one task each.
//!
//! The task is one loop over four steps: collect answers, write, take commands, read. Answers go out strictly in
//! the order of commands. Commands of one kind (writes, or reads) are submitted without waiting for each other, which
//! feeds the batcher; a change of kind first waits for what is in flight, so a read sees the writes before it. A command
//! that waits (BLOCK, WAIT) runs alone: what was pipelined behind it is read and not taken, so that the end of the
//! connection is noticed; other connections do not notice.
//!
//! Bounds: `pipeline-commands-max` calls in flight ([`READS_IN_FLIGHT_MAX`] reads), [`OUTPUT_PAUSE_BYTES`] of unsent answers before no further command
//! is taken (a slow reader feels that as back-pressure), `shard/backlog.rs` for answers that are finished behind them,
//! `client-output-buffer-limit` before it is closed, and [`READ_AHEAD_BYTES`] of input that cannot be taken yet
//! (`client-query-buffer-limit` behind a command that waits). An idle connection holds no buffer.

mod crossed;
mod dispatch;
mod in_flight;
mod observed;
mod rights;
mod subscriptions;

use crate::command::{error, reply};
use crate::forward::lane::{Lane, READS_TOGETHER_MAX};
use crate::listener::Kind;
use crate::node::Node;
use crate::pubsub;
use crate::session::Session;
use crate::settings::Settings;
use bytes::BytesMut;
use dispatch::{Call, Class};
use in_flight::InFlight;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use weir_env::BoxStream;
use weir_env::time::{Instant, Sleep, sleep_until};
use weir_resp::{Decoder, Limits};
use weir_stream::{Refusal, Reply};

/// Unsent answers above this stop the taking of commands.
pub const OUTPUT_PAUSE_BYTES: usize = 256 * 1024;
/// Input is read ahead of what can be taken up to this much, so that a closed connection is noticed. While a
/// call waits, which may take for ever, the bound is `client-query-buffer-limit`, as in Redis.
pub const READ_AHEAD_BYTES: usize = 256 * 1024;
/// Reads of one connection in flight. A small request can have a large answer, and answers wait in memory.
pub const READS_IN_FLIGHT_MAX: usize = 64;
/// Read at once into the stack, when nothing is buffered.
const READ_BYTES: usize = 16 * 1024;
/// An idle connection keeps no more than this for its next answer.
const OUTPUT_KEEP_BYTES: usize = 1024;
/// Rounds of the loop before other tasks get a turn.
const ROUNDS_MAX: usize = 32;

/// See the module.
pub(crate) struct Connection {
    node: Arc<Node>,
    stream: BoxStream,
    session: Session,
    decoder: Decoder,
    input: BytesMut,
    /// The decoder has the narrow bounds of somebody who has not logged in.
    before_login: bool,
    /// Nothing was read yet.
    fresh: bool,
    /// What was written may still wait inside the stream.
    unflushed: bool,
    /// The decoder needs more bytes to go on.
    starved: bool,
    input_ended: bool,
    output: Vec<u8>,
    /// Bytes of `output` already sent.
    sent: usize,
    in_flight: VecDeque<InFlight>,
    /// Of what is in flight.
    class: Class,
    /// The next command, which may not join what is in flight.
    held: Option<Call>,
    /// Of a client that knows no cluster.
    lane: Option<Lane>,
    /// `timeout`: closes the connection when it was idle that long.
    idle: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl Connection {
    pub(crate) fn new(node: Arc<Node>, stream: BoxStream, session: Session) -> Self {
        let before_login = session.must_log_in(&node.acl);
        let limits = if before_login { Limits::before_login() } else { limits(&node.settings) };
        node.metrics.connections_open.inc();
        let lane = (session.client.kind == Kind::Whole).then(|| Lane::open(&node));
        Connection {
            node,
            stream,
            session,
            decoder: Decoder::new(limits),
            before_login,
            fresh: true,
            unflushed: false,
            input: BytesMut::new(),
            starved: true,
            input_ended: false,
            output: Vec::new(),
            sent: 0,
            in_flight: VecDeque::new(),
            class: Class::Idle,
            held: None,
            lane,
            idle: None,
        }
    }

    /// Serves until either side closes.
    pub(crate) async fn serve(mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.session.client.clone().poll_killed(cx) {
            return Poll::Ready(());
        }
        for _ in 0..ROUNDS_MAX {
            let collected = self.collect_answers(cx) | self.send_messages();
            if self.session.client.backlog.overflowed() {
                self.warn_of_output(self.session.client.backlog.bytes());
                return Poll::Ready(());
            }
            let sent = match self.send(cx) {
                Ok(sent) => sent,
                Err(_) => return Poll::Ready(()),
            };
            self.recheck_waiting();
            if !self.may_still_listen() {
                return Poll::Ready(());
            }
            let taken = self.take_commands();
            let read = match self.read(cx) {
                Ok(read) => read,
                Err(_) => return Poll::Ready(()),
            };
            if self.is_over() {
                self.discard_input(cx);
                if self.session.client.kind == Kind::Tls {
                    // TLS' own goodbye, for whom it matters; nobody waits for it.
                    let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
                }
                return Poll::Ready(());
            }
            if !(collected || sent || taken || read) {
                self.rest();
                return self.poll_idle(cx);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Encodes finished answers, in order, until one is not ready or enough is unsent.
    fn collect_answers(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while self.unsent() < OUTPUT_PAUSE_BYTES {
            let alone = self.in_flight.len() == 1;
            let Some(front) = self.in_flight.front_mut() else { break };
            let client = &self.session.client;
            let Poll::Ready(answer) = front.poll(cx, &self.node, client, &mut self.session.written, alone)
            else {
                if front.is_being_sent_again() {
                    // Nothing may overtake it now.
                    self.class = Class::Alone;
                }
                break;
            };
            if let Some(mut done) = self.in_flight.pop_front() {
                let answer = self.session.watch(std::mem::take(&mut done.about.watched), answer);
                let answer = done.about.or_revoked(answer);
                self.finish(&done, &answer);
            }
            any = true;
        }
        if self.in_flight.is_empty() {
            self.class = Class::Idle;
            self.session.client.backlog.drained();
        }
        any
    }

    fn finish(&mut self, call: &InFlight, answer: &Reply) {
        let about = &call.about;
        let failure = match answer {
            Reply::Error(refusal) => Some(refusal),
            _ => None,
        };
        let took = about.started.elapsed();
        match about.rejected {
            true => about.metrics.rejected.inc(),
            false => about.metrics.record(took, failure.is_some()),
        }
        self.note_slow(about, took);
        if let Some(refusal) = failure {
            match refusal {
                Refusal::Text(text) => self.node.metrics.error(text),
                Refusal::NotOwned(_) => self.node.metrics.error("MOVED"),
            }
        }
        if about.waits {
            self.stop_waiting();
        }
        // Messages are no answers.
        if !about.silent || matches!(answer, Reply::Many(_)) {
            reply::encode(answer, self.session.proto, &mut self.output);
        }
    }

    fn stop_waiting(&self) {
        self.node.metrics.clients_blocked.dec();
        self.session.client.update(|state| {
            state.blocked_at = None;
            state.forwarded = None;
        });
    }

    fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Sends what the socket takes. An error also when too much waits for a slow reader.
    fn send(&mut self, cx: &mut Context<'_>) -> std::io::Result<bool> {
        let mut any = false;
        while self.sent < self.output.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.output[self.sent..])? {
                Poll::Ready(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Poll::Ready(n) => {
                    self.sent += n;
                    self.unflushed = true;
                    self.node.metrics.output_bytes.add(n as u64);
                    any = true;
                }
                Poll::Pending if self.unsent() > self.node.settings.client_output_buffer_limit.size() => {
                    self.warn_of_output(self.unsent());
                    return Err(std::io::ErrorKind::OutOfMemory.into());
                }
                Poll::Pending => break,
            }
        }
        if self.unflushed && self.sent == self.output.len() {
            self.unflushed = Pin::new(&mut self.stream).poll_flush(cx)?.is_pending();
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
            self.output.shrink_to(OUTPUT_PAUSE_BYTES);
        } else if self.sent > OUTPUT_PAUSE_BYTES {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        Ok(any)
    }

    fn warn_of_output(&self, bytes: usize) {
        tracing::warn!(
            client = %self.session.client.addr,
            bytes,
            "closing a client that does not read its answers (client-output-buffer-limit)"
        );
    }

    /// Starts buffered commands while they may.
    fn take_commands(&mut self) -> bool {
        let mut any = false;
        if let Some(call) = self.held.take() {
            self.start_or_hold(call);
            any = self.held.is_none();
        }
        while self.may_take() {
            if self.before_login && !self.session.must_log_in(&self.node.acl) {
                self.before_login = false;
                self.decoder.set_limits(limits(&self.node.settings));
            }
            match self.decoder.next(&mut self.input) {
                Ok(Some(args)) => self.receive(args),
                Ok(None) => {
                    self.starved = true;
                    break;
                }
                Err(broken) => {
                    self.answer("unknown", error(format!("ERR {broken}")));
                    self.session.closing = true;
                }
            }
            any = true;
        }
        any
    }

    fn may_take(&self) -> bool {
        self.held.is_none()
            && !self.session.closing
            && !self.starved
            && self.class != Class::Alone
            && self.in_flight.len() < self.in_flight_max()
            && self.unsent() < OUTPUT_PAUSE_BYTES
            && self.lane.as_ref().is_none_or(Lane::has_room)
    }

    fn in_flight_max(&self) -> usize {
        let max = self.node.settings.pipeline_commands_max.size();
        let reads_max = if self.lane.is_some() { READS_TOGETHER_MAX } else { READS_IN_FLIGHT_MAX };
        if self.class == Class::Reads { max.min(reads_max) } else { max }
    }

    /// Reads once if there is room. An error ends the connection.
    fn read(&mut self, cx: &mut Context<'_>) -> std::io::Result<bool> {
        if self.input_ended || self.session.closing || !self.has_room()? {
            return Ok(false);
        }
        let Poll::Ready(read) = self.poll_read(cx) else { return Ok(false) };
        let n = read?;
        if n == 0 {
            self.input_ended = true;
            return Ok(true);
        }
        if std::mem::take(&mut self.fresh) && self.speaks_tls() {
            tracing::warn!(client = %self.session.client.addr, "closing a client that speaks TLS on a port without");
            self.input.clear();
            self.answer("unknown", error("ERR this port does not speak TLS"));
            self.session.closing = true;
            return Ok(true);
        }
        self.starved = false;
        self.node.metrics.input_bytes.add(n as u64);
        let now = self.node.env.clock.mono();
        self.session.client.update(|state| state.active = now);
        Ok(true)
    }

    /// A TLS client waits for an answer in TLS; what it gets tells it that there is none.
    fn speaks_tls(&self) -> bool {
        self.session.client.kind != Kind::Tls && self.input.first() == Some(&weir_tls::FIRST_BYTE)
    }

    /// Whether more input may be read. An error when too much waits behind a call that waits.
    fn has_room(&self) -> std::io::Result<bool> {
        if self.starved || self.input.len() < READ_AHEAD_BYTES {
            return Ok(true);
        }
        let waits = self.in_flight.iter().any(|call| call.about.waits);
        if waits && self.input.len() >= self.node.settings.client_query_buffer_limit.size() {
            tracing::warn!(
                client = %self.session.client.addr,
                bytes = self.input.len(),
                "closing a client that sent too much behind a command that waits (client-query-buffer-limit)"
            );
            return Err(std::io::ErrorKind::OutOfMemory.into());
        }
        Ok(waits)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        if self.input.is_empty() {
            // Through the stack, so that waiting for input takes no memory.
            let mut bytes = [const { MaybeUninit::uninit() }; READ_BYTES];
            let mut buf = ReadBuf::uninit(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf))?;
            self.input.extend_from_slice(buf.filled());
            return Poll::Ready(Ok(buf.filled().len()));
        }
        let missing = self.decoder.missing(self.input.len());
        self.input.reserve(missing.clamp(READ_BYTES, READ_AHEAD_BYTES));
        pin!(self.stream.read_buf(&mut self.input)).poll(cx)
    }

    /// Takes what has arrived and will not be read: closing over it would reset the connection, and the client might
    /// then lose the last answer.
    fn discard_input(&mut self, cx: &mut Context<'_>) {
        let mut left = READ_AHEAD_BYTES;
        while self.session.closing && left > 0 {
            self.input.clear();
            match self.poll_read(cx) {
                Poll::Ready(Ok(n)) if n > 0 => left = left.saturating_sub(n),
                _ => break,
            }
        }
    }

    /// Whether nothing is left to do. A client that went away takes its waiting reader along.
    fn is_over(&self) -> bool {
        let gone = self.input_ended && self.in_flight.iter().any(|call| call.about.waits);
        let quiet = self.in_flight.is_empty() && self.held.is_none() && self.unsent() == 0 && !self.unflushed;
        gone || quiet && (self.session.closing || self.input_ended && self.starved)
    }

    /// Gives memory back before a wait of unknown length.
    fn rest(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = BytesMut::new();
        }
        if self.in_flight.is_empty() && self.output.is_empty() {
            self.output.shrink_to(OUTPUT_KEEP_BYTES);
            self.in_flight.shrink_to(8);
        }
    }

    /// `timeout`: a connection without input and without a call in flight.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = Duration::from_secs(self.node.settings.timeout.size() as u64);
        if limit.is_zero() {
            self.idle = None;
            return Poll::Pending;
        }
        // CONFIG SET may have changed it.
        self.idle.take_if(|(known, _)| *known != limit);
        let first = || (limit, Box::pin(sleep_until(Instant::now() + limit)));
        let (_, idle) = self.idle.get_or_insert_with(first);
        loop {
            ready!(idle.as_mut().poll(cx));
            let quiet = self.node.env.clock.mono().saturating_sub(self.session.client.state().active);
            let listens = self.session.subscriptions.count(None) > 0;
            if self.in_flight.is_empty() && !listens && quiet >= limit {
                return Poll::Ready(());
            }
            let next = limit.saturating_sub(quiet).max(Duration::from_secs(1));
            idle.as_mut().reset(Instant::now() + next);
        }
    }
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        bulk_bytes_max: settings.proto_max_bulk_len.size(),
        args_max: settings.proto_max_args.size(),
        frame_bytes_max: settings.client_query_buffer_limit.size(),
        ..Limits::default()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for _ in self.in_flight.iter().filter(|call| call.about.waits) {
            self.stop_waiting();
        }
        pubsub::forget(&self.node, &mut self.session);
        if self.session.client.state().monitors {
            self.node.observe.monitors.remove(self.session.client.id);
        }
        self.node.metrics.connections_open.dec();
        self.node.clients.remove(self.session.client.id);
    }
}
