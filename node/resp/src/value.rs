//! What servers answer, read back: for clients, tests and the simulator.

use crate::{Decoder, Encoder, Limits, Proto, number::parse_i64};
use bytes::{Bytes, BytesMut};

/// Deepest nesting of a reply that is read. Redis itself stays below ten.
pub const DEPTH_MAX: usize = 32;

/// One reply of either protocol version.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `+`
    Simple(Bytes),
    /// `-` and RESP3's `!`
    Error(Bytes),
    /// `:`
    Int(i64),
    /// `$`
    Bulk(Bytes),
    /// RESP2's null bulk string `$-1`.
    NilBulk,
    /// RESP2's null array `*-1`.
    NilArray,
    /// `*`
    Array(Vec<Value>),
    /// RESP3's `_`
    Null,
    /// RESP3's `#`
    Bool(bool),
    /// RESP3's `,`
    Double(f64),
    /// RESP3's `(`
    BigNumber(Bytes),
    /// RESP3's `=`: three letters of format, then the text.
    Verbatim(Bytes, Bytes),
    /// RESP3's `%`
    Map(Vec<(Value, Value)>),
    /// RESP3's `~`
    Set(Vec<Value>),
    /// RESP3's `>`: not an answer to a command.
    Push(Vec<Value>),
}

impl Value {
    /// Text of a simple, bulk or verbatim string.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Value::Simple(b) | Value::Bulk(b) | Value::Verbatim(_, b) => Some(b),
            _ => None,
        }
    }

    /// Whether this is one of the nulls.
    pub fn is_nil(&self) -> bool {
        matches!(self, Value::NilBulk | Value::NilArray | Value::Null)
    }

    /// The error's text.
    pub fn error(&self) -> Option<&Bytes> {
        match self {
            Value::Error(text) => Some(text),
            _ => None,
        }
    }

    /// Appends the value as it would be answered.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let simple = |kind: u8, text: &[u8], out: &mut Vec<u8>| {
            out.push(kind);
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        };
        let many = |kind: u8, items: &[Value], out: &mut Vec<u8>| {
            simple(kind, items.len().to_string().as_bytes(), out);
            items.iter().for_each(|item| item.encode(out));
        };
        match self {
            Value::Simple(text) => simple(b'+', text, out),
            Value::Error(text) => simple(b'-', text, out),
            Value::Int(n) => Encoder::new(Proto::Resp2, out).int(*n),
            Value::Bulk(bytes) => Encoder::new(Proto::Resp2, out).bulk(bytes),
            Value::NilBulk => simple(b'$', b"-1", out),
            Value::NilArray => simple(b'*', b"-1", out),
            Value::Null => simple(b'_', b"", out),
            Value::Bool(yes) => simple(b'#', if *yes { b"t" } else { b"f" }, out),
            Value::Double(d) => simple(b',', d.to_string().as_bytes(), out),
            Value::BigNumber(text) => simple(b'(', text, out),
            Value::Verbatim(format, text) => {
                simple(b'=', (format.len() + 1 + text.len()).to_string().as_bytes(), out);
                out.extend_from_slice(format);
                out.push(b':');
                simple_tail(text, out);
            }
            Value::Array(items) => many(b'*', items, out),
            Value::Set(items) => many(b'~', items, out),
            Value::Push(items) => many(b'>', items, out),
            Value::Map(pairs) => {
                simple(b'%', pairs.len().to_string().as_bytes(), out);
                for (key, value) in pairs {
                    key.encode(out);
                    value.encode(out);
                }
            }
        }
    }
}

fn simple_tail(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// The bytes are not a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not a type byte.
    #[error("unknown type byte {0:#04x}")]
    Type(u8),
    /// A length or number that is none, or over the bound.
    #[error("bad length or number")]
    Number,
    /// Nested deeper than [`DEPTH_MAX`].
    #[error("nested too deep")]
    Depth,
}

/// Takes the next whole reply off the front of `buf`; `None` means that more bytes are needed. Attributes are skipped.
///
/// # Errors
/// [`ValueError`]: the stream is broken from here on.
pub fn decode_value(buf: &mut BytesMut) -> Result<Option<Value>, ValueError> {
    let Some(end) = skip(buf, 0, 0)? else { return Ok(None) };
    let frame = buf.split_to(end).freeze();
    build(&frame, &mut 0).map(Some)
}

/// A line of `buf` from `at` without its ending, and where the next begins.
fn line(buf: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = buf.get(at..)?;
    let end = rest.iter().position(|&b| b == b'\n')?;
    let line = &rest[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), at + end + 1))
}

/// A length: `None` for `-1`.
fn length(text: &[u8], max: usize) -> Result<Option<usize>, ValueError> {
    match parse_i64(text) {
        Some(-1) => Ok(None),
        Some(n) if n >= 0 && n as u64 <= max as u64 => Ok(Some(n as usize)),
        _ => Err(ValueError::Number),
    }
}

/// Where the value at `at` ends, if it is whole. Checks all that `build` relies on.
fn skip(buf: &[u8], at: usize, depth: usize) -> Result<Option<usize>, ValueError> {
    let limits = Limits::default();
    let Some(&kind) = buf.get(at) else { return Ok(None) };
    if depth > DEPTH_MAX {
        return Err(ValueError::Depth);
    }
    if !b"+-:$*_#,(=!%~>|".contains(&kind) {
        return Err(ValueError::Type(kind));
    }
    let Some((text, mut next)) = line(buf, at + 1) else { return Ok(None) };
    let elements = match kind {
        b':' => {
            parse_i64(text.strip_prefix(b"+").unwrap_or(text)).ok_or(ValueError::Number)?;
            0
        }
        b',' => {
            double(text).ok_or(ValueError::Number)?;
            0
        }
        b'#' if text != b"t" && text != b"f" => return Err(ValueError::Number),
        b'$' | b'=' | b'!' => match length(text, limits.bulk_bytes_max)? {
            None if kind == b'$' => 0,
            None => return Err(ValueError::Number),
            Some(len) if kind == b'=' && len < 4 => return Err(ValueError::Number),
            Some(len) => {
                next += len + 2;
                0
            }
        },
        b'*' => length(text, limits.bulk_bytes_max)?.unwrap_or(0),
        b'~' | b'>' => length(text, limits.bulk_bytes_max)?.ok_or(ValueError::Number)?,
        b'%' => length(text, limits.bulk_bytes_max)?.ok_or(ValueError::Number)? * 2,
        b'|' => length(text, limits.bulk_bytes_max)?.ok_or(ValueError::Number)? * 2 + 1,
        _ => 0,
    };
    if next > buf.len() {
        return Ok(None);
    }
    for _ in 0..elements {
        match skip(buf, next, depth + 1)? {
            Some(after) => next = after,
            None => return Ok(None),
        }
    }
    Ok(Some(next))
}

/// Builds the value at `at` of a frame that `skip` found whole.
fn build(frame: &Bytes, at: &mut usize) -> Result<Value, ValueError> {
    let kind = frame[*at];
    let (text, next) = line(frame, *at + 1).ok_or(ValueError::Number)?;
    *at = next;
    let slice = |part: &[u8]| frame.slice_ref(part);
    let body = |at: &mut usize| -> Result<Option<Bytes>, ValueError> {
        let Some(len) = length(text, usize::MAX)? else { return Ok(None) };
        let start = *at;
        *at = start + len + 2;
        Ok(Some(frame.slice(start..start + len)))
    };
    let many = |count: Option<usize>, at: &mut usize| -> Result<Vec<Value>, ValueError> {
        let count = count.unwrap_or(0);
        let mut items = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            items.push(build(frame, at)?);
        }
        Ok(items)
    };
    let count = |text: &[u8]| length(text, usize::MAX);
    Ok(match kind {
        b'+' => Value::Simple(slice(text)),
        b'-' => Value::Error(slice(text)),
        b':' => Value::Int(parse_i64(text.strip_prefix(b"+").unwrap_or(text)).ok_or(ValueError::Number)?),
        b'_' => Value::Null,
        b'#' => Value::Bool(text == b"t"),
        b',' => Value::Double(double(text).ok_or(ValueError::Number)?),
        b'(' => Value::BigNumber(slice(text)),
        b'$' => body(at)?.map_or(Value::NilBulk, Value::Bulk),
        b'!' => Value::Error(body(at)?.unwrap_or_default()),
        b'=' => {
            let all = body(at)?.unwrap_or_default();
            Value::Verbatim(all.slice(..3), all.slice(4..))
        }
        b'*' => match count(text)? {
            None => Value::NilArray,
            some => Value::Array(many(some, at)?),
        },
        b'~' => Value::Set(many(count(text)?, at)?),
        b'>' => Value::Push(many(count(text)?, at)?),
        b'%' => {
            let pairs = count(text)?.unwrap_or(0);
            let mut map = Vec::with_capacity(pairs.min(1024));
            for _ in 0..pairs {
                map.push((build(frame, at)?, build(frame, at)?));
            }
            Value::Map(map)
        }
        _ => {
            many(count(text)?.map(|n| n * 2), at)?;
            build(frame, at)?
        }
    })
}

fn double(text: &[u8]) -> Option<f64> {
    match text {
        b"inf" | b"+inf" => Some(f64::INFINITY),
        b"-inf" => Some(f64::NEG_INFINITY),
        _ => core::str::from_utf8(text).ok()?.parse().ok(),
    }
}

impl Decoder {
    /// All whole commands in `bytes`, for tests that look at what a client wrote; what is broken or unfinished at the end is left out.
    pub fn commands(bytes: &[u8]) -> Vec<Vec<Bytes>> {
        let mut decoder = Decoder::default();
        let mut buf = BytesMut::from(bytes);
        let mut commands = Vec::new();
        while let Ok(Some(args)) = decoder.next(&mut buf) {
            commands.push(args);
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &str) -> Result<Option<Value>, ValueError> {
        decode_value(&mut BytesMut::from(bytes.as_bytes()))
    }

    fn bulk(text: &'static str) -> Value {
        Value::Bulk(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn every_kind_is_read() {
        for (text, value) in [
            ("+OK\r\n", Value::Simple(Bytes::from_static(b"OK"))),
            ("-ERR x\r\n", Value::Error(Bytes::from_static(b"ERR x"))),
            ("!5\r\nERR x\r\n", Value::Error(Bytes::from_static(b"ERR x"))),
            (":-5\r\n", Value::Int(-5)),
            ("$2\r\nhi\r\n", bulk("hi")),
            ("$-1\r\n", Value::NilBulk),
            ("*-1\r\n", Value::NilArray),
            ("*2\r\n:1\r\n*0\r\n", Value::Array(vec![Value::Int(1), Value::Array(vec![])])),
            ("_\r\n", Value::Null),
            ("#t\r\n", Value::Bool(true)),
            (",1.5\r\n", Value::Double(1.5)),
            (",-inf\r\n", Value::Double(f64::NEG_INFINITY)),
            (
                "(123456789012345678901234\r\n",
                Value::BigNumber(Bytes::from_static(b"123456789012345678901234")),
            ),
            ("=8\r\ntxt:some\r\n", Value::Verbatim(Bytes::from_static(b"txt"), Bytes::from_static(b"some"))),
            (
                "%1\r\n+a\r\n:1\r\n",
                Value::Map(vec![(Value::Simple(Bytes::from_static(b"a")), Value::Int(1))]),
            ),
            ("~1\r\n:1\r\n", Value::Set(vec![Value::Int(1)])),
            (">1\r\n:1\r\n", Value::Push(vec![Value::Int(1)])),
            ("|1\r\n+a\r\n:1\r\n:2\r\n", Value::Int(2)),
        ] {
            assert_eq!(read(text), Ok(Some(value)), "{text:?}");
            for cut in 0..text.len() {
                assert_eq!(read(&text[..cut]), Ok(None), "{text:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn broken_replies_are_refused() {
        assert_eq!(read("?\r\n"), Err(ValueError::Type(b'?')));
        assert_eq!(read(":abc\r\n"), Err(ValueError::Number));
        assert_eq!(read("=2\r\nab\r\n"), Err(ValueError::Number));
        assert_eq!(read(&"*1\r\n".repeat(40)), Err(ValueError::Depth));
    }
}
