//! CLIENT PAUSE: what clients of this node send is taken and not started until it ends.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub struct Pause {
    any: AtomicBool,
    /// Monotonic end, and whether only writes wait.
    state: Mutex<(Duration, bool)>,
}

impl Pause {
    /// Waits until then, or longer if that was asked for before.
    pub fn begin(&self, until: Duration, writes_only: bool) {
        let mut state = self.state.lock();
        *state = (state.0.max(until), writes_only);
        self.any.store(true, Relaxed);
    }

    /// Goes on at once.
    pub fn end(&self) {
        *self.state.lock() = (Duration::ZERO, false);
        self.any.store(false, Relaxed);
    }

    /// Whether a call has to wait. `now` is asked only if any may.
    pub fn holds(&self, writes: bool, now: impl FnOnce() -> Duration) -> bool {
        if !self.any.load(Relaxed) {
            return false;
        }
        let mut state = self.state.lock();
        let (until, writes_only) = *state;
        if now() >= until {
            *state = (Duration::ZERO, false);
            self.any.store(false, Relaxed);
            return false;
        }
        writes || !writes_only
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_writes_lets_reads_through_and_ends_by_itself() {
        let pause = Pause::default();
        let at = Duration::from_secs;
        assert!(!pause.holds(true, || at(0)));
        pause.begin(at(9), false);
        pause.begin(at(5), true);
        assert!(pause.holds(true, || at(8)) && !pause.holds(false, || at(8)), "never shorter");
        assert!(!pause.holds(true, || at(9)));
        pause.begin(at(5), true);
        pause.end();
        assert!(!pause.holds(true, || at(0)));
    }
}
