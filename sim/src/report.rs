//! A failure that people can read: the invariant in words, the few lines of the timeline that break it, and who led and
//! what went wrong around that time.

use std::{collections::BTreeSet, fmt::Write, time::Duration};

use weir_tests::check::Violation;

use crate::{invariants::in_words, scenarios::Verdict};

/// Violations shown in full; of the rest only the number.
const SHOWN: usize = 3;
/// Lines about the keys, ids and tokens of a violation.
const EVIDENCE_MAX: usize = 12;
/// Lines about leaders and faults around it.
const AROUND_MAX: usize = 24;
/// How far around.
const AROUND: Duration = Duration::from_secs(3);

/// The report of a run that failed.
pub(crate) fn failure(verdict: &Verdict) -> String {
    let mut out = String::new();
    let mut told = BTreeSet::new();
    let first_of_each: Vec<&Violation> =
        verdict.violations.iter().filter(|violation| told.insert(violation.invariant)).collect();
    for violation in first_of_each.iter().take(SHOWN) {
        let at = Duration::from_micros(violation.at);
        let _ = writeln!(out, "violation: {}", violation.invariant);
        let _ = writeln!(out, "  must hold: {}", in_words(violation.invariant));
        let _ = writeln!(out, "  but at {:.3} s: {}", at.as_secs_f64(), violation.text);
        let evidence = evidence(&verdict.lines, &violation.text);
        if !evidence.is_empty() {
            let _ = writeln!(out, "  what the timeline says of it:");
            for line in evidence {
                let _ = writeln!(out, "    {line}");
            }
        }
        // A violation of the end state has no time of its own: the whole run is around it.
        let around = around(&verdict.lines, (violation.at > 0).then_some(at));
        let _ = writeln!(out, "  leaders and faults around it:");
        for line in around {
            let _ = writeln!(out, "    {line}");
        }
    }
    let _ = writeln!(out, "{} violations, of {} invariants", verdict.violations.len(), told.len());
    out
}

/// Lines that name an entry id, token or node of the violation together with its key if it has one.
fn evidence<'a>(lines: &'a [String], text: &str) -> Vec<&'a str> {
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || "()[]{},:;\"'".contains(c))
        .filter(|word| !word.is_empty())
        .collect();
    let is_id = |word: &str| {
        word.split_once('-').is_some_and(|(ms, seq)| {
            ms.len() > 9 && ms.bytes().chain(seq.bytes()).all(|b| b.is_ascii_digit())
        })
    };
    let ids: Vec<&str> = words.iter().copied().filter(|word| is_id(word)).collect();
    let tokens: Vec<String> =
        words.windows(2).filter(|pair| pair[0] == "token").map(|pair| format!(" t {} ", pair[1])).collect();
    let key = words.first().copied().filter(|word| word.len() <= 8);
    let names = |line: &str| {
        ids.iter().any(|id| line.contains(id)) || tokens.iter().any(|token| line.contains(token.as_str()))
    };
    let mut found: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| names(line))
        .filter(|line| ids.len() < 2 || key.is_none_or(|key| line.contains(key)))
        .collect();
    if found.is_empty() {
        // Nothing by id: the last calls on the key.
        if let Some(key) = key.filter(|key| key.starts_with(['s', 'x'])) {
            found = lines
                .iter()
                .map(String::as_str)
                .filter(|line| line.split(' ').any(|word| word == key))
                .collect();
        }
    }
    let extra = found.len().saturating_sub(EVIDENCE_MAX);
    found.drain(..extra);
    found
}

/// Lines of nodes and of the world near a moment.
fn around(lines: &[String], at: Option<Duration>) -> Vec<&str> {
    let near = |line: &str| {
        let time: f64 = line.split_whitespace().next().and_then(|time| time.parse().ok()).unwrap_or(0.0);
        at.is_none_or(|at| (time - at.as_secs_f64()).abs() <= AROUND.as_secs_f64())
    };
    let mut found: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| {
            let who = line.split_whitespace().nth(1).unwrap_or_default();
            who == "world" || (who.starts_with('n') && who != "net")
        })
        .filter(|line| near(line))
        .collect();
    let extra = found.len().saturating_sub(AROUND_MAX);
    found.drain(..extra);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_about_an_entry_and_the_faults_around_it_are_shown() {
        let lines: Vec<String> = [
            "   1.000 n1     leads shard 0 in term 1",
            "   1.100 c1     XADD s1 * t 7 > 1767225601100-0",
            "   1.200 c2     XADD s1 * t 8 > 1767225601200-0",
            "   1.300 net    5 segments",
            "   1.400 world  fault: CutClients",
            "   9.000 n2     leads shard 0 in term 2",
        ]
        .map(str::to_owned)
        .to_vec();
        let text = "XADD to s1 was answered 1767225601100-0 for token 7; at the end that id holds None";
        let violation = Violation { invariant: "adds_are_kept", at: 1_100_000, text: text.to_owned() };
        let verdict = Verdict {
            violations: vec![violation],
            lines,
            digest: 0,
            simulated: Duration::ZERO,
            real: Duration::ZERO,
            summary: String::new(),
            coverage: Default::default(),
            healed: None,
        };
        let report = failure(&verdict);
        assert!(report.contains("must hold: an answered XADD is there at the end"));
        assert!(report.contains("c1     XADD s1 * t 7") && !report.contains("c2     XADD"));
        assert!(report.contains("CutClients") && report.contains("term 1") && !report.contains("term 2"));
        assert!(!report.contains("segments"));
    }
}
