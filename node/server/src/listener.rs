//! Accepts client connections, up to `maxclients`.

use crate::config::Config;
use crate::connection::Connection;
use crate::error::Error;
use crate::node::Node;
use crate::run::bind;
use crate::session::Session;
use crate::shard::backlog::Backlog;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use weir_env::{BoxStream, Env, Listener};

/// Wait after a failed accept: without free file descriptors it would fail again at once.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

const TOO_MANY: &str = "-ERR max number of clients reached\r\n";

/// As Redis words it, since its users know what to do then.
const PROTECTED: &str = "-DENIED Redis is running in protected mode because protected mode is enabled and no password \
     is set for the default user. In this mode connections are only accepted from the loopback interface. If you want \
     to connect from external computers to Redis you may adopt one of the following solutions: 1) Just disable \
     protected mode sending the command 'CONFIG SET protected-mode no' from the loopback interface by connecting to \
     Redis from the same host the server is running, however MAKE SURE Redis is not publicly accessible from internet \
     if you do so. Use CONFIG REWRITE to make this change permanent. 2) Alternatively you can just disable the \
     protected mode by editing the Redis configuration file, and setting the protected mode option to 'no', and then \
     restarting the server. 3) If you started the server manually just for testing, restart it with the \
     '--protected-mode no' option. 4) Set up an authentication password for the default user. NOTE: You only need to \
     do one of the above things in order for the server to start accepting connections from the outside.\r\n";

/// What is spoken at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// RESP.
    Plain,
    /// RESP over TLS.
    Tls,
    /// RESP for clients that know no cluster: whatever they send is done, wherever it belongs.
    Whole,
}

/// Opens all ports for clients.
///
/// # Errors
/// Which port could not be opened, and what to do.
pub async fn bind_all(env: &Env, config: &Config) -> Result<Vec<(Kind, Box<dyn Listener>)>, Error> {
    let mut listeners = Vec::new();
    if config.tls_port != config.port {
        listeners.push((Kind::Plain, bind(env, config, config.port, "client").await?));
    }
    if config.tls_port != 0 {
        listeners.push((Kind::Tls, bind(env, config, config.tls_port, "TLS client").await?));
    }
    if config.plain_port != 0 {
        listeners.push((Kind::Whole, bind(env, config, config.plain_port, "plain").await?));
    }
    Ok(listeners)
}

/// Accepts for as long as it is polled. Connections go on when this is dropped;
/// [`crate::clients::Clients::kill_all`] closes them.
pub async fn serve(node: Arc<Node>, listener: Box<dyn Listener>, kind: Kind) {
    loop {
        match listener.accept().await {
            Ok((stream, addr)) => admit(&node, stream, addr, kind),
            Err(error) => {
                tracing::warn!(%error, "accepting a client failed");
                weir_env::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

fn admit(node: &Arc<Node>, stream: BoxStream, addr: SocketAddr, kind: Kind) {
    let local_addr =
        stream.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], node.config.port)));
    let stream = match (kind, node.tls.as_ref().and_then(|tls| tls.clients())) {
        (Kind::Tls, Some(tls)) => tls.accept(stream),
        _ => stream,
    };
    if !addr.ip().to_canonical().is_loopback() && node.is_protected() {
        node.metrics.connections_rejected.inc();
        node.env.spawn.spawn("refused client", Box::pin(refuse(stream, PROTECTED)));
        return;
    }
    let now = node.env.clock.mono();
    let backlog = Backlog::new(node.settings.client_output_buffer_limit.size());
    match node.clients.register(node.settings.maxclients.size(), addr, local_addr, kind, now, backlog) {
        Some(client) => {
            node.metrics.connections_accepted.inc();
            let connection = Connection::new(node.clone(), stream, Session::new(client, &node.acl));
            node.env.spawn.spawn("client", Box::pin(connection.serve()));
        }
        None => {
            node.metrics.connections_rejected.inc();
            node.env.spawn.spawn("refused client", Box::pin(refuse(stream, TOO_MANY)));
        }
    }
}

/// One line and the end. A client that does not even take that is not waited for.
async fn refuse(mut stream: BoxStream, why: &'static str) {
    let told = async {
        stream.write_all(why.as_bytes()).await?;
        stream.shutdown().await
    };
    let _ = weir_env::time::timeout(Duration::from_secs(1), told).await;
}
