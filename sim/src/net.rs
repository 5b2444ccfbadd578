//! The network of a simulated node, on turmoil's.
//!
//! What turmoil leaves out is added here: a connect that fails takes time, a host that was killed
//! refuses while one without power stays silent, and a node whose disk stopped mid-operation sends
//! and receives nothing until the world restarts it.

use std::{
    collections::BTreeMap,
    future::pending,
    io::{Error, ErrorKind, Result},
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
};

use async_trait::async_trait;
use rand::{Rng, rngs::StdRng};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::{TcpListener, TcpStream};
use weir_env::{
    BoxStream, Listener, Net, Stream,
    time::{Duration, sleep},
};

use crate::{
    disk::{SimDisk, medium::lock},
    trace::Trace,
};

/// How long a refused connect takes.
const REFUSAL_DELAY: Duration = Duration::from_millis(20);

/// How a host is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    On,
    /// The process is gone, its machine answers for it: connects are refused.
    Killed,
    /// Nothing answers.
    Off,
}

/// Which hosts are up, shared by all nodes of a world.
#[derive(Clone, Default)]
pub(crate) struct Grid(Arc<Mutex<BTreeMap<String, Power>>>);

impl Grid {
    pub(crate) fn set(&self, host: &str, power: Power) {
        lock(&self.0).insert(host.to_owned(), power);
    }

    fn power(&self, address: &str) -> Power {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        lock(&self.0).get(host).copied().unwrap_or(Power::On)
    }
}

/// How long messages take on one link, in both directions, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LinkTime {
    pub(crate) a: String,
    pub(crate) b: String,
    pub(crate) ms: f64,
    /// Up to this much more.
    pub(crate) jitter_ms: f64,
}

impl LinkTime {
    /// Draws whole ticks whose mean is the wanted time. What is sent and due in the same tick takes half a tick on
    /// average, since hosts run one after the other in a random order.
    pub(crate) fn draw(&self, rng: &mut StdRng) -> u64 {
        let ms = self.ms + self.jitter_ms * rng.random::<f64>();
        if ms >= 1.0 {
            return ms.floor() as u64 + u64::from(rng.random::<f64>() < ms.fract());
        }
        u64::from(rng.random::<f64>() < 2.0 * ms - 1.0)
    }
}

/// Connects to `address` as a host of the simulated network would.
pub(crate) async fn dial(grid: &Grid, address: &str) -> Result<TcpStream> {
    match grid.power(address) {
        Power::Off => return pending().await,
        Power::Killed => {
            sleep(REFUSAL_DELAY).await;
            return Err(Error::new(ErrorKind::ConnectionRefused, address.to_owned()));
        }
        Power::On => {}
    }
    match TcpStream::connect(address).await {
        Ok(stream) => Ok(stream),
        Err(error) => {
            sleep(REFUSAL_DELAY).await;
            Err(error)
        }
    }
}

/// One node's network.
pub(crate) struct SimNet {
    pub(crate) grid: Grid,
    pub(crate) disk: SimDisk,
    pub(crate) trace: Trace,
}

impl SimNet {
    fn wrap(disk: &SimDisk, trace: &Trace, inner: TcpStream) -> BoxStream {
        Box::new(SimStream { inner, disk: disk.clone(), trace: trace.clone() })
    }
}

#[async_trait]
impl Net for SimNet {
    async fn bind(&self, addr: SocketAddr) -> Result<Box<dyn Listener>> {
        // A simulated host has one address.
        let inner = TcpListener::bind((Ipv4Addr::UNSPECIFIED, addr.port())).await?;
        Ok(Box::new(SimListener { inner, disk: self.disk.clone(), trace: self.trace.clone() }))
    }

    async fn connect(&self, addr: &str) -> Result<BoxStream> {
        let inner = dial(&self.grid, addr).await?;
        Ok(Self::wrap(&self.disk, &self.trace, inner))
    }
}

struct SimListener {
    inner: TcpListener,
    disk: SimDisk,
    trace: Trace,
}

#[async_trait]
impl Listener for SimListener {
    async fn accept(&self) -> Result<(BoxStream, SocketAddr)> {
        let (inner, peer) = self.inner.accept().await?;
        Ok((SimNet::wrap(&self.disk, &self.trace, inner), peer))
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        self.inner.local_addr()
    }
}

struct SimStream {
    inner: TcpStream,
    disk: SimDisk,
    trace: Trace,
}

impl Stream for SimStream {
    fn peer_addr(&self) -> Result<SocketAddr> {
        self.inner.peer_addr()
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        self.inner.local_addr()
    }
}

impl AsyncRead for SimStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        if self.disk.halted() {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        if self.disk.halted() {
            return Poll::Pending;
        }
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, buf))?;
        if let (Ok(from), Ok(to)) = (self.inner.local_addr(), self.inner.peer_addr()) {
            self.trace.sent(from.port(), to.port(), &buf[..written]);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
