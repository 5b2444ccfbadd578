//! The pending entries list (PEL) of a group: one packed row an entry, found by id, by owner and by age.
//!
//! Rows lie in chunks of up to [`CHUNK_MAX`], sorted by id. A chunk is found by a lower bound of its ids.
//! Two small indices point to chunks rather than to rows, which is what keeps a row at some 22 bytes: for
//! each owner the chunks that hold rows of it, and the chunks by the oldest delivery inside. Rows that were
//! given back (XNACK) belong to nobody and have no age; they stand in a list of their own, in the order of their
//! release.

use crate::EntryId;
use crate::cow_map::{CowMap, Debris, Iter, Start};
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Most rows in a chunk.
const CHUNK_MAX: usize = 64;
/// A chunk with fewer looks for a neighbour to merge with.
const CHUNK_FEW: usize = 16;
/// Most that a merge of two chunks may make.
const MERGED_MAX: usize = 48;

/// Owner of rows that were given back.
pub(crate) const NOBODY: u32 = u32::MAX;

/// One row of the PEL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nack {
    /// Number of the consumer that the entry was delivered to, or [`NOBODY`].
    pub(crate) owner: u32,
    /// Milliseconds since the Unix epoch; of a row that was given back, its place in the order of release.
    pub(crate) delivered_ms: u64,
    /// How often it was delivered.
    pub(crate) deliveries: u64,
}

/// Deliveries of an entry that no consumer can handle: the most that clients can be told. It is not counted on from
/// there.
pub(crate) const DELIVERIES_MAX: u64 = i64::MAX as u64;

/// One delivery more.
pub(crate) fn one_more(deliveries: u64) -> u64 {
    if deliveries == DELIVERIES_MAX { deliveries } else { deliveries.saturating_add(1) }
}

impl Nack {
    /// Whether it was given back and waits for any consumer.
    pub(crate) fn is_released(&self) -> bool {
        self.owner == NOBODY
    }

    /// Whether a claim that asks for this age may have it. What was given back has any age.
    pub(crate) fn is_idle(&self, now_ms: u64, min_idle_ms: u64) -> bool {
        self.is_released() || now_ms.saturating_sub(self.delivered_ms) >= min_idle_ms
    }

    /// Milliseconds since the delivery, as clients see it; `None` if it was given back.
    pub(crate) fn idle_ms(&self, now_ms: u64) -> Option<u64> {
        (!self.is_released()).then(|| now_ms.saturating_sub(self.delivered_ms))
    }
}

/// See the module. A row has one owner; the indices agree with the rows after every change.
#[derive(Clone, Default)]
pub(crate) struct PendingList {
    chunks: CowMap<EntryId, Arc<Chunk>>,
    /// (owner, chunk) to the number of the owner's rows in it.
    by_owner: CowMap<(u32, EntryId), u32>,
    /// (oldest delivery in the chunk, chunk).
    by_age: CowMap<(u64, EntryId), ()>,
    /// Rows of nobody by their place.
    released: CowMap<u64, EntryId>,
    len: u64,
}

#[derive(Clone)]
struct Chunk {
    /// Earliest delivery time of the rows that belong to somebody; [`NEVER`] without any.
    oldest_ms: u64,
    /// Rows of nobody.
    released: u32,
    rows: Rows,
}

const NEVER: u64 = u64::MAX;

/// Rows in 20 bytes each where all of them fit, else as they are.
#[derive(Clone)]
enum Rows {
    Narrow { base: EntryId, base_ms: u64, rows: Vec<NarrowRow> },
    Wide(Vec<(EntryId, Nack)>),
}

#[derive(Clone, Copy)]
struct NarrowRow {
    /// From the base.
    ms: i32,
    seq: u32,
    /// From the base time; of nobody's rows from 0.
    delivered: i32,
    owner: u32,
    deliveries: u32,
}

impl Rows {
    fn new(id: EntryId, nack: Nack) -> Rows {
        let mut rows = Rows::Narrow { base: id, base_ms: nack.delivered_ms, rows: Vec::new() };
        rows.insert(0, id, nack);
        rows
    }

    fn from_rows(rows: &[(EntryId, Nack)]) -> Rows {
        let base = rows.first().map_or(EntryId::MIN, |(id, _)| *id);
        let delivered = rows.iter().find(|(_, nack)| !nack.is_released());
        let base_ms = delivered.map_or(0, |(_, nack)| nack.delivered_ms);
        let narrow = rows.iter().map(|(id, nack)| NarrowRow::new(base, base_ms, *id, *nack)).collect();
        match narrow {
            Some(rows) => Rows::Narrow { base, base_ms, rows },
            None => Rows::Wide(rows.to_vec()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Rows::Narrow { rows, .. } => rows.len(),
            Rows::Wide(rows) => rows.len(),
        }
    }

    fn get(&self, at: usize) -> (EntryId, Nack) {
        match self {
            Rows::Narrow { base, base_ms, rows } => rows[at].widen(*base, *base_ms),
            Rows::Wide(rows) => rows[at],
        }
    }

    fn iter(&self) -> impl Iterator<Item = (EntryId, Nack)> + '_ {
        (0..self.len()).map(|at| self.get(at))
    }

    fn position(&self, id: EntryId) -> Result<usize, usize> {
        match self {
            Rows::Narrow { base, base_ms, rows } => match rows.last() {
                Some(last) if last.widen(*base, *base_ms).0 < id => Err(rows.len()),
                _ => rows.binary_search_by(|row| row.widen(*base, *base_ms).0.cmp(&id)),
            },
            Rows::Wide(rows) => rows.binary_search_by(|(row, _)| row.cmp(&id)),
        }
    }

    fn insert(&mut self, at: usize, id: EntryId, nack: Nack) {
        if let Rows::Narrow { base, base_ms, rows } = self
            && let Some(row) = NarrowRow::new(*base, *base_ms, id, nack)
        {
            return rows.insert(at, row);
        }
        self.widen().insert(at, (id, nack));
    }

    fn set(&mut self, at: usize, id: EntryId, nack: Nack) {
        if let Rows::Narrow { base, base_ms, rows } = self
            && let Some(row) = NarrowRow::new(*base, *base_ms, id, nack)
        {
            rows[at] = row;
            return;
        }
        self.widen()[at] = (id, nack);
    }

    fn remove(&mut self, at: usize) {
        match self {
            Rows::Narrow { rows, .. } => {
                rows.remove(at);
            }
            Rows::Wide(rows) => {
                rows.remove(at);
            }
        }
    }

    fn widen(&mut self) -> &mut Vec<(EntryId, Nack)> {
        if let Rows::Narrow { .. } = self {
            *self = Rows::Wide(self.iter().collect());
        }
        match self {
            Rows::Wide(rows) => rows,
            Rows::Narrow { .. } => unreachable!("made wide just now"),
        }
    }
}

impl NarrowRow {
    fn new(base: EntryId, base_ms: u64, id: EntryId, nack: Nack) -> Option<NarrowRow> {
        let offset = |from: u64, to: u64| i32::try_from(i128::from(to) - i128::from(from)).ok();
        Some(NarrowRow {
            ms: offset(base.ms, id.ms)?,
            seq: u32::try_from(id.seq).ok()?,
            delivered: offset(if nack.is_released() { 0 } else { base_ms }, nack.delivered_ms)?,
            owner: nack.owner,
            deliveries: u32::try_from(nack.deliveries).ok()?,
        })
    }

    fn widen(self, base: EntryId, base_ms: u64) -> (EntryId, Nack) {
        let id = EntryId { ms: base.ms.wrapping_add_signed(self.ms.into()), seq: self.seq.into() };
        let base_ms = if self.owner == NOBODY { 0 } else { base_ms };
        let delivered_ms = base_ms.wrapping_add_signed(self.delivered.into());
        (id, Nack { owner: self.owner, delivered_ms, deliveries: self.deliveries.into() })
    }
}

impl Chunk {
    fn new(rows: Rows) -> Chunk {
        let mut chunk = Chunk { oldest_ms: NEVER, released: 0, rows };
        chunk.find_oldest();
        chunk
    }

    fn find_oldest(&mut self) {
        let owned = self.rows.iter().filter(|(_, nack)| !nack.is_released());
        self.oldest_ms = owned.map(|(_, nack)| nack.delivered_ms).min().unwrap_or(NEVER);
        self.released = self.rows.iter().filter(|(_, nack)| nack.is_released()).count() as u32;
    }

    fn owners(&self) -> BTreeMap<u32, u32> {
        let mut owners = BTreeMap::new();
        self.rows.iter().for_each(|(_, nack)| *owners.entry(nack.owner).or_insert(0) += 1);
        owners
    }
}

impl PendingList {
    /// Pending entries.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn get(&self, id: EntryId) -> Option<Nack> {
        let (_, chunk) = self.chunks.floor(&id)?;
        chunk.rows.position(id).ok().map(|at| chunk.rows.get(at).1)
    }

    /// Adds or replaces a row; answers the old one.
    pub(crate) fn set(&mut self, id: EntryId, nack: Nack) -> Option<Nack> {
        match self.chunks.floor(&id).map(|(key, chunk)| (*key, chunk.rows.position(id), chunk.rows.len())) {
            Some((key, Ok(at), _)) => Some(self.replace(key, at, id, nack)),
            Some((key, Err(at), len)) if len < CHUNK_MAX => {
                self.insert_into(key, at, id, nack);
                None
            }
            // Behind the last row of a full chunk: the next one begins here. Ids grow, so chunks end up full.
            Some((_, Err(CHUNK_MAX), _)) => {
                self.attach(id, Chunk::new(Rows::new(id, nack)));
                None
            }
            Some((key, Err(_), _)) => {
                self.split(key);
                self.set(id, nack)
            }
            // Below all chunks: the lowest bound of all stands for one that takes such latecomers.
            None => {
                self.attach(EntryId::MIN, Chunk::new(Rows::new(id, nack)));
                None
            }
        }
    }

    /// Takes a row out.
    pub(crate) fn remove(&mut self, id: EntryId) -> Option<Nack> {
        let (key, chunk) = self.chunks.floor(&id)?;
        let (key, at) = (*key, chunk.rows.position(id).ok()?);
        let chunk = Arc::make_mut(self.chunks.get_mut(&key)?);
        let (_, nack) = chunk.rows.get(at);
        chunk.rows.remove(at);
        let left = chunk.rows.len();
        let oldest = chunk.oldest_ms;
        if left > 0 && (nack.delivered_ms == oldest || nack.is_released()) {
            chunk.find_oldest();
        }
        let oldest_now = chunk.oldest_ms;
        self.len -= 1;
        if nack.is_released() {
            self.released.remove(&nack.delivered_ms);
        }
        self.count_owner(nack.owner, key, -1);
        if left == 0 {
            self.chunks.remove(&key);
            self.by_age.remove(&(oldest, key));
            return Some(nack);
        }
        self.move_age(key, oldest, oldest_now);
        if left < CHUNK_FEW {
            self.merge(key, left);
        }
        Some(nack)
    }

    /// Rows from `id` on, by id.
    pub(crate) fn iter_from(&self, id: EntryId) -> impl Iterator<Item = (EntryId, Nack)> + '_ {
        let from = self.chunks.floor(&id).map_or(id, |(key, _)| *key);
        let chunks = self.chunks.iter_from(Start::At(&from));
        chunks.flat_map(|(_, chunk)| chunk.rows.iter()).skip_while(move |(row, _)| *row < id)
    }

    /// Rows from `id` on that were delivered at `latest_ms` (if given) or before, or given back, by id. Passes over young chunks
    /// whole.
    pub(crate) fn iter_delivered_by(
        &self,
        id: EntryId,
        latest_ms: Option<u64>,
    ) -> impl Iterator<Item = (EntryId, Nack)> + '_ {
        let from = self.chunks.floor(&id).map_or(id, |(key, _)| *key);
        let chunks = self.chunks.iter_from(Start::At(&from)).map(|(_, chunk)| chunk);
        let old = chunks.filter(move |chunk| Some(chunk.oldest_ms) <= latest_ms || chunk.released > 0);
        old.flat_map(|chunk| chunk.rows.iter()).filter(move |(row, nack)| {
            *row >= id && (Some(nack.delivered_ms) <= latest_ms || nack.is_released())
        })
    }

    /// What may be claimed: first what was given back, in the order of release, then what was delivered at
    /// `latest_ms` or before, if that is given, the longest ago first. Opens no chunk before its oldest row is next.
    pub(crate) fn oldest_first(&self, latest_ms: Option<u64>) -> OldestFirst<'_> {
        OldestFirst {
            list: self,
            latest_ms,
            released: self.released.iter(),
            unopened: self.by_age.iter(),
            next: None,
            opened: BinaryHeap::new(),
        }
    }

    /// The place of the next row to be given back: behind all others.
    pub(crate) fn next_release(&self) -> u64 {
        self.released.last().map_or(1, |(last, _)| last.saturating_add(1))
    }

    /// Rows that were given back.
    pub(crate) fn released(&self) -> u64 {
        self.released.len() as u64
    }

    /// The owner's rows from `id` on, by id.
    pub(crate) fn iter_owned_from(
        &self,
        owner: u32,
        id: EntryId,
    ) -> impl Iterator<Item = (EntryId, Nack)> + '_ {
        let from = self.chunks.floor(&id).map_or(id, |(key, _)| *key);
        let mine = self.by_owner.iter_from(Start::At(&(owner, from)));
        let mine = mine.map(|(key, _)| *key).take_while(move |(number, _)| *number == owner);
        mine.filter_map(|(_, key)| self.chunks.get(&key))
            .flat_map(|chunk| chunk.rows.iter())
            .filter(move |(row, nack)| nack.owner == owner && *row >= id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (EntryId, Nack)> + '_ {
        self.iter_from(EntryId::MIN)
    }

    pub(crate) fn first(&self) -> Option<EntryId> {
        self.chunks.first().map(|(_, chunk)| chunk.rows.get(0).0)
    }

    pub(crate) fn last(&self) -> Option<EntryId> {
        self.chunks.last().map(|(_, chunk)| chunk.rows.get(chunk.rows.len() - 1).0)
    }

    /// Delivery time of the row delivered longest ago.
    pub(crate) fn oldest_ms(&self) -> Option<u64> {
        self.by_age.first().map(|((oldest, _), ())| *oldest).filter(|oldest| *oldest != NEVER)
    }

    /// Takes all rows of an owner out; answers how many. Works on whole chunks, since there can be millions.
    pub(crate) fn remove_owner(&mut self, owner: u32) -> u64 {
        let mine = self.by_owner.iter_from(Start::At(&(owner, EntryId::MIN)));
        let keys: Vec<EntryId> = mine
            .map(|(key, _)| *key)
            .take_while(|(number, _)| *number == owner)
            .map(|(_, key)| key)
            .collect();
        let before = self.len;
        for key in keys {
            let mut rows = self.detach(key);
            rows.retain(|(_, nack)| nack.owner != owner);
            if !rows.is_empty() {
                self.attach(key, Chunk::new(Rows::from_rows(&rows)));
            }
        }
        before - self.len
    }

    /// Takes the list apart for dropping in slices.
    pub(crate) fn into_debris(self) -> PendingDebris {
        PendingDebris {
            chunks: self.chunks.into_debris(),
            by_owner: self.by_owner.into_debris(),
            by_age: self.by_age.into_debris(),
            released: self.released.into_debris(),
        }
    }

    fn replace(&mut self, key: EntryId, at: usize, id: EntryId, nack: Nack) -> Nack {
        let Some(chunk) = self.chunks.get_mut(&key).map(Arc::make_mut) else { return nack };
        let (_, old) = chunk.rows.get(at);
        chunk.rows.set(at, id, nack);
        let oldest = chunk.oldest_ms;
        if old.delivered_ms == oldest || old.is_released() || nack.is_released() {
            chunk.find_oldest();
        } else {
            chunk.oldest_ms = oldest.min(nack.delivered_ms);
        }
        let oldest_now = chunk.oldest_ms;
        self.move_age(key, oldest, oldest_now);
        if old.is_released() {
            self.released.remove(&old.delivered_ms);
        }
        if nack.is_released() {
            self.released.insert(nack.delivered_ms, id);
        }
        if old.owner != nack.owner {
            self.count_owner(old.owner, key, -1);
            self.count_owner(nack.owner, key, 1);
        }
        old
    }

    fn insert_into(&mut self, key: EntryId, at: usize, id: EntryId, nack: Nack) {
        let Some(chunk) = self.chunks.get_mut(&key).map(Arc::make_mut) else { return };
        chunk.rows.insert(at, id, nack);
        let oldest = chunk.oldest_ms;
        if nack.is_released() {
            chunk.released += 1;
            self.released.insert(nack.delivered_ms, id);
        } else {
            chunk.oldest_ms = oldest.min(nack.delivered_ms);
        }
        let oldest_now = chunk.oldest_ms;
        self.len += 1;
        self.move_age(key, oldest, oldest_now);
        self.count_owner(nack.owner, key, 1);
    }

    fn move_age(&mut self, key: EntryId, from: u64, to: u64) {
        if from != to {
            self.by_age.remove(&(from, key));
            self.by_age.insert((to, key), ());
        }
    }

    fn count_owner(&mut self, owner: u32, key: EntryId, change: i32) {
        match self.by_owner.get_mut(&(owner, key)) {
            Some(count) if change < 0 && *count <= 1 => {
                self.by_owner.remove(&(owner, key));
            }
            Some(count) => *count = count.saturating_add_signed(change),
            None => {
                self.by_owner.insert((owner, key), 1);
            }
        }
    }

    /// Puts a chunk in, with its rows in all indices.
    fn attach(&mut self, key: EntryId, chunk: Chunk) {
        self.len += chunk.rows.len() as u64;
        self.by_age.insert((chunk.oldest_ms, key), ());
        for (owner, count) in chunk.owners() {
            self.by_owner.insert((owner, key), count);
        }
        for (id, nack) in chunk.rows.iter().filter(|(_, nack)| chunk.released > 0 && nack.is_released()) {
            self.released.insert(nack.delivered_ms, id);
        }
        self.chunks.insert(key, Arc::new(chunk));
    }

    /// Takes a chunk out, with its rows out of all indices.
    fn detach(&mut self, key: EntryId) -> Vec<(EntryId, Nack)> {
        let Some(chunk) = self.chunks.remove(&key) else { return Vec::new() };
        self.len -= chunk.rows.len() as u64;
        self.by_age.remove(&(chunk.oldest_ms, key));
        for owner in chunk.owners().into_keys() {
            self.by_owner.remove(&(owner, key));
        }
        for (_, nack) in chunk.rows.iter().filter(|(_, nack)| chunk.released > 0 && nack.is_released()) {
            self.released.remove(&nack.delivered_ms);
        }
        chunk.rows.iter().collect()
    }

    fn split(&mut self, key: EntryId) {
        let rows = self.detach(key);
        let (left, right) = rows.split_at(rows.len() / 2);
        self.attach(key, Chunk::new(Rows::from_rows(left)));
        self.attach(right[0].0, Chunk::new(Rows::from_rows(right)));
    }

    /// Merges a small chunk with a neighbour if both fit into one.
    fn merge(&mut self, key: EntryId, len: usize) {
        let fits =
            |(key, chunk): (&EntryId, &Arc<Chunk>)| (chunk.rows.len() + len <= MERGED_MAX).then_some(*key);
        let after = self.chunks.iter_from(Start::Beyond(&key)).next().and_then(fits);
        let before = self.chunks.iter_back_from(Start::Beyond(&key)).next().and_then(fits);
        let (left, right) = match (before, after) {
            (Some(before), _) => (before, key),
            (None, Some(after)) => (key, after),
            (None, None) => return,
        };
        let mut rows = self.detach(left);
        rows.extend(self.detach(right));
        self.attach(left, Chunk::new(Rows::from_rows(&rows)));
    }
}

/// A pending list on its way out.
pub(crate) struct PendingDebris {
    chunks: Debris<EntryId, Arc<Chunk>>,
    by_owner: Debris<(u32, EntryId), u32>,
    by_age: Debris<(u64, EntryId), ()>,
    released: Debris<u64, EntryId>,
}

impl PendingDebris {
    /// As [`Debris::drop_slice`].
    pub(crate) fn drop_slice(&mut self, budget: &mut usize) -> bool {
        self.chunks.drop_slice(budget, drop)
            || self.by_owner.drop_slice(budget, drop)
            || self.by_age.drop_slice(budget, drop)
            || self.released.drop_slice(budget, drop)
    }
}

/// See [`PendingList::oldest_first`].
pub(crate) struct OldestFirst<'a> {
    list: &'a PendingList,
    latest_ms: Option<u64>,
    released: Iter<'a, u64, EntryId>,
    unopened: Iter<'a, (u64, EntryId), ()>,
    /// The chunk to open next: its oldest delivery and its key, which is not above any of its ids.
    next: Option<(u64, EntryId)>,
    /// Rows of open chunks: delivery time and id.
    opened: BinaryHeap<Reverse<(u64, EntryId)>>,
}

impl Iterator for OldestFirst<'_> {
    type Item = (EntryId, Nack);

    fn next(&mut self) -> Option<(EntryId, Nack)> {
        if let Some((_, id)) = self.released.next() {
            return Some((*id, self.list.get(*id)?));
        }
        loop {
            if self.next.is_none() {
                let next = self.unopened.next().map(|(age, ())| *age);
                self.next = next.filter(|(at, _)| *at != NEVER && Some(*at) <= self.latest_ms);
            }
            match (self.opened.peek(), self.next) {
                (Some(Reverse(row)), next) if next.is_none_or(|next| *row < next) => {
                    let (_, id) = *row;
                    self.opened.pop();
                    return Some((id, self.list.get(id)?));
                }
                (_, None) => return None,
                (_, Some((_, key))) => {
                    self.next = None;
                    let rows = self.list.chunks.get(&key).into_iter().flat_map(|chunk| chunk.rows.iter());
                    let old = |nack: &Nack| !nack.is_released() && Some(nack.delivered_ms) <= self.latest_ms;
                    let old = rows.filter(|(_, nack)| old(nack));
                    self.opened.extend(old.map(|(id, nack)| Reverse((nack.delivered_ms, id))));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Set(EntryId, Nack),
        /// Rows that follow each other, as a delivery makes them.
        Deliver {
            rows: u8,
            owner: u32,
            delivered_ms: u64,
        },
        Release(EntryId),
        Remove(EntryId),
        /// Acknowledges from the front.
        RemoveFirst(u8),
        RemoveOwner(u32),
    }

    fn any_id() -> impl Strategy<Value = EntryId> {
        prop_oneof![
            20 => (0..1500u64).prop_map(|ms| EntryId::new(ms, 0)),
            1 => (any::<u64>(), any::<u64>()).prop_map(|(ms, seq)| EntryId::new(ms, seq)),
        ]
    }

    fn any_nack() -> impl Strategy<Value = Nack> {
        let delivered = prop_oneof![20 => 1000..1100u64, 1 => any::<u64>()];
        let deliveries = prop_oneof![20 => 0..9u64, 1 => any::<u64>()];
        (0..4u32, delivered, deliveries).prop_map(|(owner, delivered_ms, deliveries)| Nack {
            owner,
            delivered_ms,
            deliveries,
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (any_id(), any_nack()).prop_map(|(id, nack)| Step::Set(id, nack)),
            4 => (1..120u8, 0..4u32, 1000..1100u64)
                .prop_map(|(rows, owner, delivered_ms)| Step::Deliver { rows, owner, delivered_ms }),
            3 => any_id().prop_map(Step::Release),
            8 => any_id().prop_map(Step::Remove),
            2 => (1..90u8).prop_map(Step::RemoveFirst),
            1 => (0..4u32).prop_map(Step::RemoveOwner),
        ]
    }

    fn check(list: &PendingList, model: &BTreeMap<EntryId, Nack>) {
        let all: Vec<_> = model.iter().map(|(id, nack)| (*id, *nack)).collect();
        assert_eq!(list.len(), all.len() as u64);
        assert!(list.iter().eq(all.iter().copied()));
        assert_eq!(list.first(), all.first().map(|(id, _)| *id));
        assert_eq!(list.last(), all.last().map(|(id, _)| *id));
        let owned = || all.iter().copied().filter(|(_, nack)| !nack.is_released());
        assert_eq!(list.oldest_ms(), owned().map(|(_, nack)| nack.delivered_ms).min());
        let mut oldest_first: Vec<_> = all.iter().copied().filter(|(_, nack)| nack.is_released()).collect();
        oldest_first.sort_by_key(|(_, nack)| nack.delivered_ms);
        assert_eq!(list.released(), oldest_first.len() as u64);
        let mut old: Vec<_> = owned().filter(|(_, nack)| nack.delivered_ms <= 1050).collect();
        old.sort_by_key(|(id, nack)| (nack.delivered_ms, *id));
        oldest_first.append(&mut old);
        assert!(list.oldest_first(Some(1050)).eq(oldest_first));
        let from = EntryId::new(700, 0);
        let above = || all.iter().copied().filter(move |(id, _)| *id >= from);
        assert!(list.iter_from(from).eq(above()));
        let old = |nack: &Nack| nack.is_released() || nack.delivered_ms <= 1050;
        assert!(list.iter_delivered_by(from, Some(1050)).eq(above().filter(|(_, nack)| old(nack))));
        for owner in (0..4).chain([NOBODY]) {
            assert!(list.iter_owned_from(owner, from).eq(above().filter(|(_, nack)| nack.owner == owner)));
        }
        let in_chunks: usize = list.chunks.iter().map(|(_, chunk)| chunk.rows.len()).sum();
        assert_eq!(in_chunks, all.len());
        assert!(list.chunks.iter().all(|(_, chunk)| (1..=CHUNK_MAX).contains(&chunk.rows.len())));
        assert_eq!(list.by_age.len(), list.chunks.len());
        let owned: u64 = list.by_owner.iter().map(|(_, count)| u64::from(*count)).sum();
        assert_eq!(owned, list.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn a_pending_list_finds_its_rows_by_id_by_owner_and_by_age(
            steps in prop::collection::vec(step(), 0..120),
        ) {
            let (mut list, mut model) = (PendingList::default(), BTreeMap::new());
            for (at, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Set(id, nack) => prop_assert_eq!(list.set(id, nack), model.insert(id, nack)),
                    Step::Deliver { rows, owner, delivered_ms } => {
                        for _ in 0..rows {
                            let last = model.keys().rev().find(|id| id.ms < 1_000_000).copied();
                            let id = EntryId::new(last.map_or(1, |id| id.ms + 1), 0);
                            let nack = Nack { owner, delivered_ms, deliveries: 1 };
                            prop_assert_eq!(list.set(id, nack), model.insert(id, nack));
                        }
                    }
                    Step::Release(id) => {
                        let nack = Nack { owner: NOBODY, delivered_ms: list.next_release(), deliveries: 3 };
                        prop_assert_eq!(list.set(id, nack), model.insert(id, nack));
                    }
                    Step::Remove(id) => prop_assert_eq!(list.remove(id), model.remove(&id)),
                    Step::RemoveFirst(rows) => {
                        for _ in 0..rows {
                            let id = model.keys().next().copied().unwrap_or(EntryId::MIN);
                            prop_assert_eq!(list.remove(id), model.remove(&id));
                        }
                    }
                    Step::RemoveOwner(owner) => {
                        let before = model.len();
                        model.retain(|_, nack| nack.owner != owner);
                        prop_assert_eq!(list.remove_owner(owner), (before - model.len()) as u64);
                    }
                }
                if at % 8 == 0 {
                    check(&list, &model);
                }
            }
            check(&list, &model);
        }
    }

    #[test]
    fn what_is_given_back_keeps_a_chunk_narrow() {
        let mut list = PendingList::default();
        let plain = Nack { owner: 1, delivered_ms: 1_700_000_000_000, deliveries: 1 };
        for at in 0..10 {
            list.set(EntryId::new(1_700_000_000_000 + at, at), plain);
        }
        for at in [7, 2, 5] {
            let nack = Nack { owner: NOBODY, delivered_ms: list.next_release(), deliveries: 1 };
            list.set(EntryId::new(1_700_000_000_000 + at, at), nack);
        }
        let places: Vec<_> = list.oldest_first(None).map(|(id, nack)| (id.seq, nack.delivered_ms)).collect();
        assert_eq!(places, [(7, 1), (2, 2), (5, 3)]);
        assert!(list.chunks.iter().all(|(_, chunk)| matches!(chunk.rows, Rows::Narrow { .. })));
    }

    #[test]
    fn rows_that_do_not_fit_the_narrow_form_keep_their_values() {
        let mut list = PendingList::default();
        let plain = Nack { owner: 1, delivered_ms: 1_700_000_000_000, deliveries: 1 };
        let odd = Nack { owner: NOBODY - 1, delivered_ms: 0, deliveries: u64::MAX };
        for at in 0..10 {
            list.set(EntryId::new(1_700_000_000_000 + at, at), plain);
        }
        let wide = EntryId::new(u64::MAX, u64::MAX);
        list.set(wide, odd);
        assert_eq!(list.get(wide), Some(odd));
        list.set(EntryId::new(1_700_000_000_003, 3), odd);
        assert_eq!(list.get(EntryId::new(1_700_000_000_003, 3)), Some(odd));
        assert_eq!(list.get(EntryId::new(1_700_000_000_004, 4)), Some(plain));
        assert_eq!(list.oldest_ms(), Some(0));
    }
}
