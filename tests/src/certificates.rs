//! Certificates for tests, made on the spot.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use std::path::{Path, PathBuf};

/// An authority that signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// What a certificate is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Good {
    /// Now.
    Now,
    /// Until the year 2020.
    Past,
    /// From the year 2200.
    Future,
}

/// Files with a certificate and its key.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Authority {
    /// A new one.
    ///
    /// # Panics
    /// No random bytes.
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        // Clients show nothing to a server that names other authorities.
        let name = format!("authority {}", rand::random::<u64>());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// Writes its certificate to `dir/name.crt`.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn write(&self, dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(format!("{name}.crt"));
        std::fs::write(&path, &self.pem).expect("written");
        path
    }

    /// Signs a certificate for these hosts (names or addresses), for both sides of a connection, and writes it to
    /// `dir/name.crt` and `dir/name.key`, over what is there.
    ///
    /// # Panics
    /// They cannot be written.
    pub fn sign(&self, dir: &Path, name: &str, hosts: &[&str], good: Good) -> Pair {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        match good {
            Good::Now => {}
            Good::Past => params.not_after = date_time_ymd(2020, 1, 1),
            Good::Future => params.not_before = date_time_ymd(2200, 1, 1),
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let pair = Pair { cert: dir.join(format!("{name}.crt")), key: dir.join(format!("{name}.key")) };
        std::fs::write(&pair.cert, certificate.pem()).expect("written");
        std::fs::write(&pair.key, key.serialize_pem()).expect("written");
        pair
    }
}

impl Default for Authority {
    fn default() -> Self {
        Authority::new()
    }
}
