//! P4: ids strictly increase, in every read and in the order in which adds were answered.

use std::{collections::BTreeMap, time::Duration};

use crate::history::{End, Entry, Frozen, Id};

pub(crate) fn check(history: &Frozen) -> Vec<String> {
    let mut found = Vec::new();
    for (key, entries) in &history.last {
        found.extend(out_of_order(key, entries));
    }
    for read in &history.reads {
        found.extend(out_of_order(&read.key, &read.entries));
    }
    // An add called after another was answered must have the larger id.
    let mut by_key: BTreeMap<&str, Vec<(Duration, Duration, Id)>> = BTreeMap::new();
    for add in &history.adds {
        if let End::Done(id) = add.end {
            by_key.entry(&add.key).or_default().push((add.called, add.ended, id));
        }
    }
    for (key, mut adds) in by_key {
        let mut by_end = adds.clone();
        by_end.sort_by_key(|(_, ended, _)| *ended);
        adds.sort_by_key(|(called, _, _)| *called);
        let mut answered = by_end.iter().peekable();
        let mut highest: Option<Id> = None;
        for (called, _, id) in &adds {
            while let Some((_, _, earlier)) = answered.next_if(|(_, ended, _)| ended < called) {
                highest = highest.max(Some(*earlier));
            }
            if highest.is_some_and(|highest| *id <= highest) {
                found.push(format!(
                    "{key}: an add called at {:.3} s got {id:?}, not above {highest:?}, which was \
                     answered before",
                    called.as_secs_f64()
                ));
            }
        }
    }
    found
}

fn out_of_order(key: &str, entries: &[Entry]) -> Option<String> {
    let pair = entries.windows(2).find(|pair| pair[0].id >= pair[1].id)?;
    Some(format!("{key}: {:?} is followed by {:?}", pair[0].id, pair[1].id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Add;

    fn add(called: u64, ended: u64, id: Id) -> Add {
        Add {
            key: "k".into(),
            value: format!("{id:?}"),
            called: Duration::from_millis(called),
            ended: Duration::from_millis(ended),
            end: End::Done(id),
        }
    }

    #[test]
    fn only_adds_that_do_not_overlap_are_ordered() {
        let overlapping = Frozen { adds: vec![add(0, 10, (2, 0)), add(5, 12, (1, 0))], ..Frozen::default() };
        assert!(check(&overlapping).is_empty());
        let after = Frozen { adds: vec![add(0, 10, (2, 0)), add(11, 12, (1, 0))], ..Frozen::default() };
        assert_eq!(check(&after).len(), 1);
    }
}
