//! The clocks of a simulated node: the world's time, plus a skew of its wall clock that a fault
//! may change at any moment. The monotonic clock has no skew.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use weir_env::Clock;

use crate::trace::Trace;

/// Wall time at the start of every simulation, in Unix milliseconds (2026-01-01).
pub(crate) const EPOCH_MS: u64 = 1_767_225_600_000;

/// One node's clocks.
pub(crate) struct SimClock {
    /// Added to wall time, in milliseconds; shared with the world.
    pub(crate) skew_ms: Arc<AtomicI64>,
    /// Knows the world's time when no host is running.
    pub(crate) trace: Trace,
}

impl Clock for SimClock {
    fn wall_ms(&self) -> u64 {
        let now_ms = u64::try_from(self.mono().as_millis()).unwrap_or(u64::MAX);
        (EPOCH_MS + now_ms).saturating_add_signed(self.skew_ms.load(Ordering::Relaxed))
    }

    fn mono(&self) -> Duration {
        turmoil::sim_elapsed().unwrap_or_else(|| self.trace.now())
    }
}
