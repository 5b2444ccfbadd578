//! Accepts client connections, up to `maxclients`.

use crate::connection::Connection;
use crate::node::Node;
use crate::session::Session;
use crate::shard::backlog::Backlog;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use weir_env::{BoxStream, Listener};

/// Wait after a failed accept: without free file descriptors it would fail again at once.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Accepts for as long as it is polled. Connections go on when this is dropped;
/// [`crate::clients::Clients::kill_all`] closes them.
pub async fn serve(node: Arc<Node>, listener: Box<dyn Listener>) {
    loop {
        match listener.accept().await {
            Ok((stream, addr)) => admit(&node, stream, addr),
            Err(error) => {
                tracing::warn!(%error, "accepting a client failed");
                weir_env::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

fn admit(node: &Arc<Node>, stream: BoxStream, addr: SocketAddr) {
    let local_addr =
        stream.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], node.config.port)));
    let now = node.env.clock.mono();
    let backlog = Backlog::new(node.config.client_output_buffer_limit);
    match node.clients.register(node.config.maxclients, addr, local_addr, now, backlog) {
        Some(client) => {
            node.metrics.connections_accepted.inc();
            let connection = Connection::new(node.clone(), stream, Session::new(client));
            node.env.spawn.spawn("client", Box::pin(connection.serve()));
        }
        None => {
            node.metrics.connections_rejected.inc();
            node.env.spawn.spawn("refused client", Box::pin(refuse(stream)));
        }
    }
}

/// One line and the end. A client that does not even take that is not waited for.
async fn refuse(mut stream: BoxStream) {
    let told = async {
        stream.write_all(b"-ERR max number of clients reached\r\n").await?;
        stream.shutdown().await
    };
    let _ = weir_env::time::timeout(Duration::from_secs(1), told).await;
}
