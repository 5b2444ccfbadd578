//! Where a client's commands go.

use std::time::Duration;

use anyhow::{Result, anyhow};
use weir_tests::client::{ClusterClient, slot_map};
use weir_tests::slots::slot_of;

use crate::load::speech::Speech;

/// A single server, the leaders of a cluster, or the leaders of NATS' streams.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Single(String, Speech),
    Cluster(Vec<(u16, u16, String)>),
    /// Stream `sN` is led by the N-th address.
    Nats(Vec<String>),
}

impl Target {
    /// Asks a cluster who leads what.
    pub(crate) async fn cluster(seeds: &[String]) -> Result<Target> {
        Ok(Target::Cluster(slot_map(seeds).await.map_err(|e| anyhow!("no slot map: {e}"))?))
    }

    pub(crate) fn speech(&self) -> Speech {
        match self {
            Target::Single(_, speech) => *speech,
            Target::Cluster(_) => Speech::Resp,
            Target::Nats(_) => Speech::Nats,
        }
    }

    /// The address and the stream of a client.
    pub(crate) fn place(&self, label: &str, client: usize) -> (String, String) {
        let key = format!("bench:{label}:{client}");
        match self {
            Target::Single(address, _) => (address.clone(), key),
            Target::Cluster(_) => (self.address_of(&key), key),
            Target::Nats(leaders) => {
                let stream = client % leaders.len();
                (leaders[stream].clone(), format!("s{stream}.{key}"))
            }
        }
    }

    /// The address that answers for a key.
    pub(crate) fn address_of(&self, key: &str) -> String {
        match self {
            Target::Single(address, _) => address.clone(),
            Target::Nats(leaders) => leaders[0].clone(),
            Target::Cluster(rows) => {
                let slot = slot_of(key.as_bytes());
                let row = rows.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
                row.map_or_else(|| rows[0].2.clone(), |(_, _, leader)| leader.clone())
            }
        }
    }

    /// Deletes the streams of a round, where rounds would pile up.
    pub(crate) async fn delete(&self, label: &str, clients: usize) -> Result<()> {
        let seeds: Vec<String> = match self {
            Target::Single(address, Speech::Resp | Speech::RespWait) => vec![address.clone()],
            Target::Single(..) | Target::Nats(_) => return Ok(()),
            Target::Cluster(rows) => rows.iter().map(|(_, _, leader)| leader.clone()).collect(),
        };
        let mut client = ClusterClient::new(&seeds, Duration::from_secs(10));
        for n in 0..clients {
            let key = format!("bench:{label}:{n}");
            client.insist(&key, &["DEL", &key], Duration::from_secs(20)).await.map_err(|e| anyhow!(e))?;
        }
        Ok(())
    }
}
