//! Free ports on the loopback address.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Mutex;

/// TLS ports, where a test has them, lie this far above the client port.
pub const TLS_OFFSET: u16 = 4_500;
/// Plain ports likewise.
pub const PLAIN_OFFSET: u16 = 9_000;
/// So do TLS, plain, peer and admin ports.
pub const OFFSETS: [u16; 5] = [0, TLS_OFFSET, PLAIN_OFFSET, 10_000, 20_000];

/// What this process gave out: tests that run at once must not get the same.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A client port P such that P to P+`nodes`-1 and their peer and admin ports are free at the moment. All stay below
/// the range that systems give to outgoing connections.
///
/// # Panics
/// When nothing is free.
pub fn free_ports(nodes: u16) -> u16 {
    let mut given = GIVEN.lock().expect("no panic here");
    let first = (0..500)
        .map(|_| rand::random_range(8_000..12_000u16))
        .find(|&first| {
            (first..first + nodes).all(|port| {
                !given.contains(&port)
                    && OFFSETS.iter().all(|&offset| TcpListener::bind(("127.0.0.1", port + offset)).is_ok())
            })
        })
        .expect("no free ports between 8000 and 12000");
    given.extend(first..first + nodes);
    first
}
