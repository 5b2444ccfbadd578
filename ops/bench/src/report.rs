//! Collects numbers; prints an aligned table, or JSON.

use crate::load::Measured;
use serde::Serialize;
use std::fmt;

/// One row of the throughput table: medians over the rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) load: String,
    pub(crate) server: String,
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    /// CPU microseconds of all the server's processes for one command.
    pub(crate) cpu_us: f64,
    pub(crate) errors: u64,
    /// Throughput over that of redis-server in the same run.
    pub(crate) ratio: Option<f64>,
}

impl Row {
    /// The median round of each figure.
    pub(crate) fn of(load: &str, server: &str, rounds: &[Measured]) -> Row {
        let figure = |read: fn(&Measured) -> f64| median(rounds.iter().map(read).collect());
        Row {
            load: load.into(),
            server: server.into(),
            per_second: figure(Measured::per_second),
            p50_ms: figure(|m| m.quantile_ms(0.5)),
            p99_ms: figure(|m| m.quantile_ms(0.99)),
            p999_ms: figure(|m| m.quantile_ms(0.999)),
            cpu_us: figure(Measured::cpu_us),
            errors: rounds.iter().map(|m| m.errors).sum(),
            ratio: None,
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

/// All that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Report { rows: Vec::new(), figures: Vec::new() }
    }

    pub(crate) fn figure(&mut self, name: &str, value: f64, unit: &'static str, note: impl Into<String>) {
        let note = note.into();
        eprintln!("  {name}: {value:.3} {unit}  {note}");
        self.figures.push(Figure { name: name.into(), value, unit, note });
    }

    /// A figure by name.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and names")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.rows.is_empty() {
            writeln!(
                f,
                "\n{:<26}{:<20}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}{:>8}",
                "load (XADD 100 B)",
                "server",
                "ops/s",
                "p50 ms",
                "p99 ms",
                "p99.9 ms",
                "CPU us",
                "errors",
                "ratio"
            )?;
        }
        for row in &self.rows {
            let ratio = row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}x"));
            writeln!(
                f,
                "{:<26}{:<20}{:>10.0}{:>10.3}{:>10.3}{:>10.3}{:>10.1}{:>8}{ratio:>8}",
                row.load,
                row.server,
                row.per_second,
                row.p50_ms,
                row.p99_ms,
                row.p999_ms,
                row.cpu_us,
                row.errors
            )?;
        }
        writeln!(f)?;
        for figure in &self.figures {
            writeln!(f, "{:<46}{:>12.3} {:<6}{}", figure.name, figure.value, figure.unit, figure.note)?;
        }
        Ok(())
    }
}
