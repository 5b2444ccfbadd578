//! Looks for an order of the calls on a key, each placed within its own time, that explains every answer. A call of
//! unknown end may be placed anywhere after it was made, or nowhere.
//!
//! The search is Wing and Gong's with Lowe's memory of (calls placed, state): depth first over the calls that may come
//! next.

use std::{
    collections::{BTreeMap, HashSet},
    hash::Hash,
};

/// What a correct key is.
pub(crate) trait Model: Clone + Eq + Hash {
    /// A call.
    type Asked;
    /// An answer.
    type Told: PartialEq;
    /// States looked at before a key is left undecided. All of them are kept.
    const STATES_MAX: usize;
    /// The next state and the answer of a correct server.
    fn apply(&self, asked: &Self::Asked) -> (Self, Self::Told);
}

/// One call of a client. Refused calls are left out: they did nothing.
#[derive(Debug, Clone)]
pub(crate) struct Call<Asked, Told> {
    /// Which key.
    pub(crate) key: usize,
    pub(crate) client: u32,
    /// Microseconds.
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) asked: Asked,
    /// `None`: nobody knows.
    pub(crate) told: Option<Told>,
}

pub(crate) enum Search<'a, Asked, Told> {
    Explained,
    GaveUp,
    /// The first call in order of its end that no order could place.
    Stuck(&'a Call<Asked, Told>),
}

pub(crate) fn by_key<Asked, Told>(calls: &[Call<Asked, Told>]) -> BTreeMap<usize, Vec<&Call<Asked, Told>>> {
    let mut by_key: BTreeMap<usize, Vec<&Call<Asked, Told>>> = BTreeMap::new();
    for call in calls {
        by_key.entry(call.key).or_default().push(call);
    }
    by_key
}

pub(crate) fn search<'a, M: Model>(
    calls: &[&'a Call<M::Asked, M::Told>],
    first: M,
) -> Search<'a, M::Asked, M::Told> {
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|at| calls[*at].started);
    let words = calls.len().div_ceil(64).max(1);
    let mut seen: HashSet<(Vec<u64>, M)> = HashSet::new();
    // Calls placed, the state after them.
    let mut stack = vec![(vec![0u64; words], first)];
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
            if seen.len() >= M::STATES_MAX {
                return Search::GaveUp;
            }
            if seen.insert((with.clone(), next.clone())) {
                stack.push((with, next));
            }
        }
    }
    Search::Stuck(calls[furthest.1])
}
