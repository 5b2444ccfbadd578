//! The replicated thing, and the adapter that feeds it.
//!
//! The consensus library hands over committed entries; the adapter gathers all that are ready into one
//! batch, so the machine is entered once for many entries. Snapshots are taken as a frozen view in no time
//! and encoded beside apply.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_env::Env;
use weir_env::time::Instant;
use weir_store::{LogPosition, SnapshotStore};

use crate::propose::{Fate, Nonce, Waiting};
use crate::snapshot_file::{Label, Origin, SnapshotData, SnapshotFile};
use crate::types::{LogId, SnapshotMeta, StoredMembership, TypeConfig, position};
use crate::{NodeId, Watermark, wire};

/// One batch given to the machine ends at this many bytes or entries, so that a long replay does not hold
/// all of it in memory.
const BATCH_BYTES_MAX: u64 = 4 << 20;
const BATCH_ENTRIES_MAX: usize = 8192;

/// Chunks of a snapshot are gathered up to about this many bytes before they are written.
const CHUNK_BYTES: usize = 256 << 10;

/// An attempt at a snapshot that failed is repeated after this long, or after as much log as lies between two
/// snapshots: each writes all of the state, or as much as the disk holds.
const SNAPSHOT_RETRY: Duration = Duration::from_secs(30);

/// A committed log entry on its way into the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Its place in the log.
    pub position: LogPosition,
    /// The proposed bytes; `None` for entries of consensus itself, which only move the position.
    pub payload: Option<Bytes>,
    /// Set when this process proposed it and still waits for it.
    pub nonce: Option<Nonce>,
}

/// The replicated thing.
///
/// Every index arrives exactly once and in order, from one task at a time. After a start the machine is
/// empty; what it held comes back as a restored snapshot and the log behind it.
pub trait StateMachine: Send + 'static {
    /// Applies committed entries. Must not block or take long.
    fn apply(&mut self, batch: Vec<Committed>);

    /// A proposal that apply will not tell about.
    fn settle(&mut self, nonce: Nonce, fate: Fate);

    /// A frozen view of the state, in constant time.
    fn snapshot(&self) -> Box<dyn SnapshotSource>;

    /// Begins to receive a state that will replace this one.
    fn begin_restore(&mut self) -> Box<dyn SnapshotSink>;

    /// Replaces the state by what `sink` received. `at` is the last entry it holds.
    ///
    /// # Errors
    /// The received bytes do not make a state; the replica stops.
    fn finish_restore(&mut self, sink: Box<dyn SnapshotSink>, at: LogPosition) -> Result<(), String>;
}

/// A frozen state on its way out.
pub trait SnapshotSource: Send {
    /// Appends the next piece to `out`; `false` when that was the last. A piece is small enough not to
    /// hold up other tasks.
    fn next_chunk(&mut self, out: &mut Vec<u8>) -> bool;
}

/// A state on its way in.
pub trait SnapshotSink: Send + Any {
    /// Takes the next piece. Pieces may be cut elsewhere than they were written.
    ///
    /// # Errors
    /// The bytes are not a state of this program.
    fn chunk(&mut self, bytes: &[u8]) -> Result<(), String>;
}

/// Settles fates and applies entries under one lock: the machine is never entered twice at once.
pub(crate) type SharedMachine = Arc<Mutex<Box<dyn StateMachine>>>;

/// How much log lies behind the last snapshot, by bytes.
pub(crate) struct LogBytes {
    state: Mutex<LogBytesState>,
    snapshot_after: u64,
    /// Rung when a snapshot is due.
    pub(crate) due: Notify,
}

#[derive(Default)]
struct LogBytesState {
    total: u64,
    at_snapshot: u64,
    asked: bool,
    /// After a failure: when, or at which `total`, to ask again.
    retry: Option<(Instant, u64)>,
    /// (index, bytes up to and including it), a sample now and then, oldest first.
    samples: VecDeque<(u64, u64)>,
}

impl LogBytes {
    pub(crate) fn new(snapshot_after: u64) -> Self {
        Self { state: Mutex::default(), snapshot_after: snapshot_after.max(1), due: Notify::new() }
    }

    fn applied(&self, index: u64, bytes: u64) {
        let mut state = self.state.lock();
        state.total += bytes;
        let step = self.snapshot_after / 64;
        if state.samples.back().is_none_or(|(_, at)| state.total - at >= step) {
            let total = state.total;
            state.samples.push_back((index, total));
        }
        if !state.asked
            && state.total - state.at_snapshot >= self.snapshot_after
            && state.retry.is_none_or(|(at, total)| state.total >= total || Instant::now() >= at)
        {
            state.asked = true;
            self.due.notify_one();
        }
    }

    /// A snapshot up to `index` is on disk. Answers how far the log may be purged: a tail of a quarter of
    /// the bytes between snapshots stays, so that a follower which lags a little needs no snapshot.
    pub(crate) fn snapshot_taken(&self, index: u64) -> Option<u64> {
        let mut state = self.state.lock();
        let covered = state.samples.iter().rev().find(|(at, _)| *at <= index).map(|(_, bytes)| *bytes)?;
        state.at_snapshot = covered;
        state.asked = false;
        state.retry = None;
        let keep_from = covered.saturating_sub(self.snapshot_after / 4);
        let mut upto = None;
        while let Some((at, bytes)) = state.samples.front().copied() {
            if bytes > keep_from {
                break;
            }
            upto = Some(at);
            state.samples.pop_front();
        }
        upto
    }

    /// There was nothing to take yet; the next entry asks again.
    fn snapshot_too_early(&self) {
        self.state.lock().asked = false;
    }

    /// The attempt came to nothing.
    fn snapshot_failed(&self) {
        let mut state = self.state.lock();
        state.asked = false;
        state.retry = Some((Instant::now() + SNAPSHOT_RETRY, state.total + self.snapshot_after));
    }
}

/// Feeds the machine from the log.
pub(crate) struct Applier {
    me: NodeId,
    env: Env,
    machine: SharedMachine,
    snapshots: SnapshotStore,
    waiting: Arc<Waiting>,
    log_bytes: Arc<LogBytes>,
    applied: Watermark,
    last_applied: Option<LogId>,
    membership: StoredMembership,
    current: Arc<Mutex<Option<SnapshotFile>>>,
}

impl Applier {
    /// Opens the newest snapshot; the library restores it before anything else.
    pub(crate) async fn open(
        me: NodeId,
        env: Env,
        machine: SharedMachine,
        snapshots: SnapshotStore,
        waiting: Arc<Waiting>,
        log_bytes: Arc<LogBytes>,
        applied: Watermark,
    ) -> Result<Self, weir_store::Error> {
        let current = SnapshotFile::latest(&snapshots).await?;
        Ok(Self {
            me,
            env,
            machine,
            snapshots,
            waiting,
            log_bytes,
            applied,
            last_applied: None,
            membership: StoredMembership::default(),
            current: Arc::new(Mutex::new(current)),
        })
    }

    fn enter(&mut self, batch: Batch) {
        let Some(last) = batch.last else { return };
        {
            let mut machine = self.machine.lock();
            for nonce in batch.not_done {
                machine.settle(nonce, Fate::NotDone);
            }
            machine.apply(batch.entries);
        }
        for responder in batch.responders {
            responder.send(());
        }
        self.last_applied = Some(last);
        self.applied.raise(last.index);
    }
}

#[derive(Default)]
struct Batch {
    entries: Vec<Committed>,
    responders: Vec<openraft::storage::ApplyResponder<TypeConfig>>,
    not_done: Vec<Nonce>,
    bytes: u64,
    last: Option<LogId>,
}

impl RaftStateMachine<TypeConfig> for Applier {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.last_applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let mut batch = Batch::default();
        loop {
            // While entries are ready they join the batch; where reading has to wait, the batch goes in.
            let next = match entries.next().now_or_never() {
                Some(next) => next,
                None => {
                    self.enter(std::mem::take(&mut batch));
                    entries.next().await
                }
            };
            let Some(next) = next else { break };
            let (entry, responder) = next?;
            let at = position(&entry.log_id);
            let bytes = wire::entry_bytes(&entry);
            batch.bytes += bytes;
            self.log_bytes.applied(at.index, bytes);
            let nonce = self.waiting.applied(at, &mut batch.not_done);
            let payload = match entry.payload {
                EntryPayload::Blank => None,
                EntryPayload::Normal(proposal) => Some(proposal.payload),
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), membership);
                    None
                }
            };
            batch.entries.push(Committed { position: at, payload, nonce });
            batch.responders.extend(responder);
            batch.last = Some(entry.log_id);
            if batch.bytes >= BATCH_BYTES_MAX || batch.entries.len() >= BATCH_ENTRIES_MAX {
                self.enter(std::mem::take(&mut batch));
                tokio::task::yield_now().await;
            }
        }
        self.enter(batch);
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<Builder> {
        // Before the first entry there is nothing to take.
        if self.last_applied.is_none() && !force {
            self.log_bytes.snapshot_too_early();
            return None;
        }
        Some(self.get_snapshot_builder().await)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder {
            source: Mutex::new(Some(self.machine.lock().snapshot())),
            label: Label {
                meta: SnapshotMeta {
                    last_log_id: self.last_applied,
                    last_membership: self.membership.clone(),
                },
                origin: Origin { node: self.me, draw: self.env.rng.u64() },
            },
            snapshots: self.snapshots.clone(),
            current: self.current.clone(),
            log_bytes: self.log_bytes.clone(),
        }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, data: SnapshotData) -> Result<(), io::Error> {
        let Some(last) = meta.last_log_id else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a snapshot without a position"));
        };
        let file = match data {
            SnapshotData::Stored(file) => file,
            SnapshotData::Received(writing) => writing.finish().await.map_err(io::Error::other)?,
            SnapshotData::NotTaken => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a snapshot that was not taken"));
            }
        };
        let mut sink = self.machine.lock().begin_restore();
        let mut reader = file.open().await.map_err(io::Error::other)?;
        while let Some(chunk) = reader.next_chunk().await.map_err(io::Error::other)? {
            sink.chunk(&chunk).map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))?;
            tokio::task::yield_now().await;
        }
        let at = position(&last);
        {
            let mut machine = self.machine.lock();
            for (nonce, fate) in self.waiting.covered_by_snapshot(at) {
                machine.settle(nonce, fate);
            }
            machine
                .finish_restore(sink, at)
                .map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))?;
        }
        self.last_applied = Some(last);
        self.membership = meta.last_membership.clone();
        replace_current(&self.current, file);
        self.applied.raise(last.index);
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<openraft::alias::SnapshotOf<TypeConfig, SnapshotData>>, io::Error> {
        let current = self.current.lock().clone();
        Ok(current.map(stored))
    }
}

fn stored(file: SnapshotFile) -> openraft::alias::SnapshotOf<TypeConfig, SnapshotData> {
    Snapshot { meta: file.label.meta.clone(), snapshot: SnapshotData::Stored(file) }
}

fn not_taken() -> openraft::alias::SnapshotOf<TypeConfig, SnapshotData> {
    Snapshot { meta: SnapshotMeta::default(), snapshot: SnapshotData::NotTaken }
}

/// A snapshot that finishes after a newer one was installed does not replace it.
fn replace_current(current: &Mutex<Option<SnapshotFile>>, file: SnapshotFile) {
    let mut current = current.lock();
    if current.as_ref().is_none_or(|old| old.label.meta.last_log_id <= file.label.meta.last_log_id) {
        *current = Some(file);
    }
}

/// Encodes one frozen view, beside apply.
pub(crate) struct Builder {
    /// Taken out by the one build; the lock only makes the builder shareable.
    source: Mutex<Option<Box<dyn SnapshotSource>>>,
    label: Label,
    snapshots: SnapshotStore,
    current: Arc<Mutex<Option<SnapshotFile>>>,
    log_bytes: Arc<LogBytes>,
}

impl Builder {
    async fn write(&mut self) -> Result<SnapshotFile, weir_store::Error> {
        let mut source = self.source.get_mut().take().expect("a builder builds once");
        let mut writer = SnapshotFile::take(&self.snapshots, self.label.clone()).await?;
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        loop {
            let more = source.next_chunk(&mut out);
            if out.len() >= CHUNK_BYTES || !more {
                writer.push(&Bytes::from(std::mem::take(&mut out))).await?;
            }
            if !more {
                return writer.finish().await;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(
        &mut self,
    ) -> Result<openraft::alias::SnapshotOf<TypeConfig, SnapshotData>, io::Error> {
        match self.write().await {
            Ok(file) => {
                replace_current(&self.current, file.clone());
                Ok(stored(file))
            }
            Err(error) => {
                self.log_bytes.snapshot_failed();
                if !error.is_full() {
                    return Err(io::Error::other(error));
                }
                // A disk without room for a snapshot is no reason to stop: an older one stands, or else the whole
                // log. What the library already knows, or a position before all entries, changes nothing there.
                tracing::warn!(%error, "no snapshot was taken");
                let standing = self.current.lock().clone();
                Ok(standing.map_or_else(not_taken, stored))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_due_by_bytes_and_purge_keeps_a_tail() {
        let bytes = LogBytes::new(1000);
        for index in 1..=9 {
            bytes.applied(index, 100);
        }
        assert!(bytes.due.notified().now_or_never().is_none());
        bytes.applied(10, 100);
        assert!(bytes.due.notified().now_or_never().is_some());
        // 1000 bytes are covered, 250 of them stay.
        assert_eq!(bytes.snapshot_taken(10), Some(7));
        for index in 11..=19 {
            bytes.applied(index, 100);
        }
        assert!(bytes.due.notified().now_or_never().is_none());
        bytes.applied(20, 100);
        assert!(bytes.due.notified().now_or_never().is_some());
        assert_eq!(bytes.snapshot_taken(20), Some(17));
    }

    #[test]
    fn a_failed_snapshot_is_not_tried_again_at_every_entry() {
        let bytes = LogBytes::new(1000);
        let mut asked = Vec::new();
        for index in 1..=40 {
            bytes.applied(index, 100);
            if bytes.due.notified().now_or_never().is_some() {
                asked.push(index);
                bytes.snapshot_failed();
            }
        }
        assert_eq!(asked, [10, 20, 30, 40]);
        bytes.state.lock().retry = Some((Instant::now(), u64::MAX));
        bytes.applied(41, 1);
        assert!(bytes.due.notified().now_or_never().is_some(), "time alone is enough");
    }
}
