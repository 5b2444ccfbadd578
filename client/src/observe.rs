//! What a client tells about itself while it works.

use crate::{EntryId, Error};
use std::time::Duration;

/// Hooks for metrics and traces. Every method does nothing unless overridden, is called where the thing happens,
/// and must not block. The client also writes `tracing` events (target `weir_client`) for what an operator should see.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use weir_client::{Observer, Options};
///
/// #[derive(Default)]
/// struct Redirects(AtomicU64);
///
/// impl Observer for Redirects {
///     fn redirected(&self, _command: &str, _to: &str) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let options = Options::default().observer(Redirects::default());
/// ```
#[allow(unused_variables, reason = "the names tell what is told")]
pub trait Observer: Send + Sync {
    /// A connection to a node was made.
    fn connected(&self, addr: &str) {}
    /// A connection could not be made, or broke.
    fn disconnected(&self, addr: &str, why: &str) {}
    /// A call ended after `took`, in all its attempts.
    fn called(&self, command: &str, took: Duration, outcome: Result<(), &Error>) {}
    /// A server said that another one serves the key.
    fn redirected(&self, command: &str, to: &str) {}
    /// A call will be tried again after `pause`.
    fn retried(&self, command: &str, why: &str, pause: Duration) {}
    /// The map of the cluster was learned anew.
    fn map_refreshed(&self, nodes: usize) {}
    /// A batch of appends was answered after `took`.
    fn appended(&self, stream: &[u8], entries: usize, took: Duration) {}
    /// A worker's handler ended; `failure` is what it failed with.
    fn handled(&self, stream: &[u8], id: EntryId, took: Duration, failure: Option<&str>) {}
    /// A worker acknowledged entries.
    fn acknowledged(&self, stream: &[u8], entries: usize) {}
    /// A worker took over entries that another consumer, or an earlier life of this one, left pending.
    fn claimed(&self, stream: &[u8], entries: usize) {}
    /// A worker moved an entry to the dead-letter stream.
    fn dead_lettered(&self, stream: &[u8], id: EntryId, reason: &str) {}
    /// A member of a topic began to own a partition.
    fn partition_gained(&self, topic: &str, partition: u32) {}
    /// A member of a topic gave a partition up, or lost it (`planned` is false).
    fn partition_lost(&self, topic: &str, partition: u32, planned: bool) {}
}

/// Tells nobody.
pub(crate) struct Silent;

impl Observer for Silent {}
