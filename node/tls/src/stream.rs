//! A secured connection as a [`weir_env::Stream`].

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{Accept, TlsStream};
use weir_env::time::{Instant, Sleep, sleep_until};
use weir_env::{BoxStream, Stream};

use crate::{Error, HANDSHAKE_MAX, Reason};

/// A connection that is secured, or will be with the first byte that is read from it.
pub(crate) struct Secured {
    stage: Stage,
    peer: io::Result<SocketAddr>,
    local: io::Result<SocketAddr>,
}

enum Stage {
    /// So that whoever accepts connections does not wait for a slow one.
    Handshake(Box<(Accept<BoxStream>, Pin<Box<Sleep>>)>),
    Open(Box<TlsStream<BoxStream>>),
    Failed(Error),
}

impl Secured {
    pub(crate) fn open(stream: TlsStream<BoxStream>) -> Secured {
        let (below, _) = stream.get_ref();
        let (peer, local) = (below.peer_addr(), below.local_addr());
        Secured { stage: Stage::Open(Box::new(stream)), peer, local }
    }

    pub(crate) fn accepting(
        peer: io::Result<SocketAddr>,
        local: io::Result<SocketAddr>,
        accept: Accept<BoxStream>,
    ) -> Secured {
        let limit = Box::pin(sleep_until(Instant::now() + HANDSHAKE_MAX));
        Secured { stage: Stage::Handshake(Box::new((accept, limit))), peer, local }
    }

    /// The connection, once the handshake is done.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut TlsStream<BoxStream>>>> {
        if let Stage::Handshake(handshake) = &mut self.stage {
            let (accept, limit) = &mut **handshake;
            let done = match Pin::new(accept).poll(cx) {
                Poll::Ready(done) => done.map_err(|e| Error::of_handshake(&e)),
                Poll::Pending => {
                    ready!(limit.as_mut().poll(cx));
                    Err(Error::new(Reason::Broken, "the TLS handshake took too long"))
                }
            };
            self.stage = match done {
                Ok(stream) => Stage::Open(Box::new(stream.into())),
                Err(error) => {
                    let from = self.peer.as_ref().map_or_else(|_| "?".to_owned(), SocketAddr::to_string);
                    tracing::info!(from, %error, "a TLS connection is refused");
                    Stage::Failed(error)
                }
            };
        }
        Poll::Ready(match &mut self.stage {
            Stage::Open(stream) => Ok(Pin::new(&mut **stream)),
            Stage::Failed(error) => Err(error.clone().into()),
            Stage::Handshake(_) => unreachable!("it has just ended"),
        })
    }
}

impl Stream for Secured {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        copied(&self.peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        copied(&self.local)
    }
}

fn copied(addr: &io::Result<SocketAddr>) -> io::Result<SocketAddr> {
    match addr {
        Ok(addr) => Ok(*addr),
        Err(error) => Err(error.kind().into()),
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = ready!(self.poll_open(cx))?;
        match ready!(stream.poll_read(cx, buf)) {
            // Many programs close without TLS' own goodbye. What was read is framed by the protocol above.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => Poll::Ready(read),
        }
    }
}

impl AsyncWrite for Secured {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx))?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stage {
            Stage::Open(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
