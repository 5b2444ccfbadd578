//! CONFIG RESETSTAT: INFO counts from here. Metrics for Prometheus never go back.

use crate::metrics::Metrics;
use parking_lot::RwLock;
use std::collections::BTreeMap;

/// Calls, microseconds, failed and rejected calls of a command.
pub type CommandCounts = [u64; 4];

/// See the module.
#[derive(Debug, Default)]
pub struct Baseline(RwLock<Counts>);

#[derive(Debug, Default)]
struct Counts {
    totals: BTreeMap<&'static str, u64>,
    commands: BTreeMap<&'static str, CommandCounts>,
    errors: BTreeMap<String, u64>,
}

impl Baseline {
    /// What was counted since, of a number with this name.
    pub fn since(&self, name: &'static str, now: u64) -> u64 {
        now - self.0.read().totals.get(name).copied().unwrap_or(0).min(now)
    }

    /// The same of each command that was called.
    pub fn commands(&self, metrics: &Metrics) -> Vec<(&'static str, CommandCounts)> {
        let base = self.0.read();
        let since = |(name, now): (&'static str, CommandCounts)| {
            let before = base.commands.get(name).copied().unwrap_or_default();
            (name, std::array::from_fn(|i| now[i] - before[i].min(now[i])))
        };
        let used = |(_, counts): &(&'static str, CommandCounts)| counts[0] + counts[3] > 0;
        counts(metrics).into_iter().map(since).filter(used).collect()
    }

    /// The same of each kind of error.
    pub fn errors(&self, metrics: &Metrics) -> BTreeMap<String, u64> {
        let base = self.0.read();
        let mut errors = metrics.errors();
        for (kind, count) in &mut errors {
            *count -= base.errors.get(kind).copied().unwrap_or(0).min(*count);
        }
        errors.retain(|_, count| *count > 0);
        errors
    }

    /// Counts from here; `totals` by their names.
    pub fn set(&self, metrics: &Metrics, totals: &[(&'static str, u64)]) {
        *self.0.write() = Counts {
            totals: totals.iter().copied().collect(),
            commands: counts(metrics).into_iter().collect(),
            errors: metrics.errors(),
        };
    }
}

fn counts(metrics: &Metrics) -> Vec<(&'static str, CommandCounts)> {
    let of = |(name, c): (&'static str, std::sync::Arc<crate::metrics::CommandMetrics>)| {
        (name, [c.latency.count(), c.latency.sum(), c.failed.get(), c.rejected.get()])
    };
    metrics.commands().into_iter().map(of).collect()
}
