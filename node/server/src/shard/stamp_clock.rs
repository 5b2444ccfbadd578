//! The clock of stamps: wall time at start, advanced by the monotonic clock, slewed toward wall time.
//!
//! A clock jump therefore never enters the log at once: replicated time gains or loses at most a tenth on real
//! time while it follows. A node far from its peers' median follows the median instead of its own wall clock.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use weir_env::Clock;

/// Largest share of elapsed time by which the clock is corrected.
const SLEW_DIVISOR: i64 = 10;

/// Produces `now_ms` of stamps. Cheap to share.
pub struct StampClock {
    clock: Arc<dyn Clock>,
    skew_ms_max: i64,
    /// What to add to this node's wall clock to get the quorum's median.
    median_offset_ms: AtomicI64,
    state: Mutex<State>,
}

struct State {
    at: Duration,
    value_us: i64,
    /// A stamp was given: from here on the clock is corrected slowly.
    stamped: bool,
}

impl StampClock {
    /// Starts at wall time. `skew_ms_max`: see `clock-skew-ms-max`.
    pub fn new(clock: Arc<dyn Clock>, skew_ms_max: u64) -> Self {
        let state = State { at: clock.mono(), value_us: clock.wall_ms() as i64 * 1000, stamped: false };
        StampClock {
            clock,
            skew_ms_max: skew_ms_max as i64,
            median_offset_ms: AtomicI64::new(0),
            state: Mutex::new(state),
        }
    }

    /// Tells how far the quorum's median lies from this node's wall clock (positive: the median is ahead).
    pub fn set_median_offset_ms(&self, offset: i64) {
        let before = self.median_offset_ms.swap(offset, Ordering::Relaxed);
        if offset.abs() > self.skew_ms_max && before.abs() <= self.skew_ms_max {
            tracing::warn!(
                offset_ms = offset,
                "wall clock is far from the cluster's median; following the median"
            );
        }
    }

    /// [`StampClock::now_ms`] for a stamp. Before the first one the clock steps to what it should show, since nothing
    /// was said with it yet: a node that boots with a wrong clock learns the median before it leads.
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

    fn read(&self, stamp: bool) -> u64 {
        let mono = self.clock.mono();
        let offset = self.median_offset_ms.load(Ordering::Relaxed);
        let correction = if offset.abs() > self.skew_ms_max { offset } else { 0 };
        let target_us = (self.clock.wall_ms() as i64).saturating_add(correction).saturating_mul(1000);
        let mut state = self.state.lock();
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
        state.value_us = free_us + step;
        (state.value_us / 1000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Hands {
        wall_ms: AtomicI64,
        mono_ms: AtomicI64,
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
        let hands = Arc::new(Hands::default());
        hands.wall_ms.store(1_000_000, Ordering::Relaxed);
        let clock = StampClock::new(hands.clone(), 500);
        assert_eq!(clock.stamp_ms(), 1_000_000);
        hands.wall_ms.store(9_000_000, Ordering::Relaxed);
        hands.mono_ms.store(1_000, Ordering::Relaxed);
        assert_eq!(clock.now_ms(), 1_001_100);
    }

    #[test]
    fn a_backward_jump_slows_the_clock_and_never_turns_it_back() {
        let hands = Arc::new(Hands::default());
        hands.wall_ms.store(1_000_000, Ordering::Relaxed);
        let clock = StampClock::new(hands.clone(), 500);
        clock.stamp_ms();
        hands.wall_ms.store(10, Ordering::Relaxed);
        hands.mono_ms.store(1_000, Ordering::Relaxed);
        assert_eq!(clock.now_ms(), 1_000_900);
        assert_eq!(clock.now_ms(), 1_000_900);
    }

    #[test]
    fn a_node_far_from_the_median_follows_the_median() {
        let hands = Arc::new(Hands::default());
        hands.wall_ms.store(1_000_000, Ordering::Relaxed);
        let clock = StampClock::new(hands.clone(), 500);
        clock.stamp_ms();
        clock.set_median_offset_ms(-10_000);
        hands.wall_ms.store(1_010_000, Ordering::Relaxed);
        hands.mono_ms.store(10_000, Ordering::Relaxed);
        assert_eq!(clock.now_ms(), 1_009_000);
    }

    #[test]
    fn a_node_that_boots_an_hour_ahead_gives_its_first_stamp_by_the_median() {
        const HOUR_MS: i64 = 3_600_000;
        let hands = Arc::new(Hands::default());
        hands.wall_ms.store(1_000_000 + HOUR_MS, Ordering::Relaxed);
        let clock = StampClock::new(hands.clone(), 500);
        clock.set_median_offset_ms(-HOUR_MS);
        assert_eq!(clock.stamp_ms(), 1_000_000);
    }
}
