//! P1: every answered XADD is there at the end, exactly once, with the id that was answered; and
//! nothing is there that nobody sent.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{End, Frozen, Id};

pub(crate) fn check(history: &Frozen) -> Vec<String> {
    let mut found = Vec::new();
    let mut at_end: BTreeMap<(&str, &str), Vec<Id>> = BTreeMap::new();
    for (key, entries) in &history.last {
        for entry in entries {
            at_end.entry((key, &entry.value)).or_default().push(entry.id);
        }
    }
    let sent: BTreeSet<(&str, &str)> =
        history.adds.iter().map(|add| (add.key.as_str(), add.value.as_str())).collect();
    for ((key, value), ids) in &at_end {
        if !sent.contains(&(*key, *value)) {
            found.push(format!("{key} holds {value} at {ids:?}, which nobody sent"));
        }
        if ids.len() > 1 {
            found.push(format!("{key} holds {value} {} times, at {ids:?}", ids.len()));
        }
    }
    for add in &history.adds {
        let End::Done(id) = &add.end else { continue };
        if !history.last.contains_key(&add.key) {
            continue;
        }
        match at_end.get(&(add.key.as_str(), add.value.as_str())) {
            None => found.push(format!(
                "lost: XADD {} {} was answered {}-{} at {:.3} s and is gone",
                add.key,
                add.value,
                id.0,
                id.1,
                add.ended.as_secs_f64()
            )),
            Some(ids) if ids.as_slice() != [*id] => found.push(format!(
                "moved: XADD {} {} was answered {}-{} and is now at {ids:?}",
                add.key, add.value, id.0, id.1
            )),
            Some(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::history::{Add, Entry};

    fn history(end: End<Id>, last: &[(Id, &str)]) -> Frozen {
        let mut frozen = Frozen::default();
        frozen.adds.push(Add {
            key: "k".into(),
            value: "v".into(),
            called: Duration::ZERO,
            ended: Duration::from_millis(1),
            end,
        });
        let entries = last.iter().map(|(id, v)| Entry { id: *id, value: (*v).into() }).collect();
        frozen.last.insert("k".into(), entries);
        frozen
    }

    #[test]
    fn an_answered_entry_must_be_there_once_under_its_id() {
        assert!(check(&history(End::Done((1, 0)), &[((1, 0), "v")])).is_empty());
        assert_eq!(check(&history(End::Done((1, 0)), &[])).len(), 1);
        assert_eq!(check(&history(End::Done((1, 0)), &[((2, 0), "v")])).len(), 1);
        assert_eq!(check(&history(End::Done((1, 0)), &[((1, 0), "v"), ((2, 0), "v")])).len(), 2);
    }

    #[test]
    fn an_unknown_entry_may_be_there_or_not_but_not_twice() {
        assert!(check(&history(End::Unknown, &[])).is_empty());
        assert!(check(&history(End::Unknown, &[((1, 0), "v")])).is_empty());
        assert_eq!(check(&history(End::Unknown, &[((1, 0), "v"), ((2, 0), "v")])).len(), 1);
    }
}
