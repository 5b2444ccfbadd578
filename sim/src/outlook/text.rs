//! The figures as tables for a terminal.

use std::fmt::Write;

use super::{
    figures::{Figures, Spread},
    shape::Checked,
};

/// What the runs are, in one sentence.
pub(crate) fn about(shape: &Checked, figures: &Figures) -> String {
    format!(
        "{} nodes, {} shards, {} appends/s asked for by {} producers, {} consumers; {} runs of {} s",
        shape.nodes.len(),
        shape.shards,
        shape.rate,
        shape.producers,
        shape.consumers,
        figures.runs,
        shape.lasts.as_secs()
    )
}

/// What has to be known to read the figures.
pub(crate) fn how(shape: &Checked) -> String {
    format!(
        "A gap is the longest time in which no writer of a shard was answered; writers try again every 10 ms and give an \
         answer up after {} ms. {HOW}",
        shape.answer.as_millis()
    )
}

const HOW: &str = "Times of a simulated world: the disk and the network take as long as \
     the file says, in whole milliseconds whose mean is right (a round trip takes 1 ms at least), and the processors \
     take no time at all.";

/// Milliseconds, as short as they can be told.
pub(crate) fn ms(ms: f64) -> String {
    if ms >= 100.0 { format!("{ms:.0} ms") } else { format!("{ms:.1} ms") }
}

/// Part of all in percent.
pub(crate) fn percent(part: u64, all: u64) -> String {
    format!("{:.2} %", 100.0 * part as f64 / all.max(1) as f64)
}

/// All tables.
pub(crate) fn tables(shape: &Checked, figures: &Figures) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\n{}\n", shape.title, about(shape, figures));
    gaps(&mut out, figures);
    let appends = &figures.appends;
    let _ = writeln!(
        out,
        "appends       {} answered, {} unknown, {} failed; p50 {}, p99 {}, longest {}",
        appends.count,
        figures.unknown,
        figures.failed,
        ms(appends.p50_ms),
        ms(appends.p99_ms),
        ms(appends.longest_ms)
    );
    if shape.consumers > 0 {
        let _ = writeln!(
            out,
            "redeliveries  {} for {} entries ({}); {} entries not handled in the end",
            figures.redelivered,
            figures.entries,
            percent(figures.redelivered, figures.entries),
            figures.unhandled
        );
    }
    let _ = writeln!(out, "disk          {}\n", disk(figures));
    waits(&mut out, figures);
    bound(&mut out, figures);
    let _ = writeln!(out, "{}", how(shape));
    for violation in &figures.violations {
        let _ = writeln!(out, "VIOLATED: {violation}");
    }
    out
}

/// What the disks can do and what they did.
pub(crate) fn disk(figures: &Figures) -> String {
    let most = if figures.sync_mean_ms > 0.0 {
        format!("at most {:.0} a second", 1000.0 / figures.sync_mean_ms)
    } else {
        "no bound".to_owned()
    };
    format!(
        "a sync takes {:.2} ms in the mean: {most}; under this load the busiest disk made {:.0} a second, {:.0} % of its time",
        figures.sync_mean_ms,
        figures.syncs_per_second,
        100.0 * figures.disk_busy
    )
}

fn gaps(out: &mut String, figures: &Figures) {
    let rows = figures.gaps.iter().chain([&figures.all_gaps, &figures.other_shards]);
    let width = rows.clone().map(|row| row.name.chars().count()).max().unwrap_or(0).max(12);
    let _ = writeln!(
        out,
        "{:<width$}  {:>6}  {:>9}  {:>9}  {:>9}",
        "failover gap", "shards", "p50", "p99", "longest"
    );
    for Spread { name, count, p50_ms, p99_ms, longest_ms, .. } in rows {
        let (p50, p99, longest) = (ms(*p50_ms), ms(*p99_ms), ms(*longest_ms));
        let _ = writeln!(out, "{name:<width$}  {count:>6}  {p50:>9}  {p99:>9}  {longest:>9}");
    }
    out.push('\n');
}

fn waits(out: &mut String, figures: &Figures) {
    let most = figures.waits.values().map(Vec::len).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    let _ = write!(out, "{:<12}", "WAIT limit");
    for copies in 0..most {
        let _ = write!(out, "  {:>9}", format!("{copies} others"));
    }
    let _ = writeln!(out, "  {:>7}", "calls");
    for (limit, counts) in &figures.waits {
        let all = counts.iter().sum::<u64>();
        let _ = write!(out, "{:<12}", format!("{limit} ms"));
        for count in counts {
            let _ = write!(out, "  {:>9}", percent(*count, all));
        }
        let _ = writeln!(out, "  {all:>7}");
    }
    out.push('\n');
}

fn bound(out: &mut String, figures: &Figures) {
    if figures.bound.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "{:<16}  {:>9}  {:>9}  {:>9}  {:>13}",
        "writers at once", "writes/s", "p50", "p99", "writes a sync"
    );
    for (writers, bound) in &figures.bound {
        let _ = writeln!(
            out,
            "{writers:<16}  {:>9.0}  {:>9}  {:>9}  {:>13.1}",
            bound.per_second,
            ms(bound.p50),
            ms(bound.p99),
            bound.per_sync
        );
    }
    out.push('\n');
}
