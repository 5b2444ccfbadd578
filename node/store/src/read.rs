//! Reading entries that are no longer in memory.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use weir_env::{Env, File, OpenMode};

use crate::error::Error;
use crate::group::{Group, Location, Planned};
use crate::position::{GroupId, LogEntry};
use crate::queue::Shared;
use crate::record::{Kind, decode_record, owned, record_bytes};
use crate::segment;

/// Neighbours in a file are read with one call as long as the unwanted bytes between two stay below this.
const GAP_BYTES_MAX: u64 = 16 << 10;

/// Runs `job` where it may block and brings back what it returns.
pub(crate) async fn off_thread<R: Send + 'static>(
    env: &Env,
    name: &'static str,
    job: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Error> {
    let (tx, rx) = oneshot::channel();
    env.spawn.blocking(name, Box::new(move || drop(tx.send(job()))));
    // Gone only when the job panicked or the runtime ends.
    rx.await.map_err(|_| Error::Closed)
}

/// Segment files open for reading.
pub(crate) struct Readers {
    env: Env,
    dir: PathBuf,
    open: Mutex<HashMap<u32, Arc<dyn File>>>,
    reads: AtomicU64,
}

impl Readers {
    pub(crate) fn new(env: Env, dir: PathBuf) -> Self {
        Self { env, dir, open: Mutex::default(), reads: AtomicU64::new(0) }
    }

    pub(crate) fn path(&self, segment: u32) -> PathBuf {
        self.dir.join(segment::name(u64::from(segment)))
    }

    /// Closes a file that is about to go.
    pub(crate) fn forget(&self, segment: u64) {
        if let Ok(segment) = u32::try_from(segment) {
            self.open.lock().remove(&segment);
        }
    }

    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    fn read(&self, segment: u32, out: &mut [u8], offset: u64) -> Result<(), Error> {
        let path = self.path(segment);
        let known = self.open.lock().get(&segment).cloned();
        let file = match known {
            Some(file) => file,
            None => {
                let file: Arc<dyn File> = self
                    .env
                    .disk
                    .open(&path, OpenMode::Read)
                    .map_err(|e| Error::io("open", &path, e))?
                    .into();
                self.open.lock().entry(segment).or_insert(file).clone()
            }
        };
        self.reads.fetch_add(1, Ordering::Relaxed);
        file.read_exact_at(out, offset).map_err(|e| Error::io("read", &path, e))
    }

    /// Reads the records of entries that are in one segment, each at its location, in order.
    pub(crate) fn entries(
        &self,
        group: GroupId,
        wanted: &[(u64, Location)],
        out: &mut Vec<LogEntry>,
    ) -> Result<(), Error> {
        let (Some((_, first)), Some((_, last))) = (wanted.first(), wanted.last()) else { return Ok(()) };
        let start = u64::from(first.offset);
        let end = u64::from(last.offset) + record_bytes(last.len as usize) as u64;
        let mut bytes = vec![0; (end - start) as usize];
        self.read(first.segment, &mut bytes, start)?;
        for (index, location) in wanted {
            let offset = u64::from(location.offset);
            let at = (offset - start) as usize;
            let record = decode_record(&bytes[at..], u64::from(location.segment), offset)
                .filter(|record| {
                    matches!(record.kind, Kind::Entry | Kind::Moved)
                        && record.group == group
                        && record.position.index == *index
                        && record.position.term == location.term
                })
                .ok_or_else(|| {
                    Error::corrupt(
                        &self.path(location.segment),
                        offset,
                        format!("entry {index} of group {group} is not there any more"),
                    )
                })?;
            out.push(LogEntry { position: record.position, data: owned(record.data) });
        }
        Ok(())
    }
}

/// The number of leading items that are on disk, in one segment, close to each other and in order.
fn run_length(planned: &[Planned]) -> usize {
    let mut end: Option<(u32, u64)> = None;
    let mut run = 0;
    for item in planned {
        let Planned::Disk(_, location) = item else { break };
        let start = u64::from(location.offset);
        let near = end.is_none_or(|(segment, end)| {
            segment == location.segment && start >= end && start - end <= GAP_BYTES_MAX
        });
        if !near {
            break;
        }
        end = Some((location.segment, start + record_bytes(location.len as usize) as u64));
        run += 1;
    }
    run
}

/// Brings the planned entries. A file may go between planning and reading, when its entries were purged or moved: a
/// failed read counts only if the entry is still expected at that place.
pub(crate) fn read_planned(
    shared: &Shared,
    group: &Arc<Group>,
    range: Range<u64>,
    bytes_max: usize,
    mut planned: Vec<Planned>,
) -> Result<Vec<LogEntry>, Error> {
    loop {
        let error = match try_read(&shared.readers, group.id, &planned) {
            Ok(entries) => return Ok(entries),
            Err(error) => error,
        };
        let again = group.state.lock().plan_read(range.clone(), bytes_max);
        let same = again.len() == planned.len() && again.iter().zip(&planned).all(|(a, b)| same_place(a, b));
        if same {
            shared.fail(error.clone());
            return Err(error);
        }
        planned = again;
    }
}

fn same_place(a: &Planned, b: &Planned) -> bool {
    match (a, b) {
        (Planned::Disk(a, at_a), Planned::Disk(b, at_b)) => a == b && at_a == at_b,
        (Planned::Memory(a), Planned::Memory(b)) => a.position == b.position,
        _ => false,
    }
}

/// Brings the planned entries, each from where it was planned.
pub(crate) fn try_read(
    readers: &Readers,
    group: GroupId,
    planned: &[Planned],
) -> Result<Vec<LogEntry>, Error> {
    let mut out = Vec::with_capacity(planned.len());
    let mut rest = planned;
    while let Some(first) = rest.first() {
        if let Planned::Memory(entry) = first {
            out.push(entry.clone());
            rest = &rest[1..];
            continue;
        }
        let (run, after) = rest.split_at(run_length(rest));
        let wanted: Vec<_> = run
            .iter()
            .filter_map(|item| match item {
                Planned::Disk(index, location) => Some((*index, *location)),
                Planned::Memory(_) => None,
            })
            .collect();
        readers.entries(group, &wanted, &mut out)?;
        rest = after;
    }
    Ok(out)
}
