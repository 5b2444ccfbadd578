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
    invariants::nothing_panics,
    planted::Bug,
    scenarios::{Scenario, Verdict},
};

/// What a run's process tells about it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) violations: Vec<Seen>,
    pub(crate) simulated_ms: u64,
    /// Time from the end of the faults until every key was written again.
    pub(crate) healed_ms: Option<u64>,
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
            simulated_ms: millis(verdict.simulated),
            healed_ms: verdict.healed.map(millis),
            coverage: verdict.coverage.clone(),
            report: if failed { crate::report::failure(verdict) } else { String::new() },
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Seconds of processor time that ended child processes took together; `None` where the system does not tell.
pub(crate) fn cpu_of_children() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Fields behind the name, which is in parentheses: the 14th and 15th are the children's times, in hundredths.
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let field = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((field(13)? + field(14)?) / 100.0)
}

/// The command that runs a seed again.
pub(crate) fn replay_command(scenario: Scenario, seed: u64, bug: Option<Bug>) -> String {
    // Assertions and planted bugs are compiled out of release builds.
    let profile = if cfg!(debug_assertions) { "WEIR_PROFILE=ci " } else { "" };
    let bug = bug.map(|bug| format!(" --break {}", bug.name())).unwrap_or_default();
    format!("{profile}just sim {} --seed {seed} --trace{bug}", scenario.name())
}

/// This program again, set to run one seed.
pub(crate) fn one_seed(scenario: Scenario, seed: u64, bug: Option<Bug>) -> io::Result<Command> {
    Ok(one_seed_of(&std::env::current_exe()?, scenario, seed, bug))
}

/// A build of this program, set to run one seed.
pub(crate) fn one_seed_of(program: &Path, scenario: Scenario, seed: u64, bug: Option<Bug>) -> Command {
    let mut command = Command::new(program);
    command.args(["run", &scenario.name(), "--seed", &seed.to_string()]);
    if let Some(bug) = bug {
        command.args(["--break", &bug.name()]);
    }
    command
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
    Ok(Ended { status: output.status, stdout: output.stdout, stderr: output.stderr }.told())
}

/// How a process ended and what it said.
pub(crate) struct Ended {
    status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Ended {
    /// How it ended, for people.
    pub(crate) fn last_words(&self) -> String {
        let errors = String::from_utf8_lossy(&self.stderr);
        let mut tail: Vec<&str> = errors.lines().rev().take(30).collect();
        tail.reverse();
        format!("the run died: {}\n{}", self.status, tail.join("\n"))
    }

    /// What a run told; a process that died tells that.
    fn told(&self) -> Told {
        if let Ok(told) = serde_json::from_slice(&self.stdout) {
            return told;
        }
        let text = format!("the run died: {}", self.status);
        Told {
            report: format!("{}\n", self.last_words()),
            violations: vec![Seen { invariant: nothing_panics::NAME.to_owned(), text }],
            simulated_ms: 0,
            healed_ms: None,
            coverage: Coverage::default(),
        }
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

/// Runs all of `work`, `jobs` at a time, and tells `each_told` what came of each. It answers whether to go on.
pub(crate) fn all<T>(
    work: impl IntoIterator<Item = T>,
    jobs: usize,
    command: impl Fn(&T) -> io::Result<Command>,
    mut each_told: impl FnMut(&T, Told) -> bool,
) -> io::Result<()> {
    let json = |one: &T| {
        let mut command = command(one)?;
        command.arg("--json");
        Ok(command)
    };
    each(work, jobs, json, |one, ended| each_told(one, ended.told()))
}

/// Runs a command for each of `work`, `jobs` at a time, and tells `one_ended` of every end. It answers whether to go on.
pub(crate) fn each<T>(
    work: impl IntoIterator<Item = T>,
    jobs: usize,
    command: impl Fn(&T) -> io::Result<Command>,
    mut one_ended: impl FnMut(&T, Ended) -> bool,
) -> io::Result<()> {
    let mut left = work.into_iter();
    let mut running: Vec<Running<T>> = Vec::new();
    loop {
        while running.len() < jobs.max(1)
            && let Some(one) = left.next()
        {
            let mut command = command(&one)?;
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
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
            let (stdout, stderr) = (stdout.unwrap_or_default(), stderr.unwrap_or_default());
            if !one_ended(&ended.one, Ended { status, stdout, stderr }) {
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
