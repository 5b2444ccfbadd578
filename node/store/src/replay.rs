//! From records back to the groups' states.

use std::collections::BTreeMap;

use crate::group::{Location, Written};
use crate::position::{GroupId, LogPosition};
use crate::record::{FLAG_PURGED, Kind, Record, decode_last, owned, record_bytes};

#[derive(Debug, Default)]
pub(crate) struct Replay {
    groups: BTreeMap<GroupId, Written>,
    /// Whether the last thing that happened was an orderly end.
    pub(crate) clean: bool,
}

impl Replay {
    /// Applies the next record of `segment`. `Err` says what does not fit.
    pub(crate) fn apply(&mut self, segment: u64, record: &Record<'_>) -> Result<(), String> {
        self.clean = record.kind == Kind::Closed;
        let id = record.group;
        let index = record.position.index;
        let location = || -> Result<Location, String> {
            Ok(Location {
                term: record.position.term,
                segment: u32::try_from(segment)
                    .map_err(|_| "the segment's number is too large".to_owned())?,
                offset: u32::try_from(record.offset).map_err(|_| "the file is too large".to_owned())?,
                len: u32::try_from(record.data.len()).map_err(|_| "the record is too large".to_owned())?,
            })
        };
        match record.kind {
            Kind::Closed | Kind::Sealed => {}
            Kind::Entry => {
                let location = location()?;
                let appended = self.groups.entry(id).or_default().append(index, location);
                appended.map_err(|expected| {
                    format!("entry {index} of group {id} follows where {expected} belongs")
                })?;
            }
            Kind::Moved => {
                let location = location()?;
                if let Some(written) = self.groups.get_mut(&id) {
                    written.relocate(index, location);
                }
            }
            Kind::Vote => self.groups.entry(id).or_default().vote = Some(owned(record.data)),
            Kind::Committed => self.groups.entry(id).or_default().committed = Some(owned(record.data)),
            Kind::Truncate => self.groups.entry(id).or_default().truncate(Some(index), |_| {}),
            Kind::TruncateAll => self.groups.entry(id).or_default().truncate(None, |_| {}),
            Kind::Purge => self.groups.entry(id).or_default().purge(record.position, |_| {}),
            Kind::Group => self.head(id, record)?,
        }
        Ok(())
    }

    /// The state of a group at the head of a segment: the start for one not seen before, else a check.
    fn head(&mut self, id: GroupId, record: &Record<'_>) -> Result<(), String> {
        let purged = (record.flags & FLAG_PURGED != 0).then_some(record.position);
        let last = decode_last(record.flags, record.data);
        if let Some(known) = self.groups.get(&id) {
            let index = |position: Option<LogPosition>| position.map(|position| position.index);
            if known.purged != purged || index(known.last) != index(last) {
                return Err(format!(
                    "group {id} should be at {last:?}, purged up to {purged:?}, but is at {:?}, purged up to {:?}",
                    known.last, known.purged
                ));
            }
            return Ok(());
        }
        let first = purged.map_or(record.position.index, |purged| purged.index + 1);
        let next = last.map_or(first, |last| last.index + 1);
        // These entries are in segments that are gone: copies have to follow, or a cut or purge of them.
        let unknown = Location { term: 0, segment: 0, offset: 0, len: 0 };
        let count = usize::try_from(next.saturating_sub(first)).map_err(|_| "too many entries".to_owned())?;
        let locations = std::iter::repeat_n(unknown, count).collect();
        self.groups.insert(id, Written { purged, last, vote: None, committed: None, first, locations });
        Ok(())
    }

    /// The groups, once all records are applied. `Err` says which entries are nowhere.
    pub(crate) fn finish(mut self) -> Result<BTreeMap<GroupId, Written>, String> {
        for (id, written) in &mut self.groups {
            let lost: Vec<u64> = written
                .locations
                .iter()
                .enumerate()
                .filter(|(_, location)| location.segment == 0)
                .map(|(i, _)| written.first + i as u64)
                .collect();
            if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
                return Err(format!(
                    "{} entries of group {id} between {first} and {last} are missing: a segment file was removed",
                    lost.len()
                ));
            }
            if let Some(back) = written.locations.back() {
                // Its term may have been unknown when the log was cut to it.
                written.last =
                    Some(LogPosition::new(back.term, written.first + written.locations.len() as u64 - 1));
            }
        }
        Ok(self.groups)
    }
}

/// Bytes of live records by segment.
pub(crate) fn live_bytes(groups: &BTreeMap<GroupId, Written>) -> BTreeMap<u64, u64> {
    let mut live = BTreeMap::new();
    for location in groups.values().flat_map(|written| &written.locations) {
        *live.entry(u64::from(location.segment)).or_default() += record_bytes(location.len as usize) as u64;
    }
    live
}
