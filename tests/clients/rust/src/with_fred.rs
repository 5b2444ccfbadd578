//! fred, a clustered `Client`.

use crate::life::{self, Fields, Result, Rows};
use fred::prelude::*;
use fred::types::RespVersion;
use fred::types::streams::XReadResponse;
use std::time::Duration;

#[derive(Clone)]
pub struct Fred {
    client: Client,
    /// One connection a node: a blocking read needs a client of its own.
    blocking: Client,
}

pub async fn connect(port: u16, protocol: u8) -> Result<Fred> {
    let client = || {
        Builder::from_config(Config {
            server: ServerConfig::new_clustered(vec![("127.0.0.1", port)]),
            version: if protocol == 2 { RespVersion::RESP2 } else { RespVersion::RESP3 },
            ..Config::default()
        })
        .with_performance_config(|config| config.default_command_timeout = Duration::from_secs(15))
        .set_policy(ReconnectPolicy::new_constant(0, 100))
        .build()
    };
    let (client, blocking) = (client()?, client()?);
    client.init().await?;
    blocking.init().await?;
    Ok(Fred { client, blocking })
}

impl life::Client for Fred {
    async fn add(&self, key: &str, fields: Fields<'_>) -> Result<String> {
        Ok(self.client.xadd(key, false, None, "*", fields.to_vec()).await?)
    }

    async fn range(&self, key: &str) -> Result<Rows> {
        Ok(self.client.xrange_values(key, "-", "+", None).await?)
    }

    async fn create_group(&self, key: &str, group: &str) -> Result<()> {
        Ok(self.client.xgroup_create(key, group, "0", false).await?)
    }

    async fn read_group(&self, key: &str, group: &str, consumer: &str, count: usize) -> Result<Rows> {
        let count = Some(count as u64);
        only(self.client.xreadgroup_map(group, consumer, count, None, false, key, ">").await?)
    }

    async fn blocking_read(&self, key: &str, wait: Duration) -> Result<Rows> {
        only(self.blocking.xread_map(None, Some(wait.as_millis() as u64), key, "$").await?)
    }

    async fn ack(&self, key: &str, group: &str, ids: &[String]) -> Result<usize> {
        Ok(self.client.xack(key, group, ids.to_vec()).await?)
    }

    async fn pending(&self, key: &str, group: &str) -> Result<usize> {
        let summary: Vec<Value> = self.client.xpending(key, group, ()).await?;
        Ok(summary.into_iter().next().ok_or("no summary")?.convert()?)
    }

    async fn claim(&self, key: &str, group: &str, consumer: &str, count: usize) -> Result<Rows> {
        let count = Some(count as u64);
        let (_, rows) = self.client.xautoclaim_values(key, group, consumer, 0, "0-0", count, false).await?;
        Ok(rows)
    }
}

fn only(reply: XReadResponse<String, String, String, String>) -> Result<Rows> {
    Ok(reply.into_values().next().unwrap_or_default())
}
