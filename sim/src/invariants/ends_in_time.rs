//! A value that was set to end is there until about then, gone soon after, and never comes back.
//!
//! Each key has one client that sets it; anybody reads it. Replicated time may be off by a bounded amount, so "about"
//! is wide; that nothing comes back has no allowance at all.

use weir_tests::check::Violation;

pub(crate) const NAME: &str = "ends_in_time";

/// How far replicated time may be off: clocks that differ, and a tenth of the time that passes.
const OFF_MAX: u64 = 1_500_000;

/// A call on a key that ends. Times are microseconds.
#[derive(Debug, Clone)]
pub(crate) struct Timed {
    pub(crate) key: usize,
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// SET with PX. `known`: it was answered.
    Set { token: u64, lasts: u64, known: bool },
    /// GET.
    Get { token: Option<u64> },
}

pub(crate) fn check(calls: &[Timed], names: &[String]) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, name) in names.iter().enumerate() {
        let calls: Vec<&Timed> = calls.iter().filter(|call| call.key == key).collect();
        let mut wrong = |at: u64, text: String| {
            found.push(Violation { invariant: NAME, at, text: format!("{name}: {text}") });
        };
        let sets: Vec<(&Timed, u64, u64, bool)> = calls
            .iter()
            .filter_map(|call| match call.what {
                What::Set { token, lasts, known } => Some((*call, token, lasts, known)),
                What::Get { .. } => None,
            })
            .collect();
        // When a read was over that showed the key gone.
        let gone: Vec<(u64, u64)> = calls
            .iter()
            .filter(|call| call.what == What::Get { token: None })
            .map(|call| (call.started, call.ended))
            .collect();
        for call in &calls {
            let What::Get { token } = call.what else { continue };
            let Some(token) = token else {
                // The last value that certainly stood there, if nothing was set since.
                let last = sets.iter().rev().find(|(set, ..)| set.started < call.ended);
                if let Some((set, token, lasts, true)) = last
                    && set.ended < call.started
                    && call.ended + OFF_MAX + lasts / 8 < set.started + lasts
                {
                    wrong(call.started, format!("{token} was gone long before its time"));
                }
                continue;
            };
            let Some((set, _, lasts, known)) = sets.iter().find(|(_, set, ..)| *set == token) else {
                wrong(call.started, format!("{token} was read and never set"));
                continue;
            };
            // A set of unknown end may have been done late.
            if *known && call.started > set.ended + lasts + lasts / 8 + OFF_MAX {
                wrong(call.started, format!("{token} was there long after its time"));
            }
            if *known && gone.iter().any(|(from, to)| *from > set.ended && *to < call.started) {
                wrong(call.started, format!("{token} came back after it was gone"));
            }
            let later = sets.iter().find(|(other, _, _, known)| *known && other.started > set.ended);
            if let Some((later, newer, ..)) = later
                && *known
                && later.ended < call.started
            {
                wrong(call.started, format!("{token} was read after {newer} had taken its place"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn set(at: u64, token: u64, lasts: u64) -> Timed {
        Timed { key: 0, started: at, ended: at + 9, what: What::Set { token, lasts, known: true } }
    }

    fn get(at: u64, token: Option<u64>) -> Timed {
        Timed { key: 0, started: at, ended: at + 9, what: What::Get { token } }
    }

    fn violations(calls: &[Timed]) -> usize {
        check(calls, &["e".to_owned()]).len()
    }

    #[test]
    fn a_value_that_is_there_too_long_too_short_or_again_is_seen() {
        let first = set(0, 1, 10 * SECOND);
        assert_eq!(violations(&[first.clone(), get(5 * SECOND, Some(1)), get(15 * SECOND, None)]), 0);
        assert_eq!(violations(&[first.clone(), get(15 * SECOND, Some(1))]), 1);
        assert_eq!(violations(&[first.clone(), get(5 * SECOND, None)]), 1);
        assert_eq!(violations(&[first.clone(), get(9 * SECOND, None), get(10 * SECOND, Some(1))]), 1);
        let second = set(4 * SECOND, 2, 10 * SECOND);
        assert_eq!(violations(&[first.clone(), second.clone(), get(5 * SECOND, Some(2))]), 0);
        assert_eq!(violations(&[first.clone(), second, get(5 * SECOND, Some(1))]), 1);
        assert_eq!(violations(&[first, get(SECOND, Some(3))]), 1);
        let unknown =
            Timed { what: What::Set { token: 1, lasts: SECOND, known: false }, ..set(0, 1, SECOND) };
        assert_eq!(violations(&[unknown, get(SECOND, None), get(5 * SECOND, Some(1))]), 0);
    }
}
