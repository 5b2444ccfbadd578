//! The types that fill in the consensus library's parameters, and nothing else knows them.

use std::fmt;

use bytes::Bytes;
use openraft::BasicNode;
use openraft::impls::leader_id_std::LeaderId;
use serde::{Deserialize, Serialize};
use weir_store::LogPosition;

use crate::Nonce;
use crate::propose::Ticket;
use crate::runtime::Runtime;

/// Number of a node inside the cluster; permanent, small, never reused.
pub type NodeId = u64;

/// The consensus library's parameters. One leader a term, so a log id is (term, index).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TypeConfig;

impl openraft::RaftTypeConfig for TypeConfig {
    type D = Proposal;
    type R = ();
    type NodeId = NodeId;
    type Node = BasicNode;
    type Term = u64;
    type LeaderId = LeaderId<u64, NodeId>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Proposal, NodeId, BasicNode>;
    type Entry = openraft::Entry<CommittedLeaderId, Self::Payload>;
    type AsyncRuntime = Runtime;
    type Responder<T>
        = Ticket
    where
        T: Send + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: Send + 'static;
    type ErrorSource = Cause;
}

/// What went wrong below the consensus library, in the words of whoever noticed it. The library's own type tells the
/// kinds of all errors of a chain, and each of their texts again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cause(String);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cause {}

impl openraft::errors::ErrorSource for Cause {
    fn from_error<E: std::error::Error + 'static>(error: &E) -> Self {
        Self(error.to_string())
    }

    fn from_string(message: impl ToString) -> Self {
        Self(message.to_string())
    }
}

/// Why the library stopped, without the dump of what it was doing.
pub(crate) fn why(error: &(dyn std::error::Error + 'static)) -> String {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(Cause(text)) = error.downcast_ref() {
            return text.clone();
        }
        next = error.source();
    }
    error.to_string()
}

/// What a client batch looks like to consensus: opaque bytes.
///
/// The nonce names the waiting proposal inside the proposing process. It is never encoded, so an entry
/// that arrives from a peer or from disk carries none and cannot be mistaken for a local proposal.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Proposal {
    pub(crate) payload: Bytes,
    #[serde(skip)]
    pub(crate) nonce: Option<Nonce>,
}

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.payload.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

pub(crate) type CommittedLeaderId = <LeaderId<u64, NodeId> as openraft::vote::RaftLeaderId>::Committed;
pub(crate) type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = openraft::alias::VoteOf<TypeConfig>;
pub(crate) type Entry = openraft::alias::EntryOf<TypeConfig>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type Raft = openraft::Raft<TypeConfig, crate::machine::Applier>;

pub(crate) fn position(id: &LogId) -> LogPosition {
    LogPosition { term: id.leader_id.term, index: id.index }
}

pub(crate) fn log_id(position: LogPosition) -> LogId {
    LogId::new(CommittedLeaderId::new(position.term), position.index)
}
