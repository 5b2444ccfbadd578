//! Patterns as `SCAN`, `CONFIG GET` and `COMMAND LIST` take them: `*`, `?`, `[a-z]`, `[^a]`, `\x`.

/// Whether all of `text` fits `pattern`; letters fit whatever their case.
pub fn fits(pattern: &[u8], text: &[u8]) -> bool {
    matches(&pattern.to_ascii_lowercase(), &text.to_ascii_lowercase())
}

/// Whether all of `key` fits `pattern`, letter for letter.
pub fn fits_key(pattern: &[u8], key: &[u8]) -> bool {
    matches(pattern, key)
}

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // On a mismatch, go back to the last star and let it take one byte more: linear in pattern times text.
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, t));
            p += 1;
            continue;
        }
        let step = if t < text.len() { one(&pattern[p..], text[t]) } else { None };
        match (step, star) {
            _ if t == text.len() && p == pattern.len() => return true,
            (Some(used), _) => {
                p += used;
                t += 1;
            }
            (None, Some((at, from))) if from < text.len() => {
                star = Some((at, from + 1));
                (p, t) = (at + 1, from + 1);
            }
            _ => return false,
        }
    }
}

/// Bytes of the pattern used up by its first element if `byte` fits it.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    let same = |a: u8| a == byte;
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => same(*escaped).then_some(2),
        [b'[', class @ ..] => {
            let negated = class.first() == Some(&b'^');
            let mut at = usize::from(negated);
            let mut fits = false;
            while at < class.len() && class[at] != b']' {
                match &class[at..] {
                    [b'\\', c, ..] => {
                        fits |= same(*c);
                        at += 2;
                    }
                    [low, b'-', high, ..] if *high != b']' => {
                        fits |= (low.min(high)..=low.max(high)).contains(&&byte);
                        at += 3;
                    }
                    [c, ..] => {
                        fits |= same(*c);
                        at += 1;
                    }
                    [] => break,
                }
            }
            (fits != negated).then_some((at + 2).min(pattern.len()))
        }
        [c, ..] => same(*c).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::{fits, fits_key};

    #[test]
    fn keys_fit_letter_for_letter() {
        assert!(fits_key(b"k[a-c]*", b"kbX") && fits_key(b"[c-a]", b"b"));
        assert!(!fits_key(b"k*", b"Kx") && !fits_key(b"[a-c]", b"B"));
    }

    #[test]
    fn patterns() {
        for (pattern, text, yes) in [
            ("*", "", true),
            ("*", "abc", true),
            ("max*", "maxclients", true),
            ("*mem*", "maxmemory-policy", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[^a-c]x", "zx", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("SAVE", "save", true),
            ("save", "saves", false),
            ("a*b*c", "aXXbYYc", true),
            ("a*b*c", "aXXbYY", false),
            ("", "", true),
            ("", "a", false),
            ("[", "[", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), text.as_bytes()), yes, "{pattern} {text}");
        }
    }
}
