//! Where a key's commands go.

use anyhow::{Result, anyhow};
use weir_tests::client::slot_map;
use weir_tests::slots::slot_of;

/// A single server, or the leaders of a cluster.
#[derive(Debug)]
pub(crate) enum Target {
    Single(String),
    Cluster(Vec<(u16, u16, String)>),
}

impl Target {
    /// Asks a cluster who leads what.
    pub(crate) async fn cluster(seeds: &[String]) -> Result<Target> {
        Ok(Target::Cluster(slot_map(seeds).await.map_err(|e| anyhow!("no slot map: {e}"))?))
    }

    /// The address that answers for a key.
    pub(crate) fn address_of(&self, key: &str) -> String {
        match self {
            Target::Single(address) => address.clone(),
            Target::Cluster(rows) => {
                let slot = slot_of(key.as_bytes());
                let row = rows.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
                row.map_or_else(|| rows[0].2.clone(), |(_, _, leader)| leader.clone())
            }
        }
    }
}
