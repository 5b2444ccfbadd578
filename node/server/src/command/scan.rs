//! SCAN, KEYS and RANDOMKEY over the shards that this node leads; at the plain port, over all.
//!
//! A cursor is a position in an order of slots and hashes of names ([`weir_stream::scan_position`]), so it means the same
//! on every node and after a change of leaders. Shards have no slots in common: what all of them answer is one stretch of
//! that order, cut where the first of them stopped.

use super::whole::read_shards;
use super::{ScanCall, glob};
use crate::node::Node;
use bytes::Bytes;
use std::sync::Arc;
use weir_stream::{Query, Reply, scan_position};

/// Keys that one call looks at, whatever COUNT asks for: COUNT is a hint, and a long look holds up its shards.
const COUNT_MAX: u64 = 10_000;

/// A stretch of keys.
struct Stretch {
    keys: Vec<(Bytes, &'static str)>,
    /// 0 at the end.
    next: u64,
}

pub(super) async fn scan(node: &Arc<Node>, call: &ScanCall, whole: bool) -> Reply {
    let stretch = match stretch(node, call.cursor, call.count.min(COUNT_MAX), whole).await {
        Ok(stretch) => stretch,
        Err(refused) => return refused,
    };
    let fits = |(key, kind): &(Bytes, &str)| {
        call.pattern.as_ref().is_none_or(|pattern| glob::fits_key(pattern, key))
            && call.type_name.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind.as_bytes()))
    };
    let keys = stretch.keys.into_iter().filter(fits).map(|(key, _)| Reply::Bulk(key)).collect();
    Reply::Array(vec![Reply::Bulk(Bytes::from(stretch.next.to_string())), Reply::Array(keys)])
}

pub(super) async fn keys(node: &Arc<Node>, pattern: &[u8], whole: bool) -> Reply {
    let mut found = Vec::new();
    let mut cursor = 0;
    loop {
        let stretch = match stretch(node, cursor, COUNT_MAX, whole).await {
            Ok(stretch) => stretch,
            Err(refused) => return refused,
        };
        let fitting = stretch.keys.into_iter().filter(|(key, _)| glob::fits_key(pattern, key));
        found.extend(fitting.map(|(key, _)| Reply::Bulk(key)));
        cursor = stretch.next;
        if cursor == 0 {
            return Reply::Array(found);
        }
    }
}

/// The first key behind a place drawn at random, or the first of all.
pub(super) async fn random_key(node: &Arc<Node>, whole: bool) -> Reply {
    let drawn = (node.env.rng.u64() >> 2).max(1);
    for cursor in [drawn, 0] {
        match stretch(node, cursor, 1, whole).await {
            Err(refused) => return refused,
            Ok(stretch) => {
                if let Some((key, _)) = stretch.keys.into_iter().next() {
                    return Reply::Bulk(key);
                }
            }
        }
    }
    Reply::NilBulk
}

/// About `count` keys from `cursor` on, in order.
async fn stretch(node: &Arc<Node>, cursor: u64, count: u64, whole: bool) -> Result<Stretch, Reply> {
    let mut found: Vec<(u64, Bytes, &'static str)> = Vec::new();
    let mut next = 0;
    for reply in read_shards(node, &Query::Scan { cursor, count }, whole).await? {
        let Reply::Array(rows) = reply else { continue };
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
    Ok(Stretch { keys: found.into_iter().map(|(_, key, kind)| (key, kind)).collect(), next })
}
