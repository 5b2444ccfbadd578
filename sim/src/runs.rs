//! Runs as processes of their own, several at a time: some libraries keep process-wide counters, and one run must not
//! see another's.

use std::{
    io,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread::JoinHandle,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use weir_tests::check::Violation;

use crate::{
    coverage::Coverage,
    invariants::NOTHING_PANICS,
    planted::Bug,
    scenarios::{Scenario, Verdict},
};

/// What a run's process tells about it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) violations: Vec<Seen>,
    pub(crate) simulated_ms: u64,
    pub(crate) coverage: Coverage,
    /// What a person reads.
    pub(crate) report: String,
}

/// A violation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) invariant: String,
    pub(crate) text: String,
}

impl From<&Violation> for Seen {
    fn from(violation: &Violation) -> Self {
        Self { invariant: violation.invariant.to_owned(), text: violation.text.clone() }
    }
}

impl Told {
    pub(crate) fn of(verdict: &Verdict) -> Self {
        let failed = !verdict.violations.is_empty();
        Self {
            violations: verdict.violations.iter().map(Seen::from).collect(),
            simulated_ms: u64::try_from(verdict.simulated.as_millis()).unwrap_or(u64::MAX),
            coverage: verdict.coverage.clone(),
            report: if failed { crate::report::failure(verdict) } else { String::new() },
        }
    }
}

/// The command that runs a seed again.
pub(crate) fn replay_command(scenario: Scenario, seed: u64, bug: Option<Bug>) -> String {
    let (profile, bug) = match bug {
        // Bugs are compiled out of release builds.
        Some(bug) => ("WEIR_PROFILE=ci ", format!(" --break {}", bug.name())),
        None => ("", String::new()),
    };
    format!("{profile}just sim {} --seed {seed} --trace{bug}", scenario.name())
}

/// This program again, set to run one seed.
pub(crate) fn one_seed(scenario: Scenario, seed: u64, bug: Option<Bug>) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", &scenario.name(), "--seed", &seed.to_string()]);
    if let Some(bug) = bug {
        command.args(["--break", &bug.name()]);
    }
    Ok(command)
}

/// This program again, set to run a plan from a file.
pub(crate) fn one_plan(path: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("replay").arg(path);
    Ok(command)
}

/// Runs one command to its end.
pub(crate) fn one(mut command: Command) -> io::Result<Told> {
    let output = command.arg("--json").stdin(Stdio::null()).output()?;
    Ok(read(output.status, &output.stdout, &output.stderr))
}

/// What a run that ended told; a process that died tells that.
fn read(status: ExitStatus, stdout: &[u8], stderr: &[u8]) -> Told {
    if let Ok(told) = serde_json::from_slice(stdout) {
        return told;
    }
    let errors = String::from_utf8_lossy(stderr);
    let mut tail: Vec<&str> = errors.lines().rev().take(30).collect();
    tail.reverse();
    let text = format!("the run died: {status}");
    Told {
        report: format!("{text}\n{}\n", tail.join("\n")),
        violations: vec![Seen { invariant: NOTHING_PANICS.to_owned(), text }],
        simulated_ms: 0,
        coverage: Coverage::default(),
    }
}

/// Reads a pipe to its end beside everything else, so that the writer never waits.
fn drain(pipe: Option<impl io::Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut all);
        }
        all
    })
}

struct Running<T> {
    one: T,
    child: Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
}

/// Runs all of `work`, `jobs` at a time, and tells `each` of every end. `each` answers whether to go on.
pub(crate) fn all<T>(
    work: impl IntoIterator<Item = T>,
    jobs: usize,
    command: impl Fn(&T) -> io::Result<Command>,
    mut each: impl FnMut(&T, Told) -> bool,
) -> io::Result<()> {
    let mut left = work.into_iter();
    let mut running: Vec<Running<T>> = Vec::new();
    loop {
        while running.len() < jobs.max(1)
            && let Some(one) = left.next()
        {
            let mut command = command(&one)?;
            command.arg("--json").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn()?;
            let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
            running.push(Running { one, child, stdout, stderr });
        }
        if running.is_empty() {
            return Ok(());
        }
        let mut at = 0;
        while at < running.len() {
            if running[at].child.try_wait()?.is_none() {
                at += 1;
                continue;
            }
            let mut ended = running.swap_remove(at);
            let status = ended.child.wait()?;
            let (stdout, stderr) = (ended.stdout.join(), ended.stderr.join());
            let told = read(status, &stdout.unwrap_or_default(), &stderr.unwrap_or_default());
            if !each(&ended.one, told) {
                for mut other in running {
                    let _ = other.child.kill();
                    let _ = other.child.wait();
                }
                return Ok(());
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Cores of this machine.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
