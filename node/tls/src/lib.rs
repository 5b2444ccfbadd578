//! TLS over any connection of [`weir_env::Env`]: for clients, and in both directions between nodes.
//!
//! * [`Files`] names the certificate, the key and the authorities; [`Material`] is what was read from them.
//! * [`Server`] secures accepted connections, [`Dialer`] secures dialed ones. Both take new material while they are in
//!   use: connections that are open keep theirs.
//! * [`PeerNet`] is a [`weir_env::Net`] whose connections are secured both ways, so that whoever speaks over a net
//!   needs to know nothing of it.
//!
//! Files are read through [`weir_env::Disk`] and validity is checked against [`weir_env::Clock`]. Keys that are
//! protected by a password are not read.

mod dialer;
mod error;
mod material;
mod peers;
mod server;
mod stream;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use weir_env::Clock;

pub use dialer::{Dialer, Trust};
pub use error::{Error, Reason};
pub use material::{Files, Material};
pub use peers::PeerNet;
pub use server::{ClientAuth, Server};

/// A handshake that takes longer ends the connection.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The first byte of a TLS connection: a handshake record.
pub const FIRST_BYTE: u8 = 0x16;

/// Whether these are the first bytes that a TLS server sends to a client that does not speak TLS: an alert record.
pub fn is_alert(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15, 0x03, ..])
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Certificates are valid by the node's own clock.
struct EnvTime(Arc<dyn Clock>);

impl fmt::Debug for EnvTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnvTime")
    }
}

impl TimeProvider for EnvTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(self.0.wall_ms())))
    }
}
