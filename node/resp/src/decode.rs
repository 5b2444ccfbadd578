//! What clients send: one command a frame.

use crate::{inline, number::parse_i64};
use bytes::{Bytes, BytesMut};

/// Bounds on what one client may send. Each has the default of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest bulk string, in bytes (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    /// Most arguments of one command.
    pub args_max: usize,
    /// Longest inline line and longest length line, in bytes.
    pub line_bytes_max: usize,
    /// Most bytes of one command in all (`client-query-buffer-limit`).
    pub frame_bytes_max: usize,
    /// The sender has not logged in yet; the texts of errors say so.
    pub before_login: bool,
}

impl Limits {
    /// Bounds for somebody who has not logged in yet, as Redis has them: enough for AUTH and HELLO.
    pub fn before_login() -> Self {
        Limits { bulk_bytes_max: 16 * 1024, args_max: 10, before_login: true, ..Limits::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            bulk_bytes_max: 512 * 1024 * 1024,
            args_max: 1024 * 1024,
            line_bytes_max: 64 * 1024,
            frame_bytes_max: 1024 * 1024 * 1024,
            before_login: false,
        }
    }
}

/// The bytes are not a command. The connection is answered `-ERR` and this text, then closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// `*` is not followed by a count in range.
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    /// More arguments than somebody may send who has not logged in.
    #[error("Protocol error: unauthenticated multibulk length")]
    LoginMultibulkLength,
    /// A longer argument than somebody may send who has not logged in.
    #[error("Protocol error: unauthenticated bulk length")]
    LoginBulkLength,
    /// `$` is not followed by a length in range.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// An argument does not start with `$`.
    #[error("Protocol error: expected '$', got '{}'", printable(.0))]
    ExpectedBulk(u8),
    /// An inline line without end.
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// A count line without end.
    #[error("Protocol error: too big mbulk count string")]
    CountTooBig,
    /// A length line without end.
    #[error("Protocol error: too big bulk count string")]
    LengthTooBig,
    /// An inline line with an open quote.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The command as a whole is over [`Limits::frame_bytes_max`].
    #[error("Protocol error: too big request")]
    FrameTooBig,
}

fn printable(byte: &u8) -> char {
    if byte.is_ascii_control() || !byte.is_ascii() { '?' } else { char::from(*byte) }
}

/// Cuts commands from a growing buffer.
///
/// Remembers how far a half-received command was read, so that a large one arriving in many pieces is looked at once.
/// After an error the connection cannot be read any further.
#[derive(Debug, Default)]
pub struct Decoder {
    limits: Limits,
    partial: Partial,
}

/// The command being received.
#[derive(Debug, Default)]
struct Partial {
    /// Bytes of the buffer already understood.
    at: usize,
    /// Arguments still to come; `None` before the count was read.
    left: Option<usize>,
    /// Length of the argument whose body is being received.
    body: Option<usize>,
    /// Arguments read, as ranges of the buffer.
    args: Vec<(usize, usize)>,
}

impl Decoder {
    /// A decoder with other bounds than the default.
    pub fn new(limits: Limits) -> Self {
        Decoder { limits, partial: Partial::default() }
    }

    /// Other bounds from the next command on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Takes the next whole command off the front of `buf`: never empty, its name first.
    ///
    /// `None` means that more bytes are needed; `buf` then still holds the half command and only grows at its end
    /// until the next call. The strings share one allocation with the bytes received.
    ///
    /// # Errors
    /// [`ProtocolError`]: the stream is broken from here on.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        loop {
            if self.partial.left.is_none() {
                match buf.first() {
                    None => return Ok(None),
                    Some(b'*') => {
                        let Some((line, next)) =
                            line(buf, 1, self.limits.line_bytes_max, ProtocolError::CountTooBig)?
                        else {
                            return Ok(None);
                        };
                        let count = parse_i64(line).ok_or(ProtocolError::MultibulkLength)?;
                        if count > self.limits.args_max as i64 && self.limits.before_login {
                            return Err(ProtocolError::LoginMultibulkLength);
                        }
                        if count > self.limits.args_max as i64 {
                            return Err(ProtocolError::MultibulkLength);
                        }
                        if count <= 0 {
                            let _ = buf.split_to(next);
                            continue;
                        }
                        self.partial.at = next;
                        self.partial.left = Some(count as usize);
                        self.partial.args.reserve(count.min(64) as usize);
                    }
                    Some(_) => match self.inline(buf)? {
                        None => return Ok(None),
                        Some(words) if words.is_empty() => continue,
                        Some(words) => return Ok(Some(words)),
                    },
                }
            }
            return self.multibulk(buf);
        }
    }

    /// Bytes of the unfinished command that are known to be missing; a hint for how much to read.
    pub fn missing(&self, buffered: usize) -> usize {
        match self.partial.body {
            Some(len) => (self.partial.at + len + 2).saturating_sub(buffered),
            None => 0,
        }
    }

    fn inline(&self, buf: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        let Some(end) = buf.iter().take(self.limits.line_bytes_max + 1).position(|&b| b == b'\n') else {
            return if buf.len() > self.limits.line_bytes_max {
                Err(ProtocolError::InlineTooBig)
            } else {
                Ok(None)
            };
        };
        let line = buf.split_to(end + 1);
        let line = &line[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        inline::split(line).map(Some).ok_or(ProtocolError::UnbalancedQuotes)
    }

    fn multibulk(&mut self, buf: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        let partial = &mut self.partial;
        let mut left = partial.left.unwrap_or(0);
        while left > 0 {
            let len = match partial.body {
                Some(len) => len,
                None => {
                    match buf.get(partial.at) {
                        None => return Ok(None),
                        Some(b'$') => {}
                        Some(&other) => return Err(ProtocolError::ExpectedBulk(other)),
                    }
                    let max = self.limits.line_bytes_max;
                    let Some((line, next)) = line(buf, partial.at + 1, max, ProtocolError::LengthTooBig)?
                    else {
                        return Ok(None);
                    };
                    let len = parse_i64(line).ok_or(ProtocolError::BulkLength)?;
                    let len = usize::try_from(len).map_err(|_| ProtocolError::BulkLength)?;
                    if len > self.limits.bulk_bytes_max && self.limits.before_login {
                        return Err(ProtocolError::LoginBulkLength);
                    }
                    if len > self.limits.bulk_bytes_max {
                        return Err(ProtocolError::BulkLength);
                    }
                    if next + len > self.limits.frame_bytes_max {
                        return Err(ProtocolError::FrameTooBig);
                    }
                    partial.at = next;
                    partial.body = Some(len);
                    len
                }
            };
            let end = partial.at + len;
            if buf.len() < end + 2 {
                return Ok(None);
            }
            partial.args.push((partial.at, end));
            partial.at = end + 2;
            partial.body = None;
            left -= 1;
            partial.left = Some(left);
        }
        let frame = buf.split_to(partial.at).freeze();
        let args = partial.args.drain(..).map(|(start, end)| frame.slice(start..end)).collect();
        if partial.args.capacity() > 1024 {
            partial.args = Vec::new();
        }
        partial.at = 0;
        partial.left = None;
        Ok(Some(args))
    }
}

/// The line that starts at `from` without its ending, and where the next byte after it is.
fn line(
    buf: &BytesMut,
    from: usize,
    max: usize,
    too_big: ProtocolError,
) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let rest = &buf[from.min(buf.len())..];
    match rest.iter().take(max + 1).position(|&b| b == b'\r') {
        None if rest.len() > max => Err(too_big),
        None => Ok(None),
        Some(at) if at + 1 < rest.len() => Ok(Some((&rest[..at], from + at + 2))),
        Some(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> (Vec<Vec<String>>, Option<ProtocolError>) {
        let mut decoder = Decoder::default();
        let mut buf = BytesMut::from(bytes);
        let mut frames = Vec::new();
        loop {
            match decoder.next(&mut buf) {
                Ok(Some(args)) => {
                    frames.push(args.iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect())
                }
                Ok(None) => return (frames, None),
                Err(error) => return (frames, Some(error)),
            }
        }
    }

    #[test]
    fn a_pipeline_is_cut_into_commands() {
        let (frames, error) = all(b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$0\r\n\r\nGET a\r\n");
        assert_eq!(frames, vec![vec!["PING"], vec!["ECHO", ""], vec!["GET", "a"]]);
        assert_eq!(error, None);
    }

    #[test]
    fn empty_frames_and_lines_are_skipped() {
        let (frames, error) = all(b"\r\n\r\n*0\r\n*-1\r\n  \r\nPING\n");
        assert_eq!(frames, vec![vec!["PING"]]);
        assert_eq!(error, None);
    }

    #[test]
    fn broken_bytes_have_the_texts_of_redis() {
        for (bytes, text) in [
            (&b"*1\r\n+PING\r\n"[..], "Protocol error: expected '$', got '+'"),
            (b"*abc\r\n", "Protocol error: invalid multibulk length"),
            (b"*99999999\r\n", "Protocol error: invalid multibulk length"),
            (b"*1\r\n$abc\r\n", "Protocol error: invalid bulk length"),
            (b"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
            (b"*1\r\n$999999999999\r\n", "Protocol error: invalid bulk length"),
            (b"SET \"a\r\n", "Protocol error: unbalanced quotes in request"),
        ] {
            let (_, error) = all(bytes);
            assert_eq!(error.map(|e| e.to_string()).as_deref(), Some(text));
        }
        let long = |head: &[u8]| all(&[head, &vec![b'1'; 70_000]].concat()).1;
        assert_eq!(long(b"x"), Some(ProtocolError::InlineTooBig));
        assert_eq!(long(b"*"), Some(ProtocolError::CountTooBig));
        assert_eq!(long(b"*1\r\n$"), Some(ProtocolError::LengthTooBig));
    }

    #[test]
    fn a_command_over_the_frame_bound_is_refused() {
        let mut decoder = Decoder::new(Limits { frame_bytes_max: 100, ..Limits::default() });
        let mut buf = BytesMut::from(&b"*2\r\n$4\r\nECHO\r\n$200\r\n"[..]);
        assert_eq!(decoder.next(&mut buf), Err(ProtocolError::FrameTooBig));
    }

    #[test]
    fn the_missing_part_of_a_large_argument_is_known() {
        let mut decoder = Decoder::default();
        let mut buf = BytesMut::from(&b"*1\r\n$100\r\nabc"[..]);
        assert_eq!(decoder.next(&mut buf), Ok(None));
        assert_eq!(decoder.missing(buf.len()), 99);
    }
}
