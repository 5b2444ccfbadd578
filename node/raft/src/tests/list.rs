//! The simplest replicated thing: a list of everything that was applied.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::watch;
use weir_store::LogPosition;

use crate::{Committed, Fate, Nonce, SnapshotSink, SnapshotSource, StateMachine};

/// What became of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done(LogPosition),
    Settled(Fate),
}

#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) items: Vec<Bytes>,
    pub(super) applied: Option<LogPosition>,
    pub(super) outcomes: BTreeMap<u64, Outcome>,
    pub(super) restores: usize,
    pub(super) batches: usize,
}

/// The test's view of a machine inside a group.
#[derive(Clone)]
pub(super) struct ListView {
    state: Arc<Mutex<State>>,
    changes: Arc<watch::Sender<u64>>,
}

impl ListView {
    pub(super) fn new() -> Self {
        Self { state: Arc::default(), changes: Arc::new(watch::Sender::new(0)) }
    }

    pub(super) fn machine(&self) -> Box<dyn StateMachine> {
        let mut state = self.state.lock();
        *state = State { outcomes: std::mem::take(&mut state.outcomes), ..State::default() };
        Box::new(List(self.clone()))
    }

    pub(super) fn read<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        read(&self.state.lock())
    }

    pub(super) fn items(&self) -> Vec<Bytes> {
        self.read(|state| state.items.clone())
    }

    pub(super) async fn wait_for(&self, what: &str, condition: impl Fn(&State) -> bool) {
        let mut changes = self.changes.subscribe();
        let wait = async {
            while !condition(&self.state.lock()) {
                changes.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(super::cluster::PATIENCE, wait).await.is_err() {
            let state = self.read(|state| (state.items.len(), state.applied, state.outcomes.len()));
            panic!("waited in vain for {what}; items, applied, outcomes: {state:?}");
        }
    }

    pub(super) async fn outcome(&self, nonce: u64) -> Outcome {
        self.wait_for(&format!("the fate of {nonce}"), |state| state.outcomes.contains_key(&nonce)).await;
        self.read(|state| state.outcomes[&nonce])
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changes.send_modify(|version| *version += 1);
    }
}

struct List(ListView);

fn record(state: &mut State, nonce: Nonce, outcome: Outcome) {
    let before = state.outcomes.insert(nonce.0, outcome);
    assert_eq!(before, None, "{nonce:?} was told twice, now {outcome:?}");
}

impl StateMachine for List {
    fn apply(&mut self, batch: Vec<Committed>) {
        self.0.change(|state| {
            state.batches += 1;
            for committed in batch {
                let expected = state.applied.map(|applied| applied.index + 1);
                if let Some(expected) = expected {
                    assert_eq!(committed.position.index, expected, "every index once and in order");
                }
                state.applied = Some(committed.position);
                state.items.extend(committed.payload);
                if let Some(nonce) = committed.nonce {
                    record(state, nonce, Outcome::Done(committed.position));
                }
            }
        });
    }

    fn settle(&mut self, nonce: Nonce, fate: Fate) {
        self.0.change(|state| record(state, nonce, Outcome::Settled(fate)));
    }

    fn snapshot(&self) -> Box<dyn SnapshotSource> {
        Box::new(Source(self.0.items().into_iter()))
    }

    fn begin_restore(&mut self) -> Box<dyn SnapshotSink> {
        Box::new(Sink::default())
    }

    fn finish_restore(&mut self, sink: Box<dyn SnapshotSink>, at: LogPosition) -> Result<(), String> {
        let sink: Box<dyn Any> = sink;
        let sink = sink.downcast::<Sink>().map_err(|_| "another machine's sink")?;
        if !sink.rest.is_empty() {
            return Err("the snapshot ends early".to_owned());
        }
        self.0.change(|state| {
            state.items = sink.items;
            state.applied = Some(at);
            state.restores += 1;
        });
        Ok(())
    }
}

struct Source(std::vec::IntoIter<Bytes>);

impl SnapshotSource for Source {
    fn next_chunk(&mut self, out: &mut Vec<u8>) -> bool {
        match self.0.next() {
            Some(item) => {
                out.put_u32_le(item.len() as u32);
                out.put_slice(&item);
                true
            }
            None => false,
        }
    }
}

#[derive(Default)]
struct Sink {
    rest: BytesMut,
    items: Vec<Bytes>,
}

impl SnapshotSink for Sink {
    fn chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.rest.put_slice(bytes);
        while self.rest.len() >= 4 {
            let length = u32::from_le_bytes(self.rest[..4].try_into().unwrap()) as usize;
            if self.rest.len() < 4 + length {
                break;
            }
            self.rest.advance(4);
            self.items.push(self.rest.split_to(length).freeze());
        }
        Ok(())
    }
}
