//! P6 in full: for every key some order of the calls, each placed within its own time, explains every answer. The search
//! is that of `search.rs`.

use weir_tests::check::Violation;

use super::search::{self, Model};

pub(crate) const NAME: &str = "linearizable";

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

pub(crate) type Call = search::Call<Asked, Told>;

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

impl Model for State {
    type Asked = Asked;
    type Told = Told;
    const STATES_MAX: usize = 400_000;

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
    search::check(NAME, calls, keys, &State::default())
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
    fn many_calls_of_unknown_end_are_decided_all_the_same() {
        let mut calls: Vec<Call> =
            (0..60).map(|token| call(token, token, Asked::Add(1000 + token), None)).collect();
        let mut there = Vec::new();
        for token in 0..300 {
            calls.push(call(100 + token * 10, 105 + token * 10, Asked::Add(token), Some(Told::Done)));
            there.push(token);
            // Every fifth of the unknown shows up late.
            if token % 25 == 0 {
                calls.push(call(106 + token * 10, 107 + token * 10, Asked::All, tokens(&there)));
                there.push(1000 + token / 5);
                calls.push(call(108 + token * 10, 109 + token * 10, Asked::All, tokens(&there)));
            }
        }
        assert_eq!(violations(&calls), 0);
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
