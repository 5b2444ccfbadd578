//! One connection to one node.

use bytes::BytesMut;
use std::{io, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_resp::{Value, decode_value, encode_command};

/// A RESP connection. After any error it is useless: drop it.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    input: BytesMut,
}

impl Connection {
    /// Connects to `host:port`.
    ///
    /// # Errors
    /// What the system says, or `TimedOut`. Nothing was sent.
    pub async fn open(address: &str, limit: Duration) -> io::Result<Connection> {
        let stream = tokio::time::timeout(limit, TcpStream::connect(address))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, input: BytesMut::with_capacity(16 * 1024) })
    }

    /// Writes one command and does not wait for its reply.
    ///
    /// # Errors
    /// The connection broke; the command may still have arrived.
    pub async fn send<A: AsRef<[u8]>>(&mut self, command: &[A]) -> io::Result<()> {
        let mut out = Vec::with_capacity(256);
        encode_command(command, &mut out);
        self.stream.write_all(&out).await
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// The next reply.
    ///
    /// # Errors
    /// `UnexpectedEof`: the server closed; `InvalidData`: not RESP.
    pub async fn receive(&mut self) -> io::Result<Value> {
        loop {
            match decode_value(&mut self.input) {
                Ok(Some(value)) => return Ok(value),
                Ok(None) => {}
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// One command and its reply, within `limit`.
    ///
    /// # Errors
    /// As [`Connection::receive`], or `TimedOut`. The command may have been done.
    pub async fn call<A: AsRef<[u8]>>(&mut self, command: &[A], limit: Duration) -> io::Result<Value> {
        let exchange = async {
            self.send(command).await?;
            self.receive().await
        };
        tokio::time::timeout(limit, exchange).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// Splits a command line at spaces: `words("XADD s * a 1")`.
pub fn words(line: &str) -> Vec<String> {
    line.split_ascii_whitespace().map(str::to_owned).collect()
}

/// A reply in the notation of `redis-cli`, on one line, for messages and comparisons.
pub fn show(value: &Value) -> String {
    let list = |items: &[Value]| items.iter().map(show).collect::<Vec<_>>().join(", ");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match value {
        Value::Simple(b) | Value::Bulk(b) | Value::Verbatim(_, b) | Value::BigNumber(b) => text(b),
        Value::Error(b) => format!("-{}", text(b)),
        Value::Int(n) => n.to_string(),
        Value::Double(d) => d.to_string(),
        Value::Bool(b) => b.to_string(),
        Value::NilBulk | Value::NilArray | Value::Null => "nil".into(),
        Value::Array(items) | Value::Set(items) | Value::Push(items) => format!("[{}]", list(items)),
        Value::Map(pairs) => {
            let pairs: Vec<_> = pairs.iter().map(|(k, v)| format!("{}: {}", show(k), show(v))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}
