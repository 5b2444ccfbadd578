//! Giving space back: segments that nobody needs are dropped, oldest first; live entries that pin an old segment are
//! copied to the tail; spare files are prepared; the free space is watched.
//!
//! Bound: segment files take at most about three times the bytes of live records plus [`SLACK_SEGMENTS`] segments.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::group::{Group, Location, Planned};
use crate::queue::Shared;
use crate::read;
use crate::record::{Kind, record_bytes};
use crate::segment;
use crate::writer::{SegmentInfo, Writer};

/// Segments that may hold dead bytes before live ones are copied.
const SLACK_SEGMENTS: u64 = 4;
/// Live bytes are copied once files take this many times their size, and the slack.
const SPACE_FACTOR: u64 = 3;
/// Bytes copied between two batches.
const SLICE_BYTES_MAX: usize = 1 << 20;
/// How often the free space is looked at while something happens.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// And while it is low: what waits for room goes on this soon after there is some.
const LOOK_EVERY_LOW: Duration = Duration::from_millis(200);

pub(crate) struct Reclaim {
    looked: Option<Duration>,
    opened: Duration,
    low: bool,
    /// The segment being emptied, and its entries that are still to be copied.
    moving: Option<(u64, VecDeque<Candidate>)>,
    disk_full: bool,
}

struct Candidate {
    group: Arc<Group>,
    index: u64,
    location: Location,
}

impl Reclaim {
    pub(crate) fn new(now: Duration) -> Self {
        Self { looked: None, opened: now, low: false, moving: None, disk_full: false }
    }

    pub(crate) fn disk_full(&self) -> bool {
        self.disk_full
    }

    /// How long this can wait for its next turn.
    pub(crate) fn wait(&self, now: Duration) -> Option<Duration> {
        self.low.then(|| self.next_look().saturating_sub(now))
    }

    fn next_look(&self) -> Duration {
        let every = if self.low { LOOK_EVERY_LOW } else { LOOK_EVERY };
        self.looked.unwrap_or(self.opened) + every
    }
}

impl Writer {
    /// One turn of all that this file is about. `true`: there is more to copy right away.
    pub(crate) fn reclaim(&mut self, now: Duration) -> Result<bool, Error> {
        self.drop_oldest()?;
        let moving = self.move_some()?;
        self.look_at_space(now);
        self.prepare_spares();
        Ok(moving)
    }

    /// Drops the oldest segments as far as no group has an entry in them.
    fn drop_oldest(&mut self) -> Result<(), Error> {
        // The states of the groups have to be in a later segment, so not before the tail has its head.
        if self.tail.fresh || self.shared.spares.dropping() {
            return Ok(());
        }
        let dead: Vec<(u64, SegmentInfo)> = self
            .segments
            .iter()
            .take_while(|(number, info)| info.live == 0 && **number != self.tail.number)
            .map(|(number, info)| (*number, *info))
            .collect();
        if dead.is_empty() {
            return Ok(());
        }
        // What says that they are not needed has to be on disk first.
        self.sync_if_dirty()?;
        for (number, _) in &dead {
            self.segments.remove(number);
            self.shared.readers.forget(*number);
        }
        let turn = self.shared.spares.claim_drop();
        let shared = self.shared.clone();
        self.shared.env.spawn.blocking(
            "wal-drop",
            Box::new(move || {
                let result = drop_files(&shared, &dead);
                drop(turn);
                match result {
                    Ok(()) => shared.wake.wake(),
                    Err(error) => shared.fail(error),
                }
            }),
        );
        Ok(())
    }

    /// Copies a slice of the oldest segment's live entries to the tail, if too much is pinned.
    fn move_some(&mut self) -> Result<bool, Error> {
        if self.reclaim.moving.is_none() && !self.choose_segment() {
            return Ok(false);
        }
        let Some((_, candidates)) = &mut self.reclaim.moving else { return Ok(false) };
        let mut slice = Vec::new();
        let mut bytes = 0;
        while let Some(candidate) = candidates.front() {
            let more = record_bytes(candidate.location.len as usize);
            if !slice.is_empty() && bytes + more > SLICE_BYTES_MAX {
                break;
            }
            // Purged or cut off in the meantime, or never mind.
            let still =
                candidate.group.state.lock().written.location(candidate.index) == Some(candidate.location);
            let candidate = candidates.pop_front().expect("just seen");
            if still {
                bytes += more;
                slice.push(candidate);
            }
        }
        if slice.is_empty() {
            self.reclaim.moving = None;
            return Ok(false);
        }
        self.copy(&slice, bytes as u64)?;
        Ok(true)
    }

    fn copy(&mut self, slice: &[Candidate], bytes: u64) -> Result<(), Error> {
        self.start_batch(bytes)?;
        let segment = u32::try_from(self.tail.number).expect("segment numbers fit");
        let mut copied = Vec::with_capacity(slice.len());
        for of_group in slice.chunk_by(|a, b| Arc::ptr_eq(&a.group, &b.group)) {
            let group = &of_group[0].group;
            let planned: Vec<_> =
                of_group.iter().map(|candidate| Planned::Disk(candidate.index, candidate.location)).collect();
            for entry in read::try_read(&self.shared.readers, group.id, &planned)? {
                let offset = self.push(Kind::Moved, group.id, entry.position, &entry.data);
                let location = Location {
                    term: entry.position.term,
                    segment,
                    offset: u32::try_from(offset).expect("segments are below 4 GiB"),
                    len: u32::try_from(entry.data.len()).expect("entries are bounded"),
                };
                copied.push((group.clone(), entry.position.index, location));
            }
        }
        self.write_batch()?;
        self.shared.stats.lock().entries_moved += copied.len() as u64;
        for (group, index, to) in copied {
            let from = group.state.lock().written.relocate(index, to);
            let from = from.expect("the writer alone changes what is written");
            let bytes = record_bytes(to.len as usize) as u64;
            if let Some(info) = self.segments.get_mut(&u64::from(from.segment)) {
                info.live -= bytes;
            }
            if let Some(info) = self.segments.get_mut(&self.tail.number) {
                info.live += bytes;
            }
        }
        Ok(())
    }

    /// Takes on the oldest segment if too much space is pinned.
    fn choose_segment(&mut self) -> bool {
        let total: u64 = self.segments.values().map(|info| info.capacity).sum();
        let live: u64 = self.segments.values().map(|info| info.live).sum();
        let segment_bytes = self.shared.options.segment_bytes;
        let Some((oldest, info)) = self.segments.first_key_value() else { return false };
        if *oldest == self.tail.number
            || info.live == 0
            || total <= SPACE_FACTOR * live + SLACK_SEGMENTS * segment_bytes
            // Copying needs room too: on a full disk only what surely fits beside the reserve.
            || (self.reclaim.disk_full && self.tail.room() < info.live + segment_bytes / 4)
        {
            return false;
        }
        let mut candidates = VecDeque::new();
        for group in self.shared.groups() {
            let state = group.state.lock();
            let in_oldest = state
                .written
                .locations
                .iter()
                .enumerate()
                .filter(|(_, location)| u64::from(location.segment) == *oldest)
                .map(|(i, location)| Candidate {
                    group: group.clone(),
                    index: state.written.first + i as u64,
                    location: *location,
                });
            candidates.extend(in_oldest);
        }
        tracing::debug!(
            segment = *oldest,
            live = info.live,
            "copying live entries out of the oldest segment"
        );
        self.reclaim.moving = Some((*oldest, candidates));
        true
    }

    /// Starts a job if spares are missing, or have to be filled because they are needed before long.
    fn prepare_spares(&self) {
        let options = &self.shared.options;
        let fill = options.prefill && self.tail.offset > self.tail.capacity / 2;
        let Some(turn) = self.shared.spares.claim_job(options.spare_segments, fill) else { return };
        let shared = self.shared.clone();
        self.shared.env.spawn.blocking(
            "wal-spares",
            Box::new(move || {
                let result = shared.spares.run_job(&*shared.env.disk, &shared.dir, &shared.options, fill);
                drop(turn);
                match result {
                    Ok(()) => shared.wake.wake(),
                    Err(error) => shared.fail(error),
                }
            }),
        );
    }

    fn look_at_space(&mut self, now: Duration) {
        self.reclaim.disk_full = self.shared.spares.no_space();
        let due = self.reclaim.looked.is_none() || now >= self.reclaim.next_look();
        if due {
            self.reclaim.looked = Some(now);
            // Space may have come back.
            self.shared.spares.ask_again();
        }
        if due || (self.reclaim.disk_full && !self.reclaim.low) {
            let free = self.shared.env.disk.free_bytes(&self.shared.dir).unwrap_or(u64::MAX);
            let low = self.reclaim.disk_full || free < self.shared.options.reserve_bytes;
            if low != self.reclaim.low {
                self.reclaim.low = low;
                if low {
                    tracing::warn!(free, dir = %self.shared.dir.display(), "disk space is low");
                } else {
                    tracing::info!(free, "disk space is back");
                }
                self.shared.space_low.send_replace(low);
            }
        }
    }
}

/// Oldest first, each on disk before the next, so that what a crash leaves has no gap.
fn drop_files(shared: &Shared, dead: &[(u64, SegmentInfo)]) -> Result<(), Error> {
    for (number, info) in dead {
        let path = shared.dir.join(segment::name(*number));
        shared.spares.recycle(&*shared.env.disk, &shared.dir, &path, info.capacity, &shared.options)?;
    }
    Ok(())
}
