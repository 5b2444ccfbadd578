//! P6, for streams that are only added to: the end state of a key is one sequence, and every read
//! saw a prefix of it (here: its newest entries), no shorter than real time demands and with
//! nothing from the future.

use std::{collections::BTreeMap, time::Duration};

use crate::history::{End, Frozen, Read};

pub(crate) fn check(history: &Frozen) -> Vec<String> {
    let mut found = Vec::new();
    for (key, entries) in &history.last {
        let place: BTreeMap<&str, usize> =
            entries.iter().enumerate().map(|(at, e)| (e.value.as_str(), at)).collect();
        // (when it was known to be there, how long the prefix must be from then on)
        let mut floor: Vec<(Duration, usize)> = history
            .adds
            .iter()
            .filter(|add| add.key == *key && matches!(add.end, End::Done(_)))
            .filter_map(|add| Some((add.ended, place.get(add.value.as_str())? + 1)))
            .collect();
        let called: BTreeMap<&str, Duration> = history
            .adds
            .iter()
            .filter(|add| add.key == *key)
            .map(|add| (add.value.as_str(), add.called))
            .collect();
        let mut reads: Vec<(&Read, usize)> = Vec::new();
        for read in history.reads.iter().filter(|read| read.key == *key) {
            match prefix_length(read, entries.iter().map(|e| e.value.as_str()), &place) {
                Ok(length) => {
                    floor.push((read.ended, length));
                    reads.push((read, length));
                }
                Err(why) => found.push(describe(read, &why)),
            }
            if let Some(entry) =
                read.entries.iter().find(|e| called.get(e.value.as_str()).is_some_and(|at| *at > read.ended))
            {
                found.push(describe(read, &format!("saw {} before it was sent", entry.value)));
            }
        }
        floor.sort_by_key(|(at, _)| *at);
        reads.sort_by_key(|(read, _)| read.called);
        let mut known = floor.iter().peekable();
        let mut least = 0;
        for (read, length) in reads {
            while let Some((_, length)) = known.next_if(|(at, _)| *at < read.called) {
                least = least.max(*length);
            }
            if length < least {
                found.push(describe(
                    read,
                    &format!("saw {length} entries, {least} were known to be there before"),
                ));
            }
        }
    }
    found
}

/// Length of the prefix whose newest entries the read shows.
fn prefix_length<'a>(
    read: &Read,
    mut all: impl DoubleEndedIterator<Item = &'a str> + Clone,
    place: &BTreeMap<&str, usize>,
) -> Result<usize, String> {
    let Some(newest) = read.entries.last() else { return Ok(0) };
    let length = place
        .get(newest.value.as_str())
        .map(|at| at + 1)
        .ok_or_else(|| format!("saw {}, which is not there at the end", newest.value))?;
    let wanted = length.min(read.count);
    let skipped = length - wanted;
    if skipped > 0 {
        all.nth(skipped - 1);
    }
    let expected: Vec<&str> = all.take(wanted).collect();
    let got: Vec<&str> = read.entries.iter().map(|e| e.value.as_str()).collect();
    if expected == got { Ok(length) } else { Err(format!("saw {got:?} where the stream holds {expected:?}")) }
}

fn describe(read: &Read, why: &str) -> String {
    format!(
        "stale or wrong read of {} by c{} from {:.3} to {:.3} s: {why}",
        read.key,
        read.client,
        read.called.as_secs_f64(),
        read.ended.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Add, Entry};

    fn frozen(read_called: u64, seen: &[u64]) -> Frozen {
        let entry = |n: u64| Entry { id: (n, 0), value: n.to_string() };
        let mut frozen = Frozen::default();
        for n in 1..=3 {
            frozen.adds.push(Add {
                key: "k".into(),
                value: n.to_string(),
                called: Duration::from_millis(n * 10),
                ended: Duration::from_millis(n * 10 + 5),
                end: End::Done((n, 0)),
            });
        }
        frozen.reads.push(Read {
            client: 0,
            key: "k".into(),
            called: Duration::from_millis(read_called),
            ended: Duration::from_millis(read_called + 2),
            count: 2,
            entries: seen.iter().map(|n| entry(*n)).collect(),
        });
        frozen.last.insert("k".into(), (1..=3).map(entry).collect());
        frozen
    }

    #[test]
    fn a_read_shows_at_least_what_was_answered_before_it() {
        assert!(check(&frozen(16, &[1])).is_empty());
        assert!(check(&frozen(19, &[1, 2])).is_empty());
        assert_eq!(check(&frozen(16, &[])).len(), 1);
        assert!(check(&frozen(40, &[2, 3])).is_empty());
        assert_eq!(check(&frozen(40, &[1, 2])).len(), 1);
    }

    #[test]
    fn a_read_shows_no_gap_and_no_future() {
        assert_eq!(check(&frozen(40, &[1, 3])).len(), 1);
        assert_eq!(check(&frozen(12, &[1, 2])).len(), 1);
    }
}
