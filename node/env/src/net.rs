use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

/// Listening and dialing.
#[async_trait]
pub trait Net: Send + Sync {
    /// Listens at `addr`, at once even if connections of a former listener still linger there.
    ///
    /// # Errors
    /// `AddrInUse` when another process listens there; trying again is the caller's choice.
    async fn bind(&self, addr: SocketAddr) -> io::Result<Box<dyn Listener>>;

    /// Connects to `addr` (`host:port`); a name is resolved. Has no timeout of its own.
    async fn connect(&self, addr: &str) -> io::Result<BoxStream>;
}

/// A listening socket. Dropping it closes it.
#[async_trait]
pub trait Listener: Send + Sync {
    /// Waits for one connection. A dropped future loses none.
    async fn accept(&self) -> io::Result<(BoxStream, SocketAddr)>;

    /// The bound address, with the port that was chosen when 0 was asked for.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A connection. Small writes are sent at once (no Nagle delay).
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static {
    /// The other end.
    fn peer_addr(&self) -> io::Result<SocketAddr>;

    /// This end.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// Any connection.
pub type BoxStream = Box<dyn Stream>;
