//! The keys that a command or query names: for routing, for the ownership check, for expiry.

use crate::{Command, GroupReadId, Key, Op, Query, ReadId};
use alloc::boxed::Box;
use bytes::Bytes;
use core::slice;

/// Keys in the order in which they were given; a key given twice comes twice.
pub struct Keys<'a>(Inner<'a>);

enum Inner<'a> {
    None,
    One(&'a Key),
    Two(&'a Key, &'a Key),
    Many(slice::Iter<'a, Key>),
    Read(slice::Iter<'a, (Key, ReadId)>),
    GroupRead(slice::Iter<'a, (Key, GroupReadId)>),
    Ops(slice::Iter<'a, Op>, Box<Keys<'a>>),
    Pairs(slice::Iter<'a, (Key, Bytes)>),
    Watched(slice::Iter<'a, (Key, u64)>, slice::Iter<'a, Op>),
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a Key;

    fn next(&mut self) -> Option<&'a Key> {
        match &mut self.0 {
            Inner::None => None,
            Inner::One(key) => {
                let key = *key;
                self.0 = Inner::None;
                Some(key)
            }
            Inner::Two(first, second) => {
                let (first, second) = (*first, *second);
                self.0 = Inner::One(second);
                Some(first)
            }
            Inner::Many(keys) => keys.next(),
            Inner::Read(keys) => keys.next().map(|(key, _)| key),
            Inner::GroupRead(keys) => keys.next().map(|(key, _)| key),
            Inner::Pairs(pairs) => pairs.next().map(|(key, _)| key),
            Inner::Watched(watched, ops) => match watched.next() {
                Some((key, _)) => Some(key),
                None => {
                    self.0 = Inner::Ops(ops.clone(), Box::new(Keys(Inner::None)));
                    self.next()
                }
            },
            Inner::Ops(ops, now) => loop {
                if let Some(key) = now.next() {
                    return Some(key);
                }
                **now = ops.next()?.keys();
            },
        }
    }
}

impl Command {
    /// The keys that the command names; none for the commands that concern the whole shard.
    pub fn keys(&self) -> Keys<'_> {
        Keys(match self {
            Command::Xadd(add) => Inner::One(&add.key),
            Command::Xreadgroup(read) => Inner::GroupRead(read.keys.iter()),
            Command::Xclaim(claim) => Inner::One(&claim.key),
            Command::Xnack(nack) => Inner::One(&nack.key),
            Command::XreadgroupWithin { read, .. } => Inner::GroupRead(read.keys.iter()),
            Command::WithRefs { command, .. } => return command.keys(),
            Command::Set(set) => Inner::One(&set.key),
            Command::Xdel { key, .. }
            | Command::Xtrim { key, .. }
            | Command::Xsetid { key, .. }
            | Command::Xgroup { key, .. }
            | Command::Xack { key, .. }
            | Command::Xautoclaim { key, .. }
            | Command::Expire { key, .. }
            | Command::Persist { key }
            | Command::Xcfgset { key, .. }
            | Command::Xdelex { key, .. }
            | Command::Xackdel { key, .. }
            | Command::Xidmprecord { key, .. }
            | Command::TouchConsumer { key, .. } => Inner::One(key),
            Command::Rename { from, to, .. } | Command::Copy { from, to, .. } => Inner::Two(from, to),
            Command::EditString { key, .. } | Command::Restore { key, .. } => Inner::One(key),
            Command::SetMany { pairs, .. } => Inner::Pairs(pairs.iter()),
            Command::Del { keys } | Command::ExpireDue { keys } => Inner::Many(keys.iter()),
            Command::ExecWatched { watched, ops } => Inner::Watched(watched.iter(), ops.iter()),
            Command::Exec(ops) => Inner::Ops(ops.iter(), Box::new(Keys(Inner::None))),
            Command::SetOwnedSlots { .. } | Command::Configure(_) | Command::Flush => Inner::None,
        })
    }
}

impl Query {
    /// The keys that the query names; none for queries about slots or the whole shard.
    pub fn keys(&self) -> Keys<'_> {
        Keys(match self {
            Query::Xread { keys, .. } | Query::XreadWithin { keys, .. } => Inner::Read(keys.iter()),
            Query::Exists { keys }
            | Query::Versions { keys }
            | Query::GetMany { keys }
            | Query::HaveGroup { keys, .. } => Inner::Many(keys.iter()),
            Query::Xlen { key }
            | Query::Xrange { key, .. }
            | Query::Xpending { key, .. }
            | Query::XinfoStream { key, .. }
            | Query::XinfoGroups { key }
            | Query::XinfoConsumers { key, .. }
            | Query::Digest { key }
            | Query::Get { key }
            | Query::Strlen { key }
            | Query::GetRange { key, .. }
            | Query::Encoding { key }
            | Query::RefCount { key }
            | Query::MemoryUsage { key }
            | Query::Type { key }
            | Query::Ttl { key, .. }
            | Query::Dump { key } => Inner::One(key),
            Query::CountKeysInSlot { .. }
            | Query::GetKeysInSlot { .. }
            | Query::KeyCount
            | Query::Scan { .. } => Inner::None,
        })
    }
}

impl Op {
    /// The keys that the element names.
    pub fn keys(&self) -> Keys<'_> {
        match self {
            Op::Command(command) => command.keys(),
            Op::Query(query) => query.keys(),
            Op::Answer(_) => Keys(Inner::None),
        }
    }
}
