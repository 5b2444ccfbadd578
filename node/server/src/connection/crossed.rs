//! EXEC of a transaction that crosses slots while keys are watched: whether they changed is said first, as in Redis.

use super::Connection;
use super::dispatch::ABORTED;
use super::in_flight::{Finish, Job};
use crate::command::error;
use crate::command::table::Row;
use crate::listener::Kind;
use crate::route::{Access, Redirect};
use bytes::Bytes;
use weir_stream::{Query, Reply, key_slot};

/// What the look at the watched keys decides.
pub(super) struct Crossed {
    /// As WATCH was answered.
    versions: Vec<u64>,
    /// A command was refused when it was queued.
    broken: bool,
    tls: bool,
}

impl Crossed {
    /// EXEC's answer, once the versions are known.
    pub(super) fn answer(self, found: Reply) -> Reply {
        let Reply::Array(found) = found else { return found };
        let same =
            |(reply, known): (&Reply, &u64)| matches!(reply, Reply::Int(n) if n.unsigned_abs() == *known);
        let unchanged = found.len() == self.versions.len() && found.iter().zip(&self.versions).all(same);
        match (unchanged, self.broken) {
            (true, _) => error(Redirect::CrossSlot.line(self.tls)),
            (false, true) => error(ABORTED),
            (false, false) => Reply::NilArray,
        }
    }
}

impl Connection {
    /// Whether the transaction, or it and what is watched, is spread over slots, so that EXEC has to look at what is
    /// watched and to wait for the writes before it.
    pub(super) fn has_crossed(&self) -> bool {
        let Some(transaction) = &self.session.transaction else { return false };
        let watched = self.session.watched.first().map(|(key, _)| key_slot(key));
        watched.is_some_and(|slot| {
            transaction.crosses_slots || transaction.slot.is_some_and(|other| other != slot)
        })
    }

    /// Answers EXEC of such a transaction.
    pub(super) fn refuse_crossed(&mut self, row: &'static Row, watched: Vec<(Bytes, u64)>, broken: bool) {
        let (keys, versions): (Vec<Bytes>, Vec<u64>) = watched.into_iter().unzip();
        let slot = keys.first().map(|key| key_slot(key));
        let crossed = Crossed { versions, broken, tls: self.session.client.kind == Kind::Tls };
        let look = Job::Read(Query::Versions { keys }, Access::Read, None);
        self.submit(row, slot, look, 0, Some(Finish::Crossed(Box::new(crossed))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_key_is_said_before_the_slots() {
        let answer = |broken, found: Vec<Reply>| {
            Crossed { versions: vec![3, 4], broken, tls: false }.answer(Reply::Array(found))
        };
        let same = || vec![Reply::Int(3), Reply::Int(4)];
        let crossed = error(Redirect::CrossSlot.to_string());
        assert_eq!((answer(false, same()), answer(true, same())), (crossed.clone(), crossed));
        assert_eq!(answer(false, vec![Reply::Int(3), Reply::Int(5)]), Reply::NilArray);
        assert_eq!(answer(true, vec![Reply::Int(9), Reply::Int(4)]), error(ABORTED));
    }
}
