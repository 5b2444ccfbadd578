//! How a server is spoken to.

use anyhow::{Context, Result, bail};
use bytes::{Buf, BytesMut};
use weir_resp::{Value, decode_value, encode_command};

/// Bytes of the field and value of each entry together.
pub(crate) const ENTRY_BYTES: usize = 100;

/// A protocol, and what an append is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    /// Redis' protocol; an append is an XADD.
    Resp,
    /// The same, and each append is followed by `WAIT 1 0`.
    RespWait,
    /// Length-prefixed bytes, as [`crate::ideal`] takes them.
    Frames,
    /// NATS' protocol; an append is a publication that a JetStream stream stores and answers.
    Nats,
}

/// One answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Error(String),
    /// Ask there instead.
    Moved(String),
}

impl Speech {
    /// What the connection of a stream begins with, and the bytes that end the server's answer to it.
    pub(crate) fn greeting(self, key: &str) -> Option<(String, &'static [u8])> {
        const CONNECT: &str = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":false}";
        // Only this connection hears the answers to its own publications.
        (self == Speech::Nats)
            .then(|| (format!("{CONNECT}\r\nSUB _R.{key} 1\r\nPING\r\n"), b"PONG\r\n".as_slice()))
    }

    /// An append of [`ENTRY_BYTES`] to a stream, and the number of answers to it.
    pub(crate) fn append(self, key: &str) -> (Vec<u8>, usize) {
        let value = vec![b'x'; ENTRY_BYTES - 1];
        let mut out = Vec::new();
        let mut answers = 1;
        match self {
            Speech::Resp => {
                encode_command([b"XADD".as_slice(), key.as_bytes(), b"*", b"f", &value], &mut out)
            }
            Speech::RespWait => {
                encode_command([b"XADD".as_slice(), key.as_bytes(), b"*", b"f", &value], &mut out);
                encode_command(["WAIT", "1", "0"].map(str::as_bytes), &mut out);
                answers = 2;
            }
            Speech::Frames => {
                let (bytes, _) = Speech::Resp.append(key);
                out.extend_from_slice(&u32::try_from(bytes.len()).expect("short").to_le_bytes());
                out.extend_from_slice(&bytes);
            }
            Speech::Nats => {
                out.extend_from_slice(format!("PUB {key} _R.{key} {ENTRY_BYTES}\r\nf").as_bytes());
                out.extend_from_slice(&value);
                out.extend_from_slice(b"\r\n");
            }
        }
        (out, answers)
    }

    /// The next answer, if it is there whole.
    pub(crate) fn answer(self, input: &mut BytesMut) -> Result<Option<Answer>> {
        match self {
            Speech::Resp | Speech::RespWait => Ok(decode_value(input)?.map(|value| match value {
                Value::Error(text) => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    match weir_tests::client::parse_moved(&text) {
                        Some((_, to)) => Answer::Moved(to),
                        None => Answer::Error(text),
                    }
                }
                _ => Answer::Done,
            })),
            Speech::Frames => Ok((input.len() >= 8).then(|| {
                input.advance(8);
                Answer::Done
            })),
            Speech::Nats => nats_answer(input),
        }
    }
}

/// `MSG subject sid bytes\r\n...\r\n`; pings are nobody's answer and come too seldom to be answered within a round.
fn nats_answer(input: &mut BytesMut) -> Result<Option<Answer>> {
    loop {
        let Some(end) = input.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
        let line = String::from_utf8_lossy(&input[..end]).into_owned();
        let word = line.split(' ').next().unwrap_or_default();
        match word {
            "MSG" => {
                let length: usize = line.rsplit(' ').next().and_then(|n| n.parse().ok()).context("MSG")?;
                let whole = end + 2 + length + 2;
                if input.len() < whole {
                    return Ok(None);
                }
                let body = String::from_utf8_lossy(&input[end + 2..end + 2 + length]).into_owned();
                input.advance(whole);
                return Ok(Some(if body.contains("\"error\"") { Answer::Error(body) } else { Answer::Done }));
            }
            "INFO" | "PING" | "PONG" | "+OK" => input.advance(end + 2),
            _ => bail!("NATS said {line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_nats_are_cut_where_they_end() {
        let mut input = BytesMut::from(
            &b"INFO {}\r\nMSG _R.a 1 24\r\n{\"stream\":\"S0\",\"seq\":17}\r\nMSG _R.a 1 28\r\n{\"error\":{\"code\":503,\"x\":1}}\r\nMSG _"[..],
        );
        assert_eq!(Speech::Nats.answer(&mut input).unwrap(), Some(Answer::Done));
        assert!(matches!(Speech::Nats.answer(&mut input).unwrap(), Some(Answer::Error(_))));
        assert_eq!(Speech::Nats.answer(&mut input).unwrap(), None);
        assert_eq!(&input[..], b"MSG _");
    }

    #[test]
    fn a_frame_is_as_long_as_the_command() {
        let (frame, answers) = Speech::Frames.append("k");
        let (command, _) = Speech::Resp.append("k");
        assert_eq!((frame.len(), answers), (command.len() + 4, 1));
    }
}
