//! P5: a write that was answered with an error did nothing.

use std::collections::BTreeMap;

use crate::history::{End, Frozen, Id};

pub(crate) fn check(history: &Frozen) -> Vec<String> {
    let mut seen: BTreeMap<(&str, &str), Id> = BTreeMap::new();
    for (key, entries) in &history.last {
        for entry in entries {
            seen.insert((key, &entry.value), entry.id);
        }
    }
    for read in &history.reads {
        for entry in &read.entries {
            seen.insert((&read.key, &entry.value), entry.id);
        }
    }
    let mut found = Vec::new();
    for add in &history.adds {
        if let End::NotDone(error) = &add.end
            && let Some(id) = seen.get(&(add.key.as_str(), add.value.as_str()))
        {
            found.push(format!(
                "XADD {} {} was refused with {error:?} and yet is at {}-{}",
                add.key, add.value, id.0, id.1
            ));
        }
    }
    found
}
