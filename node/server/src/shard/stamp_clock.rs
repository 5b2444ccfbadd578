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
    /// The peers' wall clocks minus this node's monotonic one, in microseconds, and whether it was measured. Against the
    /// monotonic clock, so that a jump of this node's wall clock moves none of them.
    heard: BTreeMap<NodeId, (i64, bool)>,
    /// The warning about this node's wall clock was given.
    warned: bool,
}

impl State {
    /// The median of the clocks heard, `own` included: of two in the middle the earlier, since keys that end too early
    /// are lost and keys that end late are not.
    fn median(&self, own_us: i64) -> i64 {
        let mut all: Vec<i64> = self.heard.values().map(|(offset, _)| *offset).chain([own_us]).collect();
        all.sort_unstable();
        all[(all.len() - 1) / 2]
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
            if measured || !state.heard.get(&peer).is_some_and(|(_, measured)| *measured) {
                state.heard.insert(peer, (micros_of(shows) - self.mono_us(), measured));
            }
            self.warn(&mut state);
            state.heard.len() >= self.peers
        };
        if all {
            self.set_known();
        }
    }

    /// Every peer was asked for its clock: whoever has not answered by now is not waited for, unless nobody has.
    pub fn everybody_asked(&self) {
        if !self.state.lock().heard.is_empty() {
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
        (self.state.lock().median(own_us) - own_us) / 1000
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
        let offset_us = state.median(own_us) - own_us;
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
        let median_us = state.median(own_us);
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
