//! Numbers about this process, kept with atomics alone: recording never waits and never allocates.
//!
//! What has an owner elsewhere (Raft terms, stream counts, connections) is read there when somebody asks;
//! `admin.rs` prints both as Prometheus text, `info.rs` prints some as INFO.

use crate::shard::ShardId;
use parking_lot::RwLock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds one and answers the new value.
    pub fn inc(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }
    /// Takes one away.
    pub fn dec(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
    /// Replaces the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
    /// Raises the value to at least `value`.
    pub fn raise(&self, value: u64) {
        self.0.fetch_max(value, Relaxed);
    }
    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of a time histogram, in microseconds.
pub const TIME_BOUNDS_US: [u64; 17] = [
    50, 100, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000,
];

/// Upper bounds of a histogram of counts and sizes.
pub const SIZE_BOUNDS: [u64; 17] =
    [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 16_777_216];

/// Counts by fixed bounds. One more bucket holds what lies above them.
#[derive(Debug)]
pub struct Histogram {
    is_time: bool,
    bounds: &'static [u64; 17],
    buckets: [AtomicU64; 18],
    sum: AtomicU64,
    max: AtomicU64,
}

impl Histogram {
    /// A histogram of durations.
    pub fn of_time() -> Self {
        Histogram::of(true, &TIME_BOUNDS_US)
    }
    /// A histogram of counts or bytes.
    pub fn of_size() -> Self {
        Histogram::of(false, &SIZE_BOUNDS)
    }
    fn of(is_time: bool, bounds: &'static [u64; 17]) -> Self {
        Histogram {
            is_time,
            bounds,
            buckets: Default::default(),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }
    /// Records one duration.
    pub fn time(&self, took: Duration) {
        self.record(took.as_micros() as u64);
    }
    /// Records one value (microseconds for a histogram of time).
    pub fn record(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
        self.max.fetch_max(value, Relaxed);
    }
    /// Number of values recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Relaxed)).sum()
    }
    /// Sum of the values recorded.
    pub fn sum(&self) -> u64 {
        self.sum.load(Relaxed)
    }
    /// Largest value recorded.
    pub fn max(&self) -> u64 {
        self.max.load(Relaxed)
    }
    /// Upper end of the bucket that `share` (0 to 1) of the values do not exceed.
    pub fn quantile(&self, share: f64) -> u64 {
        let all = self.cumulative();
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let bucket = all.iter().find(|(_, count)| *count >= wanted).and_then(|(bound, _)| *bound);
        bucket.unwrap_or_else(|| self.max()).min(self.max())
    }
    /// Whether this one counts time.
    pub fn is_time(&self) -> bool {
        self.is_time
    }
    /// Bound and number of values at or below it, rising; the last is everything (`None`).
    pub fn cumulative(&self) -> Vec<(Option<u64>, u64)> {
        let mut total = 0;
        self.bounds
            .iter()
            .map(|b| Some(*b))
            .chain([None])
            .zip(&self.buckets)
            .map(|(bound, bucket)| {
                total += bucket.load(Relaxed);
                (bound, total)
            })
            .collect()
    }
}

/// One command's numbers.
#[derive(Debug)]
pub struct CommandMetrics {
    /// Time from the parsed command to its reply, waits of blocking commands included.
    pub latency: Histogram,
    /// Calls answered with an error.
    pub failed: Counter,
    /// Calls refused before their arguments were looked at. Not among the others.
    pub rejected: Counter,
}

impl CommandMetrics {
    /// Records one call.
    pub fn record(&self, took: Duration, failed: bool) {
        self.latency.time(took);
        if failed {
            self.failed.inc();
        }
    }
}

/// One shard's numbers on this node. `shard/` records, `admin.rs` prints.
#[derive(Debug)]
pub struct ShardMetrics {
    /// Commands of each proposed log entry.
    pub batch_commands: Histogram,
    /// Bytes of each proposed log entry.
    pub batch_bytes: Histogram,
    /// Proposed to applied, as the leader saw it.
    pub commit_time: Histogram,
    /// How long one apply, query or snapshot slice held the shard: the stall that others saw.
    pub stall_time: Histogram,
    /// Writes answered `-UNKNOWN`.
    pub unknown: Counter,
    /// Commands refused because too much was in flight.
    pub busy: Counter,
    /// Keys that this node, leading, removed at their deadline.
    pub expired: Counter,
    /// Snapshots taken.
    pub snapshots: Counter,
    /// Snapshots received from a leader.
    pub installs: Counter,
    /// Elections seen: changes of the term.
    pub elections: Counter,
    /// When the log reached which index.
    pub progress: Progress,
}

/// Remembers when the log reached which index, coarsely and for a while, to tell how old a follower's state is.
#[derive(Debug, Default)]
pub struct Progress(parking_lot::Mutex<VecDeque<(Duration, u64)>>);

const PROGRESS_EVERY: Duration = Duration::from_millis(20);
const PROGRESS_SAMPLES_MAX: usize = 1000;

impl Progress {
    /// The log ends at `index` at the moment `now` (monotonic).
    pub fn note(&self, now: Duration, index: u64) {
        let mut samples = self.0.lock();
        match samples.back() {
            Some((_, last)) if *last >= index => return,
            Some((at, _)) if now < *at + PROGRESS_EVERY => return,
            _ => {}
        }
        if samples.len() == PROGRESS_SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back((now, index));
    }

    /// For each follower the age of the first entry that it lacks; at most the time that is remembered.
    pub fn behind(&self, now: Duration, matched: &[(u64, u64)]) -> Vec<(u64, Duration)> {
        let samples = self.0.lock();
        let age = |have: u64| {
            let first_missing = samples.partition_point(|(_, index)| *index <= have);
            samples.get(first_missing).map_or(Duration::ZERO, |(at, _)| now.saturating_sub(*at))
        };
        matched.iter().map(|(node, have)| (*node, age(*have))).collect()
    }
}

impl Default for ShardMetrics {
    fn default() -> Self {
        ShardMetrics {
            batch_commands: Histogram::of_size(),
            batch_bytes: Histogram::of_size(),
            commit_time: Histogram::of_time(),
            stall_time: Histogram::of_time(),
            unknown: Counter::default(),
            busy: Counter::default(),
            expired: Counter::default(),
            snapshots: Counter::default(),
            installs: Counter::default(),
            elections: Counter::default(),
            progress: Progress::default(),
        }
    }
}

/// Everything that this process counts.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Client connections accepted.
    pub connections_accepted: Counter,
    /// Client connections refused at `maxclients`.
    pub connections_rejected: Counter,
    /// Logins that were refused.
    pub acl_denied_auth: Counter,
    /// Commands refused to their user.
    pub acl_denied_cmd: Counter,
    /// Keys refused to a user.
    pub acl_denied_key: Counter,
    /// Channels refused to a user.
    pub acl_denied_channel: Counter,
    /// Messages that clients of this node published.
    pub pubsub_published: Counter,
    /// Messages that another node may not have got.
    pub pubsub_dropped: Counter,
    /// Subscribers closed at `pubsub-output-buffer-limit`.
    pub pubsub_disconnected: Counter,
    /// Client connections open now.
    pub connections_open: Gauge,
    /// Clients parked in a blocking read now.
    pub clients_blocked: Gauge,
    /// Bytes read from clients.
    pub input_bytes: Counter,
    /// Bytes written to clients.
    pub output_bytes: Counter,
    /// Commands waiting for a shard to have a leader, now.
    pub held: Gauge,
    /// Commands refused with `-CLUSTERDOWN`.
    pub cluster_down: Counter,
    /// Largest resident memory seen.
    pub memory_peak: Gauge,
    commands: RwLock<BTreeMap<&'static str, Arc<CommandMetrics>>>,
    errors: RwLock<BTreeMap<String, u64>>,
    shards: RwLock<BTreeMap<ShardId, Arc<ShardMetrics>>>,
}

/// Most error prefixes told apart; the rest is counted as `other`.
const ERROR_KINDS_MAX: usize = 64;

impl Metrics {
    /// The numbers of a command by its lower-case name (`xgroup|create` for a subcommand). Keep the handle: this looks it up.
    pub fn command(&self, name: &'static str) -> Arc<CommandMetrics> {
        if let Some(found) = self.commands.read().get(name) {
            return found.clone();
        }
        let fresh = || {
            Arc::new(CommandMetrics {
                latency: Histogram::of_time(),
                failed: Counter::default(),
                rejected: Counter::default(),
            })
        };
        self.commands.write().entry(name).or_insert_with(fresh).clone()
    }

    /// All commands called so far.
    pub fn commands(&self) -> Vec<(&'static str, Arc<CommandMetrics>)> {
        self.commands.read().iter().map(|(name, metrics)| (*name, metrics.clone())).collect()
    }

    /// The numbers of a shard.
    pub fn shard(&self, id: ShardId) -> Arc<ShardMetrics> {
        if let Some(found) = self.shards.read().get(&id) {
            return found.clone();
        }
        self.shards.write().entry(id).or_default().clone()
    }

    /// Counts an error reply by the first word of its text.
    pub fn error(&self, text: &str) {
        let prefix = text.split(' ').next().unwrap_or("ERR");
        let mut errors = self.errors.write();
        let known = errors.contains_key(prefix) || errors.len() < ERROR_KINDS_MAX;
        *errors.entry(if known { prefix } else { "other" }.to_owned()).or_default() += 1;
    }

    /// Error replies so far by first word.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.read().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::of_size();
        for value in [0, 1, 2, 3, u64::MAX / 2] {
            histogram.record(value);
        }
        let below = histogram.cumulative();
        assert_eq!(&below[..3], &[(Some(1), 2), (Some(2), 3), (Some(4), 4)]);
        assert_eq!(below[17], (None, 5));
        assert_eq!(histogram.count(), 5);
    }

    #[test]
    fn a_follower_is_as_far_behind_as_the_first_entry_it_lacks() {
        let progress = Progress::default();
        for (ms, index) in [(0, 1), (5, 2), (100, 10), (200, 20)] {
            progress.note(Duration::from_millis(ms), index);
        }
        let behind = progress.behind(Duration::from_millis(250), &[(1, 20), (2, 12), (3, 1)]);
        let ms: Vec<u128> = behind.iter().map(|(_, d)| d.as_millis()).collect();
        assert_eq!(ms, [0, 50, 150]);
    }

    #[test]
    fn the_number_of_error_kinds_is_bounded() {
        let metrics = Metrics::default();
        for i in 0..1000 {
            metrics.error(&format!("E{i} text"));
        }
        assert_eq!(metrics.errors().len(), ERROR_KINDS_MAX + 1);
        assert_eq!(metrics.errors()["other"], 1000 - ERROR_KINDS_MAX as u64);
    }
}
