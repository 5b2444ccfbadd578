//! The one writer of the log: group commit over all groups.
//!
//! A step takes what is queued, lays it out as one batch, writes it with one call, syncs once, moves the groups'
//! written state and answers the callers. Between batches it drops segments that nobody needs (`reclaim.rs`).

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_env::planted::{Bug, planted};
use weir_env::{File, Next, WriterLoop};

use crate::error::Error;
use crate::group::{Group, Location};
use crate::options::Durability;
use crate::position::{GroupId, LogPosition};
use crate::queue::{Gate, Op, Shared};
use crate::reclaim::Reclaim;
use crate::record::{
    BATCH_HEADER_BYTES, BatchBuffer, FLAG_LAST, FLAG_PURGED, FilePosition, Kind, RECORD_HEADER_BYTES,
    encode_last, record_bytes,
};
use crate::segment::{SEAL_BYTES, Tail, capacity_for};

/// An idle writer says this long after its last sync how far the log is synced, so that later damage to the last
/// batch is told from a write that was cut off.
const MARKER_DELAY: Duration = Duration::from_millis(10);
/// The period of mode `everysec`.
const EVERY_SEC: Duration = Duration::from_secs(1);
const NOWHERE: LogPosition = LogPosition { term: 0, index: 0 };
/// Groups have no part in records about the log itself.
const NO_GROUP: GroupId = GroupId(0);

/// A segment that is not the tail, or the tail as far as it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentInfo {
    pub(crate) capacity: u64,
    /// Bytes of records of entries that are still there.
    pub(crate) live: u64,
}

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tail: Tail,
    /// All segments, the tail included.
    pub(crate) segments: BTreeMap<u64, SegmentInfo>,
    /// How far the log is known to be on disk.
    pub(crate) synced: FilePosition,
    /// Whether anything but a marker was written since.
    dirty: bool,
    /// Former tails with bytes that are not synced. Not in mode `always`.
    unsynced: Vec<(std::path::PathBuf, Box<dyn File>)>,
    /// Groups with written entries that are not synced.
    touched: BTreeMap<GroupId, Arc<Group>>,
    last_sync: Duration,
    /// When the next marker is due, if there is something to say.
    marker_due: Option<Duration>,
    buffer: BatchBuffer,
    ops: Vec<Op>,
    hints: Vec<(Arc<Group>, Bytes)>,
    pub(crate) reclaim: Reclaim,
    ended: bool,
    /// Keeps other processes out.
    lock: Option<Box<dyn Any + Send>>,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        tail: Tail,
        segments: BTreeMap<u64, SegmentInfo>,
        lock: Box<dyn Any + Send>,
    ) -> Self {
        let now = shared.env.clock.mono();
        Self {
            synced: tail.end(),
            dirty: false,
            shared,
            tail,
            segments,
            unsynced: Vec::new(),
            touched: BTreeMap::new(),
            last_sync: now,
            marker_due: None,
            buffer: BatchBuffer::default(),
            ops: Vec::new(),
            hints: Vec::new(),
            reclaim: Reclaim::new(now),
            ended: false,
            lock: Some(lock),
        }
    }

    fn try_step(&mut self) -> Result<Next, Error> {
        let (closing, more) = {
            let mut queue = self.shared.queue.lock();
            if let Gate::Failed(error) = &queue.gate {
                return Err(error.clone());
            }
            queue.take(self.shared.options.batch_bytes_max as u64, &mut self.ops, &mut self.hints);
            (matches!(queue.gate, Gate::Closing), !queue.is_empty())
        };
        if !self.ops.is_empty() {
            let end = self.write_ops()?;
            if end {
                self.ended = true;
                return Ok(Next::End);
            }
        } else if closing {
            // Nobody is left to hand in more, or to hear that it ended.
            self.shared.spares.wait_idle();
            self.ended = true;
            return Ok(Next::End);
        }
        let now = self.shared.env.clock.mono();
        let sync_wait = self.sync_if_due(now)?;
        let marker_wait = if more { None } else { self.mark_if_due(now)? };
        let moving = self.reclaim(now)?;
        self.publish();
        if more || moving || closing {
            return Ok(Next::Again);
        }
        let wait = [sync_wait, marker_wait, self.reclaim.wait(now)].into_iter().flatten().min();
        Ok(Next::Wait(wait))
    }

    /// Writes the taken ops as one batch and answers them. `true`: one of them was the close.
    fn write_ops(&mut self) -> Result<bool, Error> {
        let mut ops = std::mem::take(&mut self.ops);
        let mut hints = std::mem::take(&mut self.hints);
        let closes = ops.iter().any(|op| matches!(op, Op::Close { .. }));
        let result = self.write_and_sync(&ops, &hints);
        if let Err(error) = &result {
            for op in ops.drain(..) {
                op.complete(Err(error.clone()));
            }
        }
        if closes {
            // The directory is free once the close is answered.
            self.shared.spares.wait_idle();
            self.lock = None;
        }
        for op in ops.drain(..) {
            op.complete(Ok(()));
        }
        hints.clear();
        self.ops = ops;
        self.hints = hints;
        result.map(|()| closes)
    }

    fn write_and_sync(&mut self, ops: &[Op], hints: &[(Arc<Group>, Bytes)]) -> Result<(), Error> {
        let payload: u64 = ops.iter().map(Op::bytes).sum::<u64>()
            + hints.iter().map(|(_, hint)| record_bytes(hint.len()) as u64).sum::<u64>();
        let mut entries = 0;
        if payload > 0 {
            self.start_batch(payload)?;
            let mut offset_of_first = Vec::with_capacity(ops.len());
            for op in ops {
                offset_of_first.push(self.lay_out(op));
                if let Op::Append { entries: appended, .. } = op {
                    entries += appended.len() as u64;
                }
            }
            for (group, hint) in hints {
                self.buffer.push(Kind::Committed, 0, group.id, NOWHERE, hint);
            }
            self.write_batch()?;
            for (op, offset) in ops.iter().zip(offset_of_first) {
                self.note_written(op, offset);
            }
            for (group, hint) in hints {
                group.state.lock().written.committed = Some(hint.clone());
            }
        }
        self.shared.stats.lock().entries += entries;
        let must_sync = match self.shared.options.durability {
            Durability::Always => true,
            Durability::EverySec | Durability::Os => {
                ops.iter().any(|op| matches!(op, Op::Vote { .. } | Op::Sync { .. } | Op::Close { .. }))
            }
        };
        if must_sync { self.sync() } else { Ok(()) }
    }

    /// Adds an op's records; returns where the first is.
    fn lay_out(&mut self, op: &Op) -> u64 {
        let buffer = &mut self.buffer;
        match op {
            Op::Append { group, entries, .. } => {
                let mut first = None;
                for entry in entries {
                    let at = buffer.push(Kind::Entry, 0, group.id, entry.position, &entry.data);
                    first.get_or_insert(at);
                }
                first.unwrap_or_default()
            }
            Op::Vote { group, vote, .. } => buffer.push(Kind::Vote, 0, group.id, NOWHERE, vote),
            Op::Truncate { group, last_kept, .. } => match last_kept {
                Some(index) => {
                    buffer.push(Kind::Truncate, 0, group.id, LogPosition { term: 0, index: *index }, &[])
                }
                None => buffer.push(Kind::TruncateAll, 0, group.id, NOWHERE, &[]),
            },
            Op::Purge { group, upto, .. } => buffer.push(Kind::Purge, 0, group.id, *upto, &[]),
            Op::Close { .. } => buffer.push(Kind::Closed, 0, NO_GROUP, NOWHERE, &[]),
            Op::Sync { .. } => 0,
        }
    }

    /// Moves the written state of an op's group past it.
    fn note_written(&mut self, op: &Op, mut offset: u64) {
        let segments = &mut self.segments;
        let mut release = |location: Location| {
            if let Some(segment) = segments.get_mut(&u64::from(location.segment)) {
                segment.live -= record_bytes(location.len as usize) as u64;
            }
        };
        match op {
            Op::Append { group, entries, ticket, .. } => {
                let segment = u32::try_from(self.tail.number).expect("segment numbers fit");
                let mut live = 0;
                let mut state = group.state.lock();
                for entry in entries {
                    let location = Location {
                        term: entry.position.term,
                        segment,
                        offset: u32::try_from(offset).expect("segments are below 4 GiB"),
                        len: u32::try_from(entry.data.len()).expect("appends are bounded"),
                    };
                    let appended = state.written.append(entry.position.index, location);
                    assert_eq!(appended, Ok(()), "group {} is written in the order of its calls", group.id);
                    offset += record_bytes(entry.data.len()) as u64;
                    live += record_bytes(entry.data.len()) as u64;
                }
                state.written_ticket = *ticket;
                state.shrink_recent(self.shared.cache_share());
                drop(state);
                self.touched.entry(group.id).or_insert_with(|| group.clone());
                if let Some(info) = segments.get_mut(&self.tail.number) {
                    info.live += live;
                }
            }
            Op::Vote { group, vote, .. } => group.state.lock().written.vote = Some(vote.clone()),
            Op::Truncate { group, last_kept, .. } => {
                let mut state = group.state.lock();
                state.written.truncate(*last_kept, &mut release);
                if index(state.synced) > index(state.written.last) {
                    state.synced = state.written.last;
                }
                self.touched.entry(group.id).or_insert_with(|| group.clone());
            }
            Op::Purge { group, upto, .. } => {
                group.state.lock().written.purge(*upto, &mut release);
                self.touched.entry(group.id).or_insert_with(|| group.clone());
            }
            Op::Sync { .. } | Op::Close { .. } => {}
        }
    }

    /// Begins a batch with `payload` bytes of records: makes room, and puts the groups' states first in a new segment.
    pub(crate) fn start_batch(&mut self, payload: u64) -> Result<(), Error> {
        let head = self.head_bytes();
        let bytes = BATCH_HEADER_BYTES as u64 + payload + 8;
        let needed = if self.tail.fresh { bytes + head } else { bytes };
        if !self.tail.fits(needed) {
            self.roll(bytes + head)?;
        }
        self.buffer.begin(self.tail.end());
        if self.tail.fresh {
            self.lay_out_head();
        }
        Ok(())
    }

    fn head_bytes(&self) -> u64 {
        let bytes_of = |data: &Option<Bytes>| data.as_ref().map_or(0, |data| record_bytes(data.len()));
        self.shared
            .groups()
            .iter()
            .map(|group| {
                let written = &group.state.lock().written;
                (record_bytes(16) + bytes_of(&written.vote) + bytes_of(&written.committed)) as u64
            })
            .sum()
    }

    /// Adds where every group stands, so that what older segments say about it is not needed.
    fn lay_out_head(&mut self) {
        for group in self.shared.groups() {
            let state = group.state.lock();
            let written = &state.written;
            let mut flags = 0;
            if written.purged.is_some() {
                flags |= FLAG_PURGED;
            }
            if written.last.is_some() {
                flags |= FLAG_LAST;
            }
            // Without a purge, the first index is what tells where the entries begin.
            let purged = written.purged.unwrap_or(LogPosition { term: 0, index: written.first });
            self.buffer.push(Kind::Group, flags, group.id, purged, &encode_last(written.last));
            if let Some(vote) = &written.vote {
                self.buffer.push(Kind::Vote, 0, group.id, NOWHERE, vote);
            }
            if let Some(committed) = &written.committed {
                self.buffer.push(Kind::Committed, 0, group.id, NOWHERE, committed);
            }
        }
    }

    /// Writes the batch in the buffer at the tail.
    pub(crate) fn write_batch(&mut self) -> Result<(), Error> {
        let bytes = self.buffer.finish(self.synced);
        self.tail
            .file
            .write_at(bytes, self.tail.offset)
            .map_err(|e| Error::io("write", &self.tail.path, e))?;
        self.tail.offset += bytes.len() as u64;
        self.tail.fresh = false;
        self.dirty = true;
        assert!(self.tail.offset + SEAL_BYTES <= self.tail.capacity, "a batch fits in its segment");
        let mut stats = self.shared.stats.lock();
        stats.batches += 1;
        stats.bytes += bytes.len() as u64;
        drop(stats);
        self.buffer.shrink(2 * self.shared.options.batch_bytes_max);
        Ok(())
    }

    /// Adds a record to the batch in the buffer.
    pub(crate) fn push(&mut self, kind: Kind, group: GroupId, at: LogPosition, data: &[u8]) -> u64 {
        self.buffer.push(kind, 0, group, at, data)
    }

    /// Goes on in a new segment that has room for a batch of `bytes`.
    fn roll(&mut self, bytes: u64) -> Result<(), Error> {
        let shared = self.shared.clone();
        let disk = &*shared.env.disk;
        let capacity = capacity_for(bytes, shared.options.segment_bytes);
        let number = self.tail.number + 1;
        let (spare, capacity) = shared
            .spares
            .take(disk, &shared.dir, capacity, capacity_for(bytes, 0), &shared.options)
            .map_err(|e| Error::io("allocate a segment in", &shared.dir, e))?;
        let next = Tail::create(disk, &shared.dir, &spare, number, self.tail.end(), capacity)?;
        self.segments.insert(number, SegmentInfo { capacity, live: 0 });
        let mut old = std::mem::replace(&mut self.tail, next);
        // The next segment's name is on disk by now, so its absence would be a loss.
        self.buffer.begin(old.end());
        self.buffer.push(Kind::Sealed, 0, NO_GROUP, LogPosition { term: 0, index: number }, &[]);
        let seal = self.buffer.finish(self.synced);
        old.file.write_at(seal, old.offset).map_err(|e| Error::io("write", &old.path, e))?;
        if self.synced < old.end() {
            self.unsynced.push((old.path, old.file));
        }
        Ok(())
    }

    /// Puts on disk all that was written.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        let clock = self.shared.env.clock.clone();
        let start = clock.mono();
        for (path, mut file) in self.unsynced.drain(..) {
            file.sync_data().map_err(|e| Error::io("sync", &path, e))?;
        }
        if !planted(Bug::NoSync) {
            self.tail.file.sync_data().map_err(|e| Error::io("sync", &self.tail.path, e))?;
        }
        let now = clock.mono();
        let took = u64::try_from((now - start).as_micros()).unwrap_or(u64::MAX);
        self.shared.stats.lock().sync.add(took);
        for group in std::mem::take(&mut self.touched).into_values() {
            let mut state = group.state.lock();
            state.synced = state.written.last;
        }
        self.synced = self.tail.end();
        self.dirty = false;
        self.last_sync = now;
        self.marker_due = Some(now + MARKER_DELAY);
        Ok(())
    }

    pub(crate) fn sync_if_dirty(&mut self) -> Result<(), Error> {
        if self.dirty { self.sync() } else { Ok(()) }
    }

    /// Mode `everysec`: syncs, or says how long that can wait.
    fn sync_if_due(&mut self, now: Duration) -> Result<Option<Duration>, Error> {
        if self.shared.options.durability != Durability::EverySec || !self.dirty {
            return Ok(None);
        }
        let due = self.last_sync + EVERY_SEC;
        if now < due {
            return Ok(Some(due - now));
        }
        self.sync()?;
        Ok(None)
    }

    /// Writes how far the log is synced if nothing else has said so in time. Needs no sync: it may be lost.
    fn mark_if_due(&mut self, now: Duration) -> Result<Option<Duration>, Error> {
        let Some(due) = self.marker_due else { return Ok(None) };
        if now < due {
            return Ok(Some(due - now));
        }
        self.marker_due = None;
        // Not in a segment that has no room left: its successor will say it. Not after unsynced bytes either.
        if self.dirty || self.tail.fresh || !self.tail.fits(BATCH_HEADER_BYTES as u64) {
            return Ok(None);
        }
        self.buffer.begin(self.tail.end());
        self.write_batch()?;
        self.dirty = false;
        Ok(None)
    }

    /// Tells callers how much room there is, and the counters.
    fn publish(&mut self) {
        let spare_room = self.shared.options.segment_bytes.saturating_sub(SEAL_BYTES + 4096);
        let room = self.tail.room() + self.shared.spares.count() * spare_room;
        let mut queue = self.shared.queue.lock();
        queue.room = room;
        queue.disk_full = self.reclaim.disk_full();
        drop(queue);
        let mut stats = self.shared.stats.lock();
        stats.segments = self.segments.len() as u64;
        stats.segment_bytes = self.segments.values().map(|segment| segment.capacity).sum();
        stats.live_bytes = self.segments.values().map(|segment| segment.live).sum();
    }
}

fn index(position: Option<LogPosition>) -> Option<u64> {
    position.map(|position| position.index)
}

impl WriterLoop for Writer {
    fn step(&mut self) -> Next {
        match self.try_step() {
            Ok(next) => next,
            Err(error) => {
                self.shared.fail(error);
                self.ended = true;
                Next::End
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A panic, or a crash in simulation: nobody may wait for a writer that is gone.
        let error = Error::Closed;
        for op in self.ops.drain(..) {
            op.complete(Err(error.clone()));
        }
        if !self.ended {
            self.shared.fail(error);
        }
    }
}

const _: () = assert!(SEAL_BYTES as usize == BATCH_HEADER_BYTES + RECORD_HEADER_BYTES);
