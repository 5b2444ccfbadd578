//! redis-rs, `ClusterClient` and its asynchronous connection.

use crate::life::{Client, Fields, Result, Rows};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::streams::{
    StreamAutoClaimOptions, StreamAutoClaimReply, StreamId, StreamPendingReply, StreamRangeReply,
    StreamReadOptions, StreamReadReply,
};
use redis::{AsyncCommands, ProtocolVersion};
use std::time::Duration;

#[derive(Clone)]
pub struct RedisRs {
    connection: ClusterConnection,
    /// One connection a node: a blocking read needs a client of its own.
    blocking: ClusterConnection,
}

pub async fn connect(port: u16, protocol: u8) -> Result<RedisRs> {
    let client = |timeout| {
        let protocol = if protocol == 2 { ProtocolVersion::RESP2 } else { ProtocolVersion::RESP3 };
        ClusterClient::builder([format!("redis://127.0.0.1:{port}")])
            .use_protocol(protocol)
            .response_timeout(Duration::from_secs(timeout))
            .build()
    };
    let connection = client(5)?.get_async_connection().await?;
    let blocking = client(15)?.get_async_connection().await?;
    Ok(RedisRs { connection, blocking })
}

impl Client for RedisRs {
    async fn add(&self, key: &str, fields: Fields<'_>) -> Result<String> {
        Ok(self.connection.clone().xadd(key, "*", fields).await?)
    }

    async fn range(&self, key: &str) -> Result<Rows> {
        let reply: StreamRangeReply = self.connection.clone().xrange_all(key).await?;
        rows(reply.ids)
    }

    async fn create_group(&self, key: &str, group: &str) -> Result<()> {
        Ok(self.connection.clone().xgroup_create(key, group, "0").await?)
    }

    async fn read_group(&self, key: &str, group: &str, consumer: &str, count: usize) -> Result<Rows> {
        let options = StreamReadOptions::default().group(group, consumer).count(count);
        only(self.connection.clone().xread_options(&[key], &[">"], &options).await?)
    }

    async fn blocking_read(&self, key: &str, wait: Duration) -> Result<Rows> {
        let options = StreamReadOptions::default().block(wait.as_millis() as usize);
        only(self.blocking.clone().xread_options(&[key], &["$"], &options).await?)
    }

    async fn ack(&self, key: &str, group: &str, ids: &[String]) -> Result<usize> {
        Ok(self.connection.clone().xack(key, group, ids).await?)
    }

    async fn pending(&self, key: &str, group: &str) -> Result<usize> {
        let reply: StreamPendingReply = self.connection.clone().xpending(key, group).await?;
        Ok(reply.count())
    }

    async fn claim(&self, key: &str, group: &str, consumer: &str, count: usize) -> Result<Rows> {
        let options = StreamAutoClaimOptions::default().count(count);
        let reply: StreamAutoClaimReply =
            self.connection.clone().xautoclaim_options(key, group, consumer, 0, "0-0", options).await?;
        rows(reply.claimed)
    }
}

fn rows(ids: Vec<StreamId>) -> Result<Rows> {
    ids.into_iter()
        .map(|entry| {
            let fields = entry.map.iter().map(|(k, v)| Ok((k.clone(), redis::from_redis_value_ref(v)?)));
            Ok((entry.id.clone(), fields.collect::<Result<_>>()?))
        })
        .collect()
}

fn only(reply: Option<StreamReadReply>) -> Result<Rows> {
    reply.and_then(|reply| reply.keys.into_iter().next()).map_or(Ok(Rows::new()), |stream| rows(stream.ids))
}
