//! Writing both protocol versions into a byte vector.

use crate::number::{push_i64, push_u64};

/// Protocol version of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Proto {
    /// RESP2, until `HELLO 3`.
    #[default]
    Resp2,
    /// RESP3.
    Resp3,
}

impl Proto {
    /// 2 or 3.
    pub fn number(self) -> i64 {
        match self {
            Proto::Resp2 => 2,
            Proto::Resp3 => 3,
        }
    }
}

/// Appends replies to `out`. Aggregates announce their length first; the caller then writes that many elements.
#[derive(Debug)]
pub struct Encoder<'a> {
    /// Version to write.
    pub proto: Proto,
    /// Where to.
    pub out: &'a mut Vec<u8>,
}

impl<'a> Encoder<'a> {
    /// Writes version `proto` to the end of `out`.
    pub fn new(proto: Proto, out: &'a mut Vec<u8>) -> Self {
        Encoder { proto, out }
    }

    /// Simple string. Must not contain line ends.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Error with its prefix (`ERR ...`). Line ends become spaces.
    pub fn error(&mut self, text: &str) {
        self.out.push(b'-');
        let from = self.out.len();
        self.out.extend_from_slice(text.as_bytes());
        for byte in &mut self.out[from..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.end();
    }

    /// Integer.
    pub fn int(&mut self, n: i64) {
        self.out.push(b':');
        push_i64(self.out, n);
        self.end();
    }

    /// Bulk string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.end();
    }

    /// `ms-seq` as bulk string, without going through text first.
    pub fn id(&mut self, ms: u64, seq: u64) {
        let mut text = IdText { bytes: [0; 41], len: 0 };
        text.push(ms);
        text.bytes[text.len] = b'-';
        text.len += 1;
        text.push(seq);
        self.bulk(&text.bytes[..text.len]);
    }

    /// Null in the place of a bulk string.
    pub fn nil_bulk(&mut self) {
        self.out.extend_from_slice(match self.proto {
            Proto::Resp2 => b"$-1\r\n",
            Proto::Resp3 => b"_\r\n",
        });
    }

    /// Null in the place of an array.
    pub fn nil_array(&mut self) {
        self.out.extend_from_slice(match self.proto {
            Proto::Resp2 => b"*-1\r\n",
            Proto::Resp3 => b"_\r\n",
        });
    }

    /// Head of an array of `len` elements.
    pub fn array(&mut self, len: usize) {
        self.head(b'*', len);
    }

    /// Head of a set of `len` elements; an array in RESP2.
    pub fn set(&mut self, len: usize) {
        match self.proto {
            Proto::Resp2 => self.head(b'*', len),
            Proto::Resp3 => self.head(b'~', len),
        }
    }

    /// Head of a push of `len` elements; an array in RESP2.
    pub fn push(&mut self, len: usize) {
        match self.proto {
            Proto::Resp2 => self.head(b'*', len),
            Proto::Resp3 => self.head(b'>', len),
        }
    }

    /// A finite double; its text as a bulk string in RESP2.
    pub fn double(&mut self, number: f64) {
        let text = number.to_string();
        match self.proto {
            Proto::Resp2 => self.bulk(text.as_bytes()),
            Proto::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    /// Head of a map of `len` pairs; a flat array of twice that in RESP2.
    pub fn map(&mut self, len: usize) {
        match self.proto {
            Proto::Resp2 => self.head(b'*', len * 2),
            Proto::Resp3 => self.head(b'%', len),
        }
    }

    fn head(&mut self, kind: u8, len: usize) {
        self.out.push(kind);
        push_u64(self.out, len as u64);
        self.end();
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.end();
    }

    fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Two numbers of at most 20 digits and a dash.
struct IdText {
    bytes: [u8; 41],
    len: usize,
}

impl IdText {
    fn push(&mut self, mut n: u64) {
        let start = self.len;
        loop {
            self.bytes[self.len] = b'0' + (n % 10) as u8;
            self.len += 1;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        self.bytes[start..self.len].reverse();
    }
}

/// Appends a command as clients send it: an array of bulk strings.
pub fn encode_command<I>(args: I, out: &mut Vec<u8>)
where
    I: IntoIterator,
    I::IntoIter: ExactSizeIterator,
    I::Item: AsRef<[u8]>,
{
    let args = args.into_iter();
    let mut encoder = Encoder::new(Proto::Resp2, out);
    encoder.array(args.len());
    for arg in args {
        encoder.bulk(arg.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(proto: Proto, write: impl FnOnce(&mut Encoder)) -> String {
        let mut out = Vec::new();
        write(&mut Encoder::new(proto, &mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn nulls_and_maps_differ_by_version() {
        let write = |e: &mut Encoder| {
            e.map(1);
            e.nil_bulk();
            e.nil_array();
        };
        assert_eq!(written(Proto::Resp2, write), "*2\r\n$-1\r\n*-1\r\n");
        assert_eq!(written(Proto::Resp3, write), "%1\r\n_\r\n_\r\n");
    }

    #[test]
    fn an_error_stays_on_one_line() {
        assert_eq!(written(Proto::Resp2, |e| e.error("ERR a\r\nb")), "-ERR a  b\r\n");
    }

    #[test]
    fn ids_are_written_in_full() {
        assert_eq!(written(Proto::Resp2, |e| e.id(0, 1)), "$3\r\n0-1\r\n");
        assert_eq!(
            written(Proto::Resp2, |e| e.id(u64::MAX, u64::MAX)),
            "$41\r\n18446744073709551615-18446744073709551615\r\n"
        );
    }
}
