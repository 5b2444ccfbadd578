//! What a run prints: a line a round, and what it comes to.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A round that is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its number.
    pub round: u64,
    /// Name of the fault.
    pub fault: String,
    /// To whom it was done.
    pub what: String,
    /// How long it took, checks included.
    pub seconds: f64,
    /// XADDs that were answered with an id.
    pub answered: usize,
    /// XADDs of unknown end.
    pub unknown: usize,
    /// Longest time, on the worst shard, without an answered XADD; milliseconds.
    pub gap_ms: u64,
    /// From the end of the fault until every stream took writes; milliseconds.
    pub heal_ms: u64,
    /// Entries that were claimed from one consumer by another.
    pub redeliveries: usize,
    /// What was violated.
    pub violations: usize,
}

/// The line above the rows.
pub fn head() -> String {
    format!(
        "{:>5} {:<24}{:<28}{:>6}{:>10}{:>9}{:>10}{:>10}{:>13}{:>12}",
        "round", "fault", "where", "s", "answered", "unknown", "gap", "healed", "redelivered", "violations"
    )
}

impl Row {
    /// The line of the round.
    pub fn line(&self) -> String {
        format!(
            "{:>5} {:<24}{:<28}{:>6.1}{:>10}{:>9}{:>8.2} s{:>8.2} s{:>13}{:>12}",
            self.round,
            self.fault,
            self.what,
            self.seconds,
            self.answered,
            self.unknown,
            self.gap_ms as f64 / 1e3,
            self.heal_ms as f64 / 1e3,
            self.redeliveries,
            self.violations
        )
    }
}

/// A run as a file: what `--json` writes and `--resume` goes on with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Draws the faults.
    pub seed: u64,
    /// Number of nodes.
    pub nodes: u16,
    /// What the weir program is, as a number of its bytes: rounds of two programs do not add up.
    pub build: String,
    /// All rounds.
    pub rows: Vec<Row>,
}

impl Run {
    /// Longest write gaps over all rounds and by fault, and sums.
    pub fn summary(&self) -> String {
        let gaps: Vec<u64> = self.rows.iter().map(|row| row.gap_ms).collect();
        let heals: Vec<u64> = self.rows.iter().map(|row| row.heal_ms).collect();
        let mut by_fault: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in &self.rows {
            by_fault.entry(&row.fault).or_default().push(row);
        }
        let mut out =
            format!("{:<24}{:>7}{:>12}{:>12}{:>12}\n", "fault", "rounds", "gap p50", "gap max", "heal max");
        let seconds = |ms: u64| ms as f64 / 1e3;
        for (fault, rows) in by_fault {
            let gaps: Vec<u64> = rows.iter().map(|row| row.gap_ms).collect();
            let heal = rows.iter().map(|row| row.heal_ms).max().unwrap_or(0);
            let _ = writeln!(
                out,
                "{fault:<24}{:>7}{:>10.2} s{:>10.2} s{:>10.2} s",
                rows.len(),
                seconds(percentile(&gaps, 50)),
                seconds(percentile(&gaps, 100)),
                seconds(heal)
            );
        }
        let sum = |of: fn(&Row) -> usize| self.rows.iter().map(of).sum::<usize>();
        let _ = writeln!(
            out,
            "\n{} rounds: {} writes answered, {} of unknown end, {} redeliveries, {} violations",
            self.rows.len(),
            sum(|row| row.answered),
            sum(|row| row.unknown),
            sum(|row| row.redeliveries),
            sum(|row| row.violations)
        );
        let _ = write!(
            out,
            "longest write gap of a round: p50 {:.2} s, p99 {:.2} s; healed after p50 {:.2} s, p99 {:.2} s",
            seconds(percentile(&gaps, 50)),
            seconds(percentile(&gaps, 99)),
            seconds(percentile(&heals, 50)),
            seconds(percentile(&heals, 99))
        );
        out
    }
}

/// The smallest value that this share of all does not exceed.
fn percentile(values: &[u64], percent: usize) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        assert_eq!(percentile(&[], 50), 0);
        assert_eq!(percentile(&[7], 99), 7);
        assert_eq!(percentile(&[4, 1, 3, 2], 50), 2);
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(
            (percentile(&hundred, 50), percentile(&hundred, 99), percentile(&hundred, 100)),
            (50, 99, 100)
        );
    }
}
