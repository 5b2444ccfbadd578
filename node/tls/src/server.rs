use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio_rustls::TlsAcceptor;
use weir_env::{BoxStream, Clock, Listener};

use crate::peers::OnlyNames;
use crate::stream::Secured;
use crate::{EnvTime, Error, Material, Reason, provider};

/// Whether those who connect have to show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// Not asked for.
    No,
    /// Checked if there is one.
    Optional,
    /// Without one there is no connection.
    Yes,
    /// As `Yes`, and it has to be for one of the names: what nodes ask of each other.
    Named,
}

/// Secures accepted connections. Clones share what they show.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    auth: ClientAuth,
    names: Vec<String>,
    acceptor: RwLock<TlsAcceptor>,
}

impl Server {
    /// Shows `material`'s certificate and asks others for one as `auth` says. `names` matter for
    /// [`ClientAuth::Named`] alone.
    ///
    /// # Errors
    /// A certificate, key or authority is missing, or they do not fit together.
    pub fn new(
        clock: Arc<dyn Clock>,
        material: &Material,
        auth: ClientAuth,
        names: Vec<String>,
    ) -> Result<Server, Error> {
        let acceptor = RwLock::new(acceptor(&clock, material, auth, &names)?);
        Ok(Server(Arc::new(Inner { clock, auth, names, acceptor })))
    }

    /// From now on new connections see this.
    ///
    /// # Errors
    /// As [`Server::new`]; the old material stays in use.
    pub fn renew(&self, material: &Material) -> Result<(), Error> {
        let inner = &*self.0;
        *inner.acceptor.write() = acceptor(&inner.clock, material, inner.auth, &inner.names)?;
        Ok(())
    }

    /// Secures a connection. Returns at once; the handshake is made with the first read or write, which fails if it
    /// does.
    pub fn accept(&self, stream: BoxStream) -> BoxStream {
        let (peer, local) = (stream.peer_addr(), stream.local_addr());
        let acceptor = self.0.acceptor.read().clone();
        Box::new(Secured::accepting(peer, local, acceptor.accept(stream)))
    }

    /// A listener whose connections are secured.
    pub fn listener(&self, below: Box<dyn Listener>) -> Box<dyn Listener> {
        Box::new(SecuredListener { below, server: self.clone() })
    }
}

fn acceptor(
    clock: &Arc<dyn Clock>,
    material: &Material,
    auth: ClientAuth,
    names: &[String],
) -> Result<TlsAcceptor, Error> {
    let Some((chain, key)) = &material.shown else {
        return Err(Error::new(
            Reason::Files,
            "a certificate and its key are needed (tls-cert-file, tls-key-file)",
        ));
    };
    let builder = ServerConfig::builder_with_details(provider(), Arc::new(EnvTime(clock.clone())))
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::of_tls(&e))?;
    let builder = match auth {
        ClientAuth::No => builder.with_no_client_auth(),
        _ => builder.with_client_cert_verifier(verifier(material, auth, names)?),
    };
    let config = builder
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(|e| Error::new(Reason::Files, format!("certificate and key do not fit: {e}")))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn verifier(
    material: &Material,
    auth: ClientAuth,
    names: &[String],
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let Some(roots) = &material.roots else {
        return Err(Error::new(
            Reason::Files,
            "certificates of others cannot be checked without an authority (tls-ca-cert-file)",
        ));
    };
    let builder = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider());
    let builder = if auth == ClientAuth::Optional { builder.allow_unauthenticated() } else { builder };
    let chain =
        builder.build().map_err(|e| Error::new(Reason::Files, format!("authorities cannot be used: {e}")))?;
    Ok(if auth == ClientAuth::Named { Arc::new(OnlyNames::new(chain, names)?) } else { chain })
}

struct SecuredListener {
    below: Box<dyn Listener>,
    server: Server,
}

#[async_trait]
impl Listener for SecuredListener {
    async fn accept(&self) -> io::Result<(BoxStream, SocketAddr)> {
        let (stream, peer) = self.below.accept().await?;
        Ok((self.server.accept(stream), peer))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.below.local_addr()
    }
}
