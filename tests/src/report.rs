//! The table of a run: one row a phase.

use crate::check::Violation;
use crate::faults::Fault;
use crate::history::{History, Outcome, What};
use std::fmt::Write;

/// A phase that is over. Times are microseconds since the start of the run.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    /// What went wrong in it.
    pub fault: Fault,
    /// Start.
    pub from: u64,
    /// End.
    pub to: u64,
}

/// Answered, unknown, refused, unreachable calls, longest time without an answered XADD on any one shard, violations.
pub fn table(
    phases: &[Phase],
    history: &History,
    shards: &[usize],
    unreachable: &[u64],
    violations: &[Violation],
) -> String {
    let mut out = format!(
        "{:<26}{:>6}{:>10}{:>9}{:>9}{:>13}{:>14}{:>12}\n",
        "phase", "s", "answered", "unknown", "refused", "unreachable", "longest gap", "violations"
    );
    for phase in phases {
        let inside = |at: u64| (phase.from..phase.to).contains(&at);
        let (mut answered, mut unknown, mut refused) = (0, 0, 0);
        for op in history.ops.iter().filter(|op| inside(op.ended)) {
            match op.outcome {
                Outcome::Unknown(_) => unknown += 1,
                Outcome::Refused(_) => refused += 1,
                _ => answered += 1,
            }
        }
        let gap = longest_gap(phase.from, phase.to, history, shards) as f64 / 1e6;
        let _ = writeln!(
            out,
            "{:<26}{:>6.1}{answered:>10}{unknown:>9}{refused:>9}{:>13}{gap:>12.2} s{:>12}",
            phase.fault.to_string(),
            (phase.to - phase.from) as f64 / 1e6,
            unreachable.iter().filter(|&&at| inside(at)).count(),
            violations.iter().filter(|v| inside(v.at)).count(),
        );
    }
    let outside =
        violations.iter().filter(|v| !phases.iter().any(|p| (p.from..p.to).contains(&v.at))).count();
    let _ = writeln!(out, "{:<87}{outside:>12}", "after the faults");
    out
}

/// Longest time, on the worst shard, in which no XADD was answered; microseconds.
pub fn longest_gap(from: u64, to: u64, history: &History, shards: &[usize]) -> u64 {
    let count = shards.iter().max().map_or(0, |max| max + 1);
    let mut last = vec![from; count];
    let mut worst = 0;
    for op in &history.ops {
        if !matches!(op.what, What::Add { .. }) || !matches!(op.outcome, Outcome::Added(_)) {
            continue;
        }
        if (from..to).contains(&op.ended) {
            let shard = shards[usize::from(op.key)];
            worst = worst.max(op.ended - last[shard]);
            last[shard] = op.ended;
        }
    }
    last.into_iter().fold(worst, |worst, at| worst.max(to - at))
}

/// Prints the first few of each invariant; how many invariants were violated.
pub fn print_violations(violations: &[Violation]) -> usize {
    const SHOWN: usize = 4;
    let mut names: Vec<_> = violations.iter().map(|v| v.invariant).collect();
    names.sort_unstable();
    names.dedup();
    for name in &names {
        let of_it: Vec<_> = violations.iter().filter(|v| v.invariant == *name).collect();
        for violation in of_it.iter().take(SHOWN) {
            println!("VIOLATION {violation}");
        }
        if of_it.len() > SHOWN {
            println!("VIOLATION {name}: {} more", of_it.len() - SHOWN);
        }
    }
    names.len()
}
