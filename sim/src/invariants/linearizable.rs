//! P6 in full: for every key some order of the calls, each placed within its own time, explains every answer. A call of
//! unknown end may be placed anywhere after it was made, or nowhere.
//!
//! The search is Wing and Gong's with Lowe's memory of (calls placed, state): depth first over the calls that may come
//! next, one key at a time.

use std::collections::{BTreeMap, HashSet};

use weir_tests::check::Violation;

pub(crate) const NAME: &str = "linearizable";

/// States looked at before a key is left undecided.
const STATES_MAX: usize = 400_000;

/// A call on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// XADD of this token.
    Add(u64),
    /// DEL.
    Delete,
    /// XLEN.
    Length,
    /// XRANGE - +.
    All,
    /// XGROUP CREATE key group 0 MKSTREAM.
    CreateGroup,
    /// XGROUP DESTROY.
    DestroyGroup,
    /// XREADGROUP NOACK COUNT n.
    Take(usize),
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Done,
    Count(i64),
    Tokens(Vec<u64>),
    /// The first word of an error that the state decides.
    Error(String),
}

/// One call of a client. Refused calls are left out: they did nothing.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// Which stream.
    pub(crate) key: usize,
    pub(crate) client: u32,
    /// Microseconds.
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) asked: Asked,
    /// `None`: nobody knows.
    pub(crate) told: Option<Told>,
}

/// What a correct key holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct State {
    /// `None`: there is no such key.
    stream: Option<Stream>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Stream {
    tokens: Vec<u64>,
    /// How many entries the group was given, if there is one.
    group: Option<usize>,
}

impl State {
    /// The next state and the answer of a correct server.
    fn apply(&self, asked: &Asked) -> (Self, Told) {
        let mut next = self.clone();
        let error = |word: &str| Told::Error(word.to_owned());
        let told = match (asked, &mut next.stream) {
            (Asked::Add(token), stream) => {
                stream.get_or_insert_with(Stream::default).tokens.push(*token);
                Told::Done
            }
            (Asked::Delete, stream) => Told::Count(i64::from(stream.take().is_some())),
            (Asked::Length, stream) => {
                Told::Count(stream.as_ref().map_or(0, |stream| stream.tokens.len() as i64))
            }
            (Asked::All, stream) => {
                Told::Tokens(stream.as_ref().map(|stream| stream.tokens.clone()).unwrap_or_default())
            }
            (Asked::CreateGroup, stream) => {
                let stream = stream.get_or_insert_with(Stream::default);
                if stream.group.is_some() {
                    error("BUSYGROUP")
                } else {
                    stream.group = Some(0);
                    Told::Done
                }
            }
            (Asked::DestroyGroup, None) => error("ERR"),
            (Asked::DestroyGroup, Some(stream)) => Told::Count(i64::from(stream.group.take().is_some())),
            (Asked::Take(count), Some(Stream { tokens, group: Some(given) })) => {
                let end = (*given + count).min(tokens.len());
                let taken = tokens[*given..end].to_vec();
                *given = end;
                Told::Tokens(taken)
            }
            (Asked::Take(_), _) => error("NOGROUP"),
        };
        (next, told)
    }
}

/// What was found, and how many keys the search gave up on.
pub(crate) fn check(calls: &[Call], keys: &[String]) -> (Vec<Violation>, usize) {
    let mut by_key: BTreeMap<usize, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        by_key.entry(call.key).or_default().push(call);
    }
    let mut found = Vec::new();
    let mut undecided = 0;
    for (key, calls) in by_key {
        match search(&calls) {
            Search::Explained => {}
            Search::GaveUp => undecided += 1,
            Search::Stuck(furthest) => {
                let call = calls[furthest];
                let text = format!(
                    "{}: no order of the calls explains that c{} asked {:?} and was told {:?}",
                    keys[key], call.client, call.asked, call.told
                );
                found.push(Violation { invariant: NAME, at: call.started, text });
            }
        }
    }
    (found, undecided)
}

enum Search {
    Explained,
    GaveUp,
    /// The first call in order of its end that no order could place.
    Stuck(usize),
}

fn search(calls: &[&Call]) -> Search {
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|at| calls[*at].started);
    let words = calls.len().div_ceil(64).max(1);
    let mut seen: HashSet<(Vec<u64>, State)> = HashSet::new();
    // Calls placed, the state after them.
    let mut stack = vec![(vec![0u64; words], State::default())];
    let mut furthest = (0, 0);
    while let Some((placed, state)) = stack.pop() {
        let is_placed = |at: usize| placed[at / 64] >> (at % 64) & 1 == 1;
        // Whatever is placed next began before the first end among the calls that must still be placed.
        let first_end = (0..calls.len())
            .filter(|at| !is_placed(*at) && calls[*at].told.is_some())
            .min_by_key(|at| calls[*at].ended);
        let Some(first_end) = first_end else { return Search::Explained };
        furthest = furthest.max((calls[first_end].ended, first_end));
        for &at in order.iter().rev() {
            if is_placed(at) || calls[at].started > calls[first_end].ended {
                continue;
            }
            let (next, told) = state.apply(&calls[at].asked);
            if calls[at].told.as_ref().is_some_and(|seen| *seen != told) {
                continue;
            }
            let mut with = placed.clone();
            with[at / 64] |= 1 << (at % 64);
            if seen.len() >= STATES_MAX {
                return Search::GaveUp;
            }
            if seen.insert((with.clone(), next.clone())) {
                stack.push((with, next));
            }
        }
    }
    Search::Stuck(furthest.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(started: u64, ended: u64, asked: Asked, told: Option<Told>) -> Call {
        Call { key: 0, client: 1, started, ended, asked, told }
    }

    fn violations(calls: &[Call]) -> usize {
        let (found, undecided) = check(calls, &["x".to_owned()]);
        assert_eq!(undecided, 0);
        found.len()
    }

    fn tokens(tokens: &[u64]) -> Option<Told> {
        Some(Told::Tokens(tokens.to_vec()))
    }

    #[test]
    fn calls_that_overlap_may_be_placed_either_way() {
        let add = |token, from, to| call(from, to, Asked::Add(token), Some(Told::Done));
        for order in [[1, 2], [2, 1]] {
            let calls = [add(1, 0, 10), add(2, 5, 12), call(20, 25, Asked::All, tokens(&order))];
            assert_eq!(violations(&calls), 0);
        }
        let calls = [add(1, 0, 4), add(2, 5, 12), call(20, 25, Asked::All, tokens(&[2, 1]))];
        assert_eq!(violations(&calls), 1);
    }

    #[test]
    fn a_stale_read_is_seen() {
        let calls = [
            call(0, 5, Asked::Add(1), Some(Told::Done)),
            call(6, 9, Asked::Add(2), Some(Told::Done)),
            call(10, 15, Asked::All, tokens(&[1])),
        ];
        assert_eq!(violations(&calls), 1);
    }

    #[test]
    fn an_unknown_call_may_happen_late_or_never_but_not_twice() {
        let unknown = call(0, 5, Asked::Add(1), None);
        let late =
            [unknown.clone(), call(10, 11, Asked::All, tokens(&[])), call(20, 21, Asked::All, tokens(&[1]))];
        assert_eq!(violations(&late), 0);
        let never = [unknown.clone(), call(10, 11, Asked::Length, Some(Told::Count(0)))];
        assert_eq!(violations(&never), 0);
        let twice = [unknown, call(10, 11, Asked::All, tokens(&[1, 1]))];
        assert_eq!(violations(&twice), 1);
    }

    #[test]
    fn a_deleted_stream_that_comes_back_and_a_group_that_forgets_are_seen() {
        let add = call(0, 1, Asked::Add(1), Some(Told::Done));
        let calls = [
            add.clone(),
            call(2, 3, Asked::Delete, Some(Told::Count(1))),
            call(4, 5, Asked::All, tokens(&[1])),
        ];
        assert_eq!(violations(&calls), 1);
        let group = |second: &[u64]| {
            [
                add.clone(),
                call(2, 3, Asked::CreateGroup, Some(Told::Done)),
                call(4, 5, Asked::Take(2), tokens(&[1])),
                call(6, 7, Asked::Take(2), tokens(second)),
            ]
        };
        assert_eq!(violations(&group(&[])), 0);
        assert_eq!(violations(&group(&[1])), 1);
    }
}
