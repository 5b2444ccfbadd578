//! What goes wrong in a round, and how it is done.

use super::network::Link;
use super::proxy::Weather;
use super::world::World;
use crate::faults;
use crate::history::Recorder;
use crate::process::Signal;
use anyhow::Result;
use clap::ValueEnum;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use std::fmt;
use std::time::Duration;
use tokio::time::sleep;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// Nothing.
    Calm,
    /// kill -9 of a leader.
    KillLeader,
    /// kill -9 of a leader, and again while it comes back.
    KillTwice,
    /// kill -9 of all but one, so that no majority is left for a while.
    KillMajority,
    /// kill -9 of every node at once.
    KillAll,
    /// As kill-all, of nodes whose disks forget what was not synced.
    PowerLoss,
    /// kill -9 of all, again and again while they come back.
    PowerFlickers,
    /// SIGSTOP of a leader past any lease.
    PauseLeader,
    /// SIGSTOP of any node for a moment.
    PauseNode,
    /// SIGSTOP of all but one, past any lease.
    PauseMajority,
    /// SIGTERM, exit 0, start, one node after the other.
    RollingRestart,
    /// A leader and the others exchange no packets; clients reach all.
    IsolateLeader,
    /// As isolate-leader, and clients do not reach it either.
    IsolateLeaderFromAll,
    /// A minority and a majority exchange no packets.
    Split,
    /// Nothing that a leader sends to other nodes arrives.
    LeaderMute,
    /// Nothing that is sent to a leader by other nodes arrives.
    LeaderDeaf,
    /// Two sides that only one node in the middle reaches.
    Bridge,
    /// Of all links, each in one direction, some carry nothing.
    RandomLinks,
    /// Links go and come.
    Flapping,
    /// A leader is cut off, and while it is a node of the others dies.
    IsolateAndKill,
    /// A leader is cut off, all lose power, and they come back with the leader still cut off.
    PowerLossWhileSplit,
    /// A leader is cut off while it is paused, and comes back cut off.
    PauseAndIsolate,
    /// What nodes send each other is late.
    SlowLinks,
    /// What nodes send each other stalls, as after lost packets, and connections break.
    LossyLinks,
    /// The disk of a leader is full.
    DiskFull,
    /// The disks of a majority are full.
    DisksFull,
    /// The disk of a leader is full to the last byte when it is killed and starts again.
    FullAndKilled,
    /// The wall clock of a node jumps ahead.
    ClockAhead,
    /// The wall clock of a node jumps back.
    ClockBack,
    /// All wall clocks jump, each its own way, and a leader dies.
    ClocksApart,
}

/// What a fault needs that not every machine or program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// A network and disks of our own.
    Sandbox,
    /// Test hooks in the program.
    Hooks,
}

impl Fault {
    /// What it needs.
    pub fn needs(self) -> Need {
        match self {
            Fault::Calm
            | Fault::KillLeader
            | Fault::KillTwice
            | Fault::KillMajority
            | Fault::KillAll
            | Fault::PauseLeader
            | Fault::PauseNode
            | Fault::PauseMajority
            | Fault::RollingRestart => Need::Nothing,
            Fault::PowerLoss
            | Fault::PowerFlickers
            | Fault::ClockAhead
            | Fault::ClockBack
            | Fault::ClocksApart => Need::Hooks,
            _ => Need::Sandbox,
        }
    }

    /// First words of errors that clients may get beside those of outages.
    pub fn errors(self) -> &'static [&'static str] {
        match self {
            Fault::DiskFull | Fault::DisksFull | Fault::FullAndKilled => &["OOM"],
            _ => &[],
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

/// The fault of a round: every kind once before any comes again, in an order of the seed. A round's fault does not
/// depend on how many came before it.
pub fn of_round(seed: u64, round: u64, kinds: &[Fault]) -> Fault {
    let mut kinds = kinds.to_vec();
    let count = kinds.len() as u64;
    kinds.shuffle(&mut rng_of(seed, u64::MAX - round / count));
    kinds[usize::try_from(round % count).expect("few kinds")]
}

/// The random numbers of a round.
pub fn rng_of(seed: u64, round: u64) -> StdRng {
    StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round)
}

/// Does the fault; what it changes on links, disks and clocks is undone by [`World::heal`]. Says what was done to whom.
///
/// # Errors
/// A node does not behave as it must: it ends by itself, or not when it is told to.
pub async fn strike(
    fault: Fault,
    world: &mut World,
    recorder: &Recorder,
    rng: &mut StdRng,
) -> Result<String> {
    let all = world.others(&[]);
    let any = rng.random_range(0..all.len());
    let shard = rng.random_range(0..64);
    let long = Duration::from_millis(rng.random_range(2_000..4_500));
    let moment = Duration::from_millis(rng.random_range(100..1_500));
    let one = |node: usize| format!("n{}", node + 1);
    Ok(match fault {
        Fault::Calm => {
            sleep(long).await;
            String::new()
        }
        Fault::KillLeader => process(faults::Fault::KillLeader, world, recorder, rng).await?,
        Fault::KillTwice => process(faults::Fault::KillTwice, world, recorder, rng).await?,
        Fault::KillMajority => process(faults::Fault::KillMajority, world, recorder, rng).await?,
        Fault::KillAll | Fault::PowerLoss => process(faults::Fault::KillAll, world, recorder, rng).await?,
        Fault::PauseLeader => process(faults::Fault::PauseLeader, world, recorder, rng).await?,
        Fault::PauseNode => process(faults::Fault::PauseNode, world, recorder, rng).await?,
        Fault::PauseMajority => {
            let paused = world.others(&[any]);
            for &node in &paused {
                world.cluster.pause(node)?;
            }
            let stopped = recorder.now();
            sleep(long).await;
            for &node in &paused {
                recorder.record_outage(node, stopped, recorder.now());
                world.cluster.resume(node)?;
                // Not all at once: the first may believe that it still leads.
                sleep(Duration::from_millis(rng.random_range(0..600))).await;
            }
            format!("all but {}", one(any))
        }
        Fault::RollingRestart => process(faults::Fault::RollingRestart, world, recorder, rng).await?,
        Fault::PowerFlickers => {
            for _ in 0..rng.random_range(1..4) {
                for &node in &all {
                    world.cluster.process(node)?.signal(Signal::Kill)?;
                }
                for &node in &all {
                    world.cluster.kill(node).await?;
                    world.cluster.spawn(node)?;
                }
                sleep(Duration::from_millis(rng.random_range(5..900))).await;
            }
            process(faults::Fault::KillAll, world, recorder, rng).await?
        }
        Fault::IsolateLeader => {
            let leader = world.leader(shard).await?;
            world.network()?.split(&[leader], &world.others(&[leader]))?;
            sleep(long).await;
            one(leader)
        }
        Fault::IsolateLeaderFromAll => {
            let leader = world.leader(shard).await?;
            world.network()?.split(&[leader], &world.others(&[leader]))?;
            world.network()?.clients_reach(leader, false)?;
            sleep(long).await;
            one(leader)
        }
        Fault::Split => {
            let mut nodes = all.clone();
            nodes.shuffle(rng);
            let (few, many) = nodes.split_at((nodes.len() - 1) / 2);
            world.network()?.split(few, many)?;
            sleep(long).await;
            few.iter().map(|&node| one(node)).collect::<Vec<_>>().join("+")
        }
        Fault::LeaderMute => {
            let leader = world.leader(shard).await?;
            world.network()?.link(leader, &world.others(&[leader]), Link::Void)?;
            sleep(long).await;
            one(leader)
        }
        Fault::LeaderDeaf => {
            let leader = world.leader(shard).await?;
            for from in world.others(&[leader]) {
                world.network()?.link(from, &[leader], Link::Void)?;
            }
            sleep(long).await;
            one(leader)
        }
        Fault::Bridge => {
            let others = world.others(&[any]);
            let (left, right) = others.split_at(others.len() / 2);
            world.network()?.split(left, right)?;
            sleep(long).await;
            format!("over {}", one(any))
        }
        Fault::RandomLinks => {
            let mut void = 0;
            for &node in &all {
                let cut: Vec<usize> =
                    world.others(&[node]).into_iter().filter(|_| rng.random_bool(0.4)).collect();
                world.network()?.link(node, &cut, Link::Void)?;
                void += cut.len();
            }
            sleep(long).await;
            format!("{void} of {}", all.len() * (all.len() - 1))
        }
        Fault::Flapping => {
            let leader = world.leader(shard).await?;
            for _ in 0..rng.random_range(3..7) {
                world.network()?.split(&[leader], &world.others(&[leader]))?;
                sleep(Duration::from_millis(rng.random_range(50..700))).await;
                world.network()?.heal()?;
                sleep(Duration::from_millis(rng.random_range(20..400))).await;
            }
            one(leader)
        }
        Fault::IsolateAndKill => {
            let leader = world.leader(shard).await?;
            let others = world.others(&[leader]);
            world.network()?.split(&[leader], &others)?;
            sleep(moment).await;
            let victim = others[rng.random_range(0..others.len())];
            faults::kill_for(&[victim], moment, &mut world.cluster, recorder).await?;
            sleep(moment).await;
            format!("{}, killed {}", one(leader), one(victim))
        }
        Fault::PowerLossWhileSplit => {
            let leader = world.leader(shard).await?;
            world.network()?.split(&[leader], &world.others(&[leader]))?;
            sleep(moment).await;
            for &node in &all {
                world.cluster.process(node)?.signal(Signal::Kill)?;
            }
            for &node in &all {
                world.cluster.kill(node).await?;
            }
            let from = recorder.now();
            sleep(Duration::from_millis(100)).await;
            for &node in &all {
                recorder.record_outage(node, from, recorder.now());
                // Who is cut off gets ready only when all is over.
                world.cluster.spawn(node)?;
            }
            sleep(long).await;
            one(leader)
        }
        Fault::PauseAndIsolate => {
            let leader = world.leader(shard).await?;
            world.cluster.pause(leader)?;
            let from = recorder.now();
            sleep(moment).await;
            world.network()?.split(&[leader], &world.others(&[leader]))?;
            sleep(moment).await;
            recorder.record_outage(leader, from, recorder.now());
            world.cluster.resume(leader)?;
            sleep(long / 2).await;
            one(leader)
        }
        Fault::SlowLinks => {
            let most = rng.random_range(10..250);
            world.set_weather(Weather { late_ms: 0..most, stalls: 0.0, stall_ms: 0..1, breaks: 0.0 })?;
            sleep(long).await;
            format!("up to {most} ms each way")
        }
        Fault::LossyLinks => {
            let weather = Weather { late_ms: 0..3, stalls: 0.02, stall_ms: 200..800, breaks: 0.002 };
            world.set_weather(weather)?;
            sleep(long).await;
            String::new()
        }
        Fault::DiskFull => {
            let leader = world.leader(shard).await?;
            world.fill_disk(leader, rng.random_range(0..2 << 20))?;
            sleep(long).await;
            one(leader)
        }
        Fault::DisksFull => {
            let full = world.others(&[any]);
            for &node in &full {
                world.fill_disk(node, rng.random_range(0..2 << 20))?;
            }
            sleep(long).await;
            format!("all but {}", one(any))
        }
        Fault::FullAndKilled => {
            let leader = world.leader(shard).await?;
            world.fill_disk(leader, 0)?;
            sleep(moment).await;
            world.cluster.process(leader)?.signal(Signal::Kill)?;
            world.cluster.kill(leader).await?;
            let from = recorder.now();
            sleep(Duration::from_millis(100)).await;
            recorder.record_outage(leader, from, recorder.now());
            // It may get ready only when there is room again.
            world.cluster.spawn(leader)?;
            sleep(long).await;
            one(leader)
        }
        Fault::ClockAhead | Fault::ClockBack => {
            let sign = if fault == Fault::ClockAhead { 1 } else { -1 };
            let offset = sign * rng.random_range(200..3_600_000);
            world.set_clock(any, offset)?;
            sleep(long / 2).await;
            // A node with a clock that is off may come to lead more, or to start.
            if rng.random_bool(0.5) {
                let leader = world.leader(shard).await?;
                faults::kill_for(&[leader], moment, &mut world.cluster, recorder).await?;
            }
            sleep(moment).await;
            format!("{} by {} s", one(any), offset / 1000)
        }
        Fault::ClocksApart => {
            for &node in &all {
                world.set_clock(node, rng.random_range(-600_000..600_000))?;
            }
            sleep(moment).await;
            let leader = world.leader(shard).await?;
            faults::kill_for(&[leader], moment, &mut world.cluster, recorder).await?;
            for &node in &all {
                world.set_clock(node, rng.random_range(-600_000..600_000))?;
            }
            sleep(long / 2).await;
            format!("killed {}", one(leader))
        }
    })
}

/// One of the faults of the process test.
async fn process(
    fault: faults::Fault,
    world: &mut World,
    recorder: &Recorder,
    rng: &mut StdRng,
) -> Result<String> {
    faults::strike(fault, &mut world.cluster, recorder, rng).await.map(|()| String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_once_before_any_comes_again_and_a_round_stands_for_itself() {
        let kinds = Fault::value_variants();
        let count = kinds.len() as u64;
        for cycle in 0..3 {
            let mut seen: Vec<Fault> = (0..count).map(|n| of_round(7, cycle * count + n, kinds)).collect();
            seen.sort_unstable();
            assert_eq!(seen, kinds, "in the order of the declaration");
        }
        assert_eq!(of_round(7, 5, kinds), of_round(7, 5, kinds));
        assert!((0..count).any(|n| of_round(7, n, kinds) != of_round(8, n, kinds)));
    }
}
