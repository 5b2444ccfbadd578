//! What all runs together say.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    drive::{Bound, Measured, percentile},
    shape::Checked,
};

/// Times that belong together, in milliseconds.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Spread {
    pub(crate) name: String,
    pub(crate) count: usize,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) longest_ms: f64,
    /// All of them, rising.
    #[serde(skip)]
    pub(crate) all: Vec<f64>,
}

impl Spread {
    fn of(name: &str, mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        Self {
            name: name.to_owned(),
            count: all.len(),
            p50_ms: percentile(&all, 0.5),
            p99_ms: percentile(&all, 0.99),
            longest_ms: all.last().copied().unwrap_or_default(),
            all,
        }
    }
}

/// All figures of a report.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) runs: usize,
    /// The longest time without an answered write, of shards whose leader a fault struck: by fault,
    pub(crate) gaps: Vec<Spread>,
    /// of all faults,
    pub(crate) all_gaps: Spread,
    /// and of the other shards at the same time.
    pub(crate) other_shards: Spread,
    pub(crate) appends: Spread,
    pub(crate) unknown: u64,
    pub(crate) failed: u64,
    pub(crate) entries: u64,
    pub(crate) redelivered: u64,
    pub(crate) unhandled: u64,
    /// By time limit in milliseconds: how often WAIT counted 0, 1, 2 ... other copies.
    pub(crate) waits: BTreeMap<u64, Vec<u64>>,
    pub(crate) bound: BTreeMap<usize, Bound>,
    pub(crate) sync_mean_ms: f64,
    pub(crate) syncs_per_second: f64,
    pub(crate) disk_busy: f64,
    pub(crate) violations: Vec<String>,
    /// Answered appends a second in each tenth of a second: the lowest, the median and the highest of all runs.
    #[serde(skip)]
    pub(crate) curve: Vec<(f64, f64, f64)>,
    #[serde(skip)]
    pub(crate) struck: Vec<(f64, String)>,
}

impl Figures {
    pub(crate) fn of(shape: &Checked, measured: &[Measured]) -> Self {
        let gaps_of = |number: usize| {
            let of = |one: &Measured| {
                one.gaps.iter().filter(|(of, _)| *of == number).map(|(_, ms)| *ms).collect::<Vec<_>>()
            };
            measured.iter().flat_map(of).collect::<Vec<f64>>()
        };
        let all_of = |of: fn(&Measured) -> Vec<f64>| measured.iter().flat_map(of).collect::<Vec<f64>>();
        let second = |pairs: &[(usize, f64)]| pairs.iter().map(|(_, ms)| *ms).collect::<Vec<f64>>();
        let sum = |of: fn(&Measured) -> u64| measured.iter().map(of).sum::<u64>();
        let mean =
            |of: fn(&Measured) -> f64| measured.iter().map(of).sum::<f64>() / measured.len().max(1) as f64;
        let mut waits: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (limit, counts) in measured.iter().flat_map(|one| &one.waits) {
            let all = waits.entry(*limit).or_insert_with(|| vec![0; counts.len()]);
            for (all, count) in all.iter_mut().zip(counts) {
                *all += count;
            }
        }
        let bound = shape.writers_at_once.iter().map(|writers| {
            let of = |pick: fn(&Bound) -> f64| {
                let mut all: Vec<f64> =
                    measured.iter().filter_map(|one| one.bound.get(writers)).map(pick).collect();
                all.sort_by(f64::total_cmp);
                percentile(&all, 0.5)
            };
            let (per_second, p50) = (of(|bound| bound.per_second), of(|bound| bound.p50));
            (
                *writers,
                Bound { per_second, p50, p99: of(|bound| bound.p99), per_sync: of(|bound| bound.per_sync) },
            )
        });
        Self {
            runs: measured.len(),
            gaps: shape
                .faults
                .iter()
                .enumerate()
                .map(|(number, fault)| Spread::of(&fault.name, gaps_of(number)))
                .collect(),
            all_gaps: Spread::of("all faults", measured.iter().flat_map(|one| second(&one.gaps)).collect()),
            other_shards: Spread::of(
                "shards led elsewhere",
                measured.iter().flat_map(|one| second(&one.pauses)).collect(),
            ),
            appends: Spread::of(
                "appends",
                all_of(|one| one.appends.iter().map(|ms| f64::from(*ms)).collect()),
            ),
            unknown: sum(|one| one.unknown),
            failed: sum(|one| one.failed),
            entries: sum(|one| one.entries),
            redelivered: sum(|one| one.deliveries.saturating_sub(one.entries)),
            unhandled: sum(|one| one.unhandled),
            waits,
            bound: bound.collect(),
            sync_mean_ms: shape.sync.mean_ms(),
            syncs_per_second: mean(|one| one.syncs),
            disk_busy: mean(|one| one.busy),
            violations: measured.iter().flat_map(|one| one.violations.iter().cloned()).collect(),
            curve: curve(measured),
            struck: measured.first().map(|one| one.struck.clone()).unwrap_or_default(),
        }
    }
}

fn curve(measured: &[Measured]) -> Vec<(f64, f64, f64)> {
    let slices = measured.iter().map(|one| one.curve.len()).max().unwrap_or(0);
    (0..slices)
        .map(|slice| {
            let mut all: Vec<u32> = measured.iter().filter_map(|one| one.curve.get(slice)).copied().collect();
            all.sort_unstable();
            let a_second = |count: u32| f64::from(count) * 10.0;
            let (low, high) = (all.first().copied().unwrap_or(0), all.last().copied().unwrap_or(0));
            (a_second(low), a_second(percentile(&all, 0.5)), a_second(high))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outlook::shape;

    #[test]
    fn runs_are_put_together() {
        let shape = shape::read(include_str!("../../examples/three-zones.toml")).unwrap();
        let one = |gap: f64, deliveries: u64| Measured {
            gaps: vec![(0, gap)],
            deliveries,
            entries: 100,
            waits: BTreeMap::from([(5, vec![1, 2, 3])]),
            curve: vec![gap as u32],
            ..Measured::default()
        };
        let figures = Figures::of(&shape, &[one(300.0, 100), one(500.0, 103)]);
        assert_eq!((figures.gaps[0].p50_ms, figures.gaps[0].p99_ms), (300.0, 500.0));
        assert_eq!((figures.gaps[1].count, figures.all_gaps.count), (0, 2));
        assert_eq!((figures.redelivered, figures.entries), (3, 200));
        assert_eq!(figures.waits[&5], [2, 4, 6]);
        assert_eq!(figures.curve, [(3000.0, 3000.0, 5000.0)]);
    }
}
