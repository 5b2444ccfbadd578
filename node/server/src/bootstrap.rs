//! The founding of a cluster: from nodes with empty directories and the same list to nodes that agree, durably,
//! on a cluster id and on each other's identities. No Raft group starts before that.
//!
//! Each node asks all others who they are, in rounds, and moves through [`Phase`]:
//!
//! 1. *Joining*: it waits until every listed node answers with the same list and none belongs to a cluster.
//! 2. *Prepared*: it has written down who they all are.
//! 3. *Member*: it saw that all the others wrote down the same, or that one of them already is a member. Final.
//!
//! Every step is written before it is told, so a kill at any point leaves a node that goes on from there. A node
//! that comes back empty under a name that members know would have a second vote, so it is refused.

use crate::config::{Config, Durability, Member};
use crate::error::Error;
use crate::identity::{DataDir, Founder, Founding, Identity, Phase, list, same_members};
use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use weir_env::time::{Instant, sleep};
use weir_raft::Peers;

/// Kind of the peer call. Permanent.
pub const KIND_HELLO: u16 = 1;

const CALL_TIMEOUT: Duration = Duration::from_secs(1);
const ROUND_PAUSE: Duration = Duration::from_millis(50);
const TELL_EVERY: Duration = Duration::from_secs(5);
/// A node that found a mistake goes on answering this long, so that the others hear of it too.
const LINGER: Duration = Duration::from_millis(1500);

/// What a node says about itself before there is a cluster, and to those who have none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Who it is and how far it has come.
    pub identity: Identity,
    /// Host that clients are told.
    pub advertise: String,
    /// Its `--cluster`.
    pub list: Vec<Member>,
    /// What it would found.
    pub shards: u32,
    /// What it would found.
    pub replicas: u32,
    /// What it would found.
    pub durability: Durability,
    /// What it would found; the word of the first node counts.
    pub stream_node_max_entries: u32,
    /// As above.
    pub stream_node_max_bytes: u32,
}

/// This node's identity while it may still change; the peer handler answers from it.
#[derive(Clone)]
pub struct Introduction(Arc<Mutex<Hello>>);

impl Introduction {
    /// From what is stored and configured.
    pub fn new(identity: Identity, config: &Config) -> Self {
        Introduction(Arc::new(Mutex::new(Hello {
            identity,
            advertise: config.advertise.clone(),
            list: config.cluster.clone(),
            shards: config.shard_count(),
            replicas: config.replica_count(),
            durability: config.durability,
            stream_node_max_entries: config.stream_node_max_entries,
            stream_node_max_bytes: config.stream_node_max_bytes,
        })))
    }

    /// The answer to [`KIND_HELLO`].
    pub fn answer(&self) -> Bytes {
        match serde_json::to_vec(&*self.0.lock()) {
            Ok(bytes) => bytes.into(),
            Err(e) => unreachable!("plain data always encodes: {e}"),
        }
    }

    fn now(&self) -> Hello {
        self.0.lock().clone()
    }
}

/// Returns once this node is a member: its identity is final and on disk.
///
/// # Errors
/// The lists disagree, this node lost its data, or the disk fails.
pub async fn found(dir: &DataDir, introduction: &Introduction, peers: &Peers) -> Result<Identity, Error> {
    let mut told = None;
    loop {
        let me = introduction.now();
        if me.identity.phase == Phase::Member {
            peers.forget_addrs();
            return Ok(me.identity);
        }
        let others = me.list.iter().filter(|m| m.name != me.identity.name);
        let answers = join_all(others.map(|other| ask(peers, other))).await;
        match decide(&me, &answers) {
            Step::Write(identity) => {
                dir.save(&identity)?;
                introduction.0.lock().identity = identity;
            }
            Step::Wait(missing) => {
                let due = told.is_none_or(|at: Instant| at.elapsed() >= TELL_EVERY);
                if due {
                    // The first round often comes before the other nodes have started; that is not news.
                    if told.is_some() {
                        tracing::info!("waiting for {missing} before the cluster can be founded");
                    }
                    told = Some(Instant::now());
                }
                sleep(ROUND_PAUSE).await;
            }
            Step::Refuse(why) => {
                sleep(LINGER).await;
                return Err(Error::Refused(why));
            }
        }
    }
}

async fn ask(peers: &Peers, other: &Member) -> (Member, Option<Hello>) {
    let answer = peers.call_addr(&other.peer_addr(), KIND_HELLO, Bytes::new(), CALL_TIMEOUT).await;
    let hello = answer.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    (other.clone(), hello)
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Write this down, then go on.
    Write(Identity),
    /// Ask again; somebody is missing.
    Wait(String),
    /// Cannot go on.
    Refuse(String),
}

/// What one round of answers means for this node. `answers` holds every other listed node.
fn decide(me: &Hello, answers: &[(Member, Option<Hello>)]) -> Step {
    let heard = || answers.iter().filter_map(|(member, hello)| Some((member, hello.as_ref()?)));
    for (member, hello) in heard() {
        if let Some(why) = mismatch(me, member, hello) {
            return Step::Refuse(why);
        }
    }
    if let Some((member, hello)) = heard().find(|(_, hello)| hello.identity.phase == Phase::Member) {
        return adopt(me, member, hello);
    }
    let missing: Vec<String> =
        answers.iter().filter(|(_, hello)| hello.is_none()).map(|(member, _)| member.to_string()).collect();
    if !missing.is_empty() {
        return Step::Wait(missing.join(", "));
    }
    let founding = founding_of(me, heard().map(|(_, hello)| hello));
    let all_prepared = heard().all(|(_, hello)| {
        hello.identity.phase == Phase::Prepared && hello.identity.founding.as_ref() == Some(&founding)
    });
    let prepared = me.identity.phase == Phase::Prepared && me.identity.founding.as_ref() == Some(&founding);
    let write =
        |phase| Step::Write(Identity { phase, founding: Some(founding.clone()), ..me.identity.clone() });
    match (prepared, all_prepared) {
        (false, _) => write(Phase::Prepared),
        (true, true) => write(Phase::Member),
        (true, false) => Step::Wait("the other nodes to write down the same".to_owned()),
    }
}

/// A member knows the cluster: join it if it knows this node.
fn adopt(me: &Hello, member: &Member, hello: &Hello) -> Step {
    let name = &me.identity.name;
    let Some(founding) = &hello.identity.founding else {
        return Step::Refuse(format!(
            "{member} belongs to a cluster and does not say to which: look at its log"
        ));
    };
    match founding.nodes.iter().find(|n| n.member.name == *name) {
        Some(known) if known.id == me.identity.id => Step::Write(Identity {
            phase: Phase::Member,
            founding: Some(founding.clone()),
            ..me.identity.clone()
        }),
        Some(_) => Step::Refuse(format!(
            "{name} lost its data and cannot rejoin as {name}: the cluster at {member} knows another identity under that name; \
             restore its data directory"
        )),
        None => Step::Refuse(format!(
            "{name} is not a node of the cluster at {member}: look at --cluster and --name"
        )),
    }
}

fn mismatch(me: &Hello, member: &Member, hello: &Hello) -> Option<String> {
    let other = &hello.identity.name;
    if *other != member.name {
        let Member { host, port, .. } = member;
        return Some(format!(
            "--cluster says that {host}:{port} is {}, but {other} answers there: look at the lists",
            member.name
        ));
    }
    if !same_members(&me.list, &hello.list) {
        let (ours, theirs) = (list(&me.list), list(&hello.list));
        return Some(format!(
            "{} and {other} were started with different --cluster lists: {ours} here, {theirs} there; give every node the same",
            me.identity.name
        ));
    }
    let differs = |what: &str, ours: &dyn std::fmt::Display, theirs: &dyn std::fmt::Display| {
        format!(
            "{} and {other} were started with different --{what}: {ours} here, {theirs} there; give every node the same",
            me.identity.name
        )
    };
    if me.durability != hello.durability {
        return Some(differs("durability", &me.durability.name(), &hello.durability.name()));
    }
    // A member's numbers are stored; a node that joins late takes them over.
    let founded = hello.identity.phase == Phase::Member;
    if me.shards != hello.shards && !founded {
        return Some(differs("shards", &me.shards, &hello.shards));
    }
    if me.replicas != hello.replicas && !founded {
        return Some(differs("replicas", &me.replicas, &hello.replicas));
    }
    None
}

/// The same on every node that heard the same identities.
fn founding_of<'a>(me: &'a Hello, others: impl Iterator<Item = &'a Hello>) -> Founding {
    let mut all: Vec<&Hello> = others.chain([me]).collect();
    // n2 before n10.
    all.sort_by_key(|hello| (hello.identity.name.len(), hello.identity.name.clone()));
    let nodes = all
        .iter()
        .filter_map(|hello| {
            let member = me.list.iter().find(|m| m.name == hello.identity.name)?;
            let (id, advertise) = (hello.identity.id.clone(), hello.advertise.clone());
            Some(Founder { id, advertise, member: member.clone() })
        })
        .collect();
    let first = all.first().copied().unwrap_or(me);
    Founding {
        cluster_id: first.identity.cluster_id_drawn.clone(),
        nodes,
        shards: me.shards,
        replicas: me.replicas,
        durability: me.durability,
        stream_node_max_entries: first.stream_node_max_entries,
        stream_node_max_bytes: first.stream_node_max_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["n1", "n2", "n3"];

    fn hello(name: &str) -> Hello {
        let identity = Identity {
            format: 1,
            name: name.to_owned(),
            id: format!("id-of-{name}"),
            cluster_id_drawn: format!("cluster-of-{name}"),
            phase: Phase::Joining,
            founding: None,
        };
        let list = NAMES.iter().zip(7001..).map(|(name, port)| Member {
            name: (*name).into(),
            host: "h".into(),
            port,
        });
        Hello {
            identity,
            advertise: "h".into(),
            list: list.collect(),
            shards: 3,
            replicas: 3,
            durability: Durability::Always,
            stream_node_max_entries: 100,
            stream_node_max_bytes: 4096,
        }
    }

    /// All nodes, each a list of what it has on disk, driven by hand.
    struct World(Vec<Hello>);

    impl World {
        fn new() -> Self {
            World(NAMES.iter().map(|name| hello(name)).collect())
        }
        /// One round of `node`, which reaches only `reached`.
        fn round(&mut self, node: usize, reached: &[usize]) -> Option<Step> {
            let me = self.0[node].clone();
            if me.identity.phase == Phase::Member {
                return None;
            }
            let answers: Vec<_> = (0..self.0.len())
                .filter(|other| *other != node)
                .map(|other| {
                    (me.list[other].clone(), reached.contains(&other).then(|| self.0[other].clone()))
                })
                .collect();
            let step = decide(&me, &answers);
            if let Step::Write(identity) = &step {
                self.0[node].identity = identity.clone();
            }
            Some(step)
        }
        fn wipe(&mut self, node: usize) {
            self.0[node].identity = Identity { id: "wiped".into(), ..hello(NAMES[node]).identity };
        }
        fn phases(&self) -> Vec<Phase> {
            self.0.iter().map(|h| h.identity.phase).collect()
        }
    }

    #[test]
    fn all_nodes_found_the_same_cluster() {
        let mut world = World::new();
        for _ in 0..4 {
            for node in 0..3 {
                world.round(node, &[0, 1, 2]);
            }
        }
        assert_eq!(world.phases(), [Phase::Member; 3]);
        let foundings: Vec<_> = world.0.iter().map(|h| h.identity.founding.clone().unwrap()).collect();
        assert!(foundings.windows(2).all(|w| w[0] == w[1]));
        assert_eq!(foundings[0].cluster_id, "cluster-of-n1");
        assert_eq!(world.0.iter().map(|h| h.identity.number()).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn nobody_moves_before_every_node_has_answered() {
        let mut world = World::new();
        for _ in 0..5 {
            assert_eq!(world.round(0, &[1]), Some(Step::Wait("n3=h:7003".into())));
            world.round(1, &[0]);
        }
        assert_eq!(world.phases(), [Phase::Joining; 3]);
    }

    #[test]
    fn a_node_that_missed_the_end_joins_what_the_others_founded() {
        let mut world = World::new();
        for node in [0, 1, 2, 0] {
            world.round(node, &[0, 1, 2]);
        }
        assert_eq!(world.phases(), [Phase::Member, Phase::Prepared, Phase::Prepared]);
        world.round(2, &[0]);
        assert_eq!(world.phases()[2], Phase::Member);
    }

    #[test]
    fn a_wiped_node_is_refused_by_the_cluster_that_knew_it() {
        let mut world = World::new();
        for node in [0, 1, 2, 0, 1, 2] {
            world.round(node, &[0, 1, 2]);
        }
        world.wipe(1);
        let Some(Step::Refuse(why)) = world.round(1, &[2]) else { panic!("must be refused") };
        assert!(why.starts_with("n2 lost its data and cannot rejoin as n2: "), "{why}");
    }

    /// Rounds are not atomic: half of the answers may be older than a wipe or a step of the others.
    #[test]
    fn wipes_at_any_point_never_leave_members_of_two_clusters() {
        for seed in 0u64..3000 {
            let mut world = World::new();
            let mut half_asked: [Option<Vec<Option<Hello>>>; 3] = [None, None, None];
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut draw = |n: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % n
            };
            for step in 0..60 {
                let node = draw(3) as usize;
                let me = world.0[node].clone();
                if draw(15) == 0 {
                    world.0[node].identity =
                        Identity { id: format!("wiped at {step}"), ..hello(NAMES[node]).identity };
                    half_asked[node] = None;
                } else if me.identity.phase == Phase::Member {
                } else if let Some(mut answers) = half_asked[node].take() {
                    for (other, answer) in answers.iter_mut().enumerate() {
                        *answer = answer.take().or_else(|| Some(world.0[other].clone()));
                    }
                    let answers =
                        me.list.iter().cloned().zip(answers).filter(|(m, _)| m.name != me.identity.name);
                    if let Step::Write(identity) = decide(&me, &answers.collect::<Vec<_>>()) {
                        world.0[node].identity = identity;
                    }
                } else {
                    half_asked[node] =
                        Some(world.0.iter().map(|h| (draw(2) == 0).then(|| h.clone())).collect());
                }
                let members = world.0.iter().filter(|h| h.identity.phase == Phase::Member);
                let mut clusters: Vec<_> = members.filter_map(|h| h.identity.founding.as_ref()).collect();
                clusters.dedup();
                assert!(clusters.len() <= 1, "seed {seed} step {step}");
            }
        }
    }

    #[test]
    fn mistakes_in_the_lists_are_named_on_both_sides() {
        let (me, mut other) = (hello("n1"), hello("n2"));
        other.list[2].port = 9;
        let Step::Refuse(why) = decide(&me, &[(me.list[1].clone(), Some(other))]) else { panic!() };
        assert!(why.starts_with("n1 and n2 were started with different --cluster lists: n1=h:7001"), "{why}");
        let Step::Refuse(why) = decide(&me, &[(me.list[1].clone(), Some(hello("n3")))]) else { panic!() };
        assert!(why.starts_with("--cluster says that h:7002 is n2, but n3 answers there"), "{why}");
        let mut other = hello("n2");
        other.durability = Durability::Os;
        let Step::Refuse(why) = decide(&me, &[(me.list[1].clone(), Some(other))]) else { panic!() };
        assert!(why.contains("different --durability: always here, os there"), "{why}");
    }
}
