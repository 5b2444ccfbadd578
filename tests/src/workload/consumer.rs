//! A member of a group: takes new entries, acknowledges most, now and then looks at its own pending list or claims
//! what others left behind.

use super::{GROUPS, Stage, line, pause_after, pick};
use crate::client::ClusterClient;
use crate::history::{Id, Outcome, What};
use rand::{Rng, rngs::StdRng};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

pub(super) async fn run(stage: Arc<Stage>, number: u32, group: u8, stop: watch::Receiver<bool>) {
    let mut rng = stage.rng(number);
    let mut client = ClusterClient::new(
        &stage.seeds,
        Duration::from_millis(if number.is_multiple_of(2) { 1_500 } else { 6_000 }),
    );
    let consumer = u16::try_from(number).expect("few consumers");
    let me = format!("c{consumer}");
    let group_name = GROUPS[usize::from(group)];
    while !*stop.borrow() {
        let key = pick(&mut rng, &stage);
        let name = &stage.keys[key];
        let (what, command) = match rng.random_range(0..20) {
            0 => (
                What::Pending { group, consumer },
                line(&["XREADGROUP", "GROUP", group_name, &me, "COUNT", "20", "STREAMS", name, "0"]),
            ),
            1 => (
                What::Claim { group, consumer },
                line(&["XAUTOCLAIM", name, group_name, &me, "1500", "0-0", "COUNT", "20"]),
            ),
            2..8 => (
                What::Deliver { group, consumer },
                line(&[
                    "XREADGROUP",
                    "GROUP",
                    group_name,
                    &me,
                    "COUNT",
                    "20",
                    "BLOCK",
                    "100",
                    "STREAMS",
                    name,
                    ">",
                ]),
            ),
            _ => (
                What::Deliver { group, consumer },
                line(&["XREADGROUP", "GROUP", group_name, &me, "COUNT", "50", "STREAMS", name, ">"]),
            ),
        };
        let outcome = stage.call(&mut client, number, key, what, &command).await;
        pause_after(outcome.as_ref()).await;
        if let Some(Outcome::Entries(entries)) = outcome {
            let ids: Vec<Id> = entries.into_iter().map(|(id, _)| id).collect();
            acknowledge(&stage, &mut client, number, key, group, ids, &mut rng).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn acknowledge(
    stage: &Stage,
    client: &mut ClusterClient,
    number: u32,
    key: usize,
    group: u8,
    mut ids: Vec<Id>,
    rng: &mut StdRng,
) {
    // A tenth is left pending for good, so that pending lists have something to lose.
    ids.retain(|_| rng.random_ratio(9, 10));
    while !ids.is_empty() {
        let some = ids.split_off(ids.len() - rng.random_range(1..=ids.len().min(8)));
        let mut command = line(&["XACK", &stage.keys[key], GROUPS[usize::from(group)]]);
        command.extend(some.iter().map(Id::to_string));
        let what = What::Ack { group, ids: some };
        for _ in 0..3 {
            let outcome = stage.call(client, number, key, what.clone(), &command).await;
            if matches!(outcome, Some(Outcome::Count(_))) {
                break;
            }
            pause_after(outcome.as_ref()).await;
        }
    }
}
