//! Weir beside its peers, in rounds that take turns.

use anyhow::Result;

use crate::Plan;
use crate::load::work::Work;
use crate::load::{self, Load, Measured};
use crate::report::{Report, Row};
use crate::servers::peers::Programs;
use crate::servers::{Kind, Server};
use crate::targets::{self, Verdict};
use crate::usage::Usage;

/// All loads of appends.
pub(crate) async fn appends(plan: &Plan, programs: &Programs, report: &mut Report) -> Result<()> {
    for load in plan.loads.iter().copied() {
        one(plan, programs, report, Work::Append, load).await?;
    }
    Ok(())
}

/// Reads, deliveries and acknowledgements.
pub(crate) async fn reads(plan: &Plan, programs: &Programs, report: &mut Report) -> Result<()> {
    for (work, load) in targets::reads() {
        one(plan, programs, report, work, load).await?;
    }
    Ok(())
}

/// One kind of work under one load, on Weir and on whoever it is compared with.
async fn one(plan: &Plan, programs: &Programs, report: &mut Report, work: Work, load: Load) -> Result<()> {
    let mut kinds = vec![Kind::Weir];
    for kind in targets::peers(work, load) {
        if !plan.against.is_empty() && !plan.against.contains(&kind) {
            continue;
        }
        if programs.has(kind) {
            kinds.push(kind);
        } else {
            report.left_out(kind.name());
        }
    }
    let mut servers = Vec::new();
    for kind in kinds {
        servers.push(Server::start(kind, plan, programs).await?);
    }
    let mut rounds: Vec<Vec<Measured>> = servers.iter().map(|_| Vec::new()).collect();
    for round in 0..plan.rounds {
        eprintln!("  {}, {}, round {} of {}", work.name(), load.name(), round + 1, plan.rounds);
        // Whoever comes first in one round comes later in the next.
        for turn in 0..servers.len() {
            let at = (turn + round) % servers.len();
            let label = format!("{}-{}-{round}", load.connections, load.pipeline);
            rounds[at].push(measured(&mut servers[at], plan, work, load, &label).await?);
        }
    }
    for (server, rounds) in servers.iter().zip(&rounds) {
        report.rows.push(Row::of(&work.name(), &load.name(), server.kind.name(), rounds));
    }
    for target in targets::of(work, load) {
        let peer = servers.iter().position(|server| server.kind == target.peer);
        if let Some(peer) = peer {
            report.verdicts.push(Verdict::of(target, &rounds[0], &rounds[peer]));
        }
    }
    Ok(())
}

/// A round, what it cost the server's processes, and its traces removed.
async fn measured(server: &mut Server, plan: &Plan, work: Work, load: Load, label: &str) -> Result<Measured> {
    let pids = server.pids()?;
    let target = server.target().await?;
    let prepared = load::prepare(&target, work, load, label).await?;
    let before = Usage::of(&pids, &plan.dir)?;
    let mut measured = load::run(prepared, load, plan.round).await?;
    let used = Usage::of(&pids, &plan.dir)?.since(&before);
    measured.cpu_seconds = used.cpu_seconds;
    measured.disk_bytes = used.disk_bytes;
    target.delete(label, load.connections).await?;
    Ok(measured)
}
