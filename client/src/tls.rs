//! TLS of a client.

use crate::error::Error;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use weir_env::{BoxStream, Env};
use weir_tls::{Dialer, Files, Material, Trust};

/// How a client secures its connections. Files are in PEM form; a changed one is read for the next connection.
///
/// ```
/// use weir_client::{Options, Tls};
/// let tls = Tls::trusting("ca.crt").certificate("app.crt", "app.key");
/// let options = Options::default().tls(tls).user("app", "secret");
/// ```
#[derive(Debug, Clone)]
pub struct Tls {
    files: Files,
    server_name: Option<String>,
    trust: Trust,
}

impl Tls {
    /// Trusts servers whose certificates are signed by these authorities and name the host that was dialed.
    pub fn trusting(ca_file: impl Into<PathBuf>) -> Tls {
        let files = Files { ca: ca_file.into(), ..Files::default() };
        Tls { files, server_name: None, trust: Trust::Checked }
    }

    /// Trusts any server. Whoever sits between client and server can read and change everything: for tries alone.
    pub fn insecure() -> Tls {
        Tls { files: Files::default(), server_name: None, trust: Trust::Anything }
    }

    /// Shows a certificate to servers that ask for one (`tls-auth-clients`).
    pub fn certificate(mut self, cert_file: impl Into<PathBuf>, key_file: impl Into<PathBuf>) -> Tls {
        (self.files.cert, self.files.key) = (cert_file.into(), key_file.into());
        self
    }

    /// The name that every server's certificate must have, instead of the host that was dialed.
    pub fn server_name(mut self, name: impl Into<String>) -> Tls {
        self.server_name = Some(name.into());
        self
    }

    /// Reads the files.
    pub(crate) fn open(&self, env: &Env) -> Result<Secure, Error> {
        let wrong = |error| Error::Tls { addr: None, error };
        let material = self.files.read(&*env.disk).map_err(wrong)?;
        let dialer = Dialer::new(env.clock.clone(), &material, self.trust).map_err(wrong)?;
        Ok(Secure(Arc::new(Inner {
            tls: self.clone(),
            env: env.clone(),
            material: Mutex::new(material),
            dialer,
        })))
    }
}

/// Secures connections as [`Tls`] says.
#[derive(Clone)]
pub(crate) struct Secure(Arc<Inner>);

struct Inner {
    tls: Tls,
    env: Env,
    material: Mutex<Material>,
    dialer: Dialer,
}

impl Secure {
    /// Secures a connection to `addr` (`host:port`).
    pub(crate) async fn connect(&self, stream: BoxStream, addr: &str) -> Result<BoxStream, weir_tls::Error> {
        self.renew();
        let dialed = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
        let host = self.0.tls.server_name.as_deref().unwrap_or(dialed);
        self.0.dialer.connect(stream, host).await
    }

    /// Takes changed files. Half-written ones are left for the next connection.
    fn renew(&self) {
        let (disk, files) = (&*self.0.env.disk, &self.0.tls.files);
        let mut material = self.0.material.lock();
        if files.changed(disk, &material)
            && let Ok(now) = files.read(disk)
            && self.0.dialer.renew(&now).is_ok()
        {
            *material = now;
        }
    }
}
