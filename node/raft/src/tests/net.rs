//! Loopback that can be cut between two nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use weir_env::{BoxStream, Listener, Net, Stream};

/// What happens to bytes between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Connections break and new ones are refused, as when a process has died.
    Reset,
    /// Nothing arrives and nothing is told, as when a cable is pulled.
    Silence,
}

#[derive(Default)]
struct Links {
    nodes: BTreeMap<String, u64>,
    cuts: BTreeMap<(u64, u64), Cut>,
    /// Connections of cut links end for good, even if the link is mended.
    version: u64,
    limits: BTreeSet<u64>,
    /// Nodes whose connections stand still once they have carried much.
    stalls: BTreeSet<u64>,
}

/// Shared by the nodes of one test.
#[derive(Clone)]
pub(super) struct Loopback {
    links: Arc<Mutex<Links>>,
    changed: Arc<watch::Sender<u64>>,
    real: Arc<dyn Net>,
    /// Bytes that may still be written from `.0` to anyone before the link breaks; for cutting transfers.
    budget: Arc<AtomicU64>,
    /// Bytes written from the limited node after the break.
    after: Arc<AtomicU64>,
}

impl Loopback {
    pub(super) fn new(real: Arc<dyn Net>) -> Self {
        let budget = Arc::new(AtomicU64::new(u64::MAX));
        let changed = Arc::new(watch::Sender::new(0));
        Self { links: Arc::default(), changed, real, budget, after: Arc::default() }
    }

    pub(super) fn of(&self, node: u64) -> Arc<dyn Net> {
        Arc::new(NodeNet { node, loopback: self.clone() })
    }

    pub(super) fn place(&self, node: u64, addr: String) {
        self.links.lock().nodes.insert(addr, node);
    }

    pub(super) fn cut(&self, a: u64, b: u64, how: Cut) {
        let mut links = self.links.lock();
        links.cuts.insert((a.min(b), a.max(b)), how);
        links.version += 1;
        self.changed.send_replace(links.version);
    }

    pub(super) fn isolate(&self, node: u64, others: &[u64], how: Cut) {
        for other in others.iter().filter(|other| **other != node) {
            self.cut(node, *other, how);
        }
    }

    pub(super) fn mend(&self) {
        let mut links = self.links.lock();
        links.cuts.clear();
        links.version += 1;
        self.changed.send_replace(links.version);
    }

    /// From now on each connection that `node` dials stands still once it has carried a megabyte, or goes on.
    pub(super) fn stall_large(&self, node: u64, stall: bool) {
        let mut links = self.links.lock();
        if stall {
            links.stalls.insert(node)
        } else {
            links.stalls.remove(&node)
        };
    }

    /// Connections dialed by `node` carry this many more bytes in all; then they break once.
    pub(super) fn break_after(&self, node: u64, bytes: u64) {
        self.links.lock().limits.insert(node);
        self.after.store(0, Ordering::SeqCst);
        self.budget.store(bytes, Ordering::SeqCst);
    }

    /// Bytes written after the link broke, by all nodes; `None` when it did not break.
    pub(super) fn bytes_after_break(&self) -> Option<u64> {
        let broke = self.links.lock().limits.is_empty();
        broke.then(|| self.after.load(Ordering::SeqCst))
    }

    fn cut_between(&self, a: u64, b: u64) -> Option<Cut> {
        self.links.lock().cuts.get(&(a.min(b), a.max(b))).copied()
    }
}

struct NodeNet {
    node: u64,
    loopback: Loopback,
}

#[async_trait::async_trait]
impl Net for NodeNet {
    async fn bind(&self, addr: SocketAddr) -> io::Result<Box<dyn Listener>> {
        self.loopback.real.bind(addr).await
    }

    async fn connect(&self, addr: &str) -> io::Result<BoxStream> {
        let to = self.loopback.links.lock().nodes.get(addr).copied().unwrap_or(0);
        let mut changed = self.loopback.changed.subscribe();
        match self.loopback.cut_between(self.node, to) {
            Some(Cut::Reset) => return Err(io::ErrorKind::ConnectionRefused.into()),
            Some(Cut::Silence) => std::future::pending().await,
            None => {}
        }
        changed.borrow_and_update();
        let stream = self.loopback.real.connect(addr).await?;
        let (loopback, node) = (self.loopback.clone(), self.node);
        let cut = Box::pin(async move {
            loop {
                if changed.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                if let Some(cut) = loopback.cut_between(node, to) {
                    return cut;
                }
            }
        });
        let limit = self.loopback.clone();
        Ok(Box::new(CutStream { stream, node: self.node, limit, written: 0, cut, how: None }))
    }
}

struct CutStream {
    stream: BoxStream,
    node: u64,
    limit: Loopback,
    written: u64,
    cut: Pin<Box<dyn Future<Output = Cut> + Send + Sync>>,
    how: Option<Cut>,
}

impl CutStream {
    fn state(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.how.is_none()
            && let Poll::Ready(how) = self.cut.as_mut().poll(cx)
        {
            self.how = Some(how);
        }
        match self.how {
            None => Poll::Ready(Ok(())),
            Some(Cut::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Some(Cut::Silence) => Poll::Pending,
        }
    }
}

impl AsyncRead for CutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.state(cx))?;
        Pin::new(&mut self.stream).poll_read(cx, out)
    }
}

impl AsyncWrite for CutStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.state(cx))?;
        if self.written > 1 << 20 && self.limit.links.lock().stalls.contains(&self.node) {
            let waker = cx.waker().clone();
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                waker.wake();
            });
            return Poll::Pending;
        }
        self.written += data.len() as u64;
        if self.limit.links.lock().limits.contains(&self.node) {
            let left = self.limit.budget.load(Ordering::SeqCst);
            if left < data.len() as u64 {
                self.limit.links.lock().limits.remove(&self.node);
                self.how = Some(Cut::Reset);
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            self.limit.budget.store(left - data.len() as u64, Ordering::SeqCst);
        } else {
            self.limit.after.fetch_add(data.len() as u64, Ordering::SeqCst);
        }
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.state(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Stream for CutStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }
}
