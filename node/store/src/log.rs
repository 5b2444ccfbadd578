use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{oneshot, watch};
use weir_env::Env;

use crate::error::Error;
use crate::group::{Group, LogState, Planned};
use crate::options::{Durability, WalOptions};
use crate::owner::OwnerFile;
use crate::position::{GroupId, LogEntry, LogPosition};
use crate::queue::{Done, Gate, Op, Shared, append_bytes};
use crate::read;
use crate::recover::{self, Recovery};
use crate::stats::WalStats;
use crate::writer::Writer;

/// Most bytes that one call may append.
const APPEND_BYTES_MAX: u64 = 1 << 30;

/// How often an append that waits for room asks for it.
const ROOM_LOOK: Duration = Duration::from_millis(50);

/// The node's log. Clones share it; when the last one and the last [`GroupLog`] are gone, what is queued is still
/// written and the writer ends, but only [`Wal::close`] leaves the note that it ended in order.
#[derive(Clone)]
pub struct Wal {
    handle: Arc<Handle>,
}

/// Ends the writer when nobody can hand it anything any more.
struct Handle {
    shared: Arc<Shared>,
    recovery: Recovery,
    owner: OwnerFile,
}

impl Handle {
    async fn sync(&self) -> Result<(), Error> {
        let (done, synced) = answer();
        {
            let mut queue = self.shared.queue.lock();
            queue.check_open()?;
            queue.push(Op::Sync { done });
        }
        self.shared.wake.wake();
        synced.await.map_err(|_| Error::Closed)?
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        if matches!(queue.gate, Gate::Open) {
            queue.gate = Gate::Closing;
        }
        drop(queue);
        self.shared.wake.wake();
    }
}

impl Wal {
    /// Opens the log in `dir`, creating it if there is none, and starts its writer. Everything that it returns with
    /// is on disk, whatever the mode.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Version`], [`Error::Missing`]: the node must not start. [`Error::Io`]: likewise,
    /// with kind `ResourceBusy` when another process has the log open.
    pub async fn open(env: &Env, dir: &Path, options: WalOptions) -> Result<Self, Error> {
        let job = {
            let (env, dir, options) = (env.clone(), dir.to_owned(), options);
            move || recover::open(&env, &dir, options)
        };
        let opened = read::off_thread(env, "wal-open", job).await??;
        let (shared, recovery, owner) = (opened.shared.clone(), opened.recovery, opened.owner);
        let writer = Writer::new(opened.shared, opened.tail, opened.segments, opened.lock);
        env.spawn.writer("wal", Box::new(writer), shared.wake.clone());
        // The first step prepares the spare files.
        shared.wake.wake();
        Ok(Self { handle: Arc::new(Handle { shared, recovery, owner }) })
    }

    /// The part of group `id`. A group needs no creating.
    pub fn group(&self, id: GroupId) -> GroupLog {
        GroupLog { group: self.handle.shared.group(id), handle: self.handle.clone() }
    }

    /// What opening found.
    pub fn recovery(&self) -> Recovery {
        self.handle.recovery.clone()
    }

    /// Becomes an error once, when the log failed. The process has to stop then, with a non-zero status: nothing is
    /// written any more, and trying again could take lost bytes for written ones.
    pub fn failed(&self) -> watch::Receiver<Option<Error>> {
        self.handle.shared.failed.subscribe()
    }

    /// True while the disk has only the reserve left. The server then refuses writes that need room, and hands
    /// leadership over; appends go on until the reserve is really needed ([`Error::Full`]).
    pub fn space_low(&self) -> watch::Receiver<bool> {
        self.handle.shared.space_low.subscribe()
    }

    /// Counts and sizes.
    pub fn stats(&self) -> WalStats {
        let shared = &self.handle.shared;
        let mut stats = shared.stats.lock().clone();
        stats.queued_bytes = shared.queue.lock().bytes();
        stats.spares = shared.spares.count();
        stats.disk_reads = shared.readers.reads();
        stats.cached_bytes =
            shared.groups().iter().map(|group| group.state.lock().logical.recent_bytes() as u64).sum();
        stats
    }

    /// Returns once everything that was queued before is on disk, in every mode.
    pub async fn sync(&self) -> Result<(), Error> {
        self.handle.sync().await
    }

    /// Writes and syncs what is queued, in every mode, notes that the log ended in order, and ends the writer. Later
    /// calls on any handle get [`Error::Closed`].
    pub async fn close(&self) -> Result<(), Error> {
        let (done, closed) = answer();
        {
            let mut queue = self.handle.shared.queue.lock();
            queue.check_open()?;
            queue.gate = Gate::Closing;
            queue.push(Op::Close { done });
        }
        self.handle.shared.wake.wake();
        closed.await.map_err(|_| Error::Closed)?
    }
}

/// One group's part of the log. Clones share it.
///
/// Calls take effect in the order in which they are made, also when their futures are not awaited in that order or
/// are dropped: a call is queued before it returns.
#[derive(Clone)]
pub struct GroupLog {
    group: Arc<Group>,
    handle: Arc<Handle>,
}

impl GroupLog {
    /// The group.
    pub fn id(&self) -> GroupId {
        self.group.id
    }

    /// Where the log stands, counting all calls made so far.
    pub fn state(&self) -> LogState {
        let state = self.group.state.lock();
        LogState {
            purged: state.logical.purged,
            last: state.logical.last,
            vote: state.logical.vote.clone(),
            committed: state.logical.committed.clone(),
        }
    }

    /// The last entry known to be on disk, which in mode `always` is the last one whose `done` was called. A cut of
    /// the log lowers it.
    pub fn synced(&self) -> Option<LogPosition> {
        self.group.state.lock().synced
    }

    /// Whether the mode lets entries be confirmed that a power loss takes.
    pub fn may_lose_tail(&self) -> bool {
        self.handle.shared.options.durability != Durability::Always
    }

    /// Whether entries that this group had confirmed may be missing: power failed in a mode that does not sync each
    /// batch, and nothing has called [`Self::tail_restored`] since. It outlives restarts.
    pub fn tail_may_be_lost(&self) -> bool {
        self.handle.owner.lost(self.group.id)
    }

    /// Notes that the log holds again all that the group had confirmed. Both are durable on return.
    ///
    /// # Errors
    /// It could not be noted; the group counts as before.
    pub async fn tail_restored(&self) -> Result<(), Error> {
        self.handle.sync().await?;
        let (handle, id) = (self.handle.clone(), self.group.id);
        read::off_thread(&self.handle.shared.env, "wal-owner", move || {
            let shared = &handle.shared;
            handle.owner.restored(&*shared.env.disk, &shared.dir, id)
        })
        .await?
    }

    /// Adds entries at the end. They are readable at once; `done` is called once they are safe as the mode says.
    ///
    /// # Errors
    /// Given to `done`, at once for those that change nothing: [`Error::Full`], [`Error::Order`] (the first index
    /// does not follow the last, or there is a gap), [`Error::TooLarge`]. Any other means that the log has failed.
    pub fn append(&self, entries: Vec<LogEntry>, done: Done) {
        if entries.is_empty() {
            return done(Ok(()));
        }
        if let Err(refused) = self.queue_append(entries, done) {
            return (refused.done)(Err(refused.error));
        }
        self.handle.shared.wake.wake();
    }

    /// As [`Self::append`], but where that says [`Error::Full`] this waits until there is room again. Nothing is
    /// queued before. A dropped future may or may not have queued the entries.
    pub async fn append_when_room(&self, mut entries: Vec<LogEntry>, mut done: Done) {
        if entries.is_empty() {
            return done(Ok(()));
        }
        let mut told = false;
        loop {
            let Err(refused) = self.queue_append(entries, done) else {
                self.handle.shared.wake.wake();
                if told {
                    tracing::info!(group = self.group.id.0, "the disk has room for the log again");
                }
                return;
            };
            if !matches!(refused.error, Error::Full { .. }) {
                return (refused.done)(Err(refused.error));
            }
            if !told {
                told = true;
                tracing::error!(group = self.group.id.0, "{}; this replica waits for it", refused.error);
            }
            (entries, done) = (refused.entries, refused.done);
            // The writer looks at the space from time to time.
            weir_env::time::sleep(ROOM_LOOK).await;
        }
    }

    fn queue_append(&self, entries: Vec<LogEntry>, done: Done) -> Result<(), Refused> {
        let shared = &self.handle.shared;
        let bytes = append_bytes(&entries);
        let refused = |entries, done, error| Err(Refused { entries, done, error });
        if bytes > APPEND_BYTES_MAX {
            return refused(entries, done, Error::TooLarge { bytes, max: APPEND_BYTES_MAX });
        }
        let mut state = self.group.state.lock();
        if let Err(error) = state.logical.check_append(&entries) {
            return refused(entries, done, error);
        }
        let mut queue = shared.queue.lock();
        if let Err(error) = queue.check_open() {
            return refused(entries, done, error);
        }
        if !queue.check_room(bytes, shared.options.segment_bytes / 4 * 5) {
            return refused(entries, done, Error::Full { dir: shared.dir.clone() });
        }
        let ticket = queue.ticket();
        state.logical.append(&entries, ticket);
        queue.push(Op::Append { group: self.group.clone(), entries, ticket, done });
        drop(queue);
        state.shrink_recent(shared.cache_share());
        Ok(())
    }

    /// Saves the vote; it survives a power loss in every mode before this answers.
    pub fn save_vote(&self, vote: Bytes) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let answered = self.queue(|state, done, group| {
            state.logical.vote = Some(vote.clone());
            Ok(Some(Op::Vote { group, vote, done }))
        });
        async { answered?.wait().await }
    }

    /// Saves a hint of what is committed. It goes to disk with the next batch and is never worth one of its own.
    pub fn save_committed(&self, hint: Bytes) {
        let mut state = self.group.state.lock();
        state.logical.committed = Some(hint.clone());
        self.handle.shared.queue.lock().hint(&self.group, hint);
    }

    /// Cuts off all entries above `last_kept`; `None` cuts off all.
    ///
    /// # Errors
    /// [`Error::Order`]: entries that should be kept are purged; nothing was done.
    pub fn truncate_after(
        &self,
        last_kept: Option<u64>,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let answered = self.queue(|state, done, group| {
            Ok(state.truncate(last_kept)?.then_some(Op::Truncate { group, last_kept, done }))
        });
        async { answered?.wait().await }
    }

    /// Drops all entries up to `upto`. It may lie beyond the last one (a snapshot was installed): the log is empty
    /// then and goes on after it.
    pub fn purge(&self, upto: LogPosition) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let answered = self.queue(|state, done, group| {
            Ok(state.logical.purge(upto).then_some(Op::Purge { group, upto, done }))
        });
        async { answered?.wait().await }
    }

    /// The entries of `range` that exist, from its start on, as many as fit in `bytes_max` and at least one. Entries
    /// in memory cost no waiting.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]: the log is damaged and has failed.
    pub async fn read(&self, range: Range<u64>, bytes_max: usize) -> Result<Vec<LogEntry>, Error> {
        let planned = self.group.state.lock().plan_read(range.clone(), bytes_max);
        if planned.iter().all(|item| matches!(item, Planned::Memory(_))) {
            return Ok(planned
                .into_iter()
                .filter_map(|item| match item {
                    Planned::Memory(entry) => Some(entry),
                    Planned::Disk(..) => None,
                })
                .collect());
        }
        let (shared, group) = (self.handle.shared.clone(), self.group.clone());
        read::off_thread(&self.handle.shared.env, "wal-read", move || {
            read::read_planned(&shared, &group, range, bytes_max, planned)
        })
        .await?
    }

    /// Changes the group's state and queues what the change needs, as one step.
    fn queue(
        &self,
        change: impl FnOnce(&mut crate::group::GroupState, Done, Arc<Group>) -> Result<Option<Op>, Error>,
    ) -> Result<Answer, Error> {
        let (done, answered) = answer();
        let mut state = self.group.state.lock();
        let mut queue = self.handle.shared.queue.lock();
        queue.check_open()?;
        match change(&mut state, done, self.group.clone())? {
            Some(op) => {
                queue.push(op);
                drop(queue);
                drop(state);
                self.handle.shared.wake.wake();
                Ok(Answer(Some(answered)))
            }
            None => Ok(Answer(None)),
        }
    }
}

/// An append that was not queued.
struct Refused {
    entries: Vec<LogEntry>,
    done: Done,
    error: Error,
}

/// What the writer will say; nothing to wait for when nothing changed.
struct Answer(Option<oneshot::Receiver<Result<(), Error>>>);

impl Answer {
    async fn wait(self) -> Result<(), Error> {
        match self.0 {
            Some(answered) => answered.await.map_err(|_| Error::Closed)?,
            None => Ok(()),
        }
    }
}

fn answer() -> (Done, oneshot::Receiver<Result<(), Error>>) {
    let (tx, rx) = oneshot::channel();
    // The receiver may be gone: the call was made all the same.
    (Box::new(move |result| drop(tx.send(result))), rx)
}
