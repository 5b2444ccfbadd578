//! What Weir wants to reach beside its peers. Only ratios within one run count: machines differ.

use serde::Serialize;

use crate::load::work::Work;
use crate::load::{Load, Measured};
use crate::report::median;
use crate::servers::Kind;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    PerSecond,
    P50,
    CpuEach,
    DiskBytesEach,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Figure::PerSecond => "per second",
            Figure::P50 => "p50",
            Figure::CpuEach => "CPU each",
            Figure::DiskBytesEach => "disk bytes each",
        }
    }

    fn of(self, measured: &Measured) -> f64 {
        match self {
            Figure::PerSecond => measured.per_second(),
            Figure::P50 => measured.quantile_ms(0.5),
            Figure::CpuEach => measured.cpu_us(),
            Figure::DiskBytesEach => measured.disk_bytes_each(),
        }
    }

    /// More is better of rates, less of costs.
    fn is_rate(self) -> bool {
        self == Figure::PerSecond
    }
}

/// Weir's figure over that of a peer under the same load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) work: Work,
    pub(crate) load: Load,
    pub(crate) peer: Kind,
    pub(crate) figure: Figure,
    /// At least for a rate, at most for a cost.
    pub(crate) bound: f64,
}

const fn clients(connections: usize) -> Load {
    Load { connections, pipeline: 1 }
}

const PIPELINED: Load = Load { connections: 50, pipeline: 16 };

const fn append(load: Load, peer: Kind, figure: Figure, bound: f64) -> Target {
    Target { work: Work::Append, load, peer, figure, bound }
}

const fn read(work: Work, peer: Kind, bound: f64) -> Target {
    Target { work, load: clients(50), peer, figure: Figure::PerSecond, bound }
}

use Figure::{CpuEach, DiskBytesEach, P50, PerSecond};
use Kind::{Ideal, NatsAlways, NatsDefault, RedisAlways, RedisMemory, RedisReplica, ValkeyCluster};

const TARGETS: [Target; 26] = [
    append(clients(1), Ideal, P50, 1.3),
    append(clients(50), Ideal, PerSecond, 0.75),
    append(clients(50), RedisAlways, PerSecond, 0.6),
    append(clients(50), RedisAlways, CpuEach, 2.0),
    append(clients(50), RedisReplica, PerSecond, 1.3),
    append(clients(50), NatsAlways, PerSecond, 3.0),
    append(clients(50), NatsDefault, PerSecond, 1.3),
    append(clients(200), Ideal, PerSecond, 0.7),
    append(clients(200), Ideal, DiskBytesEach, 1.3),
    append(clients(200), RedisAlways, PerSecond, 0.8),
    append(clients(200), RedisReplica, PerSecond, 1.7),
    append(clients(200), NatsAlways, PerSecond, 3.0),
    append(clients(200), NatsDefault, PerSecond, 1.8),
    append(PIPELINED, Ideal, PerSecond, 0.5),
    append(PIPELINED, RedisAlways, PerSecond, 1.0),
    append(PIPELINED, RedisReplica, PerSecond, 5.0),
    append(PIPELINED, NatsAlways, PerSecond, 5.0),
    append(PIPELINED, ValkeyCluster, PerSecond, 1.3),
    read(Work::ReadGroup(100), RedisMemory, 1.3),
    read(Work::ReadGroupAck(100), RedisAlways, 2.0),
    read(Work::ReadGroup(1), RedisAlways, 0.6),
    read(Work::Ack, RedisAlways, 0.6),
    read(Work::Range(100), RedisAlways, 1.0),
    read(Work::Range(100), ValkeyCluster, 1.0),
    read(Work::Read(100), RedisAlways, 1.0),
    read(Work::Read(100), ValkeyCluster, 1.0),
];

/// The targets of one kind of work under one load.
pub(crate) fn of(work: Work, load: Load) -> impl Iterator<Item = Target> {
    TARGETS.into_iter().filter(move |target| target.work == work && target.load == load)
}

/// Who is measured beside Weir: those of the targets, and the reference where there are none.
pub(crate) fn peers(work: Work, load: Load) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for target in of(work, load) {
        if !kinds.contains(&target.peer) {
            kinds.push(target.peer);
        }
    }
    if !kinds.contains(&Kind::RedisAlways) && work == Work::Append {
        kinds.push(Kind::RedisAlways);
    }
    kinds
}

/// All that is measured beside appends.
pub(crate) fn reads() -> Vec<(Work, Load)> {
    let mut all = Vec::new();
    for target in TARGETS.iter().filter(|target| target.work != Work::Append) {
        if !all.contains(&(target.work, target.load)) {
            all.push((target.work, target.load));
        }
    }
    all
}

/// How a target was met: the ratios of the rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) work: String,
    pub(crate) load: String,
    pub(crate) peer: &'static str,
    pub(crate) figure: &'static str,
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) bound: f64,
    pub(crate) at_least: bool,
    pub(crate) met: bool,
}

impl Verdict {
    /// Each round of Weir is held against the peer's of the same turn.
    pub(crate) fn of(target: Target, weir: &[Measured], peer: &[Measured]) -> Verdict {
        let ratios = weir.iter().zip(peer).map(|(weir, peer)| {
            let (weir, peer) = (target.figure.of(weir), target.figure.of(peer));
            if peer > 0.0 { weir / peer } else { f64::NAN }
        });
        let ratios: Vec<f64> = ratios.collect();
        let median = median(ratios.clone());
        let at_least = target.figure.is_rate();
        Verdict {
            work: target.work.name(),
            load: target.load.name(),
            peer: target.peer.name(),
            figure: target.figure.name(),
            median,
            low: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            high: ratios.iter().copied().fold(0.0, f64::max),
            bound: target.bound,
            at_least,
            met: if at_least { median >= target.bound } else { median <= target.bound },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn rounds(answered: &[u64]) -> Vec<Measured> {
        answered
            .iter()
            .map(|&answered| {
                let long = Duration::from_secs(1);
                Measured { answered, all: answered, cpu_seconds: 1.0, ..Measured::nothing(long).unwrap() }
            })
            .collect()
    }

    #[test]
    fn a_rate_has_to_be_high_and_a_cost_low() {
        let (weir, peer) = (rounds(&[50, 60, 90]), rounds(&[100, 100, 100]));
        let rate = Verdict::of(append(clients(50), RedisAlways, PerSecond, 0.6), &weir, &peer);
        assert_eq!((rate.median, rate.low, rate.high, rate.met), (0.6, 0.5, 0.9, true));
        let cost = Verdict::of(append(clients(50), RedisAlways, CpuEach, 1.5), &weir, &peer);
        assert!(!cost.met, "1/60 s an operation over 1/100 s");
    }
}
