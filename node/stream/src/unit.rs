//! One unit of work: a command, or all of an EXEC. Gathers what the server has to act on afterwards.

use crate::garbage::Garbage;
use crate::keyspace::Item;
use crate::machine::Machine;
use crate::{Effect, EntryId, Key, Reply};
use alloc::vec::Vec;

/// What a unit knows and what it leaves behind.
pub(crate) struct Unit {
    /// Replicated time of the unit, Unix milliseconds.
    pub(crate) now_ms: u64,
    /// Whether a client waits here; without one no reply is built, but the state changes all the same.
    pub(crate) want_reply: bool,
    /// Whether this is an EXEC: what one command added, a later one may take away.
    pub(crate) in_exec: bool,
    /// Keys whose readers have to look again.
    wakes: Vec<Key>,
    /// Keys that got entries, with the first id: readers look again if something of it is left at the end.
    added: Vec<(Key, EntryId)>,
    effects: Vec<Effect>,
}

impl Unit {
    pub(crate) fn new(now_ms: u64, want_reply: bool, in_exec: bool) -> Unit {
        Unit { now_ms, want_reply, in_exec, wakes: Vec::new(), added: Vec::new(), effects: Vec::new() }
    }

    /// Readers of `key` have to look again after the unit.
    pub(crate) fn wake(&mut self, key: &Key) {
        self.wakes.push(key.clone());
    }

    /// An entry came; `may_be_gone`: the same command may have trimmed it away again.
    pub(crate) fn entry_added(&mut self, key: &Key, id: EntryId, may_be_gone: bool) {
        if may_be_gone || self.in_exec {
            self.added.push((key.clone(), id));
        } else {
            self.wakes.push(key.clone());
        }
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn discard(&mut self, garbage: Option<Garbage>) {
        self.effects.extend(garbage.map(Effect::Garbage));
    }

    /// A key's value left the state.
    pub(crate) fn removed(&mut self, key: &Key, item: Item) {
        if item.value.stream().is_some() {
            self.wake(key);
        }
        self.discard(Garbage::of_item(item));
    }

    /// Everything the server has to act on.
    pub(crate) fn finish(mut self, machine: &Machine) -> Vec<Effect> {
        for (key, id) in core::mem::take(&mut self.added) {
            let last = machine.keyspace.stream(&key).ok().flatten().and_then(|s| s.entries.last_live());
            if last.is_some_and(|last| last >= id) {
                self.wakes.push(key);
            }
        }
        if self.wakes.len() > 1 {
            self.wakes.sort_unstable();
            self.wakes.dedup();
        }
        let mut effects: Vec<Effect> = self.wakes.into_iter().map(Effect::Wake).collect();
        effects.append(&mut self.effects);
        effects
    }

    /// Builds the reply if a client waits.
    pub(crate) fn reply(&self, build: impl FnOnce() -> Reply) -> Reply {
        if self.want_reply { build() } else { Reply::None }
    }
}
