//! The client library, unchanged, in the simulated world: its connections, clocks, pauses and random numbers are the
//! world's. Leaders die and answers get lost while it appends and works; every entry must be there once, in order, and
//! be worked on.

use std::{cell::Cell, collections::BTreeSet, rc::Rc, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rand::Rng;
use weir_client::{Client, EntryId, Options};
use weir_env::{Env, time::sleep};

use crate::{
    cluster::Cluster, disk::SimDisk, faults::Loss, plan::Plan, scenarios::Scenario, trace::Trace,
    world::World,
};

const CLIENT: &str = "c";
const ENTRIES: usize = 300;
/// Simulated time within which all must be done.
const WITHIN: Duration = Duration::from_secs(120);

/// The program on the client's host.
async fn produce_and_work(env: Env, nodes: Vec<String>, done: Rc<Cell<bool>>) -> turmoil::Result {
    let options = Options::default().timeout(Duration::from_secs(30)).env(env);
    let client = Client::connect_with(nodes, options).await?;
    let handled = Arc::new(Mutex::new(BTreeSet::new()));
    let noted = handled.clone();
    let worker =
        client.worker("s", "g", "w").concurrency(4).lease(Duration::from_secs(3)).run(move |delivery| {
            let noted = noted.clone();
            async move {
                sleep(Duration::from_millis(5)).await;
                noted.lock().insert(delivery.entry.get_str("n").map(str::to_owned));
                Ok::<(), String>(())
            }
        });
    let worker = worker.await?;
    let producer = client.producer("s").entries_max(20).open().await?;
    let mut sent = Vec::new();
    for n in 0..ENTRIES {
        sent.push(producer.send([("n", n.to_string())]).await?);
        sleep(Duration::from_millis(20)).await;
    }
    let mut ids = Vec::new();
    for appended in sent {
        ids.push(appended.await?);
    }
    while handled.lock().len() < ENTRIES {
        sleep(Duration::from_millis(50)).await;
    }
    worker.stop().await?;
    let entries = client.xrange("s", EntryId::MIN, EntryId::MAX).await?;
    let numbers: Vec<_> =
        entries.iter().map(|entry| entry.get_str("n").unwrap_or_default().to_owned()).collect();
    assert_eq!(numbers, (0..ENTRIES).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), ids);
    assert_eq!(client.xpending("s", "g").await?.count, 0);
    done.set(true);
    Ok(())
}

/// The leader's answers are lost, it is killed, it loses power, one after the other, while the client works.
fn run(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed, Trace::new(false));
    let disk = SimDisk::new(world.derived_seed());
    let env = world.bare_env(disk);
    let plan = Plan::calm(Scenario::Smoke, seed, &mut Plan::rng(seed));
    let mut cluster = Cluster::new(world, &plan);
    let done = Rc::new(Cell::new(false));
    let nodes = (0..cluster.nodes()).map(|node| cluster.address(node)).collect();
    cluster.world.add_client(CLIENT, produce_and_work(env, nodes, done.clone()));
    let shard = u32::from(weir_client::key_slot("s")) * plan.shards / u32::from(weir_client::SLOTS);
    let (mut next_fault, mut over, mut faults) = (Duration::from_secs(3), None, 0);
    while !done.get() {
        let now = cluster.world.now();
        if now > WITHIN {
            return Err(format!("not done within {WITHIN:?} and {faults} faults: {}", cluster.progress()));
        }
        match over {
            Some((node, cut, at)) if now >= at => {
                match cut {
                    Some(cut) => cluster.world.mend(cut),
                    None => cluster.world.start(node),
                }
                over = None;
                next_fault = now + Duration::from_millis(cluster.world.rng.random_range(200..1000));
            }
            None if now >= next_fault && faults < 5 => {
                if let Some(node) = cluster.leader_of(shard) {
                    let cut = match faults % 3 {
                        // What the client says arrives, and the answers do not.
                        0 => {
                            let name = cluster.world.nodes[node].name.clone();
                            let answers = BTreeSet::from([(name, CLIENT.to_owned())]);
                            Some(cluster.world.cut(answers, Loss::Lost))
                        }
                        1 => {
                            cluster.world.kill(node);
                            None
                        }
                        _ => {
                            cluster.world.power_off(node);
                            None
                        }
                    };
                    let lasts_ms = cluster.world.rng.random_range(300..3000);
                    over = Some((node, cut, now + Duration::from_millis(lasts_ms)));
                    faults += 1;
                }
            }
            _ => {}
        }
        let ends = cluster.step().map_err(|violation| violation.text)?;
        if let Some((node, end)) = ends.first() {
            return Err(format!("n{} ended by itself: {end}", node + 1));
        }
    }
    if faults == 0 { Err("nothing went wrong meanwhile".to_owned()) } else { Ok(()) }
}

#[test]
fn the_client_library_keeps_its_promises_while_leaders_die_and_answers_are_lost() {
    for seed in 1..=3 {
        if let Err(why) = run(seed) {
            panic!("seed {seed}: {why}");
        }
    }
}
