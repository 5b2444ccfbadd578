use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use weir_env::Disk;

use crate::{Error, Reason};

/// Where certificates and keys are, as PEM. Empty paths name nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// The certificate to show, followed by those between it and the authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities that others must be signed by.
    pub ca: PathBuf,
}

/// What stands in the files. Read as a whole, so that a certificate and its key fit.
pub struct Material {
    pub(crate) shown: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    pub(crate) roots: Option<Arc<RootCertStore>>,
    /// The bytes of the files, to notice a change.
    bytes: [Vec<u8>; 3],
}

impl Files {
    /// Reads all of them.
    ///
    /// # Errors
    /// Which file, and what is wrong with it.
    pub fn read(&self, disk: &dyn Disk) -> Result<Material, Error> {
        let bytes = self.bytes(disk)?;
        let [cert, key, ca] = &bytes;
        let shown = match (self.cert.as_os_str().is_empty(), self.key.as_os_str().is_empty()) {
            (true, true) => None,
            (false, false) => Some((certificates(&self.cert, cert)?, private_key(&self.key, key)?)),
            _ => return Err(Error::new(Reason::Files, "a certificate and its key are needed together")),
        };
        let roots = match self.ca.as_os_str().is_empty() {
            true => None,
            false => Some(roots(&self.ca, ca)?),
        };
        Ok(Material { shown, roots, bytes })
    }

    /// Whether the files hold something else than what `material` was read from. Unreadable files are told by
    /// [`Files::read`].
    pub fn changed(&self, disk: &dyn Disk, material: &Material) -> bool {
        self.bytes(disk).map_or(true, |now| now != material.bytes)
    }

    fn bytes(&self, disk: &dyn Disk) -> Result<[Vec<u8>; 3], Error> {
        let read = |path: &Path| match path.as_os_str().is_empty() {
            true => Ok(Vec::new()),
            false => disk.read(path).map_err(|e| bad(path, &format!("cannot be read: {e}"))),
        };
        Ok([read(&self.cert)?, read(&self.key)?, read(&self.ca)?])
    }
}

impl std::fmt::Debug for Material {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material").field("shown", &self.shown.is_some()).finish_non_exhaustive()
    }
}

fn bad(path: &Path, what: &str) -> Error {
    Error::new(Reason::Files, format!("{} {what}", path.display()))
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(bad(path, "holds no certificate in PEM form")),
        Ok(all) => Ok(all),
        Err(e) => Err(bad(path, &format!("is not PEM: {e}"))),
    }
}

fn private_key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| bad(path, "holds no private key in PEM form (keys with a password are not read)"))
}

fn roots(path: &Path, pem: &[u8]) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, pem)? {
        roots
            .add(certificate)
            .map_err(|e| bad(path, &format!("holds a certificate that cannot be used: {e}")))?;
    }
    Ok(Arc::new(roots))
}
