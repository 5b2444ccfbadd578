//! What is written down during a run: every call in the process test's format, what a check saw while it ran, and when
//! something was disturbed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use weir_tests::{
    check::Violation,
    history::{Disturbance, History, LastState, Op, Outage},
};

use crate::{
    disk::medium::lock,
    invariants::{ends_in_time::Timed, linearizable::Call, surface},
    trace::Trace,
};

/// Shared by all clients of a run and the world around them.
#[derive(Clone)]
pub(crate) struct Book {
    inner: Arc<Mutex<Inner>>,
    trace: Trace,
}

#[derive(Default)]
struct Inner {
    history: History,
    /// Calls on keys that are deleted and made again.
    scratch: Vec<Call>,
    surface: Vec<surface::Call>,
    timed: Vec<Timed>,
    violations: Vec<Violation>,
    tokens: u64,
    calls: u64,
}

impl Book {
    pub(crate) fn new(trace: Trace, history: History) -> Self {
        Self { inner: Arc::new(Mutex::new(Inner { history, ..Inner::default() })), trace }
    }

    /// Microseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        micros(self.trace.precise_now())
    }

    /// The content of one entry.
    pub(crate) fn token(&self) -> u64 {
        let mut inner = lock(&self.inner);
        inner.tokens += 1;
        inner.tokens
    }

    pub(crate) fn write(&self, op: Op) {
        let mut inner = lock(&self.inner);
        inner.calls += 1;
        inner.history.ops.push(op);
    }

    pub(crate) fn write_scratch(&self, call: Call) {
        let mut inner = lock(&self.inner);
        inner.calls += 1;
        inner.scratch.push(call);
    }

    pub(crate) fn write_surface(&self, call: surface::Call) {
        let mut inner = lock(&self.inner);
        inner.calls += 1;
        inner.surface.push(call);
    }

    pub(crate) fn write_timed(&self, call: Timed) {
        let mut inner = lock(&self.inner);
        inner.calls += 1;
        inner.timed.push(call);
    }

    /// The calls on keys of the surface, and on those that end.
    pub(crate) fn surface(&self) -> (Vec<surface::Call>, Vec<Timed>) {
        let mut inner = lock(&self.inner);
        (std::mem::take(&mut inner.surface), std::mem::take(&mut inner.timed))
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> u64 {
        lock(&self.inner).calls
    }

    /// Something that was seen to be wrong when it happened.
    pub(crate) fn violation(&self, invariant: &'static str, text: String) {
        let at = self.now();
        self.trace.line("check", format_args!("{invariant}: {text}"));
        lock(&self.inner).violations.push(Violation { invariant, at, text });
    }

    pub(crate) fn disturbed(&self, from: Duration, to: Duration) {
        lock(&self.inner).history.disturbances.push(Disturbance { from: micros(from), to: micros(to) });
    }

    pub(crate) fn outage(&self, node: usize, from: Duration, to: Duration) {
        lock(&self.inner).history.outages.push(Outage { node, from: micros(from), to: micros(to) });
    }

    pub(crate) fn last(&self, state: LastState) {
        lock(&self.inner).history.last.push(state);
    }

    /// Entries that were answered so far, for faults that look whether work goes on.
    pub(crate) fn answered(&self) -> (usize, usize, usize) {
        use weir_tests::history::Outcome;
        let inner = lock(&self.inner);
        let mut counts = (0, 0, 0);
        for op in &inner.history.ops {
            match op.outcome {
                Outcome::Refused(_) => counts.1 += 1,
                Outcome::Unknown(_) | Outcome::Cut => counts.2 += 1,
                _ => counts.0 += 1,
            }
        }
        counts
    }

    /// The finished history, the calls on scratch keys, and what was seen on the way.
    pub(crate) fn close(&self) -> (History, Vec<Call>, Vec<Violation>) {
        let mut inner = lock(&self.inner);
        let mut history = std::mem::take(&mut inner.history);
        history.ops.sort_by_key(|op| (op.ended, op.client));
        (history, std::mem::take(&mut inner.scratch), std::mem::take(&mut inner.violations))
    }
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
