//! Inline commands: words on a line, with quotes, as typed into `telnet`.

use bytes::Bytes;

/// Splits a line into words. `None` when a quote stays open or is followed by something other than a space.
///
/// In double quotes `\n \r \t \b \a \\ \"` and `\xHH` are understood, in single quotes only `\'`.
pub(crate) fn split(line: &[u8]) -> Option<Vec<Bytes>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(words);
        }
        let (word, after) = word(rest)?;
        words.push(Bytes::from(word));
        rest = after;
    }
}

fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] => return Some((word, rest)),
            [c, ..] if c.is_ascii_whitespace() || *c == 0x0b => return Some((word, &rest[1..])),
            [b'"', after @ ..] => rest = closed(double_quoted(after, &mut word)?)?,
            [b'\'', after @ ..] => rest = closed(single_quoted(after, &mut word)?)?,
            [c, after @ ..] => {
                word.push(*c);
                rest = after;
            }
        }
    }
}

/// A closing quote must end the word.
fn closed(rest: &[u8]) -> Option<&[u8]> {
    match rest.first() {
        Some(c) if !c.is_ascii_whitespace() => None,
        _ => Some(rest),
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'"', after @ ..] => return Some(after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            [b'\\', c, after @ ..] => {
                word.push(match c {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = after;
            }
            [c, after @ ..] => {
                word.push(*c);
                rest = after;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'\'', after @ ..] => return Some(after),
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                rest = after;
            }
            [c, after @ ..] => {
                word.push(*c);
                rest = after;
            }
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_quotes() {
        let words =
            |line: &str| split(line.as_bytes()).map(|w| w.iter().map(|b| b.to_vec()).collect::<Vec<_>>());
        assert_eq!(words("PING"), Some(vec![b"PING".to_vec()]));
        assert_eq!(words("  ECHO   hi  "), Some(vec![b"ECHO".to_vec(), b"hi".to_vec()]));
        assert_eq!(words(r#"a "b c" 'd e'"#), Some(vec![b"a".to_vec(), b"b c".to_vec(), b"d e".to_vec()]));
        assert_eq!(words(r#""\x41\n\"" ''"#), Some(vec![b"A\n\"".to_vec(), vec![]]));
        assert_eq!(words(r"'it\'s'"), Some(vec![b"it's".to_vec()]));
        assert_eq!(words(""), Some(vec![]));
        assert_eq!(words(r#""open"#), None);
        assert_eq!(words(r"'open"), None);
        assert_eq!(words(r#""a"b"#), None);
    }
}
