//! Nodes among themselves: both sides show a certificate and check the other's.
//!
//! An authority often signs clients' certificates too. So that none of those can pass for a node, the one who dials
//! has to show a certificate for the host of some node, as the one who is dialed has to for its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use weir_env::{BoxStream, Clock, Listener, Net};

use crate::{ClientAuth, Dialer, Error, Material, Server, Trust};

/// A net whose connections are secured both ways.
#[derive(Clone)]
pub struct PeerNet {
    below: Arc<dyn Net>,
    server: Server,
    dialer: Dialer,
}

impl PeerNet {
    /// Over `below`; `hosts` are those of all nodes.
    ///
    /// # Errors
    /// A certificate, key or authority is missing, or they do not fit together.
    pub fn new(
        below: Arc<dyn Net>,
        clock: Arc<dyn Clock>,
        material: &Material,
        hosts: Vec<String>,
    ) -> Result<PeerNet, Error> {
        let server = Server::new(clock.clone(), material, ClientAuth::Named, hosts)?;
        Ok(PeerNet { below, server, dialer: Dialer::new(clock, material, Trust::Checked)? })
    }

    /// From now on new connections use this.
    ///
    /// # Errors
    /// As [`PeerNet::new`]; the old material stays in use.
    pub fn renew(&self, material: &Material) -> Result<(), Error> {
        self.dialer.renew(material)?;
        self.server.renew(material)
    }

    /// A listener whose connections are secured.
    pub fn listener(&self, below: Box<dyn Listener>) -> Box<dyn Listener> {
        self.server.listener(below)
    }
}

#[async_trait]
impl Net for PeerNet {
    async fn bind(&self, addr: SocketAddr) -> io::Result<Box<dyn Listener>> {
        Ok(self.listener(self.below.bind(addr).await?))
    }

    async fn connect(&self, addr: &str) -> io::Result<BoxStream> {
        let stream = self.below.connect(addr).await?;
        let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
        Ok(self.dialer.connect(stream, host).await?)
    }
}

/// Accepts what `chain` accepts if it is for one of the names.
#[derive(Debug)]
pub(crate) struct OnlyNames {
    chain: Arc<dyn ClientCertVerifier>,
    names: Vec<ServerName<'static>>,
}

impl OnlyNames {
    pub(crate) fn new(chain: Arc<dyn ClientCertVerifier>, names: &[String]) -> Result<OnlyNames, Error> {
        let names = names.iter().map(|name| crate::dialer::name(name)).collect::<Result<_, _>>()?;
        Ok(OnlyNames { chain, names })
    }
}

impl ClientCertVerifier for OnlyNames {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let mut refused = rustls::Error::General("no node has a name".to_owned());
        for name in &self.names {
            match verify_server_name(&certificate, name) {
                Ok(()) => return Ok(verified),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
