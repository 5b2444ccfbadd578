//! Collects numbers; prints an aligned table, or JSON.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::complexity;
use crate::load::Measured;
use crate::servers::Kind;
use crate::targets::Verdict;

/// One row of the throughput table: medians over the rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) work: String,
    pub(crate) load: String,
    pub(crate) server: String,
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    /// CPU microseconds of all the server's processes for one command.
    pub(crate) cpu_us: f64,
    /// Bytes that the disk wrote for one command.
    pub(crate) disk_bytes: f64,
    pub(crate) errors: u64,
    /// The first error's text.
    pub(crate) error: Option<String>,
}

impl Row {
    /// The median round of each figure.
    pub(crate) fn of(work: &str, load: &str, server: &str, rounds: &[Measured]) -> Row {
        let figure = |read: fn(&Measured) -> f64| median(rounds.iter().map(read).collect());
        Row {
            work: work.into(),
            load: load.into(),
            server: server.into(),
            per_second: figure(Measured::per_second),
            p50_ms: figure(|m| m.quantile_ms(0.5)),
            p99_ms: figure(|m| m.quantile_ms(0.99)),
            p999_ms: figure(|m| m.quantile_ms(0.999)),
            cpu_us: figure(Measured::cpu_us),
            disk_bytes: figure(Measured::disk_bytes_each),
            errors: rounds.iter().map(|m| m.errors).sum(),
            error: rounds.iter().find_map(|m| m.error.clone()),
        }
    }
}

/// The middle of some numbers; 0 of none.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}

/// A single figure with the target it is held against.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) note: String,
}

/// What one call of a command costs on a stream of so many entries.
#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    pub(crate) command: String,
    pub(crate) server: &'static str,
    pub(crate) entries: usize,
    /// Median microseconds.
    pub(crate) us: f64,
}

/// All that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) costs: Vec<Cost>,
    /// Peers that are not installed.
    pub(crate) missing: BTreeSet<&'static str>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Report {
            rows: Vec::new(),
            verdicts: Vec::new(),
            figures: Vec::new(),
            costs: Vec::new(),
            missing: BTreeSet::new(),
        }
    }

    pub(crate) fn figure(&mut self, name: &str, value: f64, unit: &'static str, note: impl Into<String>) {
        let note = note.into();
        eprintln!("  {name}: {value:.3} {unit}  {note}");
        self.figures.push(Figure { name: name.into(), value, unit, note });
    }

    /// A peer that is not installed.
    pub(crate) fn left_out(&mut self, peer: &'static str) {
        self.missing.insert(peer);
    }

    /// A figure by name.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// Weir's p50 of one connection over what the disk and the network take, if all was measured.
    pub(crate) fn floor_of_one_connection(&mut self) {
        let one = self.rows.iter().find(|row| row.load == "1 connection" && row.server == Kind::Weir.name());
        let (Some(disk), Some(net), Some(p50_ms)) = (
            self.value("fdatasync p50, 3 writers at once"),
            self.value("loopback round trip p50"),
            one.map(|row| row.p50_ms),
        ) else {
            return;
        };
        let floor = disk + 2.0 * net;
        let note = format!("floor {floor:.3} ms = 3 writers' fdatasync + 2 round trips; target 2x");
        self.figure("p50 of one connection over the floor", p50_ms / floor, "x", note);
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and names")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows_to(f)?;
        self.verdicts_to(f)?;
        self.costs_to(f)?;
        writeln!(f)?;
        for figure in &self.figures {
            writeln!(f, "{:<46}{:>12.3} {:<6}{}", figure.name, figure.value, figure.unit, figure.note)?;
        }
        if !self.missing.is_empty() {
            let names: Vec<&str> = self.missing.iter().copied().collect();
            writeln!(f, "\nnot measured, not installed (ops/setup bench): {}", names.join(", "))?;
        }
        Ok(())
    }
}

impl Report {
    fn rows_to(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = None;
        for row in &self.rows {
            if last != Some((&row.work, &row.load)) {
                last = Some((&row.work, &row.load));
                let (head, tail) = (format!("{}, {}", row.work, row.load), "errors");
                writeln!(
                    f,
                    "\n{head:<40}{:>10}{:>10}{:>10}{:>10}{:>9}{:>10}{tail:>8}",
                    "ops/s", "p50 ms", "p99 ms", "p99.9 ms", "CPU us", "disk B"
                )?;
            }
            writeln!(
                f,
                "  {:<38}{:>10.0}{:>10.3}{:>10.3}{:>10.3}{:>9.1}{:>10.0}{:>8}",
                row.server,
                row.per_second,
                row.p50_ms,
                row.p99_ms,
                row.p999_ms,
                row.cpu_us,
                row.disk_bytes,
                row.errors
            )?;
            if let Some(error) = &row.error {
                writeln!(f, "    {error}")?;
            }
        }
        Ok(())
    }

    /// A line a command: its cost at each size, on Weir and on Redis, and whether it grows where Redis' does not.
    fn costs_to(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: BTreeSet<usize> = self.costs.iter().map(|cost| cost.entries).collect();
        let (Some(small), Some(large)) = (sizes.first(), sizes.last()) else { return Ok(()) };
        let kinds = [complexity::WEIR, complexity::REDIS];
        write!(f, "\n{:<40}", "median us of one call, entries:")?;
        for name in kinds {
            for size in &sizes {
                write!(f, "{:>16}", format!("{name} {size}"))?;
            }
        }
        writeln!(f)?;
        let cost = |command: &str, server: &str, entries: usize| {
            let same = |c: &&Cost| c.command == command && c.server == server && c.entries == entries;
            self.costs.iter().find(same).map(|cost| cost.us)
        };
        for first in self.costs.iter().filter(|c| c.server == kinds[0] && c.entries == *small) {
            write!(f, "  {:<38}", first.command)?;
            for server in kinds {
                for size in &sizes {
                    match cost(&first.command, server, *size) {
                        Some(us) => write!(f, "{us:>16.0}")?,
                        None => write!(f, "{:>16}", "-")?,
                    }
                }
            }
            let grows = |server| {
                let (small, large) =
                    (cost(&first.command, server, *small), cost(&first.command, server, *large));
                small.zip(large).map(|(small, large)| complexity::grows(small, large))
            };
            writeln!(
                f,
                "{}",
                match (grows(kinds[0]), grows(kinds[1])) {
                    (Some(true), Some(false)) => "  GROWS, and not in Redis",
                    (Some(true), None) => "  GROWS; this Redis does not know it",
                    (Some(true), Some(true)) => "  grows, as in Redis",
                    _ => "",
                }
            )?;
        }
        Ok(())
    }

    fn verdicts_to(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.verdicts.is_empty() {
            return Ok(());
        }
        let head = "weir over peer, median of rounds";
        writeln!(
            f,
            "\n{head:<46}{:<24}{:<18}{:>8}{:>16}{:>10}",
            "peer", "figure", "ratio", "spread", "target"
        )?;
        for v in &self.verdicts {
            let (sign, mark) = (if v.at_least { ">=" } else { "<=" }, if v.met { "" } else { "  missed" });
            writeln!(
                f,
                "{:<46}{:<24}{:<18}{:>7.2}x{:>16}{:>10}{mark}",
                format!("{}, {}", v.work, v.load),
                v.peer,
                v.figure,
                v.median,
                format!("{:.2} - {:.2}", v.low, v.high),
                format!("{sign} {:.2}", v.bound)
            )?;
        }
        Ok(())
    }
}
