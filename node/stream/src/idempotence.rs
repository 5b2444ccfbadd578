//! Idempotent adds: what each producer added lately, so that a retry is answered with the first id.
//!
//! A record is forgotten once it is older than the stream's duration, when its producer has more than the
//! stream's maximum, or when the settings change. Forgetting by age happens in passing, a few records an add, so
//! that no command pays for many; what is too old is never found, whether it was forgotten yet or not.

use crate::cow_map::CowMap;
use crate::{EntryId, Idempotent, Refusal};
use alloc::sync::Arc;
use bytes::Bytes;

/// Seconds that a record is kept, unless XCFGSET says otherwise.
const DURATION_S_DEFAULT: u32 = 100;
/// Records kept of a producer, unless XCFGSET says otherwise.
const MAXSIZE_DEFAULT: u32 = 100;
/// Most records of one stream, whatever the number of producers.
const RECORDS_MAX: u64 = 1_000_000;
/// Most memory that the records of one stream may take, in bytes.
const BYTES_MAX: u64 = 64 << 20;
/// Records forgotten by age in passing. More than one, so that the old ones run out.
const FORGOTTEN_AT_ONCE: usize = 16;
/// Memory of a record and of a producer beside their names, in bytes.
const RECORD: u64 = 160;
const PRODUCER: u64 = 224;

/// Settings, counters and records of one stream.
///
/// Invariants: no producer without records; `by_age` holds each producer once, with the time of its oldest
/// record; `records` and `bytes` are sums over the producers.
#[derive(Clone)]
pub(crate) struct Idempotence {
    pub(crate) duration_s: u32,
    pub(crate) maxsize: u32,
    pub(crate) producers: Producers,
    by_age: CowMap<(u64, Bytes), ()>,
    pub(crate) records: u64,
    bytes: u64,
    /// Records ever made.
    pub(crate) added: u64,
    /// Adds that were answered with the id of an earlier one.
    pub(crate) duplicates: u64,
}

/// By name.
pub(crate) type Producers = CowMap<Bytes, Arc<Producer>>;

/// What one producer added, oldest first.
#[derive(Clone, Default)]
pub(crate) struct Producer {
    pub(crate) records: CowMap<u64, Record>,
    /// The key in `records` of each idempotent id.
    numbers: CowMap<Bytes, u64>,
    next: u64,
}

/// One add.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) iid: Bytes,
    pub(crate) id: EntryId,
    /// Unix milliseconds.
    pub(crate) at_ms: u64,
}

impl Default for Idempotence {
    fn default() -> Self {
        Idempotence::new(DURATION_S_DEFAULT, MAXSIZE_DEFAULT)
    }
}

impl Idempotence {
    pub(crate) fn new(duration_s: u32, maxsize: u32) -> Idempotence {
        Idempotence {
            duration_s,
            maxsize,
            producers: CowMap::new(),
            by_age: CowMap::new(),
            records: 0,
            bytes: 0,
            added: 0,
            duplicates: 0,
        }
    }

    /// Whether it is as that of a stream that never remembered anything.
    pub(crate) fn is_untouched(&self) -> bool {
        let settings = (self.duration_s, self.maxsize);
        settings == (DURATION_S_DEFAULT, MAXSIZE_DEFAULT)
            && (self.records, self.added, self.duplicates) == (0, 0, 0)
    }

    /// Memory of the records, roughly.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes
    }

    /// The id that this add was given before, where that is remembered.
    pub(crate) fn find(&self, add: &Idempotent, now_ms: u64) -> Option<EntryId> {
        let producer = self.producers.get(&add.producer[..])?;
        let record = producer.records.get(producer.numbers.get(&add.iid[..])?)?;
        (!self.is_old(record.at_ms, now_ms)).then_some(record.id)
    }

    fn is_old(&self, at_ms: u64, now_ms: u64) -> bool {
        at_ms.saturating_add(u64::from(self.duration_s) * 1000) <= now_ms
    }

    /// Makes sure that `add` can be remembered.
    ///
    /// # Errors
    /// The stream remembers as much as it may.
    pub(crate) fn make_room(&mut self, add: &Idempotent, now_ms: u64) -> Result<(), Refusal> {
        self.forget_old(now_ms);
        let producer = self.producers.get(&add.producer[..]);
        let replaces = producer.is_some_and(|known| known.records.len() >= self.maxsize as usize);
        let new = cost(&add.iid) + if producer.is_none() { cost_of_producer(&add.producer) } else { 0 };
        if self.bytes + new > BYTES_MAX || (self.records >= RECORDS_MAX && !replaces) {
            return Err(Refusal::idempotence_is_full());
        }
        Ok(())
    }

    fn forget_old(&mut self, now_ms: u64) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            match self.by_age.first() {
                Some(((at_ms, producer), ())) if self.is_old(*at_ms, now_ms) => {
                    let producer = producer.clone();
                    self.forget_oldest(&producer);
                }
                _ => return,
            }
        }
    }

    fn forget_oldest(&mut self, producer: &[u8]) {
        let oldest = self.producers.get(producer).and_then(|known| known.records.first());
        if let Some(number) = oldest.map(|(number, _)| *number) {
            self.forget(producer, number);
        }
    }

    fn forget(&mut self, name: &[u8], number: u64) {
        let Some(producer) = self.producers.get_mut(name).map(Arc::make_mut) else { return };
        let oldest_before = producer.oldest_ms();
        let Some(record) = producer.records.remove(&number) else { return };
        producer.numbers.remove(&record.iid[..]);
        let oldest_now = producer.oldest_ms();
        self.records -= 1;
        self.bytes -= cost(&record.iid);
        if oldest_now.is_none() {
            self.producers.remove(name);
            self.bytes -= cost_of_producer(name);
        }
        self.move_age(name, oldest_before, oldest_now);
    }

    fn move_age(&mut self, name: &[u8], from: Option<u64>, to: Option<u64>) {
        if from == to {
            return;
        }
        let name = Bytes::copy_from_slice(name);
        if let Some(from) = from {
            self.by_age.remove(&(from, name.clone()));
        }
        if let Some(to) = to {
            self.by_age.insert((to, name), ());
        }
    }

    /// Remembers that `add` became the entry `id`; forgets the producer's oldest record for it if there are too
    /// many. Nothing of that name may be found.
    pub(crate) fn remember(&mut self, add: &Idempotent, id: EntryId, now_ms: u64) {
        // One that is too old may still be there.
        let known = self.producers.get(&add.producer[..]);
        if let Some(number) = known.and_then(|known| known.numbers.get(&add.iid[..])).copied() {
            self.forget(&add.producer, number);
        }
        let full = |known: &Arc<Producer>| known.records.len() >= self.maxsize as usize;
        if self.producers.get(&add.producer[..]).is_some_and(full) {
            self.forget_oldest(&add.producer);
        }
        self.insert(&add.producer, Record { iid: Bytes::copy_from_slice(&add.iid), id, at_ms: now_ms });
        self.added = self.added.saturating_add(1);
    }

    /// Adds a record behind the producer's others; false if it does not fit there.
    pub(crate) fn insert(&mut self, name: &[u8], record: Record) -> bool {
        if !self.producers.contains_key(name) {
            self.producers.insert(Bytes::copy_from_slice(name), Arc::default());
            self.bytes += cost_of_producer(name);
        }
        let Some(producer) = self.producers.get_mut(name).map(Arc::make_mut) else { return false };
        let last = producer.records.last();
        if producer.numbers.contains_key(&record.iid[..])
            || last.is_some_and(|(_, last)| last.at_ms > record.at_ms)
        {
            return false;
        }
        let oldest_before = producer.oldest_ms();
        self.records += 1;
        self.bytes += cost(&record.iid);
        producer.numbers.insert(record.iid.clone(), producer.next);
        producer.records.insert(producer.next, record);
        producer.next += 1;
        let oldest_now = producer.oldest_ms();
        self.move_age(name, oldest_before, oldest_now);
        true
    }

    /// Changes the settings. What was remembered goes, and is answered, if that makes a difference.
    pub(crate) fn configure(&mut self, duration_s: Option<u32>, maxsize: Option<u32>) -> Option<Producers> {
        let duration_s = duration_s.unwrap_or(self.duration_s);
        let maxsize = maxsize.unwrap_or(self.maxsize);
        if (duration_s, maxsize) == (self.duration_s, self.maxsize) {
            return None;
        }
        let (added, duplicates) = (self.added, self.duplicates);
        let before = core::mem::replace(
            self,
            Idempotence { added, duplicates, ..Idempotence::new(duration_s, maxsize) },
        );
        Some(before.producers)
    }
}

impl Producer {
    fn oldest_ms(&self) -> Option<u64> {
        self.records.first().map(|(_, record)| record.at_ms)
    }

    /// The maps, for dropping in slices.
    pub(crate) fn into_maps(self) -> (CowMap<u64, Record>, CowMap<Bytes, u64>) {
        (self.records, self.numbers)
    }
}

fn cost(iid: &[u8]) -> u64 {
    RECORD + iid.len() as u64
}

fn cost_of_producer(name: &[u8]) -> u64 {
    PRODUCER + 2 * name.len() as u64
}
