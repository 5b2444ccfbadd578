//! What this node believes about the cluster now: the agreed map plus soft state (who leads which shard, who
//! answers). Readers take an immutable [`View`]; a change makes a new one.
//!
//! Soft state comes from this node's own Raft groups and from what peers announce each second and on change.
//! For each shard the highest term wins, so an old announcement cannot bring back a deposed leader.

use crate::meta::{ClusterMap, NodeEntry, ShardEntry};
use crate::shard::ShardId;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use weir_raft::NodeId;
use weir_stream::{SLOT_COUNT, Slot};

/// Who leads a shard, as far as this node has heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Leadership {
    /// Highest term heard of.
    pub term: u64,
    /// Its leader; `None` while an election is on.
    pub leader: Option<NodeId>,
    /// What the leader itself said: that it serves, or that it cannot (not ready, no quorum). `None` = not heard yet.
    pub serving: Option<bool>,
}

/// One consistent picture. Cheap to take, never changes.
#[derive(Debug, Default)]
pub struct View {
    /// This node.
    pub me: NodeId,
    /// The agreed map.
    pub map: Arc<ClusterMap>,
    slots: Arc<Vec<u16>>,
    leaders: BTreeMap<ShardId, Leadership>,
    unreachable: Vec<NodeId>,
    space_low: Vec<NodeId>,
}

const NO_SHARD: u16 = u16::MAX;

impl View {
    /// The shard that owns `slot`; `None` before the map is known, or when nobody owns it.
    pub fn shard_of(&self, slot: Slot) -> Option<&ShardEntry> {
        let at = *self.slots.get(usize::from(slot.0))?;
        self.map.shards.get(usize::from(at))
    }

    /// What was heard about who leads `shard`.
    pub fn leadership(&self, shard: ShardId) -> Leadership {
        self.leaders.get(&shard).copied().unwrap_or_default()
    }

    /// The leader of `shard`, whether it answers or not.
    pub fn leader(&self, shard: ShardId) -> Option<&NodeEntry> {
        self.map.node(self.leadership(shard).leader?)
    }

    /// The leader of `shard` if, as far as is known, it can be reached and has a quorum.
    pub fn live_leader(&self, shard: ShardId) -> Option<&NodeEntry> {
        let leadership = self.leadership(shard);
        self.leader(shard).filter(|node| leadership.serving != Some(false) && self.reachable(node.number))
    }

    /// Whether `node` is not known to be out of reach.
    pub fn reachable(&self, node: NodeId) -> bool {
        !self.unreachable.contains(&node)
    }

    /// Whether only the reserve of that node's disk is left: it should lead nothing.
    pub fn space_low(&self, node: NodeId) -> bool {
        self.space_low.contains(&node)
    }

    /// Shards that `node` leads, by number.
    pub fn led_by(&self, node: NodeId) -> impl Iterator<Item = &ShardEntry> {
        self.map.shards.iter().filter(move |s| self.leadership(s.id).leader == Some(node))
    }

    /// Whether every slot has an owner whose leader says that it serves.
    pub fn all_served(&self) -> bool {
        let served =
            |s: &ShardEntry| self.leadership(s.id).serving == Some(true) && self.live_leader(s.id).is_some();
        !self.map.shards.is_empty()
            && self.slots.iter().all(|at| *at != NO_SHARD)
            && self.map.shards.iter().all(served)
    }
}

/// The current [`View`] and the only ways to change it. Cheap to clone.
#[derive(Clone)]
pub struct Topology(Arc<Inner>);

struct Inner {
    view: RwLock<Arc<View>>,
    soft: Mutex<Soft>,
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct Soft {
    misses: BTreeMap<NodeId, u32>,
}

/// Calls in a row that must fail before a peer counts as out of reach; one may be bad luck.
const MISSES_MAX: u32 = 2;

impl Topology {
    /// Nothing known yet.
    pub fn new(me: NodeId) -> Self {
        let view = RwLock::new(Arc::new(View { me, ..View::default() }));
        Topology(Arc::new(Inner { view, soft: Mutex::default(), version: watch::channel(0).0 }))
    }

    /// The picture now.
    pub fn view(&self) -> Arc<View> {
        self.0.view.read().clone()
    }

    /// The agreed map.
    pub fn map(&self) -> Arc<ClusterMap> {
        self.0.view.read().map.clone()
    }

    /// Ticks with each change.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// Takes a newer map.
    pub fn set_map(&self, map: Arc<ClusterMap>) {
        let mut slots = vec![NO_SHARD; usize::from(SLOT_COUNT)];
        for (at, shard) in map.shards.iter().enumerate() {
            for range in &shard.slots {
                slots[usize::from(range.first.0)..=usize::from(range.last.0)].fill(at as u16);
            }
        }
        self.update(|view| {
            view.map = map;
            view.slots = Arc::new(slots);
        });
    }

    /// Hears who leads `shard`, from `teller`. Older terms are ignored, and whether a leader serves is believed
    /// of that leader alone.
    pub fn observe(&self, shard: ShardId, heard: Leadership, teller: NodeId) {
        let known = self.0.view.read().leadership(shard);
        let mut next = heard;
        if heard.leader != Some(teller) {
            next.serving =
                if heard.term == known.term && heard.leader == known.leader { known.serving } else { None };
        }
        let newer = heard.term > known.term;
        let fuller = heard.term == known.term && heard.leader.is_some();
        if (newer || fuller) && next != known {
            self.update(|view| {
                view.leaders.insert(shard, next);
            });
        }
    }

    /// A peer answered (or called).
    pub fn heard_from(&self, node: NodeId) {
        self.0.soft.lock().misses.remove(&node);
        if !self.0.view.read().reachable(node) {
            tracing::info!(peer = self.name_of(node), "a node answers again");
            self.update(|view| {
                view.unreachable.retain(|n| *n != node);
            });
        }
    }

    /// Whether only the reserve of that node's disk is left.
    pub fn set_space_low(&self, node: NodeId, low: bool) {
        if self.0.view.read().space_low(node) != low {
            self.update(|view| {
                view.space_low.retain(|n| *n != node);
                view.space_low.extend(low.then_some(node));
            });
        }
    }

    fn name_of(&self, node: NodeId) -> String {
        let map = self.map();
        map.node(node).map_or_else(|| node.to_string(), |entry| entry.name.clone())
    }

    /// A call to a peer failed.
    pub fn missed(&self, node: NodeId) {
        let mut soft = self.0.soft.lock();
        let misses = soft.misses.entry(node).or_default();
        *misses += 1;
        if *misses < MISSES_MAX {
            return;
        }
        drop(soft);
        if self.0.view.read().reachable(node) {
            tracing::warn!(peer = self.name_of(node), "a node does not answer any more");
            self.update(|view| {
                view.unreachable.push(node);
            });
        }
    }

    /// Wakes those who wait for a change although the picture is the same (a local shard began to serve).
    pub fn touch(&self) {
        self.0.version.send_modify(|v| *v += 1);
    }

    fn update(&self, change: impl FnOnce(&mut View)) {
        let mut slot = self.0.view.write();
        let mut next = View {
            me: slot.me,
            map: slot.map.clone(),
            slots: slot.slots.clone(),
            leaders: slot.leaders.clone(),
            unreachable: slot.unreachable.clone(),
            space_low: slot.space_low.clone(),
        };
        change(&mut next);
        *slot = Arc::new(next);
        drop(slot);
        self.touch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(term: u64, leader: Option<NodeId>) -> Leadership {
        Leadership { term, leader, serving: None }
    }

    #[test]
    fn the_highest_term_wins_and_an_old_leader_does_not_come_back() {
        let topology = Topology::new(1);
        let shard = ShardId(0);
        let hear = |heard| topology.observe(shard, heard, 9);
        let known = || topology.view().leadership(shard);
        hear(at(3, Some(2)));
        hear(at(2, Some(1)));
        assert_eq!(known(), at(3, Some(2)));
        hear(at(4, None));
        assert_eq!(known().leader, None);
        hear(at(3, Some(2)));
        assert_eq!(known().leader, None);
        hear(at(4, Some(3)));
        hear(at(4, None));
        assert_eq!(known().leader, Some(3));
    }

    #[test]
    fn whether_a_leader_serves_is_its_own_word_and_ends_with_its_term() {
        let topology = Topology::new(1);
        let shard = ShardId(0);
        let says = |term, serving, teller| {
            topology.observe(shard, Leadership { term, leader: Some(2), serving }, teller);
            topology.view().leadership(shard).serving
        };
        assert_eq!(says(1, Some(true), 3), None);
        assert_eq!(says(1, Some(false), 2), Some(false));
        assert_eq!(says(1, Some(true), 3), Some(false));
        assert_eq!(says(2, Some(true), 3), None);
        assert_eq!(says(2, Some(true), 2), Some(true));
    }

    #[test]
    fn a_peer_is_out_of_reach_after_two_failures_and_back_with_the_first_answer() {
        let topology = Topology::new(1);
        topology.missed(2);
        assert!(topology.view().reachable(2));
        topology.missed(2);
        assert!(!topology.view().reachable(2));
        topology.heard_from(2);
        assert!(topology.view().reachable(2));
    }
}
