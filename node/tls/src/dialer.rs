use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio_rustls::TlsConnector;
use weir_env::{BoxStream, Clock};

use crate::stream::Secured;
use crate::{EnvTime, Error, Material, Reason, provider};

/// What a server's certificate has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Signed by one of the authorities, valid now, and for the name that was dialed.
    Checked,
    /// Anything: whoever sits between can read and change all. For tries alone.
    Anything,
}

/// Secures dialed connections. Clones share what they show.
#[derive(Clone)]
pub struct Dialer(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    trust: Trust,
    connector: RwLock<TlsConnector>,
}

impl Dialer {
    /// Trusts `material`'s authorities and shows its certificate, if it has one, where it is asked for.
    ///
    /// # Errors
    /// No authority to trust, or certificate and key do not fit.
    pub fn new(clock: Arc<dyn Clock>, material: &Material, trust: Trust) -> Result<Dialer, Error> {
        let connector = RwLock::new(connector(&clock, material, trust)?);
        Ok(Dialer(Arc::new(Inner { clock, trust, connector })))
    }

    /// From now on new connections use this.
    ///
    /// # Errors
    /// As [`Dialer::new`]; the old material stays in use.
    pub fn renew(&self, material: &Material) -> Result<(), Error> {
        *self.0.connector.write() = connector(&self.0.clock, material, self.0.trust)?;
        Ok(())
    }

    /// Secures a connection to `host`, a name or an address. Has no timeout of its own.
    ///
    /// # Errors
    /// Why there is no secured connection. The other side may refuse our certificate only later: the first read then
    /// fails, and [`Error::of_io`] says why.
    pub async fn connect(&self, stream: BoxStream, host: &str) -> Result<BoxStream, Error> {
        let name = name(host)?;
        let connector = self.0.connector.read().clone();
        let stream = connector.connect(name, stream).await.map_err(|e| Error::of_handshake(&e))?;
        Ok(Box::new(Secured::open(stream.into())))
    }
}

/// `host` as certificates name it.
pub(crate) fn name(host: &str) -> Result<ServerName<'static>, Error> {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned())
        .map_err(|_| Error::new(Reason::WrongName, format!("{host} is no name that a certificate can have")))
}

fn connector(clock: &Arc<dyn Clock>, material: &Material, trust: Trust) -> Result<TlsConnector, Error> {
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_details(provider, Arc::new(EnvTime(clock.clone())))
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::of_tls(&e))?;
    let builder = match (trust, &material.roots) {
        (Trust::Anything, _) => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustsAnything(algorithms)))
        }
        (Trust::Checked, Some(roots)) => builder.with_root_certificates(roots.clone()),
        (Trust::Checked, None) => {
            return Err(Error::new(
                Reason::Files,
                "no authority to trust: the file of its certificate is missing",
            ));
        }
    };
    let config = match &material.shown {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(|e| Error::new(Reason::Files, format!("certificate and key do not fit: {e}")))?,
        None => builder.with_no_client_auth(),
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// [`Trust::Anything`].
#[derive(Debug)]
struct TrustsAnything(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for TrustsAnything {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
