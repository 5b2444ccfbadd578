//! Sleeping and timeouts: tokio's, which run on simulated time in simulation.

pub use std::time::Duration;
pub use tokio::time::error::Elapsed;
pub use tokio::time::{
    Instant, Interval, MissedTickBehavior, Sleep, Timeout, interval, interval_at, sleep, sleep_until,
    timeout, timeout_at,
};
