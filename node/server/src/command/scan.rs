//! SCAN, KEYS and RANDOMKEY over the shards that this node leads.
//!
//! A cursor is a position in an order of slots and hashes of names ([`weir_stream::scan_position`]), so it means the same
//! on every node and after a change of leaders. Shards have no slots in common: what all of them answer is one stretch of
//! that order, cut where the first of them stopped.

use super::{ScanCall, glob};
use crate::node::Node;
use crate::shard::{Answer, ReadMode};
use bytes::Bytes;
use futures_util::future::join_all;
use weir_stream::{Query, Reply, scan_position};

/// Keys that one call looks at, whatever COUNT asks for: COUNT is a hint, and a long look holds up its shards.
const COUNT_MAX: u64 = 10_000;

/// A stretch of keys.
struct Stretch {
    keys: Vec<(Bytes, &'static str)>,
    /// 0 at the end.
    next: u64,
}

pub(super) async fn scan(node: &Node, call: &ScanCall) -> Reply {
    let stretch = stretch(node, call.cursor, call.count.min(COUNT_MAX)).await;
    let fits = |(key, kind): &(Bytes, &str)| {
        call.pattern.as_ref().is_none_or(|pattern| glob::fits_key(pattern, key))
            && call.type_name.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind.as_bytes()))
    };
    let keys = stretch.keys.into_iter().filter(fits).map(|(key, _)| Reply::Bulk(key)).collect();
    Reply::Array(vec![Reply::Bulk(Bytes::from(stretch.next.to_string())), Reply::Array(keys)])
}

pub(super) async fn keys(node: &Node, pattern: &[u8]) -> Reply {
    let mut found = Vec::new();
    let mut cursor = 0;
    loop {
        let stretch = stretch(node, cursor, COUNT_MAX).await;
        let fitting = stretch.keys.into_iter().filter(|(key, _)| glob::fits_key(pattern, key));
        found.extend(fitting.map(|(key, _)| Reply::Bulk(key)));
        cursor = stretch.next;
        if cursor == 0 {
            return Reply::Array(found);
        }
    }
}

/// The first key behind a place drawn at random, or the first of all.
pub(super) async fn random_key(node: &Node) -> Reply {
    let drawn = (node.env.rng.u64() >> 2).max(1);
    for cursor in [drawn, 0] {
        if let Some((key, _)) = stretch(node, cursor, 1).await.keys.into_iter().next() {
            return Reply::Bulk(key);
        }
    }
    Reply::NilBulk
}

/// About `count` keys from `cursor` on, in order.
async fn stretch(node: &Node, cursor: u64, count: u64) -> Stretch {
    let led = node.shards.led();
    let asked =
        led.iter().map(|shard| shard.read(Query::Scan { cursor, count }, ReadMode::Leader, None, None));
    let mut found: Vec<(u64, Bytes, &'static str)> = Vec::new();
    let mut next = 0;
    for answer in join_all(asked).await {
        // A shard that went elsewhere meanwhile is scanned there.
        let Answer::Reply { reply: Reply::Array(rows), .. } = answer else { continue };
        let mut rows = rows.into_iter();
        if let Some(Reply::Int(stopped)) = rows.next()
            && stopped > 0
        {
            next = if next == 0 { stopped as u64 } else { next.min(stopped as u64) };
        }
        while let (Some(Reply::Bulk(key)), Some(Reply::Simple(kind))) = (rows.next(), rows.next()) {
            found.push((scan_position(&key), key, kind));
        }
    }
    found.retain(|(position, ..)| next == 0 || *position < next);
    found.sort_unstable();
    Stretch { keys: found.into_iter().map(|(_, key, kind)| (key, kind)).collect(), next }
}
