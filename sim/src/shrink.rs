//! Cuts a failing run down: the fewest faults, clients and calls with which the same invariant still breaks.

use std::{path::PathBuf, process::ExitCode};

use crate::{
    plan::{Crowd, Plan},
    planted::Bug,
    runs,
    scenarios::Scenario,
};

/// Runs that may be spent.
const TRIES_MAX: usize = 160;

pub(crate) fn shrink(scenario: Scenario, seed: u64, bug: Option<Bug>, out: Option<PathBuf>) -> ExitCode {
    let Some(mut plan) = scenario.plan(seed) else {
        eprintln!("{} draws as it goes and has no plan to cut down", scenario.name());
        return ExitCode::from(2);
    };
    plan.bug = bug;
    let out = out.unwrap_or_else(|| PathBuf::from(format!("{}-{seed}.json", scenario.name())));
    let mut trial = Trial { path: out.with_extension("trial"), wanted: Vec::new(), tries: 0 };
    let told = match trial.run(&plan) {
        Ok(told) => told,
        Err(error) => {
            eprintln!("cannot run: {error}");
            return ExitCode::from(2);
        }
    };
    if told.is_empty() {
        println!("{} seed {seed} is clean: nothing to cut down", scenario.name());
        let _ = std::fs::remove_file(&trial.path);
        return ExitCode::SUCCESS;
    }
    println!("{} seed {seed} breaks {}", scenario.name(), told.join(", "));
    trial.wanted = told;
    let before = size(&plan);
    let plan = cut_down(plan, |plan| trial.still_fails(plan));
    let _ = std::fs::remove_file(&trial.path);
    if let Err(error) = std::fs::write(&out, plan.to_json()) {
        eprintln!("cannot write {}: {error}", out.display());
        return ExitCode::from(2);
    }
    println!("{before} > {} in {} runs", size(&plan), trial.tries);
    println!("replay: weir-sim replay {} --trace", out.display());
    ExitCode::from(1)
}

fn size(plan: &Plan) -> String {
    let crowd = plan.crowd;
    let clients = crowd.producers
        + crowd.repeaters
        + crowd.consumers
        + crowd.takers
        + crowd.quitters
        + crowd.readers
        + crowd.waiters
        + crowd.scratchers;
    let calls = plan.calls_max.map_or_else(|| "all".to_owned(), |most| most.to_string());
    format!("{} faults, {clients} clients, {calls} calls", plan.faults.len())
}

/// One run a try, in a process of its own.
struct Trial {
    path: PathBuf,
    /// Invariants that broke at first; one of them must break again.
    wanted: Vec<String>,
    tries: usize,
}

impl Trial {
    fn run(&mut self, plan: &Plan) -> std::io::Result<Vec<String>> {
        self.tries += 1;
        std::fs::write(&self.path, plan.to_json())?;
        let told = runs::one(runs::one_plan(&self.path)?)?;
        let mut broken: Vec<String> = told.violations.into_iter().map(|seen| seen.invariant).collect();
        broken.sort();
        broken.dedup();
        Ok(broken)
    }

    fn still_fails(&mut self, plan: &Plan) -> bool {
        self.tries < TRIES_MAX
            && self
                .run(plan)
                .is_ok_and(|broken| broken.iter().any(|invariant| self.wanted.contains(invariant)))
    }
}

/// Takes away what is not needed for `fails` to stay true.
pub(crate) fn cut_down(mut plan: Plan, mut fails: impl FnMut(&Plan) -> bool) -> Plan {
    let mut keep = |plan: &mut Plan, change: &dyn Fn(&mut Plan)| {
        let mut smaller = plan.clone();
        change(&mut smaller);
        let kept = smaller != *plan && fails(&smaller);
        if kept {
            *plan = smaller;
        }
        kept
    };
    // Faults: halves first, then one by one.
    let mut piece = plan.faults.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < plan.faults.len() {
            let end = (at + piece).min(plan.faults.len());
            if !keep(&mut plan, &|plan| _ = plan.faults.drain(at..end)) {
                at = end;
            }
        }
        piece /= 2;
    }
    // Whole kinds of clients, then all but one of a kind.
    let kinds: [fn(&mut Crowd) -> &mut usize; 8] = [
        |crowd| &mut crowd.scratchers,
        |crowd| &mut crowd.repeaters,
        |crowd| &mut crowd.readers,
        |crowd| &mut crowd.waiters,
        |crowd| &mut crowd.quitters,
        |crowd| &mut crowd.takers,
        |crowd| &mut crowd.consumers,
        |crowd| &mut crowd.producers,
    ];
    for kind in kinds {
        if !keep(&mut plan, &|plan| *kind(&mut plan.crowd) = 0) {
            keep(&mut plan, &|plan| *kind(&mut plan.crowd) = 1.min(*kind(&mut plan.crowd)));
        }
    }
    keep(&mut plan, &|plan| plan.keys_per_shard = 1);
    // The work ends soon after the last fault.
    let last = plan.faults.iter().map(|planned| planned.at_ms + planned.fault.lasts_ms()).max().unwrap_or(0);
    keep(&mut plan, &|plan| plan.work_ms = plan.work_ms.min(last + 100));
    let mut calls = 4096;
    while calls > 0 && keep(&mut plan, &|plan| plan.calls_max = Some(calls)) {
        calls /= 2;
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Fault;

    #[test]
    fn only_what_the_failure_needs_is_left() {
        let mut plan = Scenario::Mixed.plan(3).unwrap();
        plan.faults.clear();
        for at_ms in 0..9 {
            plan.strike(at_ms * 100, Fault::Transfer { shard: at_ms as u32 % 3 });
        }
        let needed = |plan: &Plan| {
            plan.faults.iter().any(|planned| planned.at_ms == 500)
                && plan.crowd.producers > 0
                && plan.calls_max.is_none_or(|most| most >= 100)
        };
        let small = cut_down(plan, needed);
        assert_eq!(small.faults.len(), 1);
        assert_eq!((small.crowd.producers, small.crowd.consumers, small.crowd.readers), (1, 0, 0));
        assert_eq!(small.calls_max, Some(128));
    }
}
