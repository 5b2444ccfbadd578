//! What the log knows of one group, on two timelines.
//!
//! [`Logical`] is what callers see: a call changes it before its bytes are on disk. [`Written`] follows behind, moved
//! by the writer alone as batches complete. Which files are needed is decided on `Written`, so that no file goes
//! while the disk still believes in it. Entries between the two are held in memory.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::error::Error;
use crate::position::{GroupId, LogEntry, LogPosition};

/// Where a group's log stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogState {
    /// The last entry that was purged.
    pub purged: Option<LogPosition>,
    /// The last entry; equal to `purged` when there are none.
    pub last: Option<LogPosition>,
    /// The vote last saved.
    pub vote: Option<Bytes>,
    /// The last hint of what is committed. May be older than the one last saved.
    pub committed: Option<Bytes>,
}

/// One group. Lock order: a group's state, then the queue.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    pub(crate) state: Mutex<GroupState>,
}

#[derive(Debug, Default)]
pub(crate) struct GroupState {
    pub(crate) logical: Logical,
    pub(crate) written: Written,
    /// Appends with tickets up to this one are in `written`.
    pub(crate) written_ticket: u64,
    /// The last entry known to be on disk.
    pub(crate) synced: Option<LogPosition>,
}

impl GroupState {
    /// A group as recovered from disk.
    pub(crate) fn recovered(written: Written) -> Self {
        let logical = Logical {
            purged: written.purged,
            last: written.last,
            first: written.first,
            vote: written.vote.clone(),
            committed: written.committed.clone(),
            recent: VecDeque::new(),
            recent_first: written.next(),
            recent_bytes: 0,
        };
        Self { synced: written.last, logical, written, written_ticket: 0 }
    }

    fn term_at(&self, index: u64) -> u64 {
        if index >= self.logical.recent_first {
            self.logical.recent[(index - self.logical.recent_first) as usize].term
        } else {
            self.written.location(index).expect("an entry that is not in memory is written").term
        }
    }

    /// Cuts off all entries above `last_kept`. `Ok(false)`: there were none.
    pub(crate) fn truncate(&mut self, last_kept: Option<u64>) -> Result<bool, Error> {
        let logical = &self.logical;
        let Some(last) = logical.last else { return Ok(false) };
        if last_kept.is_some_and(|kept| kept >= last.index) {
            return Ok(false);
        }
        if logical.purged.is_some_and(|purged| last_kept.is_none_or(|kept| kept < purged.index)) {
            return Err(Error::Order(format!(
                "cannot keep entries up to {last_kept:?} only: they are purged up to {:?}",
                logical.purged
            )));
        }
        let last = match last_kept {
            Some(kept) if kept >= logical.first => Some(LogPosition::new(self.term_at(kept), kept)),
            _ => logical.purged,
        };
        let logical = &mut self.logical;
        let next = last_kept.map_or(0, |kept| kept + 1);
        while logical.recent_first + logical.recent.len() as u64 > next {
            let Some(cut) = logical.recent.pop_back() else { break };
            logical.recent_bytes -= cut.data.len();
        }
        logical.last = last;
        if logical.recent.is_empty() {
            logical.recent_first = logical.next();
        }
        Ok(true)
    }

    /// What [`crate::GroupLog::read`] has to bring: memory first, the rest by location.
    pub(crate) fn plan_read(&self, range: Range<u64>, bytes_max: usize) -> Vec<Planned> {
        let logical = &self.logical;
        let start = range.start.max(logical.first);
        let end = range.end.min(logical.next());
        let mut planned = Vec::new();
        let mut bytes = 0;
        for index in start..end {
            let (item, len) = if index >= logical.recent_first {
                let recent = &logical.recent[(index - logical.recent_first) as usize];
                let position = LogPosition::new(recent.term, index);
                let len = recent.data.len();
                (Planned::Memory(LogEntry { position, data: recent.data.clone() }), len)
            } else {
                let location =
                    self.written.location(index).expect("an entry that is not in memory is written");
                (Planned::Disk(index, location), location.len as usize)
            };
            if !planned.is_empty() && bytes + len > bytes_max {
                break;
            }
            bytes += len;
            planned.push(item);
        }
        planned
    }

    /// Forgets the oldest entries in memory until their bytes are at most `share`, but none that is not written.
    /// Returns the bytes that were forgotten.
    pub(crate) fn shrink_recent(&mut self, share: usize) -> usize {
        let before = self.logical.recent_bytes;
        while self.logical.recent_bytes > share
            && self.logical.recent.front().is_some_and(|oldest| oldest.ticket <= self.written_ticket)
        {
            self.logical.drop_oldest();
        }
        before - self.logical.recent_bytes
    }
}

/// One entry of a planned read.
#[derive(Debug)]
pub(crate) enum Planned {
    Memory(LogEntry),
    Disk(u64, Location),
}

/// The group as callers see it.
#[derive(Debug, Default)]
pub(crate) struct Logical {
    pub(crate) purged: Option<LogPosition>,
    pub(crate) last: Option<LogPosition>,
    /// The index of the first entry, if there is one.
    first: u64,
    pub(crate) vote: Option<Bytes>,
    pub(crate) committed: Option<Bytes>,
    /// The end of the log: all that is not written, and some that is.
    recent: VecDeque<Recent>,
    recent_first: u64,
    recent_bytes: usize,
}

#[derive(Debug)]
struct Recent {
    term: u64,
    /// Which append brought it.
    ticket: u64,
    data: Bytes,
}

impl Logical {
    fn next(&self) -> u64 {
        self.last.map_or(self.first, |last| last.index + 1)
    }

    /// Bytes of entries held in memory.
    pub(crate) fn recent_bytes(&self) -> usize {
        self.recent_bytes
    }

    /// Whether `entries` continue the log.
    pub(crate) fn check_append(&self, entries: &[LogEntry]) -> Result<(), Error> {
        let mut expected = self.last.map(|last| last.index + 1);
        for entry in entries {
            let index = entry.position.index;
            if expected.is_some_and(|expected| expected != index) {
                return Err(Error::Order(format!(
                    "entry {index} appended where {} belongs",
                    expected.unwrap_or(0)
                )));
            }
            expected = Some(index + 1);
        }
        Ok(())
    }

    /// Adds entries that [`Self::check_append`] accepted.
    pub(crate) fn append(&mut self, entries: &[LogEntry], ticket: u64) {
        for entry in entries {
            if self.last.is_none() {
                self.first = entry.position.index;
                self.recent_first = self.first;
            }
            self.recent.push_back(Recent { term: entry.position.term, ticket, data: entry.data.clone() });
            self.recent_bytes += entry.data.len();
            self.last = Some(entry.position);
        }
    }

    /// Drops entries up to `upto`, which may lie beyond the last one. `false`: they were dropped before.
    pub(crate) fn purge(&mut self, upto: LogPosition) -> bool {
        if self.purged.is_some_and(|purged| purged.index >= upto.index) {
            return false;
        }
        while self.recent_first <= upto.index && !self.recent.is_empty() {
            self.drop_oldest();
        }
        self.purged = Some(upto);
        self.first = upto.index + 1;
        if self.last.is_none_or(|last| last.index <= upto.index) {
            self.last = Some(upto);
        }
        if self.recent.is_empty() {
            self.recent_first = self.next();
        }
        true
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.recent.pop_front() {
            self.recent_bytes -= oldest.data.len();
            self.recent_first += 1;
        }
    }
}

/// Where an entry's record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) term: u64,
    /// The segment's number; 0 while a replay has not met the record.
    pub(crate) segment: u32,
    /// Where the record starts in the file.
    pub(crate) offset: u32,
    /// Bytes of the entry's data.
    pub(crate) len: u32,
}

/// The group as the files say.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) purged: Option<LogPosition>,
    pub(crate) last: Option<LogPosition>,
    pub(crate) vote: Option<Bytes>,
    pub(crate) committed: Option<Bytes>,
    /// The index of the first location, or of the next entry.
    pub(crate) first: u64,
    pub(crate) locations: VecDeque<Location>,
}

impl Written {
    pub(crate) fn next(&self) -> u64 {
        self.last.map_or(self.first, |last| last.index + 1)
    }

    pub(crate) fn location(&self, index: u64) -> Option<Location> {
        self.locations.get(usize::try_from(index.checked_sub(self.first)?).ok()?).copied()
    }

    /// Adds the next entry. `Err` is the index that belongs there.
    pub(crate) fn append(&mut self, index: u64, location: Location) -> Result<(), u64> {
        match self.last {
            None => self.first = index,
            Some(last) if last.index + 1 != index => return Err(last.index + 1),
            Some(_) => {}
        }
        self.locations.push_back(location);
        self.last = Some(LogPosition::new(location.term, index));
        Ok(())
    }

    /// Cuts off entries above `last_kept`; each is given to `released`.
    pub(crate) fn truncate(&mut self, last_kept: Option<u64>, mut released: impl FnMut(Location)) {
        let next = last_kept.map_or(0, |kept| kept + 1);
        while self.first + self.locations.len() as u64 > next {
            let Some(cut) = self.locations.pop_back() else { break };
            released(cut);
        }
        if self.last.is_some_and(|last| last.index >= next) {
            self.last = match self.locations.back() {
                Some(back) => Some(LogPosition::new(back.term, self.first + self.locations.len() as u64 - 1)),
                None => self.purged,
            };
        }
    }

    /// Drops entries up to `upto`; each is given to `released`.
    pub(crate) fn purge(&mut self, upto: LogPosition, mut released: impl FnMut(Location)) {
        while self.first <= upto.index {
            let Some(dropped) = self.locations.pop_front() else { break };
            self.first += 1;
            released(dropped);
        }
        self.purged = Some(upto);
        if self.last.is_none_or(|last| last.index <= upto.index) {
            self.last = Some(upto);
            self.first = upto.index + 1;
        }
    }

    /// Notes that the entry at `index` has been copied. Returns its old place, or `None` if it is no longer there.
    pub(crate) fn relocate(&mut self, index: u64, to: Location) -> Option<Location> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?;
        let slot = self.locations.get_mut(at)?;
        (slot.segment == 0 || slot.term == to.term).then(|| std::mem::replace(slot, to))
    }
}
