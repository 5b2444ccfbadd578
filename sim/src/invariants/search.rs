//! Looks for an order of the calls on a key, each placed within its own time, that explains every answer. A call of
//! unknown end may be placed anywhere after it was made, or nowhere.
//!
//! The search is Wing and Gong's with Lowe's memory of (calls placed, state): depth first over the calls that may come
//! next. Three things keep it short: a call that changes nothing is placed as soon as its answer fits; calls of unknown
//! end are tried only where no other call leads on; and orders with few of these in a row are tried first.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Debug,
    hash::{Hash, Hasher},
};

use weir_tests::check::Violation;

/// What a correct key is.
pub(crate) trait Model: Clone + Eq + Hash {
    /// A call.
    type Asked: Debug;
    /// An answer.
    type Told: PartialEq + Debug;
    /// States looked at before a key is left undecided.
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

enum Search<'a, Asked, Told> {
    Explained,
    GaveUp,
    /// The first call in order of its end that no order could place.
    Stuck(&'a Call<Asked, Told>),
}

/// Violations of `invariant` in the calls on each key, which all begin as `first`, and how many keys the search gave up
/// on. `names`: of the keys.
pub(crate) fn check<M: Model>(
    invariant: &'static str,
    calls: &[Call<M::Asked, M::Told>],
    names: &[String],
    first: &M,
) -> (Vec<Violation>, usize) {
    let (mut found, mut undecided) = (Vec::new(), 0);
    for (key, calls) in by_key(calls) {
        match search(&calls, first.clone()) {
            Search::Explained => {}
            Search::GaveUp => undecided += 1,
            Search::Stuck(call) => {
                let text = format!(
                    "{}: no order of the calls explains that c{} asked {:?} and was told {:?}",
                    names[key], call.client, call.asked, call.told
                );
                found.push(Violation { invariant, at: call.started, text });
            }
        }
    }
    (found, undecided)
}

fn by_key<Asked, Told>(calls: &[Call<Asked, Told>]) -> BTreeMap<usize, Vec<&Call<Asked, Told>>> {
    let mut by_key: BTreeMap<usize, Vec<&Call<Asked, Told>>> = BTreeMap::new();
    for call in calls {
        by_key.entry(call.key).or_default().push(call);
    }
    by_key
}

fn search<'a, M: Model>(calls: &[&'a Call<M::Asked, M::Told>], first: M) -> Search<'a, M::Asked, M::Told> {
    let (mut known, mut unknown): (Vec<&'a Call<_, _>>, Vec<&'a Call<_, _>>) =
        calls.iter().partition(|call| call.told.is_some());
    known.sort_by_key(|call| call.started);
    unknown.sort_by_key(|call| call.started);
    let mut outcome = Search::GaveUp;
    for in_a_row_max in [1, 2, usize::MAX] {
        outcome = search_within(&known, &unknown, first.clone(), in_a_row_max);
        if unknown.is_empty() || !matches!(outcome, Search::Stuck(_)) {
            break;
        }
    }
    outcome
}

/// `in_a_row_max`: calls of unknown end that are placed one after another.
fn search_within<'a, M: Model>(
    known: &[&'a Call<M::Asked, M::Told>],
    unknown: &[&'a Call<M::Asked, M::Told>],
    first: M,
    in_a_row_max: usize,
) -> Search<'a, M::Asked, M::Told> {
    let mut seen = HashSet::new();
    let Some(frame) = Frame::new(Placed::default(), first, known, unknown) else {
        return Search::Explained;
    };
    let mut furthest = (known[frame.first_end].ended, frame.first_end);
    let mut stack = vec![frame];
    while let Some(frame) = stack.last_mut() {
        let Some((placed, state)) = frame.next(known, unknown, in_a_row_max) else {
            stack.pop();
            continue;
        };
        if seen.len() >= M::STATES_MAX {
            return Search::GaveUp;
        }
        if !seen.insert(fingerprint(&placed, &state)) {
            continue;
        }
        let Some(frame) = Frame::new(placed, state, known, unknown) else { return Search::Explained };
        furthest = furthest.max((known[frame.first_end].ended, frame.first_end));
        stack.push(frame);
    }
    Search::Stuck(known[furthest.1])
}

/// Which calls have their place.
#[derive(Clone, Default, Hash)]
struct Placed {
    /// Of those with an answer, in the order of their start: all before this one, ...
    base: usize,
    /// ... and these behind it, sorted.
    ahead: Vec<usize>,
    /// Of those without, sorted.
    unknown: Vec<usize>,
    /// How many of these were the last to be placed.
    in_a_row: usize,
}

impl Placed {
    fn with_known(&self, at: usize) -> Self {
        let mut with = Self { in_a_row: 0, ..self.clone() };
        if let Err(slot) = with.ahead.binary_search(&at) {
            with.ahead.insert(slot, at);
        }
        let done = with.ahead.iter().enumerate().take_while(|(n, at)| **at == self.base + n).count();
        with.ahead.drain(..done);
        with.base += done;
        with
    }

    fn with_unknown(&self, at: usize) -> Self {
        let mut with = Self { in_a_row: self.in_a_row + 1, ..self.clone() };
        if let Err(slot) = with.unknown.binary_search(&at) {
            with.unknown.insert(slot, at);
        }
        with
    }
}

/// A place in the search: what was placed, and what may come next.
struct Frame<M> {
    placed: Placed,
    state: M,
    /// The call with an answer that ends first. Whatever is placed next began before that.
    first_end: usize,
    /// Calls with an answer that fits, best first from the end, and the states after them.
    answered: Vec<(usize, M)>,
    /// The next call without an answer to try, after all others; `None` if there is no need to.
    unknown: Option<usize>,
}

impl<M: Model> Frame<M> {
    /// `None`: everything that must be placed is.
    fn new(
        placed: Placed,
        state: M,
        known: &[&Call<M::Asked, M::Told>],
        unknown: &[&Call<M::Asked, M::Told>],
    ) -> Option<Self> {
        let mut open = Vec::new();
        let mut first_end = placed.base;
        for (at, call) in known.iter().enumerate().skip(placed.base) {
            if call.started > known[first_end].ended {
                break;
            }
            if placed.ahead.binary_search(&at).is_err() {
                open.push(at);
                if call.ended < known[first_end].ended {
                    first_end = at;
                }
            }
        }
        let end = known.get(first_end)?.ended;
        open.retain(|at| known[*at].started <= end);
        // The first to end is the likeliest to have been the first.
        open.sort_by_key(|at| std::cmp::Reverse(known[*at].ended));
        let mut frame = Self {
            placed,
            state,
            first_end,
            answered: Vec::new(),
            unknown: (!unknown.is_empty()).then_some(0),
        };
        for at in open {
            let (next, told) = frame.state.apply(&known[at].asked);
            if known[at].told.as_ref() != Some(&told) {
                continue;
            }
            if next == frame.state {
                // It changes nothing for the others: if there is an order at all, there is one with it here.
                frame.answered = vec![(at, next)];
                frame.unknown = None;
                break;
            }
            frame.answered.push((at, next));
        }
        Some(frame)
    }

    /// The next step to try.
    fn next(
        &mut self,
        known: &[&Call<M::Asked, M::Told>],
        unknown: &[&Call<M::Asked, M::Told>],
        in_a_row_max: usize,
    ) -> Option<(Placed, M)> {
        if let Some((at, state)) = self.answered.pop() {
            return Some((self.placed.with_known(at), state));
        }
        if self.placed.in_a_row >= in_a_row_max {
            return None;
        }
        loop {
            let at = self.unknown?;
            let call = unknown.get(at).filter(|call| call.started <= known[self.first_end].ended);
            let Some(call) = call else {
                self.unknown = None;
                return None;
            };
            self.unknown = Some(at + 1);
            if self.placed.unknown.binary_search(&at).is_ok() {
                continue;
            }
            let (state, _) = self.state.apply(&call.asked);
            if state != self.state {
                return Some((self.placed.with_unknown(at), state));
            }
        }
    }
}

/// 128 bits that stand for a place in the search: whole states would fill the memory.
fn fingerprint<M: Hash>(placed: &Placed, state: &M) -> (u64, u64) {
    let mut lanes = Lanes(0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f);
    placed.hash(&mut lanes);
    state.hash(&mut lanes);
    (lanes.0 ^ lanes.0 >> 29, lanes.1 ^ lanes.1 >> 31)
}

/// Two multiplicative hashes side by side. Equal on every machine.
struct Lanes(u64, u64);

impl Hasher for Lanes {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.1 = (self.1.rotate_left(29) ^ word.rotate_left(32)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
