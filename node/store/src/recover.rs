//! Opening the log after whatever happened.
//!
//! The log ends at the first batch that is not whole. Whether that is the torn end of an unfinished write or damage
//! to something that was promised is told by the highest `synced_through` that any batch anywhere carries, also
//! batches after the bad one: what lies below it was on disk once.
//!
//! Whatever is kept is made safe before the log is used, and the log goes on in a new segment, so that the cut bytes
//! can never be read again.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use weir_env::{Disk, Env, OpenMode};

use crate::error::Error;
use crate::group::{Group, GroupState};
use crate::options::WalOptions;
use crate::owner::{self, Found, OwnerFile};
use crate::position::{GroupId, LogPosition};
use crate::queue::Shared;
use crate::record::{
    BATCH_ALIGN, BatchBuffer, BatchHeader, FORMAT_VERSION, FilePosition, HeaderRead, Kind,
    SEGMENT_HEADER_BYTES, SegmentHeader,
};
use crate::replay::{self, Replay};
use crate::segment::{self, SEAL_BYTES, Tail};
use crate::spares::{self, Spares};
use crate::writer::SegmentInfo;

/// Unsynced bytes at the end that are written once more at opening. The system may hold bytes for clean that never
/// reached the disk, if an earlier process died of a failed sync.
const REWRITE_BYTES_MAX: u64 = 64 << 20;

const ZEROS: [u8; 4096] = [0; 4096];

/// What opening the log found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the log was new or had been closed in order. Otherwise the process died with it, or the machine.
    pub clean: bool,
    /// Where an unfinished write was cut off: file and offset.
    pub torn: Option<(PathBuf, u64)>,
    /// Segment files that were read.
    pub segments: u64,
    /// Log entries found alive.
    pub entries: u64,
}

pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tail: Tail,
    pub(crate) segments: BTreeMap<u64, SegmentInfo>,
    pub(crate) lock: Box<dyn Any + Send>,
    pub(crate) recovery: Recovery,
    pub(crate) owner: OwnerFile,
}

/// A segment file that is part of the log.
struct Link {
    number: u64,
    path: PathBuf,
    len: u64,
    /// `None`: it is damaged, or was never written.
    header: Option<SegmentHeader>,
}

/// The files of the log, oldest first, and those that it left behind.
struct Chain {
    links: Vec<Link>,
    /// Cut off by an earlier recovery.
    orphans: Vec<PathBuf>,
    highest: u64,
}

/// What the files hold.
struct Contents {
    replay: Replay,
    /// Where the log ends, and in which link.
    end: FilePosition,
    end_link: usize,
    /// Batches in that link.
    end_batches: u64,
    /// Where the link before that one ends.
    previous_end: FilePosition,
    synced_through: FilePosition,
    /// A write was cut off there.
    torn: bool,
}

pub(crate) fn open(env: &Env, dir: &Path, options: WalOptions) -> Result<Opened, Error> {
    let disk = &*env.disk;
    create_dir(disk, dir)?;
    let lock = disk.lock_dir(dir).map_err(|e| Error::io("lock", dir, e))?;
    let names = disk.read_dir(dir).map_err(|e| Error::io("list", dir, e))?;
    let owner = OwnerFile::read(disk, dir, &options.owner)?;
    let mut chain = find_chain(disk, dir, &names)?;
    if owner.is_none() && !chain.links.is_empty() {
        return Err(Error::corrupt(&dir.join(owner::FILE), 0, "the file is missing"));
    }
    let owner = owner.unwrap_or_default();
    if chain.links.is_empty() && options.must_exist {
        return Err(Error::Missing { dir: dir.to_owned() });
    }
    let contents = read_chain(disk, dir, &chain.links)?;
    let (exists, closed) = (!chain.links.is_empty(), contents.replay.clean);
    let mut recovery = Recovery {
        clean: false,
        torn: contents.torn.then(|| (chain.links[contents.end_link].path.clone(), contents.end.offset)),
        segments: chain.links.len() as u64,
        entries: 0,
    };
    make_safe(disk, &chain.links, &contents)?;
    let mut end = contents.end;
    let mut kept = if chain.links.is_empty() { 0 } else { contents.end_link + 1 };
    if kept > 0 && contents.end_batches == 0 && (kept > 1 || chain.links[0].header.is_none()) {
        // Nothing was ever written there: the one before is the last.
        kept -= 1;
        end = contents.previous_end;
    }
    let cut = chain.links.split_off(kept);
    chain.orphans.extend(cut.into_iter().map(|link| link.path));

    let groups = contents.replay.finish().map_err(|what| Error::corrupt(dir, 0, what))?;
    let mut live = replay::live_bytes(&groups);
    recovery.entries = groups.values().map(|written| written.locations.len() as u64).sum();

    let found = Found {
        exists,
        closed,
        end: end.segment,
        groups: groups.keys().map(|id| id.0).collect(),
        tail: chain.highest + 1,
    };
    recovery.clean = owner.opened(disk, dir, &options.owner, options.durability, found)?;
    let spares = Spares::adopt(disk, dir, &names, &options)?;
    let tail = new_tail(disk, dir, &spares, &options, chain.highest + 1, end)?;
    if let Some(last) = chain.links.last_mut() {
        seal(disk, last, end, tail.number)?;
    }
    for orphan in &chain.orphans {
        disk.remove_file(orphan).map_err(|e| Error::io("remove", orphan, e))?;
    }
    if !chain.orphans.is_empty() {
        disk.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
    }

    let mut segments: BTreeMap<u64, SegmentInfo> = chain
        .links
        .iter()
        .map(|link| {
            (link.number, SegmentInfo { capacity: link.len, live: live.remove(&link.number).unwrap_or(0) })
        })
        .collect();
    segments.insert(tail.number, SegmentInfo { capacity: tail.capacity, live: 0 });
    let groups = groups
        .into_iter()
        .map(|(id, written)| {
            let state = Mutex::new(GroupState::recovered(written));
            (id, Arc::new(Group { id, state }))
        })
        .collect::<BTreeMap<GroupId, Arc<Group>>>();
    let shared = Arc::new(Shared::new(env, dir.to_owned(), options, groups, spares));
    Ok(Opened { shared, tail, segments, lock, recovery, owner })
}

/// Creates a directory and its missing parents, so that they survive a power loss.
pub(crate) fn create_dir(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
    disk.create_dir_durable(dir).map_err(|e| Error::io("create", dir, e))
}

/// Sorts the segment files into those that make up the log and those that an earlier recovery cut off.
fn find_chain(disk: &dyn Disk, dir: &Path, names: &[String]) -> Result<Chain, Error> {
    let mut found = Vec::new();
    for name in names {
        if let Some(number) = segment::number(name) {
            found.push((number, dir.join(name)));
        }
    }
    found.sort_unstable_by_key(|(number, _)| *number);
    let highest = found.last().map_or(0, |(number, _)| *number);
    let mut links: Vec<Link> = Vec::new();
    let mut orphans = Vec::new();
    // The number that the link after this one names as its previous one.
    let mut expected: Option<u64> = None;
    for (number, path) in found.into_iter().rev() {
        match expected {
            Some(previous) if number > previous => {
                orphans.push(path);
                continue;
            }
            Some(previous) if number < previous => {
                return Err(missing(dir, previous));
            }
            _ => {}
        }
        let (len, header) = read_header(disk, &path, number)?;
        expected = header.map(|header| header.previous.segment);
        links.push(Link { number, path, len, header });
    }
    links.reverse();
    Ok(Chain { links, orphans, highest })
}

fn missing(dir: &Path, number: u64) -> Error {
    Error::corrupt(&dir.join(segment::name(number)), 0, "the file is missing")
}

fn read_header(disk: &dyn Disk, path: &Path, number: u64) -> Result<(u64, Option<SegmentHeader>), Error> {
    let file = disk.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let len = file.len().map_err(|e| Error::io("read", path, e))?;
    if len < SEGMENT_HEADER_BYTES {
        // It got its length before its name.
        return Err(Error::corrupt(path, len, "the file is shorter than it was made"));
    }
    let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
    file.read_exact_at(&mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
    match SegmentHeader::decode(&bytes, number) {
        HeaderRead::Valid(header) => Ok((len, Some(header))),
        HeaderRead::Damaged => Ok((len, None)),
        HeaderRead::OtherVersion(found) => {
            Err(Error::Version { file: path.to_owned(), found, known: FORMAT_VERSION })
        }
    }
}

/// Replays the log up to its end, and decides what that end is.
fn read_chain(disk: &dyn Disk, dir: &Path, links: &[Link]) -> Result<Contents, Error> {
    let mut contents = Contents {
        replay: Replay::default(),
        end: FilePosition::default(),
        end_link: 0,
        end_batches: 0,
        previous_end: FilePosition::default(),
        synced_through: FilePosition::default(),
        torn: false,
    };
    let mut damage: Option<(usize, u64, String)> = None;
    for (i, link) in links.iter().enumerate() {
        let next = links.get(i + 1);
        let limit = next.and_then(|next| next.header).map(|header| header.previous.offset);
        let bytes = disk.read(&link.path).map_err(|e| Error::io("read", &link.path, e))?;
        let replay = damage.is_none().then_some(&mut contents.replay);
        let walked = walk(&bytes, link, limit, replay)?;
        contents.synced_through = contents.synced_through.max(walked.synced_through);
        if damage.is_some() {
            continue;
        }
        contents.previous_end = contents.end;
        contents.end = FilePosition { segment: link.number, offset: walked.end };
        contents.end_link = i;
        contents.end_batches = walked.batches;
        if let (Some(sealed), None) = (walked.sealed, next) {
            return Err(missing(dir, sealed));
        }
        if next.is_none()
            && walked.sealed.is_none()
            && link.header.is_some_and(|header| link.len < header.capacity)
        {
            // It got its length before anything was written to it.
            return Err(Error::corrupt(&link.path, link.len, "the file is shorter than it was made"));
        }
        damage = walked.bad.map(|what| (i, walked.bad_at, what));
        contents.torn = walked.torn;
    }
    if contents.synced_through > contents.end {
        let (link, offset, what) = damage.unwrap_or_else(|| {
            (contents.end_link, contents.end.offset, "the log ends before what was on disk".to_owned())
        });
        return Err(Error::corrupt(&links[link].path, offset, what));
    }
    Ok(contents)
}

struct Walk {
    /// Behind the last whole batch.
    end: u64,
    batches: u64,
    /// What is wrong at `bad_at`, unless the end is where it has to be or could be.
    bad: Option<String>,
    bad_at: u64,
    /// Something was written at the end that is not whole.
    torn: bool,
    sealed: Option<u64>,
    synced_through: FilePosition,
}

/// Goes through the batches of a segment up to `limit`, or to the last whole one if there is none.
fn walk(
    bytes: &[u8],
    link: &Link,
    limit: Option<u64>,
    mut replay: Option<&mut Replay>,
) -> Result<Walk, Error> {
    let mut walk = Walk {
        end: 0,
        batches: 0,
        bad: None,
        bad_at: 0,
        torn: false,
        sealed: None,
        synced_through: FilePosition::default(),
    };
    let number = link.number;
    let known_limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let bytes = &bytes[..known_limit.unwrap_or(usize::MAX).min(bytes.len())];
    let mut at = 0;
    if link.header.is_none() {
        walk.bad = Some("the segment's header is damaged".to_owned());
        walk.torn = bytes.iter().take(SEGMENT_HEADER_BYTES as usize).any(|byte| *byte != 0);
    } else {
        at = SEGMENT_HEADER_BYTES as usize;
        loop {
            walk.end = at as u64;
            walk.bad_at = walk.end;
            if known_limit == Some(at) {
                return Ok(walk);
            }
            let Some(header) = BatchHeader::decode(bytes, number, at) else {
                walk.bad = Some("no batch begins here".to_owned());
                break;
            };
            walk.synced_through = walk.synced_through.max(header.synced_through);
            let records = match header.records(bytes, number, at) {
                Ok(records) => records,
                Err(bad_at) => {
                    walk.bad = Some("a record's checksum is wrong".to_owned());
                    walk.bad_at = bad_at;
                    walk.torn = true;
                    break;
                }
            };
            if let Some(sealed) = records.iter().find(|record| record.kind == Kind::Sealed) {
                walk.sealed = Some(sealed.position.index);
                return Ok(walk);
            }
            if let Some(replay) = &mut replay {
                for record in &records {
                    replay
                        .apply(number, record)
                        .map_err(|what| Error::corrupt(&link.path, record.offset, what))?;
                }
            }
            walk.batches += 1;
            at = header.end(at);
        }
    }
    // What comes after may still tell how far the log had been on disk.
    let mut from = (at + BATCH_ALIGN).min(bytes.len());
    while from < bytes.len() {
        let to = (from + 1).next_multiple_of(ZEROS.len()).min(bytes.len());
        // Most of it was never written, and is passed quickly.
        if bytes[from..to] != ZEROS[..to - from] {
            for at in (from..to).step_by(BATCH_ALIGN) {
                if let Some(header) = BatchHeader::decode(bytes, number, at) {
                    walk.torn = true;
                    walk.synced_through = walk.synced_through.max(header.synced_through);
                }
            }
        }
        from = to;
    }
    if known_limit.is_none() && link.header.is_some() && !walk.torn {
        // The usual end of the log.
        walk.bad = None;
    }
    Ok(walk)
}

/// Makes sure that what was read is on disk, and not only in the system's memory.
fn make_safe(disk: &dyn Disk, links: &[Link], contents: &Contents) -> Result<(), Error> {
    let from = contents.synced_through;
    let kept = links.get(..=contents.end_link).unwrap_or_default();
    let unsynced: Vec<_> =
        kept.iter().filter(|link| link.number >= from.segment && link.header.is_some()).collect();
    let start_of = |link: &Link| if link.number == from.segment { from.offset } else { 0 };
    let end_of =
        |link: &Link| if link.number == contents.end.segment { contents.end.offset } else { link.len };
    let total: u64 = unsynced.iter().map(|link| end_of(link).saturating_sub(start_of(link))).sum();
    for link in unsynced {
        let mut file =
            disk.open(&link.path, OpenMode::ReadWrite).map_err(|e| Error::io("open", &link.path, e))?;
        let (start, end) = (start_of(link), end_of(link));
        if total <= REWRITE_BYTES_MAX && start < end {
            let mut bytes = vec![0; (end - start) as usize];
            file.read_exact_at(&mut bytes, start).map_err(|e| Error::io("read", &link.path, e))?;
            file.write_at(&bytes, start).map_err(|e| Error::io("write", &link.path, e))?;
        }
        file.sync_data().map_err(|e| Error::io("sync", &link.path, e))?;
    }
    Ok(())
}

/// Makes the segment in which the log goes on. Its header is on disk when this returns.
fn new_tail(
    disk: &dyn Disk,
    dir: &Path,
    spares: &Spares,
    options: &WalOptions,
    number: u64,
    previous: FilePosition,
) -> Result<Tail, Error> {
    let (spare, capacity) = spares
        .take(disk, dir, options.segment_bytes, options.segment_bytes / 16, options)
        .map_err(|e| Error::io("allocate a segment in", dir, e))?;
    if options.prefill {
        spares::fill_start(disk, &spare, capacity).map_err(|e| Error::io("fill", &spare, e))?;
    }
    let mut tail = Tail::create(disk, dir, &spare, number, previous, capacity)?;
    tail.file.sync_data().map_err(|e| Error::io("sync", &tail.path, e))?;
    Ok(tail)
}

/// Ends the former last segment where the log ended, and gives back what lies behind.
fn seal(disk: &dyn Disk, last: &mut Link, end: FilePosition, next: u64) -> Result<(), Error> {
    let mut buffer = BatchBuffer::default();
    buffer.begin(end);
    buffer.push(Kind::Sealed, 0, GroupId(0), LogPosition::new(0, next), &[]);
    let seal = buffer.finish(end);
    let path = &last.path;
    let mut file = disk.open(path, OpenMode::ReadWrite).map_err(|e| Error::io("open", path, e))?;
    file.write_at(seal, end.offset).map_err(|e| Error::io("write", path, e))?;
    file.set_len(end.offset + SEAL_BYTES).map_err(|e| Error::io("cut", path, e))?;
    file.sync_data().map_err(|e| Error::io("sync", path, e))?;
    last.len = end.offset + SEAL_BYTES;
    Ok(())
}
