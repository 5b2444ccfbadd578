//! What can happen to a cluster, one file a story.

mod blocking;
mod clock_jumps;
mod disk_faults;
mod exactly_once;
mod expiry;
mod failover;
mod groups;
mod leadership_transfer;
mod mixed;
mod nack;
mod overload;
mod partition;
mod plain_port;
mod power_loss;
mod raft;
mod refs;
mod slow_disk;
mod smoke;
mod snapshot_catch_up;
mod transactions;
mod wait;
mod wal;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rand::{Rng, rngs::StdRng};
use serde::{Deserialize, Serialize};
use weir_tests::check::Violation;

use crate::{
    coverage::Coverage,
    faults::{Crash, Cut, Fault, Loss, Who},
    plan::{Plan, Planned},
    planted::Bug,
    report, story,
};

/// A run covers about this much simulated time, ...
const RUN_MS: u64 = 20_000;
/// ... of which the cluster takes some to form, and everything is read back and compared in the end.
const WORK_MS_MIN: u64 = RUN_MS - 3_000;

/// A story to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Scenario {
    /// A leader dies, then all machines lose power.
    Smoke,
    /// Leaders and followers die at any point of their work.
    Failover,
    /// WAIT while followers are slow, cut off and dying.
    Wait,
    /// Parked readers while leaders change and while they themselves go away.
    Blocking,
    /// Many consumers take, acknowledge and claim while nodes die.
    Groups,
    /// Machines lose power, in the middle of a write or all together.
    PowerLoss,
    /// Links are cut in every way; leaders stand still.
    Partition,
    /// Damaged files, a wiped disk, failed syncs, full disks.
    DiskFaults,
    /// Followers that need a snapshot die while they install it.
    SnapshotCatchUp,
    /// Leadership is handed over while nodes die.
    LeadershipTransfer,
    /// Wall clocks jump forward and back.
    ClockJumps,
    /// Disks and networks so slow that leaders look dead.
    SlowDisk,
    /// Far more clients than the bounds allow.
    Overload,
    /// Idempotent adds are repeated until they are answered.
    ExactlyOnce,
    /// Transactions and watched keys while leaders die in the middle of them.
    Transactions,
    /// Values that end, while leaders die and wall clocks jump.
    Expiry,
    /// Entries that go with or without what groups hold of them.
    Refs,
    /// Entries that are given back, and claimed in the order of their release.
    Nack,
    /// Clients that know no cluster, while those who lead behind the nodes they ask change.
    PlainPort,
    /// Everything at once.
    Mixed,
    /// Three Raft groups over a toy state under kills, power losses and cuts.
    Raft,
    /// The same where a power loss takes what was confirmed: one machine at a time loses power.
    Power,
    /// One log under kills, power losses and disk faults.
    Wal,
}

impl Scenario {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Smoke => "a leader dies, then all machines lose power",
            Self::Failover => "leaders and followers die at any point of their work",
            Self::Wait => "WAIT while followers are slow, cut off and dying",
            Self::Blocking => "parked readers while leaders change and while they themselves go away",
            Self::Groups => "many consumers take, acknowledge and claim while nodes die",
            Self::PowerLoss => "machines lose power, in the middle of a write or all together",
            Self::Partition => "links are cut in every way; leaders stand still",
            Self::DiskFaults => "damaged files, a wiped disk, failed syncs, full disks",
            Self::SnapshotCatchUp => "followers that need a snapshot die while they install it",
            Self::LeadershipTransfer => "leadership is handed over while nodes die",
            Self::ClockJumps => "wall clocks jump forward and back",
            Self::SlowDisk => "disks and networks so slow that leaders look dead",
            Self::Overload => "far more clients than the bounds allow",
            Self::ExactlyOnce => "idempotent adds are repeated until they are answered",
            Self::Transactions => "transactions and watched keys while leaders die in the middle of them",
            Self::Expiry => "values that end, while leaders die and wall clocks jump",
            Self::Refs => "entries that go with or without what groups hold of them",
            Self::Nack => "entries that are given back, and claimed in the order of their release",
            Self::PlainPort => "clients that know no cluster ask any node, while leaders change",
            Self::Mixed => "everything at once",
            Self::Raft => "three replicas of a toy state: kills, power losses, isolation",
            Self::Power => "the same in modes everysec and os, where one machine at a time loses power",
            Self::Wal => "one log, many groups: kills, power losses, failed syncs, flipped bits",
        }
    }

    /// What a seed draws; `None` for the stories of a part of the server, which draw as they go. Acts follow each
    /// other, all with the clients of the first, until there is work for most of [`RUN_MS`]; of the last one only what
    /// fits.
    pub(crate) fn plan(self, seed: u64) -> Option<Plan> {
        let mut rng = Plan::rng(seed);
        let mut plan = self.act(seed, &mut rng)?;
        while plan.work_ms < WORK_MS_MIN {
            let act = self.act(seed, &mut rng)?;
            let from_ms = plan.work_ms;
            let fits = |planned: &Planned| from_ms + planned.at_ms + planned.fault.lasts_ms() < WORK_MS_MIN;
            // Faults of a larger cluster strike nobody.
            let (now, later): (Vec<_>, Vec<_>) =
                act.faults.into_iter().filter(|_| act.nodes == plan.nodes).partition(fits);
            for planned in now {
                plan.strike(from_ms + planned.at_ms, planned.fault);
            }
            if !later.is_empty() {
                plan.work_ms = plan.work_ms.max(WORK_MS_MIN);
            }
        }
        Some(plan)
    }

    /// The first act alone, for tests of unoptimized builds.
    fn brief_plan(self, seed: u64) -> Option<Plan> {
        self.act(seed, &mut Plan::rng(seed))
    }

    fn act(self, seed: u64, rng: &mut StdRng) -> Option<Plan> {
        let mut plan = Plan::calm(self, seed, rng);
        let draw = match self {
            Self::Smoke => smoke::draw,
            Self::Failover => failover::draw,
            Self::Wait => wait::draw,
            Self::Blocking => blocking::draw,
            Self::Groups => groups::draw,
            Self::PowerLoss => power_loss::draw,
            Self::Partition => partition::draw,
            Self::DiskFaults => disk_faults::draw,
            Self::SnapshotCatchUp => snapshot_catch_up::draw,
            Self::LeadershipTransfer => leadership_transfer::draw,
            Self::ClockJumps => clock_jumps::draw,
            Self::SlowDisk => slow_disk::draw,
            Self::Overload => overload::draw,
            Self::ExactlyOnce => exactly_once::draw,
            Self::Transactions => transactions::draw,
            Self::Expiry => expiry::draw,
            Self::Refs => refs::draw,
            Self::Nack => nack::draw,
            Self::PlainPort => plain_port::draw,
            Self::Mixed => mixed::draw,
            Self::Raft | Self::Power | Self::Wal => return None,
        };
        draw(&mut plan, rng);
        Some(plan)
    }

    /// First words of error replies that the story may bring, beside those of outages.
    pub(crate) fn expected_errors(self) -> Vec<String> {
        let words: &[&str] = match self {
            Self::DiskFaults | Self::Mixed => &["OOM"],
            // Too many blocked clients.
            Self::Overload => &["ERR"],
            _ => &[],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }
}

/// Leaders die and are cut off, one after another, so that somebody else goes on with what they had.
fn change_leaders(plan: &mut Plan, rng: &mut StdRng) {
    let mut at_ms = rng.random_range(400..1200);
    for _ in 0..rng.random_range(3..=5u32) {
        let shard = rng.random_range(0..plan.shards);
        let ms = rng.random_range(100..1200);
        let fault = match rng.random_range(0..6u32) {
            0 => Fault::Transfer { shard },
            1 => Fault::PowerLossOfAll {
                down_ms: (0..plan.nodes).map(|_| rng.random_range(20..800)).collect(),
            },
            2 => Fault::Cut { cut: Cut::draw(rng, Loss::Lost, plan.nodes, plan.shards), how: Loss::Lost, ms },
            _ => Fault::Crash { who: Who::Leader(shard), how: Crash::draw(rng), down_ms: ms },
        };
        plan.strike(at_ms, fault);
        at_ms += ms + rng.random_range(300..1200);
    }
}

/// How to run a story.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// Print the timeline while it happens.
    pub(crate) echo: bool,
    /// Fewer faults, for tests of unoptimized builds.
    pub(crate) brief: bool,
}

/// What came of a run.
pub(crate) struct Verdict {
    /// Empty when all was well; earliest first.
    pub(crate) violations: Vec<Violation>,
    /// The timeline.
    pub(crate) lines: Vec<String>,
    /// Digest of the timeline.
    pub(crate) digest: u64,
    /// Simulated time that passed.
    pub(crate) simulated: Duration,
    /// Real time that it took. Not part of the timeline.
    pub(crate) real: Duration,
    /// One line of figures.
    pub(crate) summary: String,
    /// What struck where.
    pub(crate) coverage: Coverage,
    /// How long it took, after the faults, until every key was written again.
    pub(crate) healed: Option<Duration>,
}

impl Verdict {
    pub(crate) fn print(&self, scenario: Scenario, seed: u64, replay: &str) {
        if !self.violations.is_empty() {
            print!("{}", report::failure(self));
        }
        println!(
            "{} seed {seed}: {}; {}; digest {:016x}; {:.1} simulated s",
            scenario.name(),
            if self.violations.is_empty() { "clean" } else { "VIOLATED" },
            self.summary,
            self.digest,
            self.simulated.as_secs_f64(),
        );
        // Not on stdout: the same seed prints the same bytes there.
        if std::io::stderr().is_terminal() {
            let (simulated, real) = (self.simulated.as_secs_f64(), self.real.as_secs_f64());
            eprintln!("in {real:.2} s, {:.0} simulated seconds a second", simulated / real.max(1e-6));
        }
        if !self.violations.is_empty() {
            println!("replay: {replay}");
        }
    }
}

/// Runs one seed on the calling thread.
pub(crate) fn run(scenario: Scenario, seed: u64, bug: Option<Bug>, options: Options) -> Verdict {
    let plan = if options.brief { scenario.brief_plan(seed) } else { scenario.plan(seed) };
    match plan {
        Some(mut plan) => {
            plan.bug = bug;
            run_plan(&plan, options)
        }
        None => timed(|| match scenario {
            Scenario::Wal => wal::run(seed, bug, options),
            _ => raft::run(seed, bug, options, scenario == Scenario::Power),
        }),
    }
}

/// Runs a plan on the calling thread.
pub(crate) fn run_plan(plan: &Plan, options: Options) -> Verdict {
    timed(|| story::run(plan, options))
}

fn timed(run: impl FnOnce() -> Verdict) -> Verdict {
    let started = Instant::now();
    let mut verdict = run();
    verdict.real = started.elapsed();
    verdict
}

/// Violations of a story that tells them as sentences.
fn sentences(invariant: &'static str, now: Duration, found: Vec<String>) -> Vec<Violation> {
    let at = crate::book::micros(now);
    found.into_iter().map(|text| Violation { invariant, at, text }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(scenario: Scenario, seed: u64, bug: Option<Bug>) -> Vec<Violation> {
        run(scenario, seed, bug, Options { echo: false, brief: true }).violations
    }

    #[test]
    fn a_cluster_survives_a_leader_crash_and_a_power_loss_of_all() {
        assert_eq!(violations(Scenario::Smoke, 1, None), []);
    }

    #[test]
    fn a_cluster_that_does_not_sync_is_caught_within_five_seeds() {
        let caught = (1..=5).any(|seed| !violations(Scenario::Smoke, seed, Some(Bug::Fsync)).is_empty());
        assert!(caught);
    }

    #[test]
    fn a_log_survives_kills_power_losses_and_damage() {
        for seed in 1..=5 {
            assert_eq!(violations(Scenario::Wal, seed, None), [], "seed {seed}");
        }
    }

    #[test]
    fn a_log_that_does_not_sync_is_caught_within_five_seeds() {
        let caught = (1..=5).any(|seed| !violations(Scenario::Wal, seed, Some(Bug::Fsync)).is_empty());
        assert!(caught);
    }

    #[test]
    fn replicas_agree_over_crashes_and_isolation() {
        assert_eq!(violations(Scenario::Raft, 1, None), []);
    }

    #[test]
    fn replicas_agree_where_a_power_loss_takes_what_was_confirmed() {
        for seed in 1..=4 {
            assert_eq!(violations(Scenario::Power, seed, None), [], "seed {seed}");
        }
    }

    #[test]
    fn replicas_that_do_not_learn_of_a_power_loss_are_caught_within_ten_seeds() {
        let caught = (1..=10).any(|seed| !violations(Scenario::Power, seed, Some(Bug::Boot)).is_empty());
        assert!(caught);
    }

    #[test]
    fn every_story_plans_the_same_for_the_same_seed_and_fits_a_file() {
        for scenario in Scenario::value_variants() {
            let Some(plan) = scenario.plan(7) else { continue };
            assert_eq!(Some(&plan), scenario.plan(7).as_ref());
            assert!(plan.work_ms >= WORK_MS_MIN && !plan.faults.is_empty());
            // Shorter by an act at least, or the first was long enough.
            let brief = scenario.brief_plan(7).unwrap();
            assert!(brief.faults == plan.faults[..brief.faults.len()]);
            let read: Plan = Plan::from_json(&plan.to_json()).unwrap();
            assert_eq!(read, plan);
        }
    }
}
