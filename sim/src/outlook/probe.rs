//! `weir-sim probe`: how long a sync and a round trip take on this machine, in the words of a report's file.

use std::{
    io::{Read, Result, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

/// What the log's writer does at least: part of a page of a file that is there already.
const WRITE_BYTES: usize = 512;
const FILE_BYTES: u64 = 8 << 20;
const ROUND_TRIP_BYTES: usize = 64;
/// Fewer than this say nothing about the slowest in a thousand.
const SAMPLES_MIN: usize = 20;

/// What the command line wants.
#[derive(Debug, clap::Args)]
pub(crate) struct Wanted {
    /// Directory on the disk to measure.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Seconds for each of the two.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Files that are synced at once: as many as nodes share the disk.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    writers: u16,
    /// Print JSON.
    #[arg(long, conflicts_with = "toml")]
    json: bool,
    /// Print the sections `[disk]` and `[network]` of a report's file.
    #[arg(long)]
    toml: bool,
}

/// Times of one kind, milliseconds.
#[derive(Debug, Serialize)]
struct Times {
    samples: usize,
    min_ms: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
    mean_ms: f64,
}

impl Times {
    fn of(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        let at = |part: f64| super::drive::percentile(&all, part);
        Self {
            samples: all.len(),
            min_ms: all.first().copied().unwrap_or_default(),
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: at(1.0),
            mean_ms: all.iter().sum::<f64>() / all.len().max(1) as f64,
        }
    }
}

#[derive(Debug, Serialize)]
struct Probed {
    fdatasync: Times,
    loopback: Times,
}

/// Carries it out.
pub(crate) fn probe(wanted: &Wanted) -> ExitCode {
    let long = Duration::from_secs(wanted.seconds);
    let measured = syncs(&wanted.dir, usize::from(wanted.writers), long)
        .map_err(|error| format!("{}: {error}", wanted.dir.display()))
        .and_then(|syncs| Ok((syncs, round_trips(long).map_err(|error| format!("loopback: {error}"))?)));
    let probed = match measured {
        Ok((syncs, trips)) => Probed { fdatasync: Times::of(syncs), loopback: Times::of(trips) },
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    if wanted.json {
        println!("{}", serde_json::to_string_pretty(&probed).unwrap_or_default());
    } else if wanted.toml {
        print!("{}", sections(&probed));
    } else {
        print!("{}", table(&probed));
    }
    if probed.fdatasync.samples < SAMPLES_MIN {
        eprintln!("only {} syncs: take more --seconds", probed.fdatasync.samples);
    }
    ExitCode::SUCCESS
}

fn table(probed: &Probed) -> String {
    let mut out = format!(
        "{:<12}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
        "ms", "samples", "min", "p50", "p90", "p99", "p99.9", "max", "mean"
    );
    for (name, times) in [("fdatasync", &probed.fdatasync), ("round trip", &probed.loopback)] {
        let Times { samples, min_ms, p50_ms, p90_ms, p99_ms, p999_ms, max_ms, mean_ms } = times;
        out.push_str(&format!(
            "{name:<12}{samples:>9}{min_ms:>10.3}{p50_ms:>10.3}{p90_ms:>10.3}{p99_ms:>10.3}{p999_ms:>10.3}\
             {max_ms:>10.3}{mean_ms:>10.3}\n"
        ));
    }
    out
}

/// What can stand in a report's file as it is.
fn sections(probed: &Probed) -> String {
    let disk = &probed.fdatasync;
    format!(
        "[network]\n# The loopback of this machine: put the round trip inside a zone of yours here.\nrtt-ms = {:.3}\n\n\
         [disk]\nmin-ms = {:.3}\np50-ms = {:.3}\np90-ms = {:.3}\np99-ms = {:.3}\np999-ms = {:.3}\nmax-ms = {:.3}\n",
        probed.loopback.p50_ms, disk.min_ms, disk.p50_ms, disk.p90_ms, disk.p99_ms, disk.p999_ms, disk.max_ms
    )
}

fn joined(thread: thread::JoinHandle<Result<Vec<f64>>>) -> Result<Vec<f64>> {
    thread.join().map_err(|_| std::io::Error::other("a thread panicked"))?
}

fn syncs(dir: &Path, writers: usize, long: Duration) -> Result<Vec<f64>> {
    let threads: Vec<_> = (0..writers)
        .map(|number| {
            let path = dir.join(format!(".weir-probe-{}-{number}", std::process::id()));
            thread::spawn(move || {
                let times = sync_times(&path, long);
                let _ = std::fs::remove_file(&path);
                times
            })
        })
        .collect();
    let mut all = Vec::new();
    for thread in threads {
        all.extend(joined(thread)?);
    }
    Ok(all)
}

fn sync_times(path: &Path, long: Duration) -> Result<Vec<f64>> {
    let file = std::fs::File::options().create(true).truncate(true).write(true).open(path)?;
    let zeros = vec![0; 1 << 20];
    for at in (0..FILE_BYTES).step_by(zeros.len()) {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()?;
    let (began, mut times, mut at) = (Instant::now(), Vec::new(), 0);
    while began.elapsed() < long {
        let one = Instant::now();
        file.write_all_at(&[7; WRITE_BYTES], at)?;
        file.sync_data()?;
        times.push(one.elapsed().as_secs_f64() * 1e3);
        at = (at + WRITE_BYTES as u64) % FILE_BYTES;
    }
    Ok(times)
}

fn round_trips(long: Duration) -> Result<Vec<f64>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut here = TcpStream::connect(listener.local_addr()?)?;
    let (mut there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    let echo = thread::spawn(move || -> Result<Vec<f64>> {
        let mut buffer = [0; ROUND_TRIP_BYTES];
        while there.read_exact(&mut buffer).is_ok() && there.write_all(&buffer).is_ok() {}
        Ok(Vec::new())
    });
    let (began, mut times, mut buffer) = (Instant::now(), Vec::new(), [1; ROUND_TRIP_BYTES]);
    while began.elapsed() < long {
        let one = Instant::now();
        here.write_all(&buffer)?;
        here.read_exact(&mut buffer)?;
        times.push(one.elapsed().as_secs_f64() * 1e3);
    }
    drop(here);
    joined(echo)?;
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outlook::shape;

    #[test]
    fn what_was_probed_can_stand_in_a_file() {
        let times = |p50: f64| Times::of(vec![p50 / 2.0, p50, p50, p50 * 9.0]);
        let sections = sections(&Probed { fdatasync: times(0.9), loopback: times(0.05) });
        let text = format!(
            "[cluster]\nnodes = [{{ name = \"n1\", zone = \"a\" }}]\n{sections}\n[load]\nproducers = 1\nrate = 1\n\
             consumers = 0\n"
        );
        let shape = shape::read(&text).unwrap();
        assert_eq!(shape.inside.0, 0.05);
        assert!((shape.sync.at(0.5) - 0.9).abs() < 1e-9);
    }

    #[test]
    fn columns_line_up() {
        let times = || Times::of(vec![1.0, 2.0, 300.0]);
        let table = table(&Probed { fdatasync: times(), loopback: times() });
        let lengths: Vec<usize> = table.lines().map(str::len).collect();
        assert_eq!(lengths, [91, 91, 91]);
    }
}
