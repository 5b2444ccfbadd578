//! MONITOR: clients that are shown every call.

use crate::clients::Client;
use crate::pubsub::inbox::Delivery;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that a line shows of all arguments together.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// See the module. Lines wait in the clients' inboxes; who reads too slowly is closed.
#[derive(Debug, Default)]
pub struct Monitors {
    count: AtomicUsize,
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
}

impl Monitors {
    /// Whether anybody looks.
    pub fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Shows all calls to `client` from now on.
    pub fn add(&self, client: Arc<Client>) {
        let mut clients = self.clients.lock();
        clients.insert(client.id, client);
        self.count.store(clients.len(), Relaxed);
    }

    /// No longer.
    pub fn remove(&self, id: u64) {
        let mut clients = self.clients.lock();
        clients.remove(&id);
        self.count.store(clients.len(), Relaxed);
    }

    /// Shows a line to all; `max`: bytes that may wait for each.
    pub fn show(&self, line: &Bytes, max: usize) {
        for client in self.clients.lock().values() {
            client.deliver(Delivery::Line(line.clone()), max);
        }
    }
}

/// A call as a line: when, from where, and the arguments in quotes.
pub fn line(wall_us: u64, addr: &str, args: &[Bytes]) -> Bytes {
    let mut line = format!("{}.{:06} [0 {addr}]", wall_us / 1_000_000, wall_us % 1_000_000).into_bytes();
    for arg in args {
        line.push(b' ');
        if line.len() > LINE_BYTES_MAX {
            line.extend_from_slice(b"...");
            break;
        }
        quote(&arg[..arg.len().min(LINE_BYTES_MAX)], &mut line);
    }
    line.into()
}

fn quote(arg: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in arg {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(*byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_quotes_its_arguments() {
        let args = [Bytes::from_static(b"SET"), Bytes::from_static(b"a\"\n\x00\xffb")];
        assert_eq!(line(5_000_012, "h:1", &args), &b"5.000012 [0 h:1] \"SET\" \"a\\\"\\n\\x00\\xffb\""[..]);
    }
}
