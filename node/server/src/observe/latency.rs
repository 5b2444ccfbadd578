//! Spikes of latency by event, for LATENCY: at most one sample a second, the highest.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use weir_stream::Reply;

/// Samples of one event.
const SAMPLES_MAX: usize = 160;

/// See the module.
#[derive(Debug, Default)]
pub struct Events(Mutex<BTreeMap<&'static str, Event>>);

#[derive(Debug, Default)]
struct Event {
    /// Unix seconds and milliseconds, oldest first.
    samples: VecDeque<(u64, u64)>,
    max_ms: u64,
}

impl Events {
    /// Notes a spike.
    pub fn note(&self, event: &'static str, at_s: u64, ms: u64) {
        let mut events = self.0.lock();
        let event = events.entry(event).or_default();
        event.max_ms = event.max_ms.max(ms);
        match event.samples.back_mut() {
            Some((last, highest)) if *last == at_s => *highest = (*highest).max(ms),
            _ => event.samples.push_back((at_s, ms)),
        }
        if event.samples.len() > SAMPLES_MAX {
            event.samples.pop_front();
        }
    }

    /// LATENCY LATEST.
    pub fn latest(&self) -> Reply {
        let row = |(name, event): (&&'static str, &Event)| {
            let (at, ms) = event.samples.back().copied().unwrap_or_default();
            let name = Reply::Bulk(Bytes::from_static(name.as_bytes()));
            Reply::Array(vec![
                name,
                Reply::Int(at as i64),
                Reply::Int(ms as i64),
                Reply::Int(event.max_ms as i64),
            ])
        };
        Reply::Array(self.0.lock().iter().map(row).collect())
    }

    /// LATENCY HISTORY.
    pub fn history(&self, name: &[u8]) -> Reply {
        let pair = |(at, ms): &(u64, u64)| Reply::Array(vec![Reply::Int(*at as i64), Reply::Int(*ms as i64)]);
        let events = self.0.lock();
        let event = events.iter().find(|(known, _)| known.as_bytes() == name);
        Reply::Array(event.into_iter().flat_map(|(_, event)| &event.samples).map(pair).collect())
    }

    /// LATENCY RESET: how many were forgotten.
    pub fn reset(&self, names: &[Bytes]) -> usize {
        let mut events = self.0.lock();
        let before = events.len();
        events.retain(|name, _| !names.is_empty() && !names.iter().any(|n| &n[..] == name.as_bytes()));
        before - events.len()
    }

    /// LATENCY GRAPH: a bar for each sample, lying on its side. `None` without samples.
    pub fn graph(&self, name: &[u8], now_s: u64) -> Option<String> {
        const WIDTH: u64 = 60;
        let events = self.0.lock();
        let (name, event) = events.iter().find(|(known, _)| known.as_bytes() == name)?;
        let high = event.samples.iter().map(|(_, ms)| *ms).max()?;
        let low = event.samples.iter().map(|(_, ms)| *ms).min()?;
        let mut text = format!(
            "{name} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
            event.max_ms,
            "-".repeat(80)
        );
        for (at, ms) in &event.samples {
            let bar = "#".repeat((ms * WIDTH / high.max(1)) as usize);
            let _ = writeln!(text, "{:>8}s ago {ms:>6} ms {bar}", now_s.saturating_sub(*at));
        }
        Some(text)
    }

    /// LATENCY DOCTOR.
    pub fn doctor(&self, threshold_ms: i64) -> String {
        if threshold_ms == 0 {
            return "Latency monitoring is disabled on this node. You may use \"CONFIG SET latency-monitor-threshold \
                    <milliseconds>.\" in order to enable it.\n"
                .to_owned();
        }
        let events = self.0.lock();
        if events.is_empty() {
            return format!("No latency spike of {threshold_ms} ms or more was observed on this node.\n");
        }
        let mut text = "Latency spikes were observed on this node:\n\n".to_owned();
        for (at, (name, event)) in events.iter().enumerate() {
            let count = event.samples.len() as u64;
            let mean = event.samples.iter().map(|(_, ms)| ms).sum::<u64>() / count.max(1);
            let _ = writeln!(
                text,
                "{}. {name}: {count} latency spikes (average {mean}ms). Worst all time event {}ms.",
                at + 1,
                event.max_ms
            );
        }
        text.push_str(
            "\nSLOWLOG GET names the calls. A write waits for a majority of disks: see wal_sync_us_p99 in INFO \
             persistence,\nand weir_shard_stall_seconds of /metrics for calls that hold others up.\n",
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_one_sample_and_the_highest_stays() {
        let events = Events::default();
        for (at, ms) in [(1, 5), (1, 9), (2, 3)] {
            events.note("command", at, ms);
        }
        let Reply::Array(history) = events.history(b"command") else { panic!() };
        assert_eq!(history.len(), 2);
        let Reply::Array(latest) = events.latest() else { panic!() };
        let numbers = [Reply::Int(2), Reply::Int(3), Reply::Int(9)];
        assert!(matches!(&latest[0], Reply::Array(row) if row[1..] == numbers[..]));
        assert!(events.graph(b"command", 9).unwrap().contains("all time high 9 ms"));
        assert_eq!(
            (events.graph(b"other", 9), events.reset(&[]), events.latest()),
            (None, 1, Reply::Array(vec![]))
        );
    }
}
