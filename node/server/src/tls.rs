//! What this node shows on secured connections, and the files that it comes from.
//!
//! The files are looked at every [`LOOK`] and when the operator says so (SIGHUP, CONFIG SET). What cannot be used is
//! told once, and what was read before stays in use.

use crate::config::{Config, TlsAuthClients};
use crate::error::Error;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use weir_env::Env;
use weir_env::time::sleep;
use weir_tls::{ClientAuth, Files, Material, PeerNet, Server};

/// A changed file is noticed within this time.
const LOOK: Duration = Duration::from_secs(2);

/// See the module.
pub struct Tls {
    env: Env,
    current: Mutex<Current>,
    clients: Option<Server>,
    peers: Option<PeerNet>,
}

struct Current {
    files: Files,
    material: Material,
    /// What was last wrong with the files, so that it is told once.
    trouble: Option<weir_tls::Error>,
}

impl Tls {
    /// Reads the files if `config` has anything secured.
    ///
    /// # Errors
    /// They are missing or do not fit.
    pub fn open(env: &Env, config: &Config) -> Result<Option<Arc<Tls>>, Error> {
        if config.tls_port == 0 && !config.tls_cluster {
            return Ok(None);
        }
        let files = Files {
            cert: config.tls_cert_file.clone(),
            key: config.tls_key_file.clone(),
            ca: config.tls_ca_cert_file.clone(),
        };
        let refused = |e: weir_tls::Error| Error::Refused(format!("TLS: {e}"));
        let material = files.read(&*env.disk).map_err(refused)?;
        let auth = match config.tls_auth_clients {
            TlsAuthClients::No => ClientAuth::No,
            TlsAuthClients::Optional => ClientAuth::Optional,
            TlsAuthClients::Yes => ClientAuth::Yes,
        };
        let clients = match config.tls_port {
            0 => None,
            _ => Some(Server::new(env.clock.clone(), &material, auth, Vec::new()).map_err(refused)?),
        };
        let hosts = config.cluster.iter().map(|member| member.host.clone()).collect();
        let peers = match config.tls_cluster {
            false => None,
            true => {
                Some(PeerNet::new(env.net.clone(), env.clock.clone(), &material, hosts).map_err(refused)?)
            }
        };
        let current = Mutex::new(Current { files, material, trouble: None });
        Ok(Some(Arc::new(Tls { env: env.clone(), current, clients, peers })))
    }

    /// Secures the connections of clients.
    pub fn clients(&self) -> Option<&Server> {
        self.clients.as_ref()
    }

    /// The world in which connections to other nodes are secured.
    pub fn peer_env(&self) -> Env {
        match &self.peers {
            Some(net) => Env { net: Arc::new(net.clone()), ..self.env.clone() },
            None => self.env.clone(),
        }
    }

    /// Reads the files if they changed; whether they did.
    ///
    /// # Errors
    /// They cannot be used; the old material stays in use.
    pub fn reload(&self) -> Result<bool, weir_tls::Error> {
        let mut current = self.current.lock();
        if !current.files.changed(&*self.env.disk, &current.material) {
            current.trouble = None;
            return Ok(false);
        }
        let files = current.files.clone();
        match self.take(&files) {
            Ok(material) => {
                *current = Current { files, material, trouble: None };
                tracing::info!("new certificates are in use");
                Ok(true)
            }
            Err(error) => {
                if current.trouble.as_ref() != Some(&error) {
                    tracing::warn!(%error, "changed certificates cannot be used, the old ones stay");
                }
                current.trouble = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Uses other files from now on (CONFIG SET).
    ///
    /// # Errors
    /// They cannot be used; the old ones stay.
    pub fn set_files(&self, change: impl FnOnce(&mut Files)) -> Result<(), weir_tls::Error> {
        let mut current = self.current.lock();
        let mut files = current.files.clone();
        change(&mut files);
        let material = self.take(&files)?;
        *current = Current { files, material, trouble: None };
        tracing::info!("new certificates are in use");
        Ok(())
    }

    /// The files in use.
    pub fn files(&self) -> Files {
        self.current.lock().files.clone()
    }

    fn take(&self, files: &Files) -> Result<Material, weir_tls::Error> {
        let material = files.read(&*self.env.disk)?;
        if let Some(clients) = &self.clients {
            clients.renew(&material)?;
        }
        if let Some(peers) = &self.peers {
            peers.renew(&material)?;
        }
        Ok(material)
    }

    /// Notices changed files until it is dropped.
    pub async fn watch(self: Arc<Self>) {
        loop {
            sleep(LOOK).await;
            let (done, looked) = oneshot::channel();
            let tls = self.clone();
            self.env.spawn.blocking(
                "certificates",
                Box::new(move || {
                    // Told by `reload`.
                    let _ = tls.reload();
                    let _ = done.send(());
                }),
            );
            let _ = looked.await;
        }
    }
}
