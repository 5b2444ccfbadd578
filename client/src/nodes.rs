//! Connections to every node: one that all calls share, and those for blocking reads.

use crate::connection::{Connection, OpenError};
use crate::error::Error;
use crate::options::Options;
use crate::tls::Secure;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_env::time::Instant;

/// A node that could not be reached is not tried again for this long; callers that wait for it fail together.
const FAILED_FOR: Duration = Duration::from_millis(50);
/// Idle connections for blocking reads that are kept for each node.
const IDLE_MAX: usize = 64;

/// All nodes that were ever asked.
pub(crate) struct Nodes {
    options: Options,
    secure: Option<Secure>,
    nodes: Mutex<BTreeMap<Arc<str>, Arc<Node>>>,
}

struct Node {
    shared: tokio::sync::Mutex<Shared>,
    idle: Mutex<Vec<Connection>>,
    blocking: Arc<Semaphore>,
}

#[derive(Default)]
struct Shared {
    connection: Option<Connection>,
    failed: Option<(Instant, OpenError)>,
}

/// A connection for one blocking read. Give it back with [`Lent::put_back`]; dropped in between it is closed, which
/// takes the read back at the server.
pub(crate) struct Lent {
    pub(crate) connection: Connection,
    node: Arc<Node>,
    _permit: OwnedSemaphorePermit,
}

impl Lent {
    pub(crate) fn put_back(self) {
        let mut idle = self.node.idle.lock();
        if idle.len() < IDLE_MAX && !self.connection.is_closed() {
            idle.push(self.connection.clone());
        }
    }
}

impl Nodes {
    /// None yet.
    ///
    /// # Errors
    /// [`Error::Tls`]: the files cannot be used.
    pub(crate) fn new(options: Options) -> Result<Nodes, Error> {
        let secure = options.tls.as_ref().map(|tls| tls.open(&options.env)).transpose()?;
        Ok(Nodes { options, secure, nodes: Mutex::default() })
    }

    fn node(&self, addr: &Arc<str>) -> Arc<Node> {
        let new = || {
            Arc::new(Node {
                shared: tokio::sync::Mutex::default(),
                idle: Mutex::default(),
                blocking: Arc::new(Semaphore::new(self.options.blocking_max)),
            })
        };
        self.nodes.lock().entry(addr.clone()).or_insert_with(new).clone()
    }

    /// The connection that all calls to a node share; made if there is none.
    pub(crate) async fn shared(&self, addr: &Arc<str>) -> Result<Connection, OpenError> {
        let node = self.node(addr);
        // One caller connects, the others wait for what becomes of it.
        let mut shared = node.shared.lock().await;
        if let Some(connection) = shared.connection.as_ref().filter(|c| !c.is_closed()) {
            return Ok(connection.clone());
        }
        shared.connection = None;
        if let Some((at, error)) = &shared.failed
            && at.elapsed() < FAILED_FOR
        {
            return Err(error.clone());
        }
        let opened = Connection::open(&self.options, self.secure.as_ref(), addr).await;
        match &opened {
            Ok(connection) => *shared = Shared { connection: Some(connection.clone()), failed: None },
            Err(error) => shared.failed = Some((Instant::now(), error.clone())),
        }
        opened
    }

    /// A connection of one's own, for a read that waits at the server. Waits while all are in use.
    pub(crate) async fn lend(&self, addr: &Arc<str>) -> Result<Lent, OpenError> {
        let node = self.node(addr);
        let permit = node.blocking.clone().acquire_owned().await;
        let permit = permit.map_err(|_| OpenError::Later("closed".into()))?;
        let idle = || {
            let mut idle = node.idle.lock();
            idle.retain(|connection| !connection.is_closed());
            idle.pop()
        };
        let connection = match idle() {
            Some(connection) => connection,
            None => Connection::open(&self.options, self.secure.as_ref(), addr).await?,
        };
        Ok(Lent { connection, node, _permit: permit })
    }

    /// New calls to the node get a new connection; those on the way keep the old one.
    pub(crate) async fn set_aside(&self, connection: &Connection) {
        let node = self.node(connection.addr());
        let mut shared = node.shared.lock().await;
        if shared.connection.as_ref().is_some_and(|current| current.is(connection)) {
            shared.connection = None;
        }
    }
}
