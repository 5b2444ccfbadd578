//! What the clients saw: one record an operation, with the simulated time of call and answer.
//!
//! An operation whose answer never came is *unknown*: it may have happened, at any time after the
//! call, at most once. An error answer means that it did not happen.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::disk::medium::lock;

/// `ms-seq` as one ordered number pair.
pub(crate) type Id = (u64, u64);

/// One stream entry as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: Id,
    /// The unique value its writer gave it.
    pub(crate) value: String,
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End<T> {
    /// Answered.
    Done(T),
    /// Refused with this error: nothing happened.
    NotDone(String),
    /// No answer, or the answer that nobody knows.
    Unknown,
}

/// XADD of one unique value.
#[derive(Debug, Clone)]
pub(crate) struct Add {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) called: Duration,
    pub(crate) ended: Duration,
    pub(crate) end: End<Id>,
}

/// A read of the newest entries of a key, oldest first.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(crate) client: usize,
    pub(crate) key: String,
    pub(crate) called: Duration,
    pub(crate) ended: Duration,
    /// Most entries asked for.
    pub(crate) count: usize,
    pub(crate) entries: Vec<Entry>,
}

/// Shared by all clients of a run.
#[derive(Clone, Default)]
pub(crate) struct History(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    adds: Vec<Add>,
    reads: Vec<Read>,
    /// What each key held at the very end.
    last: BTreeMap<String, Vec<Entry>>,
    damaged: Vec<String>,
}

impl History {
    pub(crate) fn add(&self, add: Add) {
        lock(&self.0).adds.push(add);
    }

    pub(crate) fn read(&self, read: Read) {
        lock(&self.0).reads.push(read);
    }

    pub(crate) fn last(&self, key: &str, entries: Vec<Entry>) {
        lock(&self.0).last.insert(key.to_owned(), entries);
    }

    /// An entry whose fields are not the ones that were sent.
    pub(crate) fn damaged(&self, what: String) {
        lock(&self.0).damaged.push(what);
    }

    /// A frozen copy for the checks.
    pub(crate) fn frozen(&self) -> Frozen {
        let inner = lock(&self.0);
        Frozen {
            adds: inner.adds.clone(),
            reads: inner.reads.clone(),
            last: inner.last.clone(),
            damaged: inner.damaged.clone(),
        }
    }
}

/// A finished history.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    pub(crate) adds: Vec<Add>,
    pub(crate) reads: Vec<Read>,
    pub(crate) last: BTreeMap<String, Vec<Entry>>,
    pub(crate) damaged: Vec<String>,
}

impl Frozen {
    /// How many adds were answered, refused, unknown.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let mut counts = (0, 0, 0);
        for add in &self.adds {
            match add.end {
                End::Done(_) => counts.0 += 1,
                End::NotDone(_) => counts.1 += 1,
                End::Unknown => counts.2 += 1,
            }
        }
        counts
    }
}
