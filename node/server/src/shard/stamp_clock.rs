//! The clock of stamps: wall time at start, advanced by the monotonic clock, slewed toward wall time.
//!
//! A clock jump therefore never enters the log at once: replicated time gains or loses at most a tenth on real
//! time while it follows. A node far from its peers' median follows the median instead of its own wall clock, and gives
//! no stamp before it has heard a peer's (`docs/adr/0016-no-stamp-before-a-peers-clock-was-heard.md`).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use weir_env::Clock;
use weir_raft::NodeId;

/// Largest share of elapsed time by which the clock is corrected.
const SLEW_DIVISOR: i64 = 10;

/// What a peer's clock showed longer ago says nothing about what it shows: it may have been set right since. Peers tell
/// every second.
const FRESH: Duration = Duration::from_secs(5);

/// What was learnt about a peer's wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// It shows this now, in ms since the Unix epoch, as exactly as a quick round trip tells.
    Measured(u64),
    /// It shows about this, or more: the message was under way for an unknown time.
    AtLeast(u64),
}

/// Produces `now_ms` of stamps. Cheap to share.
pub struct StampClock {
    clock: Arc<dyn Clock>,
    skew_us_max: i64,
    /// The other nodes of the cluster.
    peers: usize,
    /// A first stamp may be given.
    known: AtomicBool,
    became_known: Notify,
    /// The latest replicated time seen: time was at least this.
    floor_ms: AtomicU64,
    state: Mutex<State>,
}

struct State {
    at: Duration,
    value_us: i64,
    /// A stamp was given: from here on the clock is corrected slowly.
    stamped: bool,
    heard: BTreeMap<NodeId, Heard>,
    /// The warning about this node's wall clock was given.
    warned: bool,
}

/// The latest word of a peer.
struct Heard {
    /// Its wall clock minus this node's monotonic one, in microseconds: a jump of this node's wall clock does not move it.
    offset_us: i64,
    measured: bool,
    /// When, by the monotonic clock.
    at: Duration,
}

impl Heard {
    fn is_fresh(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) <= FRESH
    }
}

impl State {
    /// The clock that the cluster goes by, out of those heard lately and `own`: the median, but never one that less than
    /// half of all `nodes` could have put ahead, however few were heard. Too early rather than too late, since keys that
    /// end too early are lost and keys that end late are not.
    fn agreed(&self, nodes: usize, own_us: i64, now: Duration) -> i64 {
        let sorted = |all: &mut dyn Iterator<Item = &Heard>| {
            let mut all: Vec<i64> = all.map(|heard| heard.offset_us).chain([own_us]).collect();
            all.sort_unstable();
            all
        };
        let fresh = sorted(&mut self.heard.values().filter(|heard| heard.is_fresh(now)));
        if fresh.len() * 2 <= nodes {
            return sorted(&mut self.heard.values())[0];
        }
        let wrong_most = (nodes - 1) / 2;
        fresh[((fresh.len() - 1) / 2).min(fresh.len() - 1 - wrong_most)]
    }
}

impl StampClock {
    /// Starts at wall time. `skew_ms_max`: see `clock-skew-ms-max`; `peers`: how many other nodes there are.
    pub fn new(clock: Arc<dyn Clock>, skew_ms_max: u64, peers: usize) -> Self {
        let state = State {
            at: clock.mono(),
            value_us: micros_of(clock.wall_ms()),
            stamped: false,
            heard: BTreeMap::new(),
            warned: false,
        };
        StampClock {
            clock,
            skew_us_max: micros_of(skew_ms_max),
            peers,
            known: AtomicBool::new(peers == 0),
            became_known: Notify::new(),
            floor_ms: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    /// Hears a peer's wall clock. A measurement replaces what was known of that peer, anything else only fills a gap.
    pub fn heard(&self, peer: NodeId, reading: Reading) {
        let (shows, measured) = match reading {
            Reading::Measured(ms) => (ms, true),
            Reading::AtLeast(ms) => (ms, false),
        };
        let all = {
            let mut state = self.state.lock();
            let at = self.clock.mono();
            if measured || !state.heard.get(&peer).is_some_and(|known| known.measured && known.is_fresh(at)) {
                let offset_us = micros_of(shows) - self.mono_us();
                state.heard.insert(peer, Heard { offset_us, measured, at });
            }
            self.warn(&mut state);
            state.heard.len() >= self.peers
        };
        if all {
            self.set_known();
        }
    }

    /// Every peer was asked for its clock: whoever has not answered by now is not waited for, once a majority is
    /// known: all of fewer may be wrong.
    pub fn everybody_asked(&self) {
        if (self.state.lock().heard.len() + 1) * 2 > self.peers + 1 {
            self.set_known();
        }
    }

    /// Takes note of a stamp that a leader gave.
    pub fn saw(&self, stamp_ms: u64) {
        self.floor_ms.fetch_max(stamp_ms, Ordering::Relaxed);
    }

    /// Whether a stamp may be given: there are no peers, or it is known what their clocks show.
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// Returns once [`StampClock::is_known`].
    pub async fn known(&self) {
        let told = self.became_known.notified();
        if !self.is_known() {
            told.await;
        }
    }

    fn set_known(&self) {
        if !self.known.swap(true, Ordering::AcqRel) {
            self.became_known.notify_waiters();
        }
    }

    /// What to add to this node's wall clock to get the cluster's median, in ms.
    pub fn median_offset_ms(&self) -> i64 {
        let own_us = self.own_us();
        (self.state.lock().agreed(self.peers + 1, own_us, self.clock.mono()) - own_us) / 1000
    }

    /// [`StampClock::now_ms`] for a stamp. Before the first one the clock steps to what it should show, since nothing
    /// was said with it yet.
    pub fn stamp_ms(&self) -> u64 {
        self.read(true)
    }

    /// Milliseconds since the Unix epoch; never falls once a stamp was given.
    pub fn now_ms(&self) -> u64 {
        self.read(false)
    }

    /// The node's own wall clock, for bugs that are planted.
    #[cfg(debug_assertions)]
    pub(super) fn wall_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    fn mono_us(&self) -> i64 {
        i64::try_from(self.clock.mono().as_micros()).unwrap_or(i64::MAX)
    }

    /// This node's wall clock minus its monotonic one.
    fn own_us(&self) -> i64 {
        micros_of(self.clock.wall_ms()) - self.mono_us()
    }

    fn warn(&self, state: &mut State) {
        let own_us = self.own_us();
        let offset_us = state.agreed(self.peers + 1, own_us, self.clock.mono()) - own_us;
        let far = offset_us.abs() > self.skew_us_max;
        if far && !state.warned {
            tracing::warn!(
                offset_ms = offset_us / 1000,
                "wall clock is far from the cluster's median; following the median"
            );
        }
        state.warned = far;
    }

    fn read(&self, stamp: bool) -> u64 {
        let mono = self.clock.mono();
        let mut state = self.state.lock();
        let own_us = self.own_us();
        let median_us = state.agreed(self.peers + 1, own_us, mono);
        let apart_us = (median_us - own_us).abs();
        let target_us = self.mono_us() + if apart_us > self.skew_us_max { median_us } else { own_us };
        let elapsed_us = mono.saturating_sub(state.at).as_micros() as i64;
        let free_us = state.value_us + elapsed_us;
        let most = elapsed_us / SLEW_DIVISOR;
        // Below a millisecond the wall clock's own granularity is all there is to see.
        let apart = target_us - free_us;
        let step = match apart.abs() {
            0..=1000 => 0,
            _ if !state.stamped => apart,
            _ => apart.clamp(-most, most),
        };
        state.stamped |= stamp;
        state.at = mono.max(state.at);
        // Time does not stand still until a clock that is behind has caught up with what was stamped before.
        state.value_us = (free_us + step).max(micros_of(self.floor_ms.load(Ordering::Relaxed)));
        (state.value_us / 1000) as u64
    }
}

fn micros_of(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicI64;

    const HOUR_MS: u64 = 3_600_000;
    const NOW_MS: u64 = 10 * HOUR_MS;

    #[derive(Default)]
    struct Hands {
        wall_ms: AtomicI64,
        mono_ms: AtomicI64,
    }
    impl Hands {
        fn at(wall_ms: u64) -> Arc<Self> {
            let hands = Arc::new(Self::default());
            hands.set(wall_ms);
            hands
        }
        fn set(&self, wall_ms: u64) {
            self.wall_ms.store(wall_ms as i64, Ordering::Relaxed);
        }
        fn pass(&self, ms: u64) {
            self.wall_ms.fetch_add(ms as i64, Ordering::Relaxed);
            self.mono_ms.fetch_add(ms as i64, Ordering::Relaxed);
        }
    }
    impl Clock for Hands {
        fn wall_ms(&self) -> u64 {
            self.wall_ms.load(Ordering::Relaxed) as u64
        }
        fn mono(&self) -> Duration {
            Duration::from_millis(self.mono_ms.load(Ordering::Relaxed) as u64)
        }
    }

    #[test]
    fn a_forward_jump_of_the_wall_clock_gains_at_most_a_tenth() {
        let hands = Hands::at(NOW_MS);
        let clock = StampClock::new(hands.clone(), 500, 0);
        assert_eq!(clock.stamp_ms(), NOW_MS);
        hands.pass(1_000);
        hands.set(NOW_MS + 8 * HOUR_MS);
        assert_eq!(clock.now_ms(), NOW_MS + 1_100);
    }

    #[test]
    fn a_backward_jump_slows_the_clock_and_never_turns_it_back() {
        let hands = Hands::at(NOW_MS);
        let clock = StampClock::new(hands.clone(), 500, 0);
        clock.stamp_ms();
        hands.pass(1_000);
        hands.set(10);
        assert_eq!(clock.now_ms(), NOW_MS + 900);
        assert_eq!(clock.now_ms(), NOW_MS + 900);
    }

    #[test]
    fn a_node_far_from_the_median_follows_the_median() {
        let hands = Hands::at(NOW_MS);
        let clock = StampClock::new(hands.clone(), 500, 2);
        clock.stamp_ms();
        for peer in [2, 3] {
            clock.heard(peer, Reading::Measured(NOW_MS - 10_000));
        }
        assert_eq!(clock.median_offset_ms(), -10_000);
        hands.pass(10_000);
        assert_eq!(clock.now_ms(), NOW_MS + 9_000);
    }

    #[test]
    fn a_node_that_boots_an_hour_ahead_gives_its_first_stamp_by_the_median() {
        let clock = StampClock::new(Hands::at(NOW_MS + HOUR_MS), 500, 2);
        clock.heard(2, Reading::Measured(NOW_MS));
        clock.heard(3, Reading::Measured(NOW_MS + 5));
        assert_eq!(clock.stamp_ms(), NOW_MS + 5);
    }

    #[test]
    fn one_wrong_clock_does_not_move_the_median() {
        for wrong in [NOW_MS + HOUR_MS, NOW_MS - HOUR_MS] {
            let clock = StampClock::new(Hands::at(NOW_MS), 500, 2);
            clock.heard(2, Reading::Measured(NOW_MS));
            clock.heard(3, Reading::Measured(wrong));
            assert_eq!(clock.stamp_ms(), NOW_MS);
        }
    }

    #[test]
    fn of_two_clocks_that_differ_the_earlier_is_followed_so_that_no_key_ends_early() {
        for (own, peer) in [(NOW_MS + HOUR_MS, NOW_MS), (NOW_MS, NOW_MS + HOUR_MS)] {
            let clock = StampClock::new(Hands::at(own), 500, 2);
            clock.heard(2, Reading::Measured(peer));
            assert_eq!(clock.stamp_ms(), NOW_MS);
        }
    }

    #[test]
    fn a_clock_behind_what_was_stamped_goes_on_from_there() {
        let hands = Hands::at(NOW_MS - HOUR_MS);
        let clock = StampClock::new(hands.clone(), 500, 2);
        clock.heard(2, Reading::Measured(NOW_MS));
        clock.saw(NOW_MS - 300);
        assert_eq!(clock.stamp_ms(), NOW_MS - 300);
        hands.pass(1_000);
        assert_eq!(clock.stamp_ms(), NOW_MS + 600);
    }

    #[test]
    fn a_jump_between_two_measurements_moves_no_first_stamp() {
        let hands = Hands::at(NOW_MS);
        let clock = StampClock::new(hands.clone(), 500, 2);
        for peer in [2, 3] {
            clock.heard(peer, Reading::Measured(NOW_MS));
        }
        hands.pass(200);
        hands.set(NOW_MS + HOUR_MS);
        assert_eq!(clock.stamp_ms(), NOW_MS + 200);
    }

    #[test]
    fn a_measurement_outlasts_what_merely_came_by() {
        let hands = Hands::at(NOW_MS);
        let clock = StampClock::new(hands.clone(), 500, 1);
        clock.heard(2, Reading::AtLeast(NOW_MS - 3_000));
        assert_eq!(clock.median_offset_ms(), -3_000);
        clock.heard(2, Reading::Measured(NOW_MS - 10));
        clock.heard(2, Reading::AtLeast(NOW_MS - 3_000));
        assert_eq!(clock.median_offset_ms(), -10);
    }

    /// A cluster whose clocks are off by `off_ms`: what node `me` stamps first after it started and heard `who`, or `None`
    /// if it may not stamp.
    fn first_stamp(off_ms: &[i64], me: usize, who: usize) -> Option<u64> {
        let shows = |node: usize| NOW_MS.saturating_add_signed(off_ms[node]);
        let clock = StampClock::new(Hands::at(shows(me)), 500, off_ms.len() - 1);
        for peer in (0..off_ms.len()).filter(|peer| *peer != me && who >> peer & 1 == 1) {
            clock.heard(peer as NodeId, Reading::Measured(shows(peer)));
        }
        clock.everybody_asked();
        clock.is_known().then(|| clock.stamp_ms())
    }

    /// The first stamps of all nodes of `nodes`, whomever they have heard, where the nodes of `wrong` are off.
    fn first_stamps(nodes: usize, wrong: usize, by_ms: i64) -> Vec<u64> {
        let off_ms: Vec<i64> = (0..nodes)
            .map(|node| if wrong >> node & 1 == 1 { by_ms * (node as i64 + 1) } else { 0 })
            .collect();
        let all = (0..nodes).flat_map(|me| (0..1 << nodes).map(move |who| (me, who)));
        all.filter_map(|(me, who)| first_stamp(&off_ms, me, who)).collect()
    }

    #[test]
    fn a_minority_of_clocks_moves_no_first_stamp_ahead_whoever_was_heard_and_a_majority_does() {
        for nodes in 1..=5usize {
            for wrong in 0..1usize << nodes {
                let minority = (wrong.count_ones() as usize) * 2 < nodes;
                let all = first_stamps(nodes, wrong, HOUR_MS as i64);
                assert!(!all.is_empty());
                let ahead = all.iter().any(|stamp| *stamp > NOW_MS + 500);
                let majority = wrong.count_ones() as usize * 2 > nodes;
                assert!(!(minority && ahead), "{nodes} nodes, wrong {wrong:b}");
                assert!(!majority || ahead, "{nodes} nodes, wrong {wrong:b}: not seen");
            }
        }
    }

    #[test]
    fn clocks_that_are_wrong_one_after_another_move_no_first_stamp() {
        let hands = Hands::at(NOW_MS);
        let clock = StampClock::new(hands.clone(), 500, 2);
        // Cut off after it was heard, and set right since.
        clock.heard(2, Reading::Measured(NOW_MS + HOUR_MS));
        clock.heard(3, Reading::Measured(NOW_MS));
        hands.pass(6_000);
        hands.set(NOW_MS + 2 * HOUR_MS);
        clock.heard(3, Reading::Measured(NOW_MS + 6_000));
        assert_eq!(clock.stamp_ms(), NOW_MS + 6_000);
    }

    #[test]
    fn a_node_that_was_alone_for_long_goes_by_the_earliest_clock_it_knows() {
        let hands = Hands::at(NOW_MS);
        let clock = StampClock::new(hands.clone(), 500, 2);
        clock.heard(2, Reading::Measured(NOW_MS + HOUR_MS));
        clock.heard(3, Reading::Measured(NOW_MS));
        hands.pass(6_000);
        hands.set(NOW_MS + 2 * HOUR_MS);
        assert_eq!(clock.stamp_ms(), NOW_MS + 6_000);
    }

    #[tokio::test]
    async fn a_node_without_peers_knows_and_one_with_peers_waits_for_all_or_for_the_first_round() {
        let clock = |peers| StampClock::new(Hands::at(NOW_MS), 500, peers);
        assert!(clock(0).is_known());
        let all = clock(2);
        all.everybody_asked();
        assert!(!all.is_known(), "nobody has answered");
        all.heard(2, Reading::Measured(NOW_MS));
        assert!(!all.is_known(), "the other may yet answer");
        let (woken, ()) = tokio::join!(all.known(), async { all.heard(3, Reading::AtLeast(NOW_MS)) });
        assert_eq!((woken, all.is_known()), ((), true));
        let some = clock(2);
        some.heard(2, Reading::Measured(NOW_MS));
        some.everybody_asked();
        assert!(some.is_known());
    }
}
