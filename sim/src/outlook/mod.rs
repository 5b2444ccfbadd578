//! `weir-sim report`: what a cluster like the operator's would do under the faults that he names. The real server and
//! client library run in the simulated world, once a seed; what was measured is put together here.

mod drive;
mod figures;
mod load;
mod page;
mod places;
pub(crate) mod probe;
pub(crate) mod quantiles;
mod shape;
mod text;

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use self::{drive::Measured, figures::Figures, shape::Checked};
use crate::runs;

/// What the command line wants.
#[derive(Debug, clap::Args)]
pub(crate) struct Wanted {
    /// The cluster, its load and its faults; `sim/examples/three-zones.toml` shows all that can stand there.
    file: PathBuf,
    /// Also write a page with charts, of one file.
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
    /// Also write all figures as JSON.
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Runs instead of what the file says.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    runs: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs at a time; all cores by default.
    #[arg(long)]
    jobs: Option<usize>,
    /// One run, told as a line of JSON.
    #[arg(long, hide = true)]
    one: bool,
}

/// Carries it out.
pub(crate) fn report(wanted: &Wanted) -> ExitCode {
    let shape = match read(&wanted.file) {
        Ok(shape) => shape,
        Err(text) => {
            eprintln!("{}: {text}", wanted.file.display());
            return ExitCode::from(2);
        }
    };
    if wanted.one {
        let measured = drive::run(&shape, wanted.seed);
        println!("{}", serde_json::to_string(&measured).unwrap_or_default());
        return ExitCode::SUCCESS;
    }
    let runs = wanted.runs.unwrap_or(shape.runs);
    let measured = match all(wanted, runs) {
        Ok(measured) => measured,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    let figures = Figures::of(&shape, &measured);
    print!("{}", text::tables(&shape, &figures));
    let mut written = Ok(());
    if let Some(out) = &wanted.html {
        let page = page::page(&shape, &figures);
        written = written.and_then(|()| save(out, &page));
    }
    if let Some(out) = &wanted.json {
        let text = serde_json::to_string_pretty(&figures).unwrap_or_default();
        written = written.and_then(|()| save(out, &text));
    }
    if let Err(text) = written {
        eprintln!("{text}");
        return ExitCode::from(2);
    }
    if figures.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn read(file: &Path) -> Result<Checked, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    shape::read(&text).map_err(|unusable| unusable.to_string())
}

fn save(out: &Path, text: &str) -> Result<(), String> {
    std::fs::write(out, text).map_err(|error| format!("{}: {error}", out.display()))
}

/// Every run in a process of its own.
fn all(wanted: &Wanted, runs: u64) -> Result<Vec<Measured>, String> {
    let jobs = wanted.jobs.unwrap_or_else(runs::cores).max(1);
    let command = |seed: &u64| {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("report").arg(&wanted.file).args(["--one", "--seed", &seed.to_string()]);
        Ok(command)
    };
    let mut measured = Vec::new();
    let mut failure = None;
    let bar = std::io::stderr().is_terminal();
    let seeds = wanted.seed..wanted.seed.saturating_add(runs);
    let end = runs::each(seeds, jobs, command, |seed, ended| {
        match serde_json::from_slice::<Measured>(&ended.stdout) {
            Ok(one) => measured.push((*seed, one)),
            Err(_) => failure = Some(format!("seed {seed}: {}", ended.last_words())),
        }
        if bar {
            eprint!("\r{} of {runs} runs", measured.len());
            let _ = std::io::stderr().flush();
        }
        failure.is_none()
    });
    if bar {
        eprintln!();
    }
    end.map_err(|error| format!("cannot run: {error}"))?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    measured.sort_by_key(|(seed, _)| *seed);
    Ok(measured.into_iter().map(|(_, one)| one).collect())
}
