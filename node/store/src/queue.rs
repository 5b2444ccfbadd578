//! What callers hand to the writer, and the state that both share.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use weir_env::{Env, Wake};

use crate::error::Error;
use crate::group::{Group, GroupState};
use crate::options::WalOptions;
use crate::position::{GroupId, LogEntry, LogPosition};
use crate::read::Readers;
use crate::record::{BATCH_HEADER_BYTES, record_bytes};
use crate::spares::Spares;
use crate::stats::WalStats;

/// Told, on the writer's thread, that a call's bytes are as safe as the mode says, or that they may not be. Must not
/// block.
pub type Done = Box<dyn FnOnce(Result<(), Error>) + Send>;

pub(crate) enum Op {
    Append { group: Arc<Group>, entries: Vec<LogEntry>, ticket: u64, done: Done },
    Vote { group: Arc<Group>, vote: Bytes, done: Done },
    Truncate { group: Arc<Group>, last_kept: Option<u64>, done: Done },
    Purge { group: Arc<Group>, upto: LogPosition, done: Done },
    Sync { done: Done },
    Close { done: Done },
}

impl Op {
    /// Bytes that its records will take.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Append { entries, .. } => append_bytes(entries),
            Self::Vote { vote, .. } => record_bytes(vote.len()) as u64,
            Self::Truncate { .. } | Self::Purge { .. } | Self::Close { .. } => record_bytes(0) as u64,
            Self::Sync { .. } => 0,
        }
    }

    pub(crate) fn complete(self, result: Result<(), Error>) {
        match self {
            Self::Append { done, .. }
            | Self::Vote { done, .. }
            | Self::Truncate { done, .. }
            | Self::Purge { done, .. }
            | Self::Sync { done }
            | Self::Close { done } => done(result),
        }
    }
}

pub(crate) fn append_bytes(entries: &[LogEntry]) -> u64 {
    entries.iter().map(|entry| record_bytes(entry.data.len()) as u64).sum()
}

/// Whether new calls are taken.
#[derive(Debug)]
pub(crate) enum Gate {
    Open,
    Closing,
    Failed(Error),
}

pub(crate) struct Queue {
    pub(crate) gate: Gate,
    ops: VecDeque<Op>,
    bytes: u64,
    /// Committed hints for the next batch, whatever brings it about.
    hints: BTreeMap<GroupId, (Arc<Group>, Bytes)>,
    next_ticket: u64,
    /// Bytes that can be written without asking the disk for more, as of the writer's last look.
    pub(crate) room: u64,
    /// Whether the disk gave no more when asked last.
    pub(crate) disk_full: bool,
}

impl Queue {
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        match &self.gate {
            Gate::Open => Ok(()),
            Gate::Closing => Err(Error::Closed),
            Gate::Failed(e) => Err(e.clone()),
        }
    }

    /// Whether there is room for `bytes` more of what can be refused.
    pub(crate) fn check_room(&self, bytes: u64, reserve: u64) -> bool {
        !self.disk_full || self.room >= self.bytes + bytes + BATCH_HEADER_BYTES as u64 + reserve
    }

    pub(crate) fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    pub(crate) fn push(&mut self, op: Op) {
        self.bytes += op.bytes();
        self.ops.push_back(op);
    }

    pub(crate) fn hint(&mut self, group: &Arc<Group>, hint: Bytes) {
        self.hints.insert(group.id, (group.clone(), hint));
    }

    /// Moves out the ops at the front, up to `bytes_max` but at least one, and with them all hints.
    pub(crate) fn take(&mut self, bytes_max: u64, into: &mut Vec<Op>, hints: &mut Vec<(Arc<Group>, Bytes)>) {
        let mut bytes = 0;
        while let Some(op) = self.ops.front() {
            let more = op.bytes();
            if !into.is_empty() && bytes + more > bytes_max {
                break;
            }
            bytes += more;
            into.extend(self.ops.pop_front());
        }
        self.bytes -= bytes;
        if !into.is_empty() {
            hints.extend(std::mem::take(&mut self.hints).into_values());
        }
    }

    pub(crate) fn take_all(&mut self) -> VecDeque<Op> {
        self.bytes = 0;
        std::mem::take(&mut self.ops)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What the log's users, its writer and its helpers' jobs share.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) options: WalOptions,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) wake: Arc<Wake>,
    groups: Mutex<BTreeMap<GroupId, Arc<Group>>>,
    /// Bytes of written entries that one group may keep in memory.
    cache_share: AtomicUsize,
    pub(crate) readers: Readers,
    pub(crate) spares: Spares,
    pub(crate) stats: Mutex<WalStats>,
    pub(crate) failed: watch::Sender<Option<Error>>,
    pub(crate) space_low: watch::Sender<bool>,
}

impl Shared {
    pub(crate) fn new(
        env: &Env,
        dir: PathBuf,
        options: WalOptions,
        groups: BTreeMap<GroupId, Arc<Group>>,
        spares: Spares,
    ) -> Self {
        let shared = Self {
            env: env.clone(),
            readers: Readers::new(env.clone(), dir.clone()),
            dir,
            queue: Mutex::new(Queue {
                gate: Gate::Open,
                ops: VecDeque::new(),
                bytes: 0,
                hints: BTreeMap::new(),
                next_ticket: 0,
                room: 0,
                disk_full: false,
            }),
            wake: Wake::new(),
            cache_share: AtomicUsize::new(options.cache_bytes),
            groups: Mutex::new(groups),
            spares,
            stats: Mutex::default(),
            failed: watch::Sender::new(None),
            space_low: watch::Sender::new(false),
            options,
        };
        shared.divide_cache();
        shared
    }

    /// The group `id`, made on first use.
    pub(crate) fn group(&self, id: GroupId) -> Arc<Group> {
        let group = self
            .groups
            .lock()
            .entry(id)
            .or_insert_with(|| Arc::new(Group { id, state: Mutex::new(GroupState::default()) }))
            .clone();
        self.divide_cache();
        group
    }

    pub(crate) fn groups(&self) -> Vec<Arc<Group>> {
        self.groups.lock().values().cloned().collect()
    }

    fn divide_cache(&self) {
        let groups = self.groups.lock().len().max(1);
        self.cache_share.store(self.options.cache_bytes / groups, Ordering::Relaxed);
    }

    pub(crate) fn cache_share(&self) -> usize {
        self.cache_share.load(Ordering::Relaxed)
    }

    /// Ends the log for good: what is queued and what comes later is answered with `error`. The first error stays.
    pub(crate) fn fail(&self, error: Error) {
        let queued = {
            let mut queue = self.queue.lock();
            if !matches!(queue.gate, Gate::Failed(_)) {
                queue.gate = Gate::Failed(error.clone());
            }
            queue.take_all()
        };
        for op in queued {
            op.complete(Err(error.clone()));
        }
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            if first {
                *failed = Some(error);
            }
            first
        });
        self.wake.wake();
    }
}
