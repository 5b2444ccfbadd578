//! What transactions, references and released entries come to: for every pair of a stream and a counter some order of
//! the calls, each placed within its own time, explains every answer. The model is naive on purpose; the search is that
//! of `search.rs`.

use std::collections::BTreeMap;

use weir_tests::check::Violation;

use super::search::{self, Model};

pub(crate) const NAME: &str = "surface";

/// Groups of each stream.
pub(crate) const GROUPS: [&str; 2] = ["g", "h"];

/// What becomes of references to an entry that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refs {
    Keep,
    Delete,
    Acked,
}

/// What a delivery that is given back counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Back {
    Silent,
    Fail,
    Fatal,
}

/// A call. Entries carry the ids `n-0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// XADD.
    Add(u64),
    /// XRANGE.
    All,
    /// XREADGROUP COUNT `>`, with CLAIM of an age that only released entries have.
    Deliver { group: usize, consumer: u32, count: usize, claim: bool },
    /// XACK.
    Ack { group: usize, id: u64 },
    /// XDELEX.
    Delete { refs: Refs, id: u64 },
    /// XACKDEL.
    AckDelete { group: usize, refs: Refs, id: u64 },
    /// XNACK.
    GiveBack { group: usize, back: Back, id: u64 },
    /// XPENDING - +.
    Pending { group: usize },
    /// MULTI, XADD, INCR, EXEC.
    Both(u64),
    /// MULTI, XLEN, GET, EXEC.
    Look,
    /// WATCH of the counter and GET, which answered this, then MULTI, SET of one more, EXEC.
    Swap { seen: i64 },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Done,
    Count(i64),
    /// Ids and, after a claim, deliveries before this one.
    Entries(Vec<(u64, Option<i64>)>),
    /// Id, owner (`None`: given back) and deliveries.
    Pending(Vec<(u64, Option<u32>, i64)>),
    /// Whether the entry was added, and the number.
    Both(bool, i64),
    /// Length and number.
    Look(i64, i64),
    /// It was. (That it was not proves nothing: the number may have changed between WATCH and GET.)
    Swapped,
    /// Nothing: the number is another.
    NotSwapped,
    /// The first word of an error that the state decides.
    Error(String),
    /// A reply of another shape: nothing explains it.
    Strange(String),
}

pub(crate) type Call = search::Call<Asked, Told>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct State {
    last: u64,
    entries: Vec<u64>,
    groups: [Group; 2],
    number: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Group {
    reached: u64,
    pending: BTreeMap<u64, Row>,
    /// Given back, in that order.
    released: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Row {
    owner: Option<u32>,
    deliveries: i64,
}

impl Group {
    fn remove(&mut self, id: u64) -> bool {
        self.released.retain(|other| *other != id);
        self.pending.remove(&id).is_some()
    }
}

impl State {
    fn add(&mut self, id: u64) -> bool {
        let above = id > self.last;
        if above {
            self.last = id;
            self.entries.push(id);
        }
        above
    }

    fn is_held(&self, id: u64) -> bool {
        self.groups.iter().any(|group| group.reached < id || group.pending.contains_key(&id))
    }

    fn delete(&mut self, refs: Refs, id: u64) -> i64 {
        match refs {
            Refs::Acked if self.is_held(id) => return 2,
            Refs::Delete => self.groups.iter_mut().for_each(|group| {
                group.remove(id);
            }),
            Refs::Keep | Refs::Acked => {}
        }
        let before = self.entries.len();
        self.entries.retain(|other| *other != id);
        if self.entries.len() < before { 1 } else { -1 }
    }

    fn deliver(&mut self, group: usize, consumer: u32, count: usize, claim: bool) -> Vec<(u64, Option<i64>)> {
        let Self { entries, groups, .. } = self;
        let group = &mut groups[group];
        let mut given = Vec::new();
        if claim {
            let there = group.released.iter().copied().filter(|id| entries.contains(id));
            for id in there.take(count).collect::<Vec<_>>() {
                group.released.retain(|other| *other != id);
                let Some(row) = group.pending.get_mut(&id) else { continue };
                given.push((id, Some(row.deliveries)));
                // What is given up stays so, however often it is delivered.
                row.deliveries = row.deliveries.saturating_add(1);
                row.owner = Some(consumer);
            }
        }
        let left = count - given.len();
        let new: Vec<u64> = entries.iter().copied().filter(|id| *id > group.reached).take(left).collect();
        for id in new {
            group.reached = id;
            group.pending.insert(id, Row { owner: Some(consumer), deliveries: 1 });
            given.push((id, claim.then_some(0)));
        }
        given
    }

    fn give_back(&mut self, group: usize, back: Back, id: u64) -> i64 {
        let group = &mut self.groups[group];
        let Some(row) = group.pending.get_mut(&id) else { return 0 };
        row.deliveries = match back {
            Back::Silent => (row.deliveries - 1).max(0),
            Back::Fail => row.deliveries,
            Back::Fatal => i64::MAX,
        };
        if row.owner.take().is_some() {
            group.released.push(id);
        }
        1
    }
}

impl Model for State {
    type Asked = Asked;
    type Told = Told;
    const STATES_MAX: usize = 60_000;

    fn apply(&self, asked: &Asked) -> (Self, Told) {
        let mut next = self.clone();
        let refused = || Told::Error("ERR".to_owned());
        let told = match asked {
            Asked::Add(id) => {
                if next.add(*id) {
                    Told::Done
                } else {
                    refused()
                }
            }
            Asked::All => Told::Entries(next.entries.iter().map(|id| (*id, None)).collect()),
            Asked::Deliver { group, consumer, count, claim } => {
                Told::Entries(next.deliver(*group, *consumer, *count, *claim))
            }
            Asked::Ack { group, id } => Told::Count(i64::from(next.groups[*group].remove(*id))),
            Asked::Delete { refs, id } => Told::Count(next.delete(*refs, *id)),
            Asked::AckDelete { group, refs, id } => Told::Count(match next.groups[*group].remove(*id) {
                true => next.delete(*refs, *id).abs(),
                false => -1,
            }),
            Asked::GiveBack { group, back, id } => Told::Count(next.give_back(*group, *back, *id)),
            Asked::Pending { group } => {
                let rows = next.groups[*group].pending.iter();
                Told::Pending(rows.map(|(id, row)| (*id, row.owner, row.deliveries)).collect())
            }
            Asked::Both(id) => {
                next.number += 1;
                Told::Both(next.add(*id), next.number)
            }
            Asked::Look => Told::Look(next.entries.len() as i64, next.number),
            Asked::Swap { seen } => {
                // The number only rises, so it is the one that was seen if nothing touched it.
                let untouched = next.number == *seen;
                next.number += i64::from(untouched);
                if untouched { Told::Swapped } else { Told::NotSwapped }
            }
        };
        (next, told)
    }
}

/// What was found, and how many streams the search gave up on.
pub(crate) fn check(calls: &[Call], names: &[String]) -> (Vec<Violation>, usize) {
    search::check(NAME, calls, names, &State::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(calls: Vec<(Asked, Told)>) -> usize {
        let one_after_another = calls.into_iter().zip(0u64..).map(|((asked, told), at)| Call {
            key: 0,
            client: 1,
            started: at * 10,
            ended: at * 10 + 5,
            asked,
            told: Some(told),
        });
        let (found, undecided) = check(&one_after_another.collect::<Vec<_>>(), &["u".to_owned()]);
        assert_eq!(undecided, 0);
        found.len()
    }

    fn deliver(group: usize, claim: bool) -> Asked {
        Asked::Deliver { group, consumer: 7, count: 5, claim }
    }

    #[test]
    fn half_a_transaction_and_a_lost_update_are_seen() {
        let look = |length, number| (Asked::Look, Told::Look(length, number));
        let both = (Asked::Both(3), Told::Both(true, 1));
        assert_eq!(violations(vec![both.clone(), look(1, 1)]), 0);
        assert_eq!(violations(vec![both.clone(), look(1, 0)]), 1);
        let swap = |seen| (Asked::Swap { seen }, Told::Swapped);
        assert_eq!(violations(vec![both.clone(), swap(1), swap(2)]), 0);
        assert_eq!(violations(vec![both, swap(1), swap(1)]), 1);
    }

    #[test]
    fn a_group_that_is_forgotten_when_references_go_is_seen() {
        let calls = |left: &[(u64, Option<u32>, i64)]| {
            vec![
                (Asked::Add(3), Told::Done),
                (deliver(0, false), Told::Entries(vec![(3, None)])),
                (deliver(1, false), Told::Entries(vec![(3, None)])),
                (Asked::Delete { refs: Refs::Acked, id: 3 }, Told::Count(2)),
                (Asked::Delete { refs: Refs::Delete, id: 3 }, Told::Count(1)),
                (Asked::Pending { group: 1 }, Told::Pending(left.to_vec())),
            ]
        };
        assert_eq!(violations(calls(&[])), 0);
        assert_eq!(violations(calls(&[(3, Some(7), 1)])), 1);
    }

    #[test]
    fn a_released_entry_that_does_not_come_back_first_is_seen() {
        let calls = |given: &[(u64, Option<i64>)]| {
            vec![
                (Asked::Add(3), Told::Done),
                (Asked::Add(4), Told::Done),
                (deliver(0, false), Told::Entries(vec![(3, None), (4, None)])),
                (Asked::GiveBack { group: 0, back: Back::Fail, id: 4 }, Told::Count(1)),
                (Asked::GiveBack { group: 0, back: Back::Silent, id: 3 }, Told::Count(1)),
                (Asked::Pending { group: 0 }, Told::Pending(vec![(3, None, 0), (4, None, 1)])),
                (Asked::Add(5), Told::Done),
                (deliver(0, true), Told::Entries(given.to_vec())),
            ]
        };
        assert_eq!(violations(calls(&[(4, Some(1)), (3, Some(0)), (5, Some(0))])), 0);
        assert_eq!(violations(calls(&[(3, Some(0)), (4, Some(1)), (5, Some(0))])), 1);
        assert_eq!(violations(calls(&[(5, Some(0))])), 1);
    }
}
