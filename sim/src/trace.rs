//! What happened, as lines: the timeline a person reads and the bytes that the meta test compares.
//!
//! Every client operation with its answer, every fault, every change of leader and, once a
//! simulated second, a digest of all network traffic. Two runs of one seed must agree on all of
//! it; the last line is a digest of the lines before it.

use std::{
    fmt::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::disk::medium::lock;

/// A cheap handle; all clones write to one timeline.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// Simulated time, moved by the world before each step.
    now: Duration,
    lines: Vec<String>,
    echo: bool,
    /// Nobody asks for lines.
    forgets: bool,
    traffic: Traffic,
}

/// Running digest of everything sent over the simulated network.
#[derive(Default, Clone, Copy)]
pub(crate) struct Traffic {
    /// Writes to a socket.
    pub(crate) segments: u64,
    /// Bytes in them.
    pub(crate) bytes: u64,
    digest: Digest,
}

impl Trace {
    /// A timeline that is also printed line by line when `echo`.
    pub(crate) fn new(echo: bool) -> Self {
        let trace = Self::default();
        lock(&trace.0).echo = echo;
        trace
    }

    /// Keeps no lines.
    pub(crate) fn keep_nothing(&self) {
        lock(&self.0).forgets = true;
    }

    /// Moves the time that lines carry.
    pub(crate) fn set_now(&self, now: Duration) {
        lock(&self.0).now = now;
    }

    /// The time that lines carry.
    pub(crate) fn now(&self) -> Duration {
        lock(&self.0).now
    }

    /// The time inside the current step if a host is running, else [`Self::now`].
    pub(crate) fn precise_now(&self) -> Duration {
        turmoil::sim_elapsed().unwrap_or_else(|| self.now())
    }

    /// Adds a line about `who` (a node, a client, `world`).
    pub(crate) fn line(&self, who: &str, what: impl std::fmt::Display) {
        // Host code knows its time to the microsecond; the world moves in whole ticks.
        let within = turmoil::sim_elapsed();
        let mut inner = lock(&self.0);
        if inner.forgets {
            return;
        }
        let now = within.unwrap_or(inner.now);
        let mut line = String::with_capacity(96);
        let _ = write!(line, "{:>4}.{:03} {who:<6} {what}", now.as_secs(), now.subsec_millis());
        if inner.echo {
            eprintln!("{line}");
        }
        inner.lines.push(line);
    }

    /// Accounts for bytes sent from one address to another.
    pub(crate) fn sent(&self, from: u16, to: u16, bytes: &[u8]) {
        let mut inner = lock(&self.0);
        if inner.forgets {
            return;
        }
        let traffic = &mut inner.traffic;
        traffic.segments += 1;
        traffic.bytes += bytes.len() as u64;
        traffic.digest.add(&from.to_le_bytes());
        traffic.digest.add(&to.to_le_bytes());
        traffic.digest.add(bytes);
    }

    /// Writes the traffic digest down.
    pub(crate) fn mark_traffic(&self) {
        let traffic = lock(&self.0).traffic;
        self.line(
            "net",
            format_args!(
                "{} segments, {} bytes, digest {:016x}",
                traffic.segments, traffic.bytes, traffic.digest.0
            ),
        );
    }

    /// All lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        lock(&self.0).lines.clone()
    }

    /// Digest of all lines so far.
    pub(crate) fn digest(&self) -> u64 {
        let mut digest = Digest::default();
        for line in &lock(&self.0).lines {
            digest.add(line.as_bytes());
        }
        digest.0
    }
}

/// FNV-1a over eight bytes at a time: equal input, equal output, on every machine.
#[derive(Clone, Copy)]
pub(crate) struct Digest(pub(crate) u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        for byte in chunks.remainder() {
            self.mix(u64::from(*byte));
        }
        self.mix(bytes.len() as u64);
    }

    fn mix(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
}
