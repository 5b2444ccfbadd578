use std::time::Duration;

/// Two clocks. Sleeping and timeouts are in [`crate::time`].
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch. May jump either way.
    fn wall_ms(&self) -> u64;

    /// Time since some fixed moment before now. Never goes back.
    fn mono(&self) -> Duration;
}
