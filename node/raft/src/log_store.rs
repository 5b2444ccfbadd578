//! The consensus library's log over the node's shared log.
//!
//! Appends are queued and return at once; the writer completes them after the batch is durable. An entry
//! is readable from the moment it is queued, so replication runs beside the sync.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use futures_util::{Stream, stream};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use weir_env::planted::{Bug, planted};
use weir_store::GroupLog;

use crate::propose::Waiting;
use crate::types::{Entry, LogId, TypeConfig, Vote, log_id, position};
use crate::wire;

/// Bytes read from the log at once: for one message to a follower, or for one step of apply.
const READ_BYTES: usize = 1 << 20;

/// Bytes handed to the log in one call, unless a single entry is larger.
const APPEND_BYTES: usize = 64 << 20;

#[derive(Clone)]
pub(crate) struct LogStore {
    log: GroupLog,
    waiting: Arc<Waiting>,
    durable_vote: Arc<Mutex<Option<Vote>>>,
}

fn failed(error: weir_store::Error) -> io::Error {
    io::Error::other(error)
}

impl LogStore {
    pub(crate) fn new(log: GroupLog, waiting: Arc<Waiting>) -> Self {
        Self { log, waiting, durable_vote: Arc::default() }
    }

    /// The last vote that this process put on disk; `None` before its first.
    pub(crate) fn durable_vote(&self) -> Arc<Mutex<Option<Vote>>> {
        self.durable_vote.clone()
    }

    fn clip(&self, range: &impl RangeBounds<u64>) -> (u64, u64) {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let state = self.log.state();
        let first = state.purged.map_or(0, |purged| purged.index + 1);
        let behind_last = state.last.map_or(0, |last| last.index + 1);
        (start.max(first), end.min(behind_last))
    }

    async fn read(&self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let entries = self.log.read(start..end, READ_BYTES).await.map_err(failed)?;
        entries.into_iter().map(|entry| Ok(wire::decode_entry(entry)?)).collect()
    }
}

/// One group's entries on the way to apply, read piece by piece.
struct Reading {
    store: LogStore,
    next: u64,
    end: u64,
    ready: VecDeque<Entry>,
}

impl Reading {
    async fn next(mut self) -> io::Result<Option<(Entry, Self)>> {
        if self.ready.is_empty() && self.next < self.end {
            self.ready = self.store.read(self.next, self.end).await?.into();
            if self.ready.is_empty() {
                let missing = format!("log entry {} is missing", self.next);
                return Err(io::Error::new(io::ErrorKind::InvalidData, missing));
            }
            self.next += self.ready.len() as u64;
        }
        Ok(self.ready.pop_front().map(|entry| (entry, self)))
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = Result<Entry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (next, end) = self.clip(&range);
        let reading = Reading { store: self.clone(), next, end, ready: VecDeque::new() };
        Box::pin(stream::try_unfold(reading, Reading::next))
    }

    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (mut start, end) = self.clip(&range);
        let mut all = Vec::new();
        while start < end {
            let some = self.read(start, end).await?;
            if some.is_empty() {
                break;
            }
            start += some.len() as u64;
            all.extend(some);
        }
        Ok(all)
    }

    /// Replication reads here, and a stream of a leader that is no more, or of a follower that has lost what it
    /// had, may ask for what is purged by now. The library would send what is left behind the old position, so such
    /// a read has to come back empty: it is then a heartbeat.
    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        let mut entries = self.read(start, end).await?;
        if entries.first().is_some_and(|first| first.log_id.index != start) {
            entries.clear();
        }
        Ok(entries)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        let vote = self.log.state().vote;
        Ok(vote.map(wire::decode_vote).transpose()?)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let state = self.log.state();
        let purged = state.purged.map(log_id);
        let last = state.last.map(log_id);
        Ok(LogState { last_purged_log_id: purged, last_log_id: last.or(purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        if !planted(Bug::VoteInMemory) {
            self.log.save_vote(wire::encode_vote(vote)).await.map_err(failed)?;
        }
        *self.durable_vote.lock() = Some(*vote);
        Ok(())
    }

    /// Only a hint: it rides with the next batch and is never synced for its own sake.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        if let Some(committed) = committed {
            self.log.save_committed(wire::encode_position(&committed));
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        let state = self.log.state();
        let Some(committed) = state.committed else { return Ok(None) };
        let committed = wire::decode_position(committed)?;
        // The hint may have outlived a torn tail.
        Ok(state.last.filter(|last| last.index >= committed.index).map(|_| committed))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut encoded = Vec::new();
        let mut bytes = 0;
        for entry in entries {
            if let EntryPayload::Normal(proposal) = &entry.payload
                && let Some(nonce) = proposal.nonce
            {
                self.waiting.appended(nonce, position(&entry.log_id));
            }
            let entry = wire::encode_entry(&entry);
            if bytes > 0 && bytes + entry.data.len() > APPEND_BYTES {
                // A part that fails makes every later one fail, so only the last one has to tell.
                self.log.append_when_room(std::mem::take(&mut encoded), Box::new(|_| {})).await;
                bytes = 0;
            }
            bytes += entry.data.len();
            encoded.push(entry);
        }
        // A full disk holds this replica up, and it goes on when there is room: the library would stop for good.
        let done = Box::new(move |done: Result<(), weir_store::Error>| {
            callback.io_completed(done.map_err(failed));
        });
        self.log.append_when_room(encoded, done).await;
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        self.log.truncate_after(last.map(|last| last.index)).await.map_err(failed)
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        let last = self.log.state().last.filter(|_| planted(Bug::PurgeTooMuch));
        self.log.purge(last.unwrap_or_else(|| position(&upto))).await.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use weir_env::Env;
    use weir_store::{GroupId, LogPosition, Wal, WalOptions};

    use super::*;

    #[tokio::test]
    async fn replication_finds_nothing_where_the_log_is_purged() {
        let dir = tempfile::tempdir().unwrap();
        let wal = Wal::open(&Env::system(), dir.path(), WalOptions::default()).await.unwrap();
        let mut store = LogStore::new(wal.group(GroupId(1)), Waiting::new().0);
        let entries = (0..10)
            .map(|index| Entry { log_id: log_id(LogPosition::new(1, index)), payload: EntryPayload::Blank });
        store.append(entries, IOFlushed::noop()).await.unwrap();
        store.purge(log_id(LogPosition::new(1, 4))).await.unwrap();

        let indexes =
            |entries: Vec<Entry>| entries.iter().map(|entry| entry.log_id.index).collect::<Vec<_>>();
        assert_eq!(indexes(store.limited_get_log_entries(4, 10).await.unwrap()), []);
        assert_eq!(indexes(store.limited_get_log_entries(5, 10).await.unwrap()), [5, 6, 7, 8, 9]);
        assert_eq!(indexes(store.try_get_log_entries(0..10).await.unwrap()), [5, 6, 7, 8, 9]);
        wal.close().await.unwrap();
    }
}
