//! What operators see of the calls of a connection: SLOWLOG, LATENCY and MONITOR.

use super::Connection;
use super::dispatch::Call;
use super::in_flight::About;
use crate::command::error;
use crate::command::table::{ADMIN, BLOCKING, FAST, Row};
use crate::observe::slowlog::Slow;
use crate::observe::{monitor, without_secrets};
use bytes::Bytes;
use std::time::Duration;
use weir_stream::Reply;

impl Connection {
    /// Starts a call that others may look at.
    pub(super) fn start_seen(&mut self, mut call: Call) {
        let (row, args) = call.take_seen();
        self.monitor(row, &args);
        let before = self.in_flight.len();
        self.start(call);
        if self.in_flight.len() > before
            && let Some(started) = self.in_flight.back_mut()
        {
            (started.about.row, started.about.args) = (Some(row), args);
        }
    }

    /// The last answer is a refusal before anything was looked at.
    pub(super) fn reject(&mut self) {
        if let Some(call) = self.in_flight.back_mut() {
            call.about.rejected = true;
        }
    }

    /// Shows a call to who monitors. What operators do themselves is not shown, as in Redis.
    pub(super) fn monitor(&self, row: &Row, args: &[Bytes]) {
        let monitors = &self.node.observe.monitors;
        if !monitors.any() || row.is(ADMIN) {
            return;
        }
        let us = self.node.env.clock.wall_ms() * 1000;
        let line = monitor::line(us, &self.session.client.addr.to_string(), &without_secrets(row, args));
        monitors.show(&line, self.node.settings.pubsub_output_buffer_limit.size());
    }

    /// A client that monitors is shown what others do with keys.
    pub(super) fn may_while_monitoring(&self, row: &Row) -> Result<(), Reply> {
        match row.has_keys() && self.session.client.monitors() {
            true => Err(error("ERR Replica can't interact with the keyspace")),
            false => Ok(()),
        }
    }

    /// Notes a call that took long. One that is meant to wait does not count, nor do the parts of a transaction.
    pub(super) fn note_slow(&self, about: &About, took: Duration) {
        let Some(row) = about.row else { return };
        let (settings, observe) = (&self.node.settings, &self.node.observe);
        let slow_us = settings.slowlog_log_slower_than.get();
        let spike_ms = settings.latency_monitor_threshold.get();
        let us = took.as_micros() as i64;
        let is_slow = slow_us >= 0 && us >= slow_us;
        let is_spike = spike_ms > 0 && us >= spike_ms.saturating_mul(1000);
        if about.waits || row.is(BLOCKING) && about.origin.is_some() || !(is_slow || is_spike) {
            return;
        }
        let at_s = self.node.env.clock.wall_ms() / 1000;
        if is_spike {
            let event = if row.is(FAST) { "fast-command" } else { "command" };
            observe.latency.note(event, at_s, (us / 1000) as u64);
        }
        if is_slow {
            let client = &self.session.client;
            let slow = Slow {
                at_s,
                us: us as u64,
                args: without_secrets(row, &about.args),
                addr: client.addr.to_string(),
                name: client.state().name,
            };
            observe.slow.note(slow, settings.slowlog_max_len.size());
        }
    }
}
