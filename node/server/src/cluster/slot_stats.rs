//! CLUSTER SLOT-STATS: keys of the slots that this node leads.

use super::{bulk, error, integer, slot_number};
use crate::node::Node;
use bytes::Bytes;
use std::collections::BTreeMap;
use weir_stream::{Reply, SLOT_COUNT, Slot};

const BAD_SLOT: &str = "ERR Invalid or out of range slot";

/// Which rows are shown, and in which order.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Range(Slot, Slot),
    ByKeys { limit: usize, rising: bool },
}

/// The answer to what follows `SLOT-STATS`.
pub(super) fn answer(node: &Node, args: &[Bytes]) -> Reply {
    let choice = match choice(args) {
        Ok(choice) => choice,
        Err(refused) => return error(refused),
    };
    let mut keys: BTreeMap<Slot, u64> = BTreeMap::new();
    for shard in node.shards.led() {
        shard.machine(|machine| {
            for range in machine.owned_ranges() {
                keys.extend((range.first.0..=range.last.0).map(|slot| (Slot(slot), 0)));
            }
            keys.extend(machine.keys_by_slot());
        });
    }
    let mut rows: Vec<(Slot, u64)> = keys.into_iter().collect();
    match choice {
        Choice::Range(first, last) => rows.retain(|(slot, _)| (first..=last).contains(slot)),
        Choice::ByKeys { limit, rising } => {
            // Slots with equally many keys stay in their order.
            match rising {
                true => rows.sort_by_key(|(_, keys)| *keys),
                false => rows.sort_by_key(|(_, keys)| std::cmp::Reverse(*keys)),
            }
            rows.truncate(limit);
        }
    }
    let row = |(slot, keys): (Slot, u64)| {
        let numbers = Reply::Map(vec![(bulk("key-count"), Reply::Int(keys as i64))]);
        Reply::Array(vec![Reply::Int(i64::from(slot.0)), numbers])
    };
    Reply::Array(rows.into_iter().map(row).collect())
}

fn choice(args: &[Bytes]) -> Result<Choice, String> {
    let is = |arg: &Bytes, word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
    let syntax = || "ERR syntax error".to_owned();
    match args {
        [word, first, last] if is(word, "SLOTSRANGE") => {
            let slot = |arg| integer(arg).and_then(slot_number).ok_or_else(|| BAD_SLOT.to_owned());
            let (first, last) = (slot(first)?, slot(last)?);
            match first <= last {
                true => Ok(Choice::Range(first, last)),
                false => Err(format!(
                    "ERR Start slot number {} is greater than end slot number {}",
                    first.0, last.0
                )),
            }
        }
        [word, metric, options @ ..] if is(word, "ORDERBY") => {
            if !is(metric, "key-count") {
                return Err("ERR Unrecognized sort metric for ORDERBY.".to_owned());
            }
            let (mut limit, mut rising) = (usize::from(SLOT_COUNT), false);
            let mut rest = options.iter();
            while let Some(option) = rest.next() {
                match option {
                    _ if is(option, "ASC") => rising = true,
                    _ if is(option, "DESC") => rising = false,
                    _ if is(option, "LIMIT") => {
                        let wanted = rest.next().ok_or_else(syntax)?;
                        let fits = |n: &i64| (1..=i64::from(SLOT_COUNT)).contains(n);
                        limit = integer(wanted).filter(fits).ok_or_else(|| {
                            format!(
                                "ERR Limit has to lie in between 1 and {SLOT_COUNT} (maximum number of slots)."
                            )
                        })? as usize;
                    }
                    _ => return Err(syntax()),
                }
            }
            Ok(Choice::ByKeys { limit, rising })
        }
        _ => Err(syntax()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_range_or_by_keys() {
        let choice = |line: &str| {
            let args: Vec<Bytes> = line.split(' ').map(|w| Bytes::copy_from_slice(w.as_bytes())).collect();
            choice(&args)
        };
        assert_eq!(choice("slotsrange 0 5"), Ok(Choice::Range(Slot(0), Slot(5))));
        assert_eq!(
            choice("SLOTSRANGE 5 1").unwrap_err(),
            "ERR Start slot number 5 is greater than end slot number 1"
        );
        assert_eq!(choice("SLOTSRANGE 0 16384").unwrap_err(), BAD_SLOT);
        assert_eq!(choice("ORDERBY key-count LIMIT 2 ASC"), Ok(Choice::ByKeys { limit: 2, rising: true }));
        assert_eq!(choice("ORDERBY cpu-usec").unwrap_err(), "ERR Unrecognized sort metric for ORDERBY.");
        assert!(choice("ORDERBY key-count LIMIT 0").unwrap_err().starts_with("ERR Limit has to lie"));
        assert_eq!(choice("ORDERBY key-count LIMIT").unwrap_err(), "ERR syntax error");
    }
}
